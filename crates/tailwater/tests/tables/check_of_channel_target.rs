//! Checks of channel targets that have their own GTIDs and apply transactions in any order. The check writes
//! mark rows on the source. A mark row on the target shows which transactions the target has applied.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;

use crate::shell_session::{PROGRAM, Shell};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_row_applied_before_earlier_transactions_is_not_trusted_mariadb() -> Result<()> {
    out_of_order_mark_is_not_trusted(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_row_applied_before_earlier_transactions_is_not_trusted_mysql() -> Result<()> {
    if is_skipped_in_ci(
        "a_mark_row_applied_before_earlier_transactions_is_not_trusted_mysql",
        "the same test on MariaDB",
    ) {
        return Ok(());
    }
    out_of_order_mark_is_not_trusted(ServerKind::Mysql97).await
}

/// Returns the mark rows on the source.
async fn marks(source: &Server) -> Result<Vec<String>> {
    Ok(source.sql("SELECT name FROM tailwater.check_marks ORDER BY name").await?)
}

async fn out_of_order_mark_is_not_trusted(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let target = Server::start(ServerSpec::new(kind).name("target").option("--server-id=2")).await?;
    let mut trial = Trial::start(TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        // MIXED is the default of MariaDB. The check makes the server log its mark rows in row format anyway.
        // A channel with filters cannot find out which tables a statement changes.
        options: vec!["--binlog-format=MIXED".into()],
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    })
    .await?;
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"replica\"\nsource = \"primary\"\nsocket = \"{}\"\nuser = \"root\"\ntls = \"off\"\n\
         commit_order = \"independent\"\ngtid = \"own\"\nworkers = 4\nbatch_transactions_max = 1\n\
         [channel.filters]\ninclude = [\"shop.*\"]\n",
        target.socket().display()
    ))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    let definitions = "CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, n INT, u CHAR(36)); \
                       INSERT INTO shop.t VALUES (1, 0, UUID()), (2, 0, UUID())";
    trial.primary.sql(definitions).await?;
    let server = |side: &str, server: &Server| {
        format!("--{side}-socket {} --{side}-user root", server.socket().display())
    };
    let both = format!(
        "{} {} --database shop --wait mark",
        server("source", &trial.primary),
        server("target", &target)
    );
    shell.run(&format!("check {both} --wait-max-s 60"))?.exits(0).says(&["compared 2 rows", "all the same"]);
    // The next check deletes old mark rows, except those of checks that still run.
    let primary = trial.primary.socket_options();
    let mut beside = Connection::connect(&primary).await?;
    beside.query("SELECT GET_LOCK('tailwater.check_marks.1-2-0', 0)").await?;
    let left = "INSERT INTO tailwater.check_marks SELECT name, 1 FROM (SELECT '1-1-0' AS name UNION SELECT '1-2-0') AS l \
                WHERE UUID() IS NOT NULL";
    trial.primary.sql(left).await?;
    shell.run(&format!("check {both} --wait-max-s 60"))?.exits(0);
    ensure!(marks(&trial.primary).await? == ["1-2-0"]);
    beside.query("SELECT RELEASE_LOCK('tailwater.check_marks.1-2-0')").await?;
    beside.close().await;

    // A lock blocks one row on the target. The channel applies later transactions before the transaction of
    // that row. One of the later transactions writes the mark row.
    let mut holder = Connection::connect(&target.socket_options()).await?;
    holder.execute("BEGIN").await?;
    holder.execute("SELECT n FROM shop.t WHERE id = 1 FOR UPDATE").await?;
    trial.primary.sql("UPDATE shop.t SET n = 7, u = UUID() WHERE id = 1").await?;
    let behind = ["TW-BULK-0040", "channel replica has applied all transactions of its log only up to"];
    shell.run(&format!("check {both} --wait-max-s 2"))?.exits(1).stderr_has(&behind);
    ensure!(
        marks(&trial.primary).await?.is_empty(),
        "the source must still have the mark rows of the failed check and of the concurrent check"
    );
    shell.run(&format!("repair {both} --wait-max-s 2"))?.exits(1).stderr_has(&behind);
    ensure!(marks(&trial.primary).await?.is_empty());
    holder.execute("ROLLBACK").await?;
    shell.run(&format!("check {both} --wait-max-s 60"))?.exits(0).says(&["all the same"]);

    target.sql("UPDATE shop.t SET n = 99 WHERE id = 2").await?;
    shell.run(&format!("check {both} --wait-max-s 60"))?.exits(3).says(&["1 difference"]);
    shell.run(&format!("repair {both} --wait-max-s 60"))?.exits(0).says(&["1 row repaired", "0 remaining"]);
    shell.run(&format!("check {both} --wait-max-s 60"))?.exits(0).says(&["all the same"]);
    trial.stop_relay().await
}
