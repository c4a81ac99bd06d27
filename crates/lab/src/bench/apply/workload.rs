//! The workloads: the tables, their initial rows, and the transactions of each client. This module does no
//! I/O. It generates SQL text from a seed.

use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::arguments::ApplyWorkload;

/// The schema of all tables.
pub const SCHEMA: &str = "tw_bench";
/// Number of tables in workloads modelled on sysbench.
const SYSBENCH_TABLES: u32 = 10;
/// Number of columns of a wide row, including its key. Every third column is text.
const WIDE_COLUMNS: u32 = 60;
/// Number of characters in a text column of a wide row. With this length, a row has about 4 KiB.
const WIDE_TEXT_CHARS: usize = 198;
/// The exponent of the skewed distribution of the hot rows. With 1, the most frequently changed of ten
/// thousand rows gets about a tenth of all changes.
const HOT_EXPONENT: f64 = 1.0;
/// Number of rows in one statement that fills a table.
const FILL_ROWS: u32 = 500;

/// Parameters of a workload.
#[derive(Debug, Clone, Copy)]
pub struct ApplyLoad {
    /// The kind of workload.
    pub kind: ApplyWorkload,
    /// Number of rows in all tables together before the backlog.
    pub rows: u32,
}

/// The next transaction of a client.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientTransaction {
    /// All statements of the transaction. They are sent at once.
    pub sql: String,
    /// Number of rows that the transaction changes.
    pub rows: u64,
}

impl ApplyLoad {
    fn tables(&self) -> u32 {
        match self.kind {
            ApplyWorkload::OltpWriteOnly | ApplyWorkload::OltpInsert => SYSBENCH_TABLES,
            _ => 1,
        }
    }

    /// Returns the number of initial rows in each table.
    fn table_rows(&self) -> u32 {
        (self.rows / self.tables()).max(1)
    }

    /// Returns the statements that create the tables.
    pub fn schema(&self) -> Vec<String> {
        (1..=self.tables()).map(|table| self.table(table)).collect()
    }

    fn table(&self, table: u32) -> String {
        match self.kind {
            ApplyWorkload::OltpWriteOnly | ApplyWorkload::OltpInsert => format!(
                "CREATE TABLE {SCHEMA}.sbtest{table} (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, \
                 c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', KEY k_{table} (k))"
            ),
            ApplyWorkload::UpdateHotRows => {
                format!(
                    "CREATE TABLE {SCHEMA}.hot (id INT NOT NULL PRIMARY KEY, n BIGINT NOT NULL, body VARCHAR(120))"
                )
            }
            ApplyWorkload::WideRows => {
                let columns: Vec<_> = (1..WIDE_COLUMNS).map(wide_column).collect();
                format!(
                    "CREATE TABLE {SCHEMA}.wide (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, {})",
                    columns.join(", ")
                )
            }
            ApplyWorkload::SecondaryIndexes => format!(
                "CREATE TABLE {SCHEMA}.orders (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL, \
                 product INT NOT NULL, amount DECIMAL(10,2) NOT NULL, status VARCHAR(16) NOT NULL, at DATETIME NOT NULL, \
                 note VARCHAR(100), KEY by_customer (customer, at), KEY by_product (product), KEY by_status (status, amount), \
                 KEY by_time (at))"
            ),
            ApplyWorkload::SmallTransactions | ApplyWorkload::Statements => format!(
                "CREATE TABLE {SCHEMA}.items (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, n INT NOT NULL, note VARCHAR(64))"
            ),
        }
    }

    /// Returns the statements that fill the tables.
    pub fn fill(&self, seed: u64) -> impl Iterator<Item = String> {
        let mut random = StdRng::seed_from_u64(seed);
        let (workload, rows) = (*self, self.table_rows());
        (1..=self.tables()).flat_map(move |table| {
            let mut statements = Vec::new();
            let mut first = 1;
            while first <= rows {
                let last = rows.min(first + FILL_ROWS - 1);
                let mut sql = workload.insert_into(table, true);
                for id in first..=last {
                    let comma = if id == first { "" } else { "," };
                    // Writing to a String cannot fail.
                    let _ = write!(sql, "{comma}({id},{})", workload.values(&mut random));
                }
                statements.push(sql);
                first = last + 1;
            }
            statements
        })
    }

