//! Applies a random load of several clients on random tables, in both commit orders and with several batch
//! sizes.

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tailwater_apply::channel::ChannelStart;
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::ServerKind;
use tailwater_session::{ConnectOptions, Connection, SessionError};
use tailwater_wire::Flavour;

use crate::binlog_statements::compare;
use crate::channel_test_servers::Rig;

const CLIENTS: u64 = 4;
const TABLES: usize = 4;
const TRANSACTIONS: usize = 100;

const TYPES: [&str; 10] = [
    "INT UNSIGNED",
    "DOUBLE",
    "DECIMAL(10,3)",
    "DATETIME(3)",
    "VARBINARY(9)",
    "BINARY(5)",
    "TEXT",
    "ENUM('0','1','2','3')",
    "BIT(9)",
    "TIMESTAMP(2) NULL",
];
const LETTERS: [&str; 14] =
    ["a", "A", "\u{e4}", "\u{c4}", "a ", "b", "B", "ab", "AB", "ss", "\u{df}", "", "\u{e9}a", "z"];

/// Returns one of `texts`, or an empty string.
fn maybe<'a>(random: &mut StdRng, texts: &[&'a str]) -> &'a str {
    if random.random_bool(0.5) { texts.choose(random).copied().unwrap_or_default() } else { "" }
}

/// Returns the definition of a random table. All tables have the same column names; types, keys and parents
/// are random.
fn define(random: &mut StdRng, flavour: Flavour, number: usize) -> String {
    let own: &[&str] = match flavour {
        Flavour::MySql => &["utf8mb4_0900_ai_ci", "utf8mb4_0900_as_cs"],
        Flavour::MariaDb => &["utf8mb4_uca1400_ai_ci", "utf8mb4_nopad_bin"],
    };
    let collations = [&["utf8mb4_general_ci", "utf8mb4_bin", "utf8mb4_unicode_ci"], own].concat();
    let collation = collations.choose(random).copied().unwrap_or_default();
    let value = TYPES.choose(random).copied().unwrap_or_default();
    let first = match random.random_range(0..6) {
        // The first table always has this key, because all other tables may reference the key.
        _ if number == 0 => ", PRIMARY KEY (id)",
        0 => "",
        1 => ", PRIMARY KEY (id, g)",
        2 => ", PRIMARY KEY (s)",
        3 => ", UNIQUE (id)",
        _ => ", PRIMARY KEY (id)",
    };
    let second = maybe(random, &[", UNIQUE (u)", ", UNIQUE (u, g)", ", KEY (u)"]);
    let third = maybe(random, &[", UNIQUE (s)", ", UNIQUE (s(2), u)", ", UNIQUE (s(1))", ", KEY (s, g)"]);
    let computed = maybe(
        random,
        &[", w INT GENERATED ALWAYS AS (u * 2) VIRTUAL", ", w INT GENERATED ALWAYS AS (u + g) STORED"],
    );
    let mut parent = String::new();
    if number > 0 && random.random_bool(0.6) {
        let delete = ["CASCADE", "SET NULL", "RESTRICT"].choose(random).copied().unwrap_or_default();
        let update = ["CASCADE", "RESTRICT", "SET NULL"].choose(random).copied().unwrap_or_default();
        parent = format!(", FOREIGN KEY (p) REFERENCES t0 (id) ON DELETE {delete} ON UPDATE {update}");
    }
    format!(
        "CREATE TABLE t{number} (id INT NOT NULL, g TINYINT NOT NULL, s VARCHAR(8) CHARACTER SET utf8mb4 COLLATE {collation} NOT NULL, \
         u INT, p INT, v {value}{computed}{first}{second}{third}{parent})"
    )
}

fn number(random: &mut StdRng, below: u32) -> String {
    if random.random_bool(0.15) { "NULL".to_owned() } else { random.random_range(0..below).to_string() }
}

fn text(random: &mut StdRng) -> String {
    format!("'{}'", LETTERS.choose(random).copied().unwrap_or_default())
}

/// Returns a random statement that changes a few rows. Many of these statements are meant to fail.
fn change(random: &mut StdRng, flavour: Flavour) -> String {
    let table = format!("t{}", random.random_range(0..TABLES));
    let id = random.random_range(0..15);
    let value = ["v + 1", "NULL", "'2'", "'2024-02-03 04:05:06.789'", "3"]
        .choose(random)
        .copied()
        .unwrap_or_default();
    let condition = match random.random_range(0..4) {
        0 => format!("s = {}", text(random)),
        1 => format!("u = {}", random.random_range(0..9)),
        _ => format!("id = {id}"),
    };
    let set = match random.random_range(0..7) {
        0 => format!("id = {}", random.random_range(0..15)),
        1 => format!("s = {}", text(random)),
        2 => format!("u = {}, g = {}", number(random, 9), random.random_range(0..3)),
        3 => format!("p = {}", number(random, 15)),
        4 => "u = u + 1".to_owned(),
        _ => format!("v = {value}"),
    };
    let row = |random: &mut StdRng| {
        format!(
            "({}, {}, {}, {}, {}, '3')",
            random.random_range(0..15),
            random.random_range(0..3),
            text(random),
            number(random, 9),
            number(random, 15)
        )
    };
    let (one, two) = (row(random), row(random));
    let columns = "(id, g, s, u, p, v)";
    match random.random_range(0..10) {
        0 | 1 => format!("INSERT INTO {table} {columns} VALUES {one}"),
        2 => format!("INSERT IGNORE INTO {table} {columns} VALUES {one}, {two}"),
        3 => format!("INSERT INTO {table} {columns} VALUES {one}, {two} ON DUPLICATE KEY UPDATE {set}"),
        // When MySQL 9.7 replaces a parent row, it keeps the child rows. But it deletes them when it replays
        // its own binlog.
        4 if flavour == Flavour::MariaDb => format!("REPLACE INTO {table} {columns} VALUES {one}, {two}"),
        4 | 5 => format!("DELETE FROM {table} WHERE {condition} LIMIT 2"),
        6 => format!("UPDATE IGNORE {table} SET {set} WHERE {condition}"),
        _ => format!("UPDATE {table} SET {set} WHERE {condition}"),
    }
}

