//! A table of all types whose values differ on the target by one bit each, or by the least there can be, and a writer that
//! leaves these rows alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::Server;
use tailwater_session::Connection;
use tokio::task::JoinHandle;

/// The seed of a run, printed by whoever fails.
pub fn seed() -> u64 {
    match std::env::var("TAILWATER_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed,
        None => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |now| u64::from(now.subsec_nanos())),
    }
}

/// Splitmix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A column: its name and type, and a value with another that is as near to it as can be.
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

/// Bytes, and the same with one bit flipped.
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

/// Letters in hexadecimal, one of them another by one bit.
fn letters(random: &mut Random, length: usize) -> (String, String) {
    let mut letters: Vec<_> = (0..length).map(|_| b'a' + 2 * random.below(10) as u8).collect();
    let before = hex(&letters);
    let place = random.below(length as u64) as usize;
    letters[place] ^= 1;
    (before, hex(&letters))
}

const COLUMNS: &[Column] = &[
    column("ti", "TINYINT", |random| integer(random, 8)),
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

/// How many rows there are of which values are changed, one each.
const VALUES: u32 = 1500;

/// What is written where.
pub struct Plan {
    random: Random,
    /// How many rows the table has for values to be planted in; those of the writer come behind.
    pub rows: u32,
    /// Each row's column, value and changed value.
    changes: Vec<(usize, String)>,
    script: String,
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let definitions: Vec<_> =
            COLUMNS.iter().map(|column| format!("{} {}", column.name, column.definition)).collect();
        let mut script = format!(
            "CREATE DATABASE planted CHARACTER SET utf8mb4; USE planted; SET NAMES utf8mb4; \
             SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES';\n\
             CREATE TABLE every (id INT PRIMARY KEY, {}, w INT NOT NULL DEFAULT 0);\n\
             CREATE TABLE hot (id VARCHAR(20) PRIMARY KEY, n BIGINT NOT NULL, t TEXT);\n",
            definitions.join(", ")
        );
        let names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
        let mut changes = Vec::new();
        for id in 1..=VALUES {
            let changed = random.below(COLUMNS.len() as u64) as usize;
            let mut values = Vec::new();
            for (number, column) in COLUMNS.iter().enumerate() {
                let (value, other) = (column.values)(&mut random);
                if number == changed {
                    changes.push((number, other));
                }
                values.push(value);
            }
            script.push_str(&format!(
                "INSERT INTO every (id, {}) VALUES ({id}, {});\n",
                names.join(", "),
                values.join(", ")
            ));
        }
        script.push_str("INSERT INTO hot VALUES ('a', 0, ''), ('B', 0, ''), ('c ', 0, NULL);\n");
        Self { random, rows: VALUES, changes, script }
    }

    /// The table and its rows.
    pub fn script(&self) -> String {
        // One transaction is many times faster than one for each row.
        self.script.replacen("INSERT INTO every", "BEGIN;\nINSERT INTO every", 1) + "COMMIT;\n"
    }

    /// Makes so many rows of the target differ; gives each row's key and what is to be found of it.
    pub async fn plant(&self, target: &Server, count: usize) -> Result<BTreeSet<(String, String)>> {
        let mut connection = Connection::connect(&target.connect_options()).await?;
        wait_for_rows(&mut connection, self.rows).await?;
        connection.execute("SET NAMES utf8mb4").await?;
        let sql = "SET SESSION sql_log_bin = 0, time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'";
        connection.execute(sql).await?;
        let mut random = self.random.clone();
        let mut ids: Vec<_> = (1..=self.rows).collect();
        let mut planted = BTreeSet::new();
        while planted.len() < count {
            let id = ids.swap_remove(random.below(ids.len() as u64) as usize);
            let (number, other) = &self.changes[id as usize - 1];
            let (sql, key, what) = match random.below(20) {
                0 => (format!("DELETE FROM planted.every WHERE id = {id}"), i64::from(id), "missing"),
                1 => {
                    let extra = -i64::from(id);
                    (format!("INSERT INTO planted.every (id) VALUES ({extra})"), extra, "extra")
                }
                _ => {
                    let name = COLUMNS[*number].name;
                    (
                        format!("UPDATE planted.every SET {name} = {other} WHERE id = {id}"),
                        i64::from(id),
                        name,
                    )
                }
            };
            let done =
                connection.execute(&sql).await.with_context(|| sql.chars().take(300).collect::<String>())?;
            ensure!(done.affected_rows == 1 || what == "zero", "{what} of row {id} was not planted: {other}");
            if done.affected_rows == 1 {
                planted.insert((key.to_string(), what.to_owned()));
            }
        }
        Ok(planted)
    }
}

async fn wait_for_rows(connection: &mut Connection, rows: u32) -> Result<()> {
    loop {
        let there = connection.query("SELECT COUNT(*) FROM planted.every").await?;
        if there.first().and_then(|row| row.get_u64(0)).is_some_and(|there| there >= u64::from(rows)) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Writes to rows behind those of a plan, and to few rows again and again, until it is stopped.
pub struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    task: JoinHandle<Result<()>>,
}

impl Writer {
    pub async fn start(source: &Server, rows: u32) -> Result<Self> {
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut connection = Connection::connect(&source.connect_options()).await?;
        let (stopping, count) = (Arc::clone(&stop), Arc::clone(&written));
        let task = tokio::spawn(async move {
            let mut random = Random(7);
            while !stopping.load(Relaxed) {
                let id = u64::from(rows) + 1 + random.below(300);
                let number = random.next() >> 40;
                let sql = match random.below(6) {
                    0 => format!("INSERT IGNORE INTO planted.every (id, w) VALUES ({id}, {number})"),
                    1 => format!("DELETE FROM planted.every WHERE id = {id}"),
                    2 => format!("UPDATE planted.every SET w = {number}, vc = 'x{number}' WHERE id = {id}"),
                    // Back and forth between the same two versions.
                    3 => format!("UPDATE planted.every SET w = w ^ 1 WHERE id = {id}"),
                    4 => "UPDATE planted.hot SET n = n ^ 1, t = n WHERE id = 'a'".to_owned(),
                    _ => "UPDATE planted.hot SET n = n + 1".to_owned(),
                };
                connection.execute(&sql).await.context(sql)?;
                count.fetch_add(1, Relaxed);
                // As fast as it would, it leaves replicas on two cores no chance.
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
            connection.close().await;
            Ok(())
        });
        Ok(Self { stop, written, task })
    }

    /// How many statements it has run.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    pub async fn stop(self) -> Result<u64> {
        self.stop.store(true, Relaxed);
        self.task.await??;
        Ok(self.written.load(Relaxed))
    }
}