    /// Returns an INSERT statement up to VALUES. `key` decides whether it has the key column.
    fn insert_into(&self, table: u32, key: bool) -> String {
        let (name, columns) = match self.kind {
            ApplyWorkload::OltpWriteOnly | ApplyWorkload::OltpInsert => {
                (format!("sbtest{table}"), "k,c,pad".to_owned())
            }
            ApplyWorkload::UpdateHotRows => ("hot".into(), "n,body".into()),
            ApplyWorkload::WideRows => {
                let names: Vec<_> = (1..WIDE_COLUMNS).map(|column| format!("c{column}")).collect();
                ("wide".into(), names.join(","))
            }
            ApplyWorkload::SecondaryIndexes => {
                ("orders".into(), "customer,product,amount,status,at,note".into())
            }
            ApplyWorkload::SmallTransactions | ApplyWorkload::Statements => ("items".into(), "n,note".into()),
        };
        let key = if key { "id," } else { "" };
        format!("INSERT INTO {SCHEMA}.{name} ({key}{columns}) VALUES ")
    }

    /// Returns the values of a new row, without the key.
    fn values(&self, random: &mut StdRng) -> String {
        match self.kind {
            ApplyWorkload::OltpWriteOnly | ApplyWorkload::OltpInsert => {
                let k = random.random_range(1..=self.table_rows());
                format!("{k},'{}','{}'", groups(random, 10), groups(random, 5))
            }
            ApplyWorkload::UpdateHotRows => format!("0,'{}'", groups(random, 8)),
            ApplyWorkload::WideRows => {
                let values: Vec<_> = (1..WIDE_COLUMNS).map(|column| wide_value(column, random)).collect();
                values.join(",")
            }
            ApplyWorkload::SecondaryIndexes => format!(
                "{},{},{}.{:02},'{}',{},'{}'",
                random.random_range(1..10_000),
                random.random_range(1..1_000),
                random.random_range(1..1_000),
                random.random_range(0..100),
                status(random),
                date(random),
                groups(random, 6)
            ),
            ApplyWorkload::SmallTransactions | ApplyWorkload::Statements => {
                format!("0,'{}'", groups(random, 3))
            }
        }
    }

    /// Returns a client of the workload with its own seed.
    pub fn client(&self, seed: u64) -> LoadClient {
        let zipf = (self.kind == ApplyWorkload::UpdateHotRows).then(|| Zipf::new(self.table_rows()));
        LoadClient { workload: *self, random: StdRng::seed_from_u64(seed), zipf, table: seed, step: 0 }
    }
}

fn wide_column(column: u32) -> String {
    let kind = match column % 6 {
        0 => "INT",
        1 => "BIGINT",
        3 => "DATETIME(6)",
        4 => "DECIMAL(18,4)",
        _ => "VARCHAR(200)",
    };
    format!("c{column} {kind}")
}

fn wide_value(column: u32, random: &mut StdRng) -> String {
    match column % 6 {
        0 => random.random::<i32>().to_string(),
        1 => random.random::<i64>().to_string(),
        3 => date(random),
        4 => format!("{}.{:04}", random.random_range(0..1_000_000), random.random_range(0..10_000)),
        _ => {
            let mut text = groups(random, WIDE_TEXT_CHARS.div_ceil(12));
            text.truncate(WIDE_TEXT_CHARS);
            format!("'{text}'")
        }
    }
}

fn status(random: &mut StdRng) -> &'static str {
    ["new", "paid", "packed", "sent", "returned"][random.random_range(0..5)]
}

fn date(random: &mut StdRng) -> String {
    let minutes: u32 = random.random_range(0..60 * 24 * 28);
    let (day, hour, minute) = (minutes / 1_440 + 1, minutes / 60 % 24, minutes % 60);
    format!("'2026-02-{day:02} {hour:02}:{minute:02}:00'")
}

