//! What a reader of the target sees while one transaction cannot go on: in the source's order nothing that comes behind it,
//! in independent order all that does not touch the same rows.

use std::time::Duration;
use tailwater_sandbox::require::is_skipped_in_ci;

use anyhow::{Context, Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::ChannelOptions;
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::ServerKind;
use tailwater_session::Connection;

use crate::faults::in_time;
use crate::support::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_mariadb_sees_them() -> Result<()> {
    both_orders(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_mysql_sees_them() -> Result<()> {
    if is_skipped_in_ci("a_reader_of_mysql_sees_them", "that of MariaDB") {
        return Ok(());
    }
    both_orders(ServerKind::Mysql97).await
}

/// Transactions touch the rows of one chain, in turn.
const CHAINS: u64 = 5;

/// This one also wants a row that somebody else has locked.
const HELD_UP: u64 = 50;

const TRANSACTIONS: u64 = 120;

/// How often it is looked whether something passes what may not be passed.
const LOOKS: usize = 20;

async fn both_orders(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    for (schema, order) in [("ordered", CommitOrder::Source), ("free", CommitOrder::Independent)] {
        while_one_is_held_up(&rig, schema, order).await.with_context(|| format!("{order:?}"))?;
        rig.ensure_equal(&[schema]).await?;
    }
    Ok(())
}

/// Each transaction adds its number to its chain, and says that it is the chain's last.
async fn commit_all(rig: &Rig, schema: &str) -> Result<()> {
    let mut source = Connection::connect(&rig.source.connect_options()).await?;
    source.execute(&format!("USE {schema}")).await?;
    for n in 1..=TRANSACTIONS {
        let chain = n % CHAINS;
        source.execute("BEGIN").await?;
        source.execute(&format!("INSERT INTO link VALUES ({n}, {chain})")).await?;
        if n == HELD_UP {
            source.execute("UPDATE gate SET n = 1").await?;
        }
        source.execute(&format!("UPDATE last SET n = {n} WHERE chain = {chain}")).await?;
        source.execute("COMMIT").await?;
    }
    Ok(())
}

/// How far each chain is, in one look. A transaction that is half there, or without one before it in its chain, is an error.
async fn chains(reader: &mut Connection, schema: &str) -> Result<Vec<u64>> {
    let sql = format!(
        "SELECT last.n, COUNT(link.n), COALESCE(MAX(link.n), 0) FROM {schema}.last LEFT JOIN {schema}.link \
         ON link.chain = last.chain GROUP BY last.chain, last.n ORDER BY last.chain"
    );
    let mut ends = Vec::new();
    for (chain, row) in (0..).zip(&reader.query(&sql).await?.rows) {
        let number = |column| row.get_u64(column).context("a number");
        let (last, links, newest) = (number(0)?, number(1)?, number(2)?);
        ensure!(last == newest, "chain {chain}: {last} is the last and {newest} the newest");
        ensure!(
            links == (last + CHAINS - chain) / CHAINS - u64::from(chain == 0),
            "chain {chain}: {links} to {last}"
        );
        ends.push(last);
    }
    ensure!(ends.len() as u64 == CHAINS, "{ends:?}");
    Ok(ends)
}

/// The number behind which something is missing, of a reader who sees no gaps.
fn without_gaps(ends: &[u64]) -> Result<u64> {
    let newest = ends.iter().copied().max().unwrap_or(0);
    let is_next =
        |(chain, end): (u64, &u64)| *end == newest.saturating_sub((newest + CHAINS - chain) % CHAINS);
    ensure!((0..).zip(ends).all(is_next), "{newest} is there without all before it: {ends:?}");
    Ok(newest)
}

async fn while_one_is_held_up(rig: &Rig, schema: &str, order: CommitOrder) -> Result<()> {
    rig.source
        .sql(&format!(
            "CREATE DATABASE {schema}; USE {schema}; CREATE TABLE link (n INT PRIMARY KEY, chain INT); \
             CREATE TABLE last (chain INT PRIMARY KEY, n INT); CREATE TABLE gate (id INT PRIMARY KEY, n INT); \
             INSERT INTO last VALUES (0,0),(1,0),(2,0),(3,0),(4,0); INSERT INTO gate VALUES (1,0)"
        ))
        .await?;
    // One by one: what is held up holds up nothing that happens to be in the same batch.
    let options = ChannelOptions {
        workers: 4,
        commit_order: order,
        batch_transactions_max: 1,
        ..rig.options("orders")
    };
    let channel = rig.channel(options);
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    let mut other = Connection::connect(&rig.target.connect_options()).await?;
    other.execute("BEGIN").await?;
    other.query(&format!("SELECT * FROM {schema}.gate WHERE id = 1 FOR UPDATE")).await?;
    commit_all(rig, schema).await?;
    channel.resume(None).await?;

    let mut reader = Connection::connect(&rig.target.connect_options()).await?;
    let waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    let is_held_up = async {
        loop {
            // Servers show what was, as long as it is looked at more often than every 0.1 s.
            tokio::time::sleep(Duration::from_millis(150)).await;
            if rig.target.sql(waiting).await? == ["1"] {
                return Ok(());
            }
        }
    };
    in_time("that one is held up", is_held_up).await?;
    let all_that_may = async {
        loop {
            let ends = chains(&mut reader, schema).await?;
            let is_so = match order {
                CommitOrder::Source => without_gaps(&ends)? == HELD_UP - 1,
                CommitOrder::Independent => {
                    ends[0] == HELD_UP - CHAINS && ends[1..].iter().all(|end| *end > TRANSACTIONS - CHAINS)
                }
            };
            if is_so {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time("all that may commit", all_that_may).await?;
    for _ in 0..LOOKS {
        let ends = chains(&mut reader, schema).await?;
        let held_up = HELD_UP - CHAINS;
        ensure!(ends[0] == held_up, "{ends:?}");
        ensure!(order == CommitOrder::Independent || without_gaps(&ends)? < HELD_UP, "{ends:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    other.execute("ROLLBACK").await?;
    let done = async {
        loop {
            let ends = chains(&mut reader, schema).await?;
            let newest = if order == CommitOrder::Source { without_gaps(&ends)? } else { ends[0] };
            if newest == TRANSACTIONS {
                return Ok(());
            }
        }
    };
    in_time("all of it commits", done).await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    Ok(())
}

/// Transactions of a backlog that is applied in runs.
const BACKLOG: u64 = 2500;

/// Each of them adds to one of so many counters.
const COUNTERS: u64 = 250;

/// This one also wants a row that somebody else has locked.
const BLOCKED: u64 = 900;

/// A backlog, a channel that is to apply it, and somebody who has locked a row of the target that it changes.
async fn blocked_backlog(rig: &Rig) -> Result<(Channel, Connection)> {
    rig.source
        .sql(
            "CREATE DATABASE late; USE late; CREATE TABLE row_of (n INT PRIMARY KEY); \
             CREATE TABLE bulk (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b CHAR(100), KEY (a)); CREATE TABLE counter (id INT PRIMARY KEY, n INT NOT NULL); CREATE TABLE gate (id INT PRIMARY KEY, n INT); \
             INSERT INTO gate VALUES (1,0)",
        )
        .await?;
    let rows: Vec<_> = (0..COUNTERS).map(|id| format!("({id},0)")).collect();
    rig.source.sql(&format!("INSERT INTO late.counter VALUES {}", rows.join(","))).await?;
    let options = ChannelOptions {
        workers: 4,
        commit_order: CommitOrder::Independent,
        batch_transactions_max: 100,
        ..rig.options("late")
    };
    let channel = rig.channel(options);
    rig.wait_applied(&channel).await?;
    channel.pause().await?;
    let mut other = Connection::connect(&rig.target.connect_options()).await?;
    other.execute("BEGIN").await?;
    other.query("SELECT * FROM late.gate WHERE id = 1 FOR UPDATE").await?;
    let mut source = Connection::connect(&rig.source.connect_options()).await?;
    // It takes the target longer to execute than to commit: so runs execute beside each other.
    let many = vec!["(1,'x')"; 40].join(",");
    for n in 1..=BACKLOG {
        source.execute("BEGIN").await?;
        source.execute(&format!("INSERT INTO late.bulk (a, b) VALUES {many}")).await?;
        source.execute(&format!("INSERT INTO late.row_of VALUES ({n})")).await?;
        if n == BLOCKED {
            source.execute("UPDATE late.gate SET n = 1").await?;
        }
        source.execute(&format!("UPDATE late.counter SET n = n + 1 WHERE id = {}", n % COUNTERS)).await?;
        source.execute("COMMIT").await?;
    }
    Ok((channel, other))
}

/// In independent order a backlog is applied in runs that commit one behind the other, until one of them is held up: then everything
/// passes it that shares nothing with it.
async fn a_backlog_passes_what_is_held_up(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let (channel, mut other) = blocked_backlog(&rig).await?;
    channel.resume(None).await?;
    let mut reader = Connection::connect(&rig.target.connect_options()).await?;
    // What was in a batch with it, or shares a counter with that, is two fifths of what comes behind it.
    let passed = (BACKLOG - BLOCKED) / 2;
    let mut look = async || -> Result<u64> {
        let sql = format!(
            "SELECT COUNT(*), COALESCE(SUM(n % {COUNTERS} = {}), 0) FROM late.row_of WHERE n >= {BLOCKED}",
            BLOCKED % COUNTERS
        );
        let found = reader.query(&sql).await?;
        let number = |column| found.first().and_then(|row| row.get_u64(column)).context("a number");
        ensure!(number(1)? == 0, "what shares a counter with it has passed it");
        number(0)
    };
    let all_that_may = async {
        while look().await? < passed {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    in_time("half of what is behind passes", all_that_may).await?;
    for _ in 0..LOOKS {
        look().await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    other.execute("ROLLBACK").await?;
    rig.wait_applied(&channel).await?;
    ensure!(channel.status().borrow().yields_total > 0, "it was not applied in runs");
    let sum = rig.target.sql("SELECT SUM(n) FROM late.counter").await?;
    ensure!(sum == [BACKLOG.to_string()], "{sum:?}");
    rig.ensure_equal(&["late"]).await?;
    channel.shut_down().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_of_mariadb_passes_what_is_held_up() -> Result<()> {
    a_backlog_passes_what_is_held_up(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_of_mysql_passes_what_is_held_up() -> Result<()> {
    a_backlog_passes_what_is_held_up(ServerKind::Mysql97).await
}

/// Who stops a channel while a run is held up gets what has no gaps, and nothing is lost of what stood behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_that_is_held_up_stops_without_gaps() -> Result<()> {
    let Some(rig) = Rig::start(ServerKind::Mariadb1011, &[], &[]).await? else { return Ok(()) };
    let (channel, mut other) = blocked_backlog(&rig).await?;
    channel.resume(None).await?;
    let mut reader = Connection::connect(&rig.target.connect_options()).await?;
    let mut look = async || -> Result<(u64, u64)> {
        let found = reader.query("SELECT COUNT(*), COALESCE(MAX(n), 0) FROM late.row_of").await?;
        let number = |column| found.first().and_then(|row| row.get_u64(column)).context("a number");
        Ok((number(0)?, number(1)?))
    };
    let is_near = async {
        while look().await?.0 < BLOCKED - 300 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    in_time("it comes near to what is locked", is_near).await?;
    let stop = async {
        // Longer than anything is waited for before those behind it are told.
        let released = async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            other.execute("ROLLBACK").await
        };
        let (stopped, released) = tokio::join!(channel.pause(), released);
        stopped?;
        released?;
        Ok(())
    };
    in_time("it stops", stop).await?;
    let (rows, newest) = look().await?;
    ensure!(rows == newest && rows < BACKLOG, "{rows} rows up to {newest}");
    channel.resume(None).await?;
    rig.wait_applied(&channel).await?;
    rig.ensure_equal(&["late"]).await?;
    channel.shut_down().await;
    Ok(())
}
