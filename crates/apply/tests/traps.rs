//! The traps that others fell into: streamed, in small batches of any order, and in large ones of the source's.

use anyhow::{Context, Result, ensure};
use tailwater_apply::channel::{ChannelOptions, ChannelStart};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::{Server, ServerKind};
use tailwater_wire::Flavour;

use crate::binlog_statements::compare;
use crate::support::Rig;
use crate::trap_workloads::{Trap, traps};

fn schema(trap: &Trap) -> String {
    format!("trap_{}", trap.name)
}

/// Runs them on the source.
async fn spring(rig: &Rig, traps: &[Trap]) -> Result<()> {
    for trap in traps {
        let schema = schema(trap);
        let sql = format!("SET NAMES utf8mb4; CREATE DATABASE {schema}; USE {schema};\n{}", trap.sql);
        rig.source.sql(&sql).await.with_context(|| trap.name)?;
    }
    Ok(())
}

/// Applies the log from its beginning, to a target that has nothing of it.
async fn replay(
    rig: &Rig,
    traps: &[Trap],
    name: &str,
    change: impl FnOnce(&mut ChannelOptions),
) -> Result<()> {
    for trap in traps {
        let sql = format!(
            "SET sql_log_bin = 0; SET foreign_key_checks = 0; DROP DATABASE IF EXISTS {}",
            schema(trap)
        );
        rig.target.sql(&sql).await?;
    }
    let mut options = rig.options(name);
    options.start = ChannelStart::Oldest;
    change(&mut options);
    let channel = rig.channel(options);
    rig.wait_applied(&channel).await.with_context(|| name.to_owned())?;
    channel.shut_down().await;
    for trap in traps {
        compare(&rig.source, &schema(trap), &rig.target, &schema(trap), name).await?;
        indexes_are_whole(&rig.target, &schema(trap)).await.with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Whether the rows of every table are in all of its indexes, and nothing else is.
async fn indexes_are_whole(target: &Server, schema: &str) -> Result<()> {
    let tables = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}' AND table_type = 'BASE TABLE'"
    );
    for table in target.sql(&tables).await? {
        let answer =
            target.sql(&format!("CHECK TABLE {schema}.`{}` EXTENDED", table.replace('`', "``"))).await?;
        let whole = answer.last().is_some_and(|line| line.ends_with("status\tOK"));
        // What an engine cannot check it says in a note.
        ensure!(whole || answer.iter().any(|line| line.contains("\tnote\t")), "{answer:?}");
    }
    Ok(())
}

/// What the next row of a table with a counter is numbered.
async fn next_numbers(server: &Server) -> Result<Vec<String>> {
    let insert =
        "SET sql_log_bin = 0; USE trap_auto_increment; INSERT INTO t (v) VALUES (1); SELECT LAST_INSERT_ID();
        INSERT INTO gone (v) VALUES (1); SELECT LAST_INSERT_ID(); INSERT INTO moved (v) VALUES (1); SELECT LAST_INSERT_ID();
        INSERT INTO beside (id) VALUES (9); SELECT LAST_INSERT_ID()";
    Ok(server.sql(insert).await?)
}

async fn nobody_falls_into_them(kind: ServerKind) -> Result<()> {
    let options = ["--character-set-server=utf8mb4", "--binlog-format=ROW"];
    let Some(rig) = Rig::start(kind, &options, &options).await? else { return Ok(()) };
    let traps = traps(kind.flavour());
    spring(&rig, &traps).await?;
    replay(&rig, &traps, "streamed", |options| options.transaction_bytes_max = 150).await?;
    replay(&rig, &traps, "small batches", |options| {
        options.commit_order = CommitOrder::Independent;
        options.batch_transactions_max = 2;
    })
    .await?;
    replay(&rig, &traps, "large batches", |options| {
        options.commit_order = CommitOrder::Source;
    })
    .await?;
    if kind.flavour() == Flavour::MariaDb {
        let history =
            "SELECT id, v, ROW_START, ROW_END FROM trap_row_history.t FOR SYSTEM_TIME ALL ORDER BY 1, 3, 4;
            SELECT id, v, b, e FROM trap_row_history.own FOR SYSTEM_TIME ALL ORDER BY 1, 3, 4;
            SELECT a, ROW_START, ROW_END FROM trap_row_history.k FOR SYSTEM_TIME ALL ORDER BY 1, 2, 3";
        ensure!(rig.source.sql(history).await? == rig.target.sql(history).await?, "{history}");
        // What the source holds ready in memory is lost to the target, as to a replica.
        let sequences = "USE trap_sequences; SELECT * FROM s; SELECT * FROM other";
        let (ours, theirs) = (rig.source.sql(sequences).await?, rig.target.sql(sequences).await?);
        ensure!(ours == theirs && ours.len() == 2, "{ours:?} {theirs:?}");
    }
    let (ours, theirs) = (next_numbers(&rig.source).await?, next_numbers(&rig.target).await?);
    ensure!(ours == theirs && ours.len() == 4, "counters go on differently: {ours:?} {theirs:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_falls_into_them_on_mysql_97() -> Result<()> {
    nobody_falls_into_them(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_falls_into_them_on_mariadb_1011() -> Result<()> {
    nobody_falls_into_them(ServerKind::Mariadb1011).await
}