/// Returns groups of eleven digits, as sysbench fills its columns.
fn groups(random: &mut StdRng, count: usize) -> String {
    let mut text = String::with_capacity(count * 12);
    for group in 0..count {
        let dash = if group == 0 { "" } else { "-" };
        let _ = write!(text, "{dash}{:011}", random.random_range(0..100_000_000_000_u64));
    }
    text
}

/// One client of a workload.
#[derive(Debug)]
pub struct LoadClient {
    workload: ApplyLoad,
    random: StdRng,
    zipf: Option<Zipf>,
    /// The number in the name of the table that this client creates and drops.
    table: u64,
    /// Number of statements so far for the client's own table.
    step: usize,
}

impl LoadClient {
    /// Returns the client's next transaction.
    pub fn next(&mut self) -> ClientTransaction {
        let statements = self.statements();
        let rows = statements.len() as u64;
        // A single statement is its own transaction without BEGIN and COMMIT.
        let sql = match statements.as_slice() {
            [one] => one.clone(),
            many => format!("BEGIN; {}; COMMIT", many.join("; ")),
        };
        ClientTransaction { sql, rows }
    }

    /// Returns statements that change one row each.
    fn statements(&mut self) -> Vec<String> {
        match self.workload.kind {
            ApplyWorkload::OltpWriteOnly => self.write_only(),
            ApplyWorkload::OltpInsert => {
                let table = self.any_table();
                vec![self.insert(table)]
            }
            ApplyWorkload::UpdateHotRows => self.hot(),
            ApplyWorkload::WideRows => {
                let id = self.any_id();
                let (number, text) = (wide_value(6, &mut self.random), wide_value(8, &mut self.random));
                let update = format!("UPDATE {SCHEMA}.wide SET c6={number}, c8={text} WHERE id={id}");
                vec![self.insert(1), update]
            }
            ApplyWorkload::SecondaryIndexes => self.orders(),
            ApplyWorkload::Statements => vec![self.definition()],
            ApplyWorkload::SmallTransactions => match self.random.random_bool(0.3) {
                true => vec![self.insert(1)],
                false => vec![format!("UPDATE {SCHEMA}.items SET n=n+1 WHERE id={}", self.any_id())],
            },
        }
    }

    /// The transaction of sysbench's oltp_write_only: an update of an indexed column, an update of another
    /// column, a delete, and an insert of the same row.
    fn write_only(&mut self) -> Vec<String> {
        let (indexed, plain, replaced) = (self.any_table(), self.any_table(), self.any_table());
        let (indexed_id, plain_id, id) = (self.any_id(), self.any_id(), self.any_id());
        let c = groups(&mut self.random, 10);
        let values = self.workload.values(&mut self.random);
        vec![
            format!("UPDATE {SCHEMA}.sbtest{indexed} SET k=k+1 WHERE id={indexed_id}"),
            format!("UPDATE {SCHEMA}.sbtest{plain} SET c='{c}' WHERE id={plain_id}"),
            format!("DELETE FROM {SCHEMA}.sbtest{replaced} WHERE id={id}"),
            format!("{}({id},{values})", self.workload.insert_into(replaced, true)),
        ]
    }

    /// Updates two rows from the skewed distribution. It updates them in the order of their keys, so that
    /// clients wait for each other but do not deadlock.
    fn hot(&mut self) -> Vec<String> {
        let Some(zipf) = &self.zipf else { return Vec::new() };
        let mut ids = [zipf.sample(&mut self.random), zipf.sample(&mut self.random)];
        ids.sort_unstable();
        let body = groups(&mut self.random, 8);
        ids.iter().map(|id| format!("UPDATE {SCHEMA}.hot SET n=n+1, body='{body}' WHERE id={id}")).collect()
    }

    fn orders(&mut self) -> Vec<String> {
        let (first, second) = (self.any_id(), self.any_id());
        let (status, date) = (status(&mut self.random), date(&mut self.random));
        let (customer, product) = (self.random.random_range(1..10_000), self.random.random_range(1..1_000));
        vec![
            self.insert(1),
            // Changing the amount makes sure that the statement changes the row.
            format!("UPDATE {SCHEMA}.orders SET status='{status}', amount=amount+1 WHERE id={first}"),
            format!(
                "UPDATE {SCHEMA}.orders SET customer={customer}, product={product}, at={date}, amount=amount+1 WHERE id={second}"
            ),
        ]
    }

