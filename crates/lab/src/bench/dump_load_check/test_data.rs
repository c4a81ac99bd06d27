//! The tables that are dumped and loaded, and their rows. This module does no I/O. It generates text for SQL
//! and `LOAD DATA` from a seed.

use std::io::Write;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::arguments::TablesData;

/// Number of tables modelled on sysbench.
const SYSBENCH_TABLES: u64 = 4;

/// A table of the benchmark.
#[derive(Debug, Clone)]
pub struct BenchTable {
    /// The table's name, without the schema.
    pub name: String,
    /// The statement that creates the table, with the schema.
    pub create: String,
    /// Number of rows in the table.
    pub rows: u64,
    row: fn(&mut Vec<u8>, &mut StdRng, u64),
}

impl TablesData {
    /// All sets of tables. The first one is the set of the headline figure.
    pub const ALL: [Self; 2] = [Self::Sysbench, Self::Mixed];

    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sysbench => "sysbench",
            Self::Mixed => "mixed",
        }
    }

    /// Returns the schema of the tables.
    pub fn schema(self) -> &'static str {
        match self {
            Self::Sysbench => "tw_sysbench",
            Self::Mixed => "tw_mixed",
        }
    }

    /// Returns the tables, with `rows` rows in all of them together.
    pub fn tables(self, rows: u64) -> Vec<BenchTable> {
        let schema = self.schema();
        match self {
            Self::Sysbench => (1..=SYSBENCH_TABLES)
                .map(|number| BenchTable {
                    name: format!("sbtest{number}"),
                    create: format!(
                        "CREATE TABLE {schema}.sbtest{number} (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, \
                         k INT NOT NULL DEFAULT 0, c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', \
                         KEY k_{number} (k)) DEFAULT CHARSET=latin1"
                    ),
                    rows: rows / SYSBENCH_TABLES,
                    row: sysbench_row,
                })
                .collect(),
            Self::Mixed => vec![
                BenchTable {
                    name: "orders".into(),
                    create: format!(
                        "CREATE TABLE {schema}.orders (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, \
                         customer INT NOT NULL, amount DECIMAL(12,2) NOT NULL, discount FLOAT, score DOUBLE, \
                         placed DATETIME(6) NOT NULL, changed TIMESTAMP NULL, state ENUM('new','paid','sent','back') NOT NULL, \
                         name VARCHAR(80), note TEXT, token BINARY(16) NOT NULL, attributes JSON, flags BIT(9), \
                         KEY by_customer (customer, placed), KEY by_state (state), UNIQUE KEY by_token (token), \
                         KEY by_name (name)) DEFAULT CHARSET=utf8mb4"
                    ),
                    rows: rows - rows / 4,
                    row: order_row,
                },
                BenchTable {
                    name: "events".into(),
                    create: format!(
                        "CREATE TABLE {schema}.events (device CHAR(12) CHARACTER SET ascii NOT NULL, \
                         number INT UNSIGNED NOT NULL, at DATETIME(3) NOT NULL, reading DOUBLE, body BLOB, \
                         PRIMARY KEY (device, number), KEY by_time (at)) DEFAULT CHARSET=utf8mb4"
                    ),
                    rows: rows / 4,
                    row: event_row,
                },
            ],
        }
    }
}

impl BenchTable {
    /// Returns the rows `from..to` as lines for `LOAD DATA`. They are the same each time.
    pub fn lines(&self, from: u64, to: u64) -> Vec<u8> {
        let mut lines = Vec::new();
        let mut random = StdRng::seed_from_u64(from);
        for number in from..to {
            (self.row)(&mut lines, &mut random, number);
        }
        lines
    }
}

/// Appends formatted text to a Vec, which cannot fail.
macro_rules! put {
    ($line:expr, $($text:tt)*) => {
        let _ = write!($line, $($text)*);
    };
}

fn sysbench_row(line: &mut Vec<u8>, random: &mut StdRng, number: u64) {
    put!(line, "{}\t{}\t", number + 1, random.random_range(1..10_000_000));
    digits(line, random, 10);
    line.push(b'\t');
    digits(line, random, 5);
    line.push(b'\n');
}

