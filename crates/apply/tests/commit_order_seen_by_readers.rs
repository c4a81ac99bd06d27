//! Reads from the target while one transaction is blocked. In source order, a reader sees no later
//! transaction. In independent order, a reader sees all transactions that do not access the same rows.

use std::time::Duration;
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;

use anyhow::{Context, Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::ChannelOptions;
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::ServerKind;
use tailwater_session::Connection;

use crate::channel_test_servers::Rig;
use crate::faults::in_time;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_readers_see_the_commit_order() -> Result<()> {
    both_orders(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_readers_see_the_commit_order() -> Result<()> {
    if is_skipped_in_ci("mysql_readers_see_the_commit_order", "the same test on MariaDB") {
        return Ok(());
    }
    both_orders(ServerKind::Mysql97).await
}

/// The number of chains. Each transaction changes the rows of one chain, and the chains take turns.
const CHAINS: u64 = 5;

/// The number of the transaction that also needs a row that another client has locked.
const BLOCKED_LINK: u64 = 50;

const TRANSACTIONS: u64 = 120;

/// How many times the test checks that no transaction commits too early.
const CHECKS: usize = 20;

async fn both_orders(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    for (schema, order) in [("ordered", CommitOrder::Source), ("free", CommitOrder::Independent)] {
        while_one_is_blocked(&rig, schema, order).await.with_context(|| format!("commit order {order:?}"))?;
        rig.ensure_equal(&[schema]).await?;
    }
    Ok(())
}

/// Commits transactions on the source. Each transaction inserts its number into its chain, and records that
/// it is the last transaction of the chain.
async fn commit_all(rig: &Rig, schema: &str) -> Result<()> {
    let mut source = Connection::connect(&rig.source.connect_options()).await?;
    source.execute(&format!("USE {schema}")).await?;
    for n in 1..=TRANSACTIONS {
        let chain = n % CHAINS;
        source.execute("BEGIN").await?;
        source.execute(&format!("INSERT INTO link VALUES ({n}, {chain})")).await?;
        if n == BLOCKED_LINK {
            source.execute("UPDATE gate SET n = 1").await?;
        }
        source.execute(&format!("UPDATE last SET n = {n} WHERE chain = {chain}")).await?;
        source.execute("COMMIT").await?;
    }
    Ok(())
}

/// Returns the last visible transaction number of each chain, from one snapshot. Fails if a transaction is
/// visible only in part, or without the previous transaction of its chain.
async fn chains(reader: &mut Connection, schema: &str) -> Result<Vec<u64>> {
    let sql = format!(
        "SELECT last.n, COUNT(link.n), COALESCE(MAX(link.n), 0) FROM {schema}.last LEFT JOIN {schema}.link \
         ON link.chain = last.chain GROUP BY last.chain, last.n ORDER BY last.chain"
    );
    let mut ends = Vec::new();
    for (chain, row) in (0..).zip(&reader.query(&sql).await?.rows) {
        let number = |column| row.get_u64(column).context("the query must return a number");
        let (last, links, newest) = (number(0)?, number(1)?, number(2)?);
        ensure!(
            last == newest,
            "chain {chain}: {last} is recorded as the last transaction, but {newest} is the newest"
        );
        ensure!(
            links == (last + CHAINS - chain) / CHAINS - u64::from(chain == 0),
            "chain {chain}: only {links} transactions are visible, but the newest visible transaction is {last}"
        );
        ends.push(last);
    }
    ensure!(ends.len() as u64 == CHAINS, "wrong number of chains: {ends:?}");
    Ok(ends)
}

/// Returns the number of the newest visible transaction. Fails if an earlier transaction is not visible.
fn without_gaps(ends: &[u64]) -> Result<u64> {
    let newest = ends.iter().copied().max().unwrap_or(0);
    let is_next =
        |(chain, end): (u64, &u64)| *end == newest.saturating_sub((newest + CHAINS - chain) % CHAINS);
    ensure!(
        (0..).zip(ends).all(is_next),
        "transaction {newest} is visible, but some earlier transactions are not: {ends:?}"
    );
    Ok(newest)
}

async fn while_one_is_blocked(rig: &Rig, schema: &str, order: CommitOrder) -> Result<()> {
    rig.source
        .sql(&format!(
            "CREATE DATABASE {schema}; USE {schema}; CREATE TABLE link (n INT PRIMARY KEY, chain INT); \
             CREATE TABLE last (chain INT PRIMARY KEY, n INT); CREATE TABLE gate (id INT PRIMARY KEY, n INT); \
             INSERT INTO last VALUES (0,0),(1,0),(2,0),(3,0),(4,0); INSERT INTO gate VALUES (1,0)"
        ))
        .await?;
    // A batch has only one transaction, so that the blocked transaction does not block others in its batch.
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
            // If the list of open transactions is read twice within 0.1 s, servers return the old list.
            tokio::time::sleep(Duration::from_millis(150)).await;
            if rig.target.sql(waiting).await? == ["1"] {
                return Ok(());
            }
        }
    };
    in_time("the blocked transaction waits for the lock", is_held_up).await?;
    let all_that_may = async {
        loop {
            let ends = chains(&mut reader, schema).await?;
            let is_so = match order {
                CommitOrder::Source => without_gaps(&ends)? == BLOCKED_LINK - 1,
                CommitOrder::Independent => {
                    ends[0] == BLOCKED_LINK - CHAINS
                        && ends[1..].iter().all(|end| *end > TRANSACTIONS - CHAINS)
                }
            };
            if is_so {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time("all transactions except the blocked one commit", all_that_may).await?;
    for _ in 0..CHECKS {
        let ends = chains(&mut reader, schema).await?;
        let held_up = BLOCKED_LINK - CHAINS;
        ensure!(ends[0] == held_up, "wrong last transaction of the blocked chain: {ends:?}");
        ensure!(
            order == CommitOrder::Independent || without_gaps(&ends)? < BLOCKED_LINK,
            "in source order, a later transaction committed before the blocked transaction: {ends:?}"
        );
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
    in_time("all transactions commit", done).await?;
    rig.wait_applied(&channel).await?;
    channel.shut_down().await;
    Ok(())
}

/// Number of transactions in a backlog that is applied in batches.
const BACKLOG: u64 = 2500;

/// Number of counters. Each transaction adds to one of them.
const COUNTERS: u64 = 250;

/// The number of the transaction that also needs a row that another client has locked.
const BLOCKED: u64 = 900;

/// Returns a channel with a backlog, and a client that has locked a row on the target. Transaction
/// [`BLOCKED`] changes that row.
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
    // Make the transactions so large that executing a batch takes the target longer than its commit. Batches
    // then execute in parallel.
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

/// In independent order, a backlog is applied in batches that commit one after another, until one of them is
/// blocked. Then all later transactions that share no row with the blocked one commit before it.
async fn backlog_passes_a_blocked_transaction(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let (channel, mut other) = blocked_backlog(&rig).await?;
    channel.resume(None).await?;
    let mut reader = Connection::connect(&rig.target.connect_options()).await?;
    // At most about two fifths of the later transactions must wait: those in the same batch, and those with
    // the same counter. So at least half of the later transactions must commit before the blocked one.
    let passed = (BACKLOG - BLOCKED) / 2;
    let mut look = async || -> Result<u64> {
        let sql = format!(
            "SELECT COUNT(*), COALESCE(SUM(n % {COUNTERS} = {}), 0) FROM late.row_of WHERE n >= {BLOCKED}",
            BLOCKED % COUNTERS
        );
        let found = reader.query(&sql).await?;
        let number = |column| {
            found.first().and_then(|row| row.get_u64(column)).context("the query must return a number")
        };
        ensure!(
            number(1)? == 0,
            "a transaction that changes the same row of late.counter must not commit before the blocked transaction"
        );
        number(0)
    };
    let all_that_may = async {
        while look().await? < passed {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    in_time("half of the transactions after the blocked one commit", all_that_may).await?;
    for _ in 0..CHECKS {
        look().await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    other.execute("ROLLBACK").await?;
    rig.wait_applied(&channel).await?;
    ensure!(
        channel.status().borrow().yields_total > 0,
        "no batch yielded, so the backlog was not applied in runs"
    );
    let sum = rig.target.sql("SELECT SUM(n) FROM late.counter").await?;
    ensure!(sum == [BACKLOG.to_string()], "not all transactions were applied: {sum:?}");
    rig.ensure_equal(&["late"]).await?;
    channel.shut_down().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_backlog_passes_a_blocked_transaction() -> Result<()> {
    backlog_passes_a_blocked_transaction(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_backlog_passes_a_blocked_transaction() -> Result<()> {
    backlog_passes_a_blocked_transaction(ServerKind::Mysql97).await
}

/// If a channel is stopped while a batch is blocked, the applied transactions have no gaps, and no later
/// transaction is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_backlog_stops_without_gaps() -> Result<()> {
    let Some(rig) = Rig::start(ServerKind::Mariadb1011, &[], &[]).await? else { return Ok(()) };
    let (channel, mut other) = blocked_backlog(&rig).await?;
    channel.resume(None).await?;
    let mut reader = Connection::connect(&rig.target.connect_options()).await?;
    let mut look = async || -> Result<(u64, u64)> {
        let found = reader.query("SELECT COUNT(*), COALESCE(MAX(n), 0) FROM late.row_of").await?;
        let number = |column| {
            found.first().and_then(|row| row.get_u64(column)).context("the query must return a number")
        };
        Ok((number(0)?, number(1)?))
    };
    let is_near = async {
        while look().await?.0 < BLOCKED - 300 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    in_time("the channel reaches the locked row", is_near).await?;
    let stop = async {
        // Hold the lock until the scheduler asks the batches that wait for the blocked batch to commit in
        // part. Then release the lock.
        let released = async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            other.execute("ROLLBACK").await
        };
        let (stopped, released) = tokio::join!(channel.pause(), released);
        stopped?;
        released?;
        Ok(())
    };
    in_time("the channel stops", stop).await?;
    let (rows, newest) = look().await?;
    ensure!(
        rows == newest && rows < BACKLOG,
        "the applied transactions have a gap: the target has {rows} rows, but its newest transaction is {newest}"
    );
    channel.resume(None).await?;
    rig.wait_applied(&channel).await?;
    rig.ensure_equal(&["late"]).await?;
    channel.shut_down().await;
    Ok(())
}
