//! The pages that transactions need are in the replica's buffer pool before it applies them, and the account
//! of the prefetch writes nothing.

use anyhow::ensure;
use tailwater_sandbox::ServerKind;
use tailwater_wire::Flavour;

use crate::cold_replica::{ColdReplica, ROWS, RunningPrefetch};

/// A small pool: the table is several times larger.
const POOL_MIB: u64 = 16;

/// The number of updates. All their pages fit into the old part of the buffer pool (3/8), where pages stay
/// that were read only once.
const UPDATES: u64 = 25;

on_each_server!(rows_are_read_before_they_are_applied, statements_are_read_before_they_are_applied);

/// Changes rows that are far from each other. Each needs a page of the table, and the update pages of both
/// indexes.
fn updates(first: u64) -> String {
    let mut sql = String::new();
    for number in 0..UPDATES {
        let id = 1 + (first + number * (ROWS / UPDATES)) % ROWS;
        sql.push_str(&format!("UPDATE d.t SET a = a + 1000000, b = CONCAT(b, '-') WHERE id = {id};"));
    }
    sql
}

async fn rows_are_read_before_they_are_applied(kind: ServerKind) -> anyhow::Result<()> {
    let Some(servers) = ColdReplica::start(kind, POOL_MIB).await? else { return Ok(()) };
    servers.stop_applier().await?;
    servers.source.sql(&updates(1)).await?;
    servers.evict().await?;
    let without = servers.apply().await?;
    ensure!(without >= 40, "{kind}: without prefetch, the applier has read only {without} pages");

    servers.stop_applier().await?;
    servers.source.sql(&updates(500)).await?;
    servers.evict().await?;
    servers.replica.sql("SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = ON").await?;
    let prefetch = RunningPrefetch::start(servers.options());
    // Each update has its row, and the old and new entry of two indexes.
    let read = prefetch.wait_for("all keys are read", |status| status.keys >= UPDATES * 5).await?;
    ensure!(read.failed == 0 && read.late == 0, "{kind}: {read:?}");
    ensure!(read.transactions >= UPDATES && read.bytes_ahead > 0, "{kind}: {read:?}");
    servers.replica.sql("SET GLOBAL general_log = OFF").await?;
    let with = servers.apply().await?;
    // A page of its undo log, which each transaction needs, too, is not read ahead.
    ensure!(
        with + UPDATES * 2 <= without,
        "{kind}: the applier has read {with} pages with and {without} without prefetch"
    );
    let applied = prefetch.wait_for("the window is empty", |status| status.bytes_ahead == 0).await?;
    ensure!(applied.rows_applied >= UPDATES && applied.hit_ratio == Some(1.0), "{kind}: {applied:?}");
    prefetch.stop().await?;
    only_reads(&servers).await
}

/// Whatever the prefetch sent was a SELECT or a setting of its session, and the replica has no transactions
/// of its own.
async fn only_reads(servers: &ColdReplica) -> anyhow::Result<()> {
    let statements = servers
        .replica
        .sql(
            "SELECT argument FROM mysql.general_log WHERE user_host LIKE '%ahead%' AND command_type IN ('Query', 'Execute')",
        )
        .await?;
    ensure!(statements.len() >= 20, "the log has only {} statements", statements.len());
    for statement in &statements {
        let is_read =
            ["SELECT ", "SHOW ", "SET SESSION ", "USE "].iter().any(|word| statement.starts_with(word));
        ensure!(is_read, "the prefetch has sent {statement}");
    }
    if servers.flavour() == Flavour::MySql {
        let own =
            servers.replica.sql("SELECT @@global.gtid_executed LIKE CONCAT('%', @@server_uuid, '%')").await?;
        ensure!(own == ["0"], "the replica has transactions of its own");
    }
    Ok(())
}

async fn statements_are_read_before_they_are_applied(kind: ServerKind) -> anyhow::Result<()> {
    let Some(servers) = ColdReplica::start(kind, POOL_MIB).await? else { return Ok(()) };
    servers.stop_applier().await?;
    let statements = |from: u64| {
        let to = from + 400;
        // The last one calls a function that the prefetch must not call.
        format!(
            "SET SESSION binlog_format = STATEMENT; USE d;
             UPDATE t SET a = a + 1 WHERE id BETWEEN {from} AND {to};
             DELETE FROM t WHERE id = 7;
             UPDATE t SET a = 3 WHERE id = 9 AND SLEEP(0) = 0;"
        )
    };
    servers.source.sql(&statements(20_000)).await?;
    servers.evict().await?;
    let without = servers.apply().await?;
    ensure!(without >= 20, "{kind}: without prefetch, the applier has read only {without} pages");

    servers.stop_applier().await?;
    servers.source.sql(&statements(10_000)).await?;
    servers.evict().await?;
    let prefetch = RunningPrefetch::start(servers.options());
    let read = prefetch
        .wait_for("both statements are read", |status| {
            status.queries >= 2 && status.skipped.contains_key("statement_function")
        })
        .await?;
    ensure!(read.failed == 0, "{kind}: {read:?}");
    // The pages of index on_a are not read ahead, because a statement does not show the old values.
    let with = servers.apply().await?;
    ensure!(with < without, "{kind}: the applier has read {with} pages with and {without} without prefetch");
    prefetch.stop().await?;
    Ok(())
}