    /// Returns the next statement for the client's own table: mostly DDL, with a few rows in between.
    fn definition(&mut self) -> String {
        let table = format!("{SCHEMA}.own_{}", self.table);
        let step = self.step;
        self.step += 1;
        match step % 6 {
            0 => format!("CREATE TABLE {table} (id INT NOT NULL PRIMARY KEY, note VARCHAR(20))"),
            1 => format!("INSERT INTO {table} VALUES (1,'a'),(2,'b')"),
            2 => format!("ALTER TABLE {table} ADD COLUMN n INT"),
            3 => format!("CREATE OR REPLACE VIEW {table}_view AS SELECT id, n FROM {table}"),
            4 => format!("TRUNCATE TABLE {table}"),
            _ => format!("DROP TABLE {table}"),
        }
    }

    fn insert(&mut self, table: u32) -> String {
        let values = self.workload.values(&mut self.random);
        format!("{}({values})", self.workload.insert_into(table, false))
    }

    fn any_table(&mut self) -> u32 {
        self.random.random_range(1..=self.workload.tables())
    }

    /// Returns the id of an initial row.
    fn any_id(&mut self) -> u32 {
        self.random.random_range(1..=self.workload.table_rows())
    }
}

/// A random distribution of the numbers from 1, in which greater numbers occur less often.
#[derive(Debug)]
struct Zipf {
    /// For each number, the cumulative probability of all numbers up to it.
    cumulated: Vec<f64>,
}

impl Zipf {
    fn new(numbers: u32) -> Self {
        let mut sum = 0.0;
        let mut cumulated: Vec<f64> = (1..=numbers)
            .map(|rank| {
                sum += f64::from(rank).powf(-HOT_EXPONENT);
                sum
            })
            .collect();
        for share in &mut cumulated {
            *share /= sum;
        }
        Self { cumulated }
    }

    fn sample(&self, random: &mut StdRng) -> u32 {
        let point: f64 = random.random();
        let index = self.cumulated.partition_point(|share| *share < point);
        u32::try_from(index.min(self.cumulated.len() - 1) + 1).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_workload_and_another_seed_a_different_one() {
        for kind in ApplyWorkload::ALL {
            let workload = ApplyLoad { kind, rows: 1_000 };
            let run = |seed| {
                let mut client = workload.client(seed);
                (0..20).map(|_| client.next()).collect::<Vec<_>>()
            };
            assert_eq!(run(1), run(1));
            assert_ne!(run(1), run(2), "{kind:?}: two seeds gave the same transactions");
            assert!(run(1).iter().all(|transaction| transaction.rows > 0));
            let rows: usize = workload.fill(7).map(|sql| sql.matches("),(").count() + 1).sum();
            assert_eq!(rows, 1_000, "{kind:?}: wrong number of initial rows");
        }
    }

    #[test]
    fn the_first_of_the_hot_rows_are_changed_most() {
        let (zipf, mut random) = (Zipf::new(10_000), StdRng::seed_from_u64(42));
        let ids: Vec<u32> = (0..10_000).map(|_| zipf.sample(&mut random)).collect();
        let first = ids.iter().filter(|id| **id == 1).count();
        assert!(
            (800..1_250).contains(&first),
            "with seed 42, about a tenth of the changes must be of the first hot row, not {first}"
        );
        assert!(ids.iter().all(|id| (1..=10_000).contains(id)) && ids.iter().any(|id| *id > 5_000));
    }

    #[test]
    fn a_wide_row_has_about_four_kilobytes() {
        let workload = ApplyLoad { kind: ApplyWorkload::WideRows, rows: 1 };
        let bytes = workload.values(&mut StdRng::seed_from_u64(1)).len();
        assert!((4_000..5_000).contains(&bytes), "a wide row must have 4,000 to 5,000 bytes, not {bytes}");
    }
}
