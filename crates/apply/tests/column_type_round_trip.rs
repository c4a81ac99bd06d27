//! Applies every column type with its boundary values, as row events and as SQL, under all logging settings
//! of a source.

use anyhow::{Context, Result, ensure};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::ServerKind;
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use crate::binlog_statements::compare;
use crate::channel_test_servers::Rig;
use crate::column_type_boundary_values::families;
use crate::tables_of_every_column_type::{BY_BINLOG, BY_SQL, change, define, variants};

/// How a source logs rows.
struct Logging {
    /// Whether full column metadata is logged.
    metadata: bool,
    image: &'static str,
    /// Whether events (MariaDB) or whole transactions (MySQL) are compressed.
    compressed: bool,
    checksums: bool,
}

const LOGGINGS: [Logging; 6] = [
    Logging { metadata: false, image: "FULL", compressed: false, checksums: true },
    Logging { metadata: true, image: "FULL", compressed: true, checksums: true },
    Logging { metadata: true, image: "NOBLOB", compressed: false, checksums: false },
    Logging { metadata: true, image: "MINIMAL", compressed: false, checksums: true },
    Logging { metadata: false, image: "MINIMAL", compressed: true, checksums: false },
    Logging { metadata: false, image: "NOBLOB", compressed: false, checksums: true },
];

impl Logging {
    fn statements(&self, flavour: Flavour) -> Vec<String> {
        let (image, checksums) = (self.image, if self.checksums { "CRC32" } else { "NONE" });
        let on = if self.compressed { "ON" } else { "OFF" };
        let mut statements = vec![
            format!("SET GLOBAL binlog_checksum = {checksums}"),
            format!("SET SESSION binlog_row_image = {image}"),
        ];
        match flavour {
            Flavour::MySql => {
                // Partial updates of JSON documents need full images: a partial update can be written as SQL
                // only if the before image contains the whole document.
                let partial = if image == "FULL" { "PARTIAL_JSON" } else { "" };
                let metadata = if self.metadata { "FULL" } else { "MINIMAL" };
                statements.extend([
                    format!("SET GLOBAL binlog_row_metadata = {metadata}"),
                    format!("SET SESSION binlog_transaction_compression = {on}"),
                    format!("SET SESSION binlog_row_value_options = '{partial}'"),
                ]);
            }
            Flavour::MariaDb => {
                let metadata = if self.metadata { "FULL" } else { "NO_LOG" };
                statements.extend([
                    format!("SET GLOBAL binlog_row_metadata = {metadata}"),
                    format!("SET GLOBAL log_bin_compress = {on}"),
                    "SET GLOBAL log_bin_compress_min_len = 10".to_owned(),
                ]);
            }
        }
        statements
    }
}

async fn every_type_is_applied(kind: ServerKind) -> Result<()> {
    let options = ["--innodb-strict-mode=0", "--character-set-server=utf8mb4"];
    let Some(rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    let (flavour, families) = (kind.flavour(), families(kind));
    define(&mut Connection::connect(&rig.target.connect_options()).await?, &families, true).await?;
    let mut source = Connection::connect(&rig.source.connect_options()).await?;
    define(&mut source, &families, false).await?;
    let settings =
        "SET sql_log_bin = 1, sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'";
    source.execute(settings).await?;

    let mut options = rig.options("types");
    options.commit_order = CommitOrder::Independent;
    options.batch_transactions_max = 20;
    let channel = rig.channel(options);
    for (round, logging) in LOGGINGS.iter().enumerate() {
        for statement in logging.statements(flavour) {
            source.execute(&statement).await.with_context(|| statement.clone())?;
        }
        for family in &families {
            for schema in [BY_BINLOG, BY_SQL] {
                for variant in variants(flavour) {
                    let table = format!("{schema}.{}_{variant}", family.name);
                    change(&mut source, &table, family, round + 1).await?;
                }
            }
        }
    }
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;

    let mut target = Connection::connect(&rig.target.connect_options()).await?;
    target.execute("SET sql_log_bin = 0").await?;
    let list = format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{BY_SQL}'");
    let tables = rig.target.sql(&list).await?.concat().parse::<usize>()?;
    ensure!(tables == families.len() * variants(flavour).len());
    for family in &families {
        for variant in variants(flavour) {
            let table = format!("{BY_SQL}.{}_{variant}", family.name);
            let others = target.query(&format!("SELECT COUNT(*) FROM {table} WHERE NOT extra <=> 7")).await?;
            ensure!(
                others.scalar() == Some("0"),
                "the extra column of {table} on the target must keep its default"
            );
            target.execute(&format!("ALTER TABLE {table} DROP COLUMN extra")).await?;
        }
    }
    for schema in [BY_BINLOG, BY_SQL] {
        compare(&rig.source, schema, &rig.target, schema, schema).await?;
    }
    for family in &families {
        for question in family.questions {
            for schema in [BY_BINLOG, BY_SQL] {
                let sql = format!("SELECT id, {question} FROM {schema}.{}_key ORDER BY id", family.name);
                ensure!(
                    rig.source.sql(&sql).await? == rig.target.sql(&sql).await?,
                    "source and target return different rows: {sql}"
                );
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_is_applied_on_mysql_97() -> Result<()> {
    every_type_is_applied(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_is_applied_on_mariadb_1011() -> Result<()> {
    every_type_is_applied(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_types_are_applied_on_mariadb_118() -> Result<()> {
    every_type_is_applied(ServerKind::Mariadb118).await
}
