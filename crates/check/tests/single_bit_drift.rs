//! Test data with all column types. Values on the target differ by one bit each, or by the smallest possible
//! difference. Meanwhile, writers change all the other rows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind};
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::seeded_random::Random;

/// A column: its name, its type, and a function that returns a value and the other value that is closest to
/// it.
struct Column {
    name: &'static str,
    definition: &'static str,
    values: fn(&mut Random) -> (String, String),
}

const fn column(
    name: &'static str,
    definition: &'static str,
    values: fn(&mut Random) -> (String, String),
) -> Column {
    Column { name, definition, values }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Returns random bytes, and the same bytes with one bit flipped.
fn bytes(random: &mut Random, length: usize) -> (String, String) {
    let mut bytes: Vec<_> = (0..length).map(|_| random.next() as u8).collect();
    let before = hex(&bytes);
    let bit = random.below(length as u64 * 8) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
    (before, hex(&bytes))
}

fn integer(random: &mut Random, bits: u32) -> (String, String) {
    let value = random.next() as i64 >> (64 - bits);
    let flipped = value ^ (1 << random.below(u64::from(bits) - 1));
    (value.to_string(), flipped.to_string())
}

/// Returns random letters in hexadecimal, and the same letters with one bit of a letter flipped.
fn letters(random: &mut Random, length: usize) -> (String, String) {
    let mut letters: Vec<_> = (0..length).map(|_| b'a' + 2 * random.below(10) as u8).collect();
    let before = hex(&letters);
    let place = random.below(length as u64) as usize;
    letters[place] ^= 1;
    (before, hex(&letters))
}

/// The columns that both server families support.
const COLUMNS: &[Column] = &[
    column("ti", "TINYINT", |random| integer(random, 8)),
    column("si", "SMALLINT", |random| integer(random, 16)),
    column("mi", "MEDIUMINT", |random| integer(random, 24)),
    column("ii", "INT", |random| integer(random, 32)),
    column("bi", "BIGINT", |random| integer(random, 64)),
    column("zf", "INT ZEROFILL", |random| {
        let value = random.below(1 << 30);
        (value.to_string(), (value ^ 1 << random.below(30)).to_string())
    }),
    column("bu", "BIGINT UNSIGNED", |random| {
        let value = random.next();
        (value.to_string(), (value ^ 1 << random.below(64)).to_string())
    }),
    column("de", "DECIMAL(40,20)", |random| {
        let (head, tail) = (random.next(), 1 + random.below(1 << 60));
        (format!("-{head}.{tail:020}"), format!("-{head}.{:020}", tail - 1))
    }),
    column("fl", "FLOAT", |random| {
        let bits = 0x3F00_0000 + random.below(1 << 23) as u32;
        let text = |bits| format!("{:e}", f64::from(f32::from_bits(bits)));
        (text(bits), text(bits ^ 1))
    }),
    column("dd", "DOUBLE", |random| {
        let bits = 0x3FE0_0000_0000_0000 + random.below(1 << 52);
        let text = |bits| format!("{:e}", f64::from_bits(bits));
        (text(bits), text(bits ^ 1))
    }),
    column("zero", "DOUBLE", |_| ("0e0".into(), "-0e0".into())),
    column("bt", "BIT(64)", |random| {
        let value = random.next();
        (value.to_string(), (value ^ 1 << random.below(64)).to_string())
    }),
    column("ye", "YEAR", |random| {
        let year = 1902 + 2 * random.below(100);
        (year.to_string(), (year + 1).to_string())
    }),
    column("da", "DATE", |random| {
        let day = 1 + random.below(13) * 2;
        (format!("'2024-03-{day:02}'"), format!("'2024-03-{:02}'", day + 1))
    }),
    column("tm", "TIME(6)", |random| {
        let micros = random.below(500_000) * 2;
        (format!("'-838:01:02.{micros:06}'"), format!("'-838:01:02.{:06}'", micros + 1))
    }),
    column("dt", "DATETIME(6)", |random| {
        let micros = random.below(500_000) * 2;
        (format!("'9999-12-31 23:59:59.{micros:06}'"), format!("'9999-12-31 23:59:59.{:06}'", micros + 1))
    }),
    column("ts", "TIMESTAMP(3) NULL", |random| {
        let millis = random.below(500) * 2;
        (format!("'2024-03-31 02:30:00.{millis:03}'"), format!("'2024-03-31 02:30:00.{:03}'", millis + 1))
    }),
    column("en", "ENUM('a','b','c','d') CHARACTER SET latin1", |random| {
        let member = 1 + 2 * random.below(2);
        (member.to_string(), (member + 1).to_string())
    }),
    column("se", "SET('a','b','c','d')", |random| {
        let members = random.below(16);
        (members.to_string(), (members ^ 1 << random.below(4)).to_string())
    }),
    column("vc", "VARCHAR(60) CHARACTER SET utf8mb4", |random| {
        let (before, after) = letters(random, 20);
        (format!("_utf8mb4 X'{before}'"), format!("_utf8mb4 X'{after}'"))
    }),
    column("blank", "VARCHAR(60) CHARACTER SET utf8mb4", |_| ("'a'".into(), "'a '".into())),
    column("caps", "VARCHAR(60) CHARACTER SET utf8mb4", |_| ("'straße'".into(), "'Straße'".into())),
    column("nothing", "VARCHAR(60)", |_| ("''".into(), "NULL".into())),
    column("sharp", "VARCHAR(60)", |_| ("'a#'".into(), "'a##'".into())),
    column("lt", "TEXT CHARACTER SET latin1", |random| {
        let (before, after) = bytes(random, 30);
        (format!("_latin1 X'{before}'"), format!("_latin1 X'{after}'"))
    }),
    column("wide", "VARCHAR(40) CHARACTER SET utf16", |random| {
        let (before, after) = letters(random, 10);
        let wide = |text: String| {
            let pairs = text.as_bytes().chunks(2).map(|pair| format!("00{}", String::from_utf8_lossy(pair)));
            format!("_utf16 X'{}'", pairs.collect::<String>())
        };
        (wide(before), wide(after))
    }),
    column("koi", "TINYTEXT CHARACTER SET koi8r", |random| {
        let (before, after) = bytes(random, 9);
        (format!("_koi8r X'{before}'"), format!("_koi8r X'{after}'"))
    }),
    column("sjis", "CHAR(9) CHARACTER SET sjis", |random| {
        let second = 0x40 + 2 * random.below(31);
        (format!("_sjis X'83{second:02X}'"), format!("_sjis X'83{:02X}'", second + 1))
    }),
    column("gbk", "MEDIUMTEXT CHARACTER SET gbk", |random| {
        let second = 0xA2 + 2 * random.below(40);
        (format!("_gbk X'C4E3B0{second:02X}'"), format!("_gbk X'C4E3B0{:02X}'", second + 1))
    }),
    column("face", "LONGTEXT CHARACTER SET utf8mb4", |random| {
        let last = 0x80 + 2 * random.below(32);
        (format!("_utf8mb4 X'61F09F98{last:02X}'"), format!("_utf8mb4 X'61F09F98{:02X}'", last + 1))
    }),
    column("bf", "BINARY(20)", |random| {
        let (before, after) = bytes(random, 20);
        (format!("X'{before}'"), format!("X'{after}'"))
    }),
    column("vb", "VARBINARY(40)", |random| {
        let (before, after) = bytes(random, 25);
        (format!("X'{before}'"), format!("X'{after}'"))
    }),
    column("bl", "LONGBLOB", |random| {
        let length = if random.below(20) == 0 { 70_000 } else { 300 };
        let (before, after) = bytes(random, length);
        (format!("X'{before}'"), format!("X'{after}'"))
    }),
    column("js", "JSON", |random| {
        let number = random.below(1 << 50);
        (
            format!("'{{\"a\": {number}, \"b\": [1.5, \"é\"]}}'"),
            format!("'{{\"a\": {}, \"b\": [1.5, \"é\"]}}'", number ^ 1),
        )
    }),
    column("pt", "POINT", |random| {
        let bits = 0x3FE0_0000_0000_0000 + random.below(1 << 52);
        let point = |bits| format!("ST_GeomFromText('POINT({} 2)')", f64::from_bits(bits));
        (point(bits), point(bits ^ 1))
    }),
];

const MARIADB_COLUMNS: &[Column] = &[
    // A UUID of version 4 is generated, because not every bit pattern is a UUID.
    column("uu", "UUID", |random| {
        let (before, after) = bytes(random, 10);
        let text = |digits: String| {
            format!("'{}-{}-4abc-8abc-{}'", &digits[..8], &digits[8..12], digits[12..].to_owned() + "cafe")
        };
        (text(before), text(after))
    }),
    column("i6", "INET6", |random| {
        let (before, after) = bytes(random, 16);
        (format!("X'{before}'"), format!("X'{after}'"))
    }),
];

const MYSQL_COLUMNS: &[Column] = &[column("ve", "VECTOR(2)", |random| {
    let bits = 0x3F00_0000 + random.below(1 << 23) as u32;
    let text = |bits| format!("STRING_TO_VECTOR('[-1.5,{:e}]')", f32::from_bits(bits));
    (text(bits), text(bits ^ 1))
})];

/// The columns of a sysbench table.
const SYSBENCH_COLUMNS: &[Column] = &[
    column("k", "INT NOT NULL DEFAULT 0", |random| integer(random, 32)),
    column("c", "CHAR(120) CHARACTER SET latin1 NOT NULL DEFAULT ''", |random| {
        let (before, after) = letters(random, 119);
        (format!("_latin1 X'{before}'"), format!("_latin1 X'{after}'"))
    }),
    column("pad", "CHAR(60) CHARACTER SET latin1 NOT NULL DEFAULT ''", |random| {
        let (before, after) = letters(random, 59);
        (format!("_latin1 X'{before}'"), format!("_latin1 X'{after}'"))
    }),
];

/// A table: its name, its key, and a function that returns the key's literal for a number.
#[derive(Clone, Copy)]
struct Table {
    name: &'static str,
    key: &'static str,
    literal: fn(i64) -> String,
    /// The SET clauses of the writers' updates, with `{number}` for a random number. `WHERE id = ...` is
    /// appended.
    updates: [&'static str; 2],
}

/// The tables. The first two have columns of all types.
const TABLES: [Table; 4] = [
    Table {
        name: "every",
        key: "id INT PRIMARY KEY",
        literal: |id| id.to_string(),
        // The second update alternates between the same two versions of a row.
        updates: ["w = {number}, vc = 'x{number}', bl = NULL", "w = w ^ 1"],
    },
    Table {
        name: "named",
        key: "id VARCHAR(20) CHARACTER SET utf8mb4 PRIMARY KEY",
        literal: |id| format!("_utf8mb4 X'{}'", hex(format!("k{id}").as_bytes())),
        updates: ["w = {number}, lt = 'x{number}', dd = NULL", "w = w ^ 1, js = '[{number}]'"],
    },
    // This table has no floating-point columns, so the servers can compute sums themselves. The rows of a
    // table with such columns are transferred instead.
    Table {
        name: "exact",
        key: "id BIGINT PRIMARY KEY",
        literal: |id| id.to_string(),
        updates: ["w = {number}, gbk = NULL, bt = 0", "w = w ^ 1, ts = NULL"],
    },
    Table {
        name: "sbtest1",
        key: "id INT AUTO_INCREMENT PRIMARY KEY",
        literal: |id| id.to_string(),
        updates: ["k = k + 1", "c = 'x{number}'"],
    },
];

/// The expected differences. Each has the table, the key of the row, and the name of the changed column or of
/// the kind of difference.
pub type InjectedDifferences = BTreeSet<(String, String, String)>;

/// A row that can be changed on the target, with the changed value of one column.
struct Row {
    table: Table,
    key: String,
    column: &'static str,
    is_nullable: bool,
    is_null: bool,
    /// The changed value of the column.
    other: String,
}

/// The test tables, and the rows of the target that can be changed.
pub struct Plan {
    random: Random,
    /// Number of rows in each table.
    pub rows: i64,
    candidates: Vec<Row>,
    script: String,
}

impl Plan {
    /// Plans tables in which `count` rows can be changed. The rows that can be changed have odd numbers. The
    /// writers use the rows with even numbers.
    pub fn new(seed: u64, kind: ServerKind, count: usize) -> Self {
        let mut random = Random::new(seed);
        // Each table has more rows than the test changes, so that some rows stay unchanged.
        let rows = (count * 3 / TABLES.len()) as i64;
        let mut script = String::from(
            "CREATE DATABASE drift CHARACTER SET utf8mb4; USE drift; SET NAMES utf8mb4; \
             SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES';\n\
             CREATE TABLE hot (id VARCHAR(20) PRIMARY KEY, n BIGINT NOT NULL, t TEXT);\n\
             INSERT INTO hot VALUES ('a', 0, ''), ('B', 0, ''), ('c ', 0, NULL);\n",
        );
        let mut candidates = Vec::new();
        for table in TABLES {
            let is_sysbench = table.name == "sbtest1";
            let columns: Vec<_> = match (is_sysbench, kind.flavour()) {
                (true, _) => SYSBENCH_COLUMNS.iter().collect(),
                (false, Flavour::MariaDb) => COLUMNS.iter().chain(MARIADB_COLUMNS).collect(),
                (false, Flavour::MySql) => COLUMNS.iter().chain(MYSQL_COLUMNS).collect(),
            };
            let is_sent = |column: &&Column| ["fl", "dd", "zero"].contains(&column.name);
            let columns: Vec<_> =
                columns.into_iter().filter(|column| table.name != "exact" || !is_sent(column)).collect();
            let definitions = columns.iter().map(|column| format!("{} {}", column.name, column.definition));
            let more = if is_sysbench { "KEY k_1 (k)" } else { "w INT NOT NULL DEFAULT 0" };
            let definitions = definitions.collect::<Vec<_>>().join(", ");
            // One transaction for all rows of a table is many times faster than one transaction per row.
            let Table { name, key, .. } = table;
            script.push_str(&format!("CREATE TABLE {name} ({key}, {definitions}, {more});\nBEGIN;\n"));
            let names: Vec<_> = columns.iter().map(|column| column.name).collect();
            let names = names.join(", ");
            for id in 1..=rows {
                let key = (table.literal)(id);
                let changed = random.below(columns.len() as u64) as usize;
                let mut values = Vec::new();
                for (number, column) in columns.iter().enumerate() {
                    let (mut value, mut other) = (column.values)(&mut random);
                    let is_null = !is_sysbench && random.below(10) == 0;
                    if is_null {
                        other = std::mem::replace(&mut value, "NULL".into());
                    }
                    values.push(value);
                    if number == changed && id % 2 == 1 {
                        let (key, column) = (key.clone(), column.name);
                        candidates.push(Row {
                            table,
                            key,
                            column,
                            is_nullable: !is_sysbench,
                            is_null,
                            other,
                        });
                    }
                }
                let values = values.join(", ");
                script.push_str(&format!("INSERT INTO {name} (id, {names}) VALUES ({key}, {values});\n"));
            }
            script.push_str("COMMIT;\n");
        }
        Self { random, rows, candidates, script }
    }

    /// Returns the script that creates the tables and their rows.
    pub fn script(&self) -> &str {
        &self.script
    }

    /// Changes `count` rows of the target, and returns the expected differences.
    pub async fn inject(&self, target: &Server, count: usize) -> Result<InjectedDifferences> {
        let mut connection = Connection::connect(&target.connect_options()).await?;
        connection.execute("SET NAMES utf8mb4").await?;
        let sql = "SET SESSION sql_log_bin = 0, time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES'";
        connection.execute(sql).await?;
        let mut random = self.random.clone();
        let mut rows: Vec<_> = self.candidates.iter().collect();
        let mut injected = InjectedDifferences::new();
        while injected.len() < count {
            ensure!(!rows.is_empty(), "no row is left that can be changed");
            let row = rows.swap_remove(random.below(rows.len() as u64) as usize);
            let Row { table: Table { name, literal, .. }, key, column, .. } = row;
            let at = format!("drift.{name} SET {column}");
            let (sql, key, what) = match random.below(20) {
                0 => (format!("DELETE FROM drift.{name} WHERE id = {key}"), key.clone(), "missing"),
                1 => {
                    let extra = literal(-1 - injected.len() as i64);
                    (format!("INSERT INTO drift.{name} (id) VALUES ({extra})"), extra, "extra")
                }
                2 | 3 if row.is_nullable && !row.is_null => {
                    (format!("UPDATE {at} = NULL WHERE id = {key}"), key.clone(), *column)
                }
                _ => (format!("UPDATE {at} = {} WHERE id = {key}", row.other), key.clone(), *column),
            };
            let start = || sql.chars().take(300).collect::<String>();
            let done = connection.execute(&sql).await.with_context(start)?;
            // The server considers 0.0 and -0.0 equal, so an update from one to the other does not change the
            // row.
            ensure!(done.affected_rows == 1 || *column == "zero", "the row was not changed: {}", start());
            if done.affected_rows == 1 {
                injected.insert((name.to_string(), key, what.to_owned()));
            }
        }
        Ok(injected)
    }
}

/// Clients that write to all tables as sysbench does, and to a few rows repeatedly, until the test stops
/// them.
pub struct Writers {
    stop: CancellationToken,
    committed: Arc<AtomicU64>,
    clients: JoinSet<Result<()>>,
}

/// Number of clients.
const CLIENTS: u64 = 3;

impl Writers {
    pub async fn start(source: &Server, rows: i64) -> Result<Self> {
        let (stop, committed) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let mut connection = Connection::connect(&source.connect_options()).await?;
            let (stopping, count) = (stop.clone(), Arc::clone(&committed));
            clients.spawn(async move {
                let mut random = Random::new(client);
                while !stopping.is_cancelled() {
                    match transact(&mut connection, &mut random, rows).await {
                        Ok(()) => _ = count.fetch_add(1, Relaxed),
                        // The server rolled this transaction back because of a deadlock with another client.
                        Err(SessionError::Server { error, .. }) if error.number == 1213 => {}
                        Err(error) => return Err(error.into()),
                    }
                    // Without this pause, the replica would not keep up on a machine with two cores.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                connection.close().await;
                Ok(())
            });
        }
        Ok(Self { stop, committed, clients })
    }

    /// Returns the number of committed transactions.
    pub fn committed(&self) -> u64 {
        self.committed.load(Relaxed)
    }

    pub async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        while let Some(client) = self.clients.join_next().await {
            client??;
        }
        Ok(())
    }
}

/// Updates two rows of one of the tables, and deletes and inserts a third row.
async fn transact(connection: &mut Connection, random: &mut Random, rows: i64) -> Result<(), SessionError> {
    let Table { name, literal, updates, .. } = TABLES[random.below(TABLES.len() as u64) as usize];
    let mut own = || literal(2 + 2 * random.below(rows as u64 / 2 - 1) as i64);
    let (one, other, third) = (own(), own(), own());
    let number = random.next() >> 40;
    let number = number.to_string();
    connection.execute("BEGIN").await?;
    for (update, id) in updates.iter().zip([one, other]) {
        let set = update.replace("{number}", &number);
        connection.execute(&format!("UPDATE drift.{name} SET {set} WHERE id = {id}")).await?;
    }
    connection.execute(&format!("DELETE FROM drift.{name} WHERE id = {third}")).await?;
    connection.execute(&format!("INSERT INTO drift.{name} (id) VALUES ({third})")).await?;
    if random.below(4) == 0 {
        let hot = ["n = n ^ 1, t = n WHERE id = 'a'", "n = n + 1"][random.below(2) as usize];
        connection.execute(&format!("UPDATE drift.hot SET {hot}")).await?;
    }
    connection.execute("COMMIT").await?;
    Ok(())
}