/// Runs the transactions of one client. Some of them roll back, completely or to a savepoint.
async fn load(options: ConnectOptions, schema: String, seed: u64) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut connection = Connection::connect(&options).await?;
    let flavour = connection.server().flavour;
    let image = ["FULL", "NOBLOB", "MINIMAL"].choose(&mut random).copied().unwrap_or_default();
    let settings = format!(
        "SET NAMES utf8mb4, SESSION binlog_row_image = {image}, SESSION sql_mode = '', SESSION innodb_lock_wait_timeout = 1"
    );
    connection.execute(&settings).await?;
    connection.execute(&format!("USE {schema}")).await?;
    for _ in 0..TRANSACTIONS {
        let mut statements = vec!["BEGIN".to_owned()];
        for _ in 0..random.random_range(1..6) {
            statements.push(match random.random_range(0..12) {
                0 => "SAVEPOINT a".to_owned(),
                1 => "ROLLBACK TO a".to_owned(),
                _ => change(&mut random, flavour),
            });
        }
        statements.push(if random.random_bool(0.1) { "ROLLBACK" } else { "COMMIT" }.to_owned());
        for statement in statements {
            match connection.execute(&statement).await {
                Ok(_) | Err(SessionError::Server { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

async fn round(kind: ServerKind, seed: u64, schemas: usize) -> Result<()> {
    let options = ["--character-set-server=utf8mb4", "--binlog-format=ROW"];
    let Some(rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    let mut random = StdRng::seed_from_u64(seed);
    let mut definitions = Vec::new();
    let schemas: Vec<_> = (0..schemas).map(|number| format!("random_{number}")).collect();
    for schema in &schemas {
        let mut sql = format!("CREATE DATABASE {schema}; USE {schema};");
        for number in 0..TABLES {
            sql.push_str(&define(&mut random, kind.flavour(), number));
            sql.push(';');
        }
        let least = if kind.flavour() == Flavour::MySql { "MINIMAL" } else { "NO_LOG" };
        let metadata = if random.random_bool(0.5) { "FULL" } else { least };
        sql.push_str(&format!("SET GLOBAL binlog_row_metadata = {metadata}"));
        rig.source.sql(&sql).await.with_context(|| sql.clone())?;
        definitions.push(sql);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| tokio::spawn(load(rig.source.connect_options(), schema.clone(), random.random())))
            .collect();
        for client in clients {
            client.await??;
        }
    }
    let rows = rig.source.sql(&format!("SELECT COUNT(*) FROM {}.t0", schemas[0])).await?;
    ensure!(rows.concat() != "0", "the random load left no rows to compare");
    for (name, order, batch) in [
        ("small", CommitOrder::Independent, 3),
        ("large", CommitOrder::Independent, 2000),
        ("ordered", CommitOrder::Source, 20),
    ] {
        for schema in &schemas {
            let drop =
                format!("SET sql_log_bin = 0; SET foreign_key_checks = 0; DROP DATABASE IF EXISTS {schema}");
            rig.target.sql(&drop).await?;
        }
        let mut options = rig.options(name);
        options.start = ChannelStart::Oldest;
        options.commit_order = order;
        options.batch_transactions_max = batch;
        let channel = rig.channel(options);
        rig.wait_applied(&channel).await.context(name)?;
        channel.shut_down().await;
        for (schema, definition) in schemas.iter().zip(&definitions) {
            let what = format!("{name} {schema}");
            compare(&rig.source, schema, &rig.target, schema, &what).await.context(definition.clone())?;
        }
    }
    Ok(())
}

/// The seed is the value of `TAILWATER_SEED`, or random; a failure prints it. If `TAILWATER_LONG` is set, the
/// test runs with many seeds.
async fn random_load_is_applied(kind: ServerKind) -> Result<()> {
    let given = std::env::var("TAILWATER_SEED").ok().and_then(|seed| seed.parse().ok());
    let rounds = match std::env::var_os("TAILWATER_LONG") {
        Some(_) if given.is_none() => 20,
        _ => 1,
    };
    for _ in 0..rounds {
        let seed = given.unwrap_or_else(rand::random);
        let what = format!("{kind}, TAILWATER_SEED={seed}");
        eprintln!("{what}");
        round(kind, seed, 2).await.context(what)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_load_is_applied_on_mysql_97() -> Result<()> {
    random_load_is_applied(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_load_is_applied_on_mariadb_1011() -> Result<()> {
    random_load_is_applied(ServerKind::Mariadb1011).await
}
