//! Applies workloads that are known to cause errors in replication: as streamed transactions, in small
//! batches in independent order, and in large batches in source order.

use anyhow::{Context, Result, ensure};
use tailwater_apply::channel::{ChannelOptions, ChannelStart};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::{Server, ServerKind};
use tailwater_wire::Flavour;

use crate::binlog_statements::compare;
use crate::channel_test_servers::Rig;
use crate::replication_pitfall_statements::{Pitfall, pitfalls};

fn schema(pitfall: &Pitfall) -> String {
    format!("trap_{}", pitfall.name)
}

/// Runs the workloads on the source.
async fn run_on_source(rig: &Rig, pitfalls: &[Pitfall]) -> Result<()> {
    for pitfall in pitfalls {
        let schema = schema(pitfall);
        let sql = format!("SET NAMES utf8mb4; CREATE DATABASE {schema}; USE {schema};\n{}", pitfall.sql);
        rig.source.sql(&sql).await.with_context(|| pitfall.name)?;
    }
    Ok(())
}

/// Applies the log from its start to a target from which the databases of the workloads were dropped.
async fn replay(
    rig: &Rig,
    pitfalls: &[Pitfall],
    name: &str,
    change: impl FnOnce(&mut ChannelOptions),
) -> Result<()> {
    for pitfall in pitfalls {
        let sql = format!(
            "SET sql_log_bin = 0; SET foreign_key_checks = 0; DROP DATABASE IF EXISTS {}",
            schema(pitfall)
        );
        rig.target.sql(&sql).await?;
    }
    let mut options = rig.options(name);
    options.start = ChannelStart::Oldest;
    change(&mut options);
    let channel = rig.channel(options);
    rig.wait_applied(&channel).await.with_context(|| name.to_owned())?;
    channel.shut_down().await;
    for pitfall in pitfalls {
        compare(&rig.source, &schema(pitfall), &rig.target, &schema(pitfall), name).await?;
        indexes_are_whole(&rig.target, &schema(pitfall)).await.with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Checks with CHECK TABLE that the indexes of every table contain exactly the table's rows.
async fn indexes_are_whole(target: &Server, schema: &str) -> Result<()> {
    let tables = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}' AND table_type = 'BASE TABLE'"
    );
    for table in target.sql(&tables).await? {
        let answer =
            target.sql(&format!("CHECK TABLE {schema}.`{}` EXTENDED", table.replace('`', "``"))).await?;
        let whole = answer.last().is_some_and(|line| line.ends_with("status\tOK"));
        // A note is not an error: it says that the storage engine does not support CHECK TABLE.
        ensure!(
            whole || answer.iter().any(|line| line.contains("\tnote\t")),
            "CHECK TABLE reports an error: {answer:?}"
        );
    }
    Ok(())
}

/// Returns the next AUTO_INCREMENT values of the tables.
async fn next_numbers(server: &Server) -> Result<Vec<String>> {
    let insert =
        "SET sql_log_bin = 0; USE trap_auto_increment; INSERT INTO t (v) VALUES (1); SELECT LAST_INSERT_ID();
        INSERT INTO gone (v) VALUES (1); SELECT LAST_INSERT_ID(); INSERT INTO moved (v) VALUES (1); SELECT LAST_INSERT_ID();
        INSERT INTO beside (id) VALUES (9); SELECT LAST_INSERT_ID()";
    Ok(server.sql(insert).await?)
}

async fn pitfalls_are_applied_correctly(kind: ServerKind) -> Result<()> {
    let options = ["--character-set-server=utf8mb4", "--binlog-format=ROW"];
    let Some(rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    let pitfalls = pitfalls(kind.flavour());
    run_on_source(&rig, &pitfalls).await?;
    replay(&rig, &pitfalls, "streamed", |options| options.transaction_bytes_max = 150).await?;
    replay(&rig, &pitfalls, "small batches", |options| {
        options.commit_order = CommitOrder::Independent;
        options.batch_transactions_max = 2;
    })
    .await?;
    replay(&rig, &pitfalls, "large batches", |options| {
        options.commit_order = CommitOrder::Source;
    })
    .await?;
    if kind.flavour() == Flavour::MariaDb {
        let history =
            "SELECT id, v, ROW_START, ROW_END FROM trap_row_history.t FOR SYSTEM_TIME ALL ORDER BY 1, 3, 4;
            SELECT id, v, b, e FROM trap_row_history.own FOR SYSTEM_TIME ALL ORDER BY 1, 3, 4;
            SELECT a, ROW_START, ROW_END FROM trap_row_history.k FOR SYSTEM_TIME ALL ORDER BY 1, 2, 3";
        ensure!(
            rig.source.sql(history).await? == rig.target.sql(history).await?,
            "source and target return different rows: {history}"
        );
        // Like a replica, the target does not get sequence values that the source has cached in memory.
        let sequences = "USE trap_sequences; SELECT * FROM s; SELECT * FROM other";
        let (ours, theirs) = (rig.source.sql(sequences).await?, rig.target.sql(sequences).await?);
        ensure!(
            ours == theirs && ours.len() == 2,
            "the sequences differ: source {ours:?}, target {theirs:?}"
        );
    }
    let (ours, theirs) = (next_numbers(&rig.source).await?, next_numbers(&rig.target).await?);
    ensure!(
        ours == theirs && ours.len() == 4,
        "the AUTO_INCREMENT counters differ: source {ours:?}, target {theirs:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfalls_are_applied_correctly_on_mysql_97() -> Result<()> {
    pitfalls_are_applied_correctly(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfalls_are_applied_correctly_on_mariadb_1011() -> Result<()> {
    pitfalls_are_applied_correctly(ServerKind::Mariadb1011).await
}