/// Writes groups of eleven digits, as sysbench fills its texts.
fn digits(line: &mut Vec<u8>, random: &mut StdRng, groups: u32) {
    for group in 0..groups {
        if group > 0 {
            line.push(b'-');
        }
        put!(line, "{:011}", random.random_range(0..100_000_000_000u64));
    }
}

fn moment(line: &mut Vec<u8>, random: &mut StdRng) {
    put!(
        line,
        "20{:02}-{:02}-{:02} {:02}:{:02}:{:02}",
        random.random_range(10..37),
        random.random_range(1..13),
        random.random_range(1..29),
        random.random_range(4..24),
        random.random_range(0..60),
        random.random_range(0..60)
    );
}

fn order_row(line: &mut Vec<u8>, random: &mut StdRng, number: u64) {
    const WORDS: [&str; 8] = ["blå", "river", "Straße", "tail", "water", "überall", "wheel", "ночь"];
    let word = |random: &mut StdRng| WORDS[random.random_range(0..WORDS.len())];
    put!(line, "{}\t{}\t", number + 1, random.random_range(1..2_000_000));
    put!(line, "{}.{:02}\t", random.random_range(0..100_000), random.random_range(0..100));
    match random.random_range(0..4) {
        0 => line.extend_from_slice(b"\\N\t"),
        _ => {
            // The number is written with enough digits that two different values differ as text.
            put!(line, "{:e}\t", random.random::<f32>() * 100.0);
        }
    }
    put!(line, "{:e}\t", random.random::<f64>() * 1e6);
    moment(line, random);
    put!(line, ".{:06}\t", random.random_range(0..1_000_000));
    moment(line, random);
    put!(line, "\t{}\t", ["new", "paid", "sent", "back"][random.random_range(0..4)]);
    put!(line, "{} {} {}\t", word(random), word(random), random.random_range(0..100_000));
    for _ in 0..random.random_range(0..30) {
        put!(line, "{} ", word(random));
    }
    line.push(b'\t');
    bytes(line, random, 16);
    put!(line, "\t{{\"size\": {}, ", random.random_range(0..50));
    put!(line, "\"tags\": [\"{}\", \"{}\"]}}\t", word(random), word(random));
    bits(line, random);
    line.push(b'\n');
}

/// Writes a random value of nine bits as two bytes.
fn bits(line: &mut Vec<u8>, random: &mut StdRng) {
    let value: u16 = random.random_range(0..512);
    value.to_be_bytes().into_iter().for_each(|byte| escaped(line, byte));
}

fn event_row(line: &mut Vec<u8>, random: &mut StdRng, number: u64) {
    put!(line, "dev-{:08}\t{}\t", number / 1000, number % 1000);
    moment(line, random);
    put!(line, ".{:03}\t{:e}\t", random.random_range(0..1000), random.random::<f64>());
    let length = random.random_range(0..200);
    bytes(line, random, length);
    line.push(b'\n');
}

fn bytes(line: &mut Vec<u8>, random: &mut StdRng, count: usize) {
    for _ in 0..count {
        escaped(line, random.random());
    }
}

fn escaped(line: &mut Vec<u8>, byte: u8) {
    match byte {
        0 => line.extend_from_slice(b"\\0"),
        b'\t' => line.extend_from_slice(b"\\t"),
        b'\n' => line.extend_from_slice(b"\\n"),
        b'\\' => line.extend_from_slice(b"\\\\"),
        other => line.push(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_are_the_same_each_time_and_have_the_requested_number() {
        for set in TablesData::ALL {
            let tables = set.tables(1000);
            assert_eq!(tables.iter().map(|table| table.rows).sum::<u64>(), 1000);
            for table in tables {
                let lines = table.lines(10, 30);
                assert_eq!(lines, table.lines(10, 30));
                assert_eq!(lines.iter().filter(|&&byte| byte == b'\n').count(), 20);
            }
        }
    }
}
