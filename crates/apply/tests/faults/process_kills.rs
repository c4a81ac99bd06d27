//! Kills the applier and the target, and breaks connections, at random moments under load.

use std::time::Duration;

use anyhow::{Result, ensure};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tailwater_apply::channel::{ChannelOptions, GtidMode};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_log::AckMode;
use tailwater_sandbox::{Link, ServerKind};
use tailwater_session::Endpoint;
use tailwater_wire::Flavour;

use super::{Applier, TALLY, Tally, is_long, seeded};
use crate::channel_test_servers::{Rig, spec};

/// Options of a target that loses no commit in a crash.
const DURABLE: &[&str] = &["--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"];

/// Options of a target that loses the commits of its last second in a crash.
const FORGETFUL: &[&str] = &["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    KillApplier,
    KillTarget,
    /// Kills the applier and the target. Afterwards the applier starts first, and waits for the target.
    KillBoth,
    /// Resets all connections of the applier. A commit that is running at this moment may succeed or fail.
    ResetLink,
    /// The target kills all connections of the applier.
    KillConnections,
}

#[derive(Debug, Default)]
struct Kills {
    applier: u32,
    target: u32,
    links: u32,
}

struct Play {
    rig: Rig,
    link: Link,
    options: ChannelOptions,
    applier: Option<Applier>,
    kills: Kills,
}

impl Play {
    async fn fault(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillApplier => self.kill_applier()?,
            Fault::KillTarget => self.kill_target(false).await?,
            Fault::KillBoth => self.kill_target(true).await?,
            Fault::ResetLink => {
                self.link.reset();
                self.kills.links += 1;
            }
            Fault::KillConnections => {
                let list = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND \
                            command IN ('Query', 'Sleep') AND user='root'";
                for id in self.rig.target.sql(list).await? {
                    // Ignore an error: the connection may have ended already.
                    let _ = self.rig.target.sql(&format!("KILL CONNECTION {id}")).await;
                }
                self.kills.links += 1;
            }
        }
        Ok(())
    }

    fn kill_applier(&mut self) -> Result<()> {
        if let Some(applier) = self.applier.take() {
            applier.kill();
            self.kills.applier += 1;
        }
        self.applier = Some(Applier::start(self.options.clone(), &self.rig)?);
        Ok(())
    }

    async fn kill_target(&mut self, both: bool) -> Result<()> {
        self.rig.target.kill().await?;
        self.kills.target += 1;
        if both {
            self.kill_applier()?;
        }
        self.rig.target.start_again().await?;
        Ok(())
    }
}

type Cast = (ServerKind, CommitOrder, GtidMode);

/// Injects `rounds` faults under load. Afterwards the source and the target must be equal.
async fn play((kind, order, gtid): Cast, random: &mut StdRng, rounds: u32) -> Result<()> {
    // In the modes in which the target logs applied transactions, it must sync its commits. Otherwise the
    // target's binlog and its data could differ after a kill.
    let durability = if gtid == GtidMode::Log { FORGETFUL } else { DURABLE };
    let (source, target) = (spec(kind, 1), spec(kind, 2).options(durability.iter().copied()));
    let Some(mut rig) = Rig::idle(source, target).await? else { return Ok(()) };
    // Choose the ACK mode so that each ACK mode is tested with each commit order and each GTID mode.
    let is_received = (order == CommitOrder::Source) == (kind.flavour() == Flavour::MariaDb);
    rig.ack = if is_received == (gtid == GtidMode::Log) { AckMode::Received } else { AckMode::Durable };
    rig.start_capture()?;
    Tally::prepare(&rig.source).await?;
    let link = Link::open(rig.target.address()).await?;
    let mut target = rig.target.connect_options();
    target.endpoint = Endpoint::tcp("127.0.0.1", link.port());
    let options = ChannelOptions {
        workers: random.random_range(1..5),
        commit_order: order,
        gtid,
        batch_transactions_max: random.random_range(1..40),
        target,
        ..rig.options("kills")
    };
    let applier = Some(Applier::start(options.clone(), &rig)?);
    // A target that syncs every transaction cannot keep up with five clients.
    let clients = if gtid == GtidMode::Preserve { 2 } else { 5 };
    let load = Tally::start(&rig.source, clients, random.random());
    let mut play = Play { rig, link, options, applier, kills: Kills::default() };
    // Each kind of fault happens at least once, if there are enough rounds.
    let all =
        [Fault::KillApplier, Fault::KillTarget, Fault::ResetLink, Fault::KillBoth, Fault::KillConnections];
    for round in 0..rounds {
        let pause = Duration::from_millis(random.random_range(0..600));
        tokio::time::sleep(pause).await;
        let fault = match all.get(round as usize) {
            Some(fault) => *fault,
            None => *all.choose(random).unwrap_or(&Fault::KillApplier),
        };
        eprintln!(
            "{kind}, commit order {order:?}, GTID mode {gtid:?}, ACK mode {:?}: injecting {fault:?} after {pause:?}",
            play.rig.ack
        );
        play.fault(fault).await?;
    }
    let transactions = load.stop().await?;
    if let Some(applier) = play.applier.take() {
        play.rig.wait_applied(&applier.channel).await?;
        applier.channel.pause().await?;
        play.rig.ensure_equal(TALLY).await?;
        Tally::ensure_counted(&play.rig.target, transactions).await?;
        if gtid == GtidMode::Preserve {
            ensure_logged(&play.rig).await?;
        }
        applier.end().await;
    }
    eprintln!(
        "{kind}, commit order {order:?}, GTID mode {gtid:?}: the clients committed {transactions} transactions; faults: {:?}",
        play.kills
    );
    Ok(())
}

/// Checks that the target has logged each transaction under the source's GTID.
async fn ensure_logged(rig: &Rig) -> Result<()> {
    let newest = rig.newest_gtid().await?.to_string();
    match rig.target.kind().flavour() {
        // GTIDs that were set but not logged are in gtid_purged.
        Flavour::MySql => {
            let purged = rig.target.sql("SELECT @@GLOBAL.gtid_purged").await?;
            ensure!(purged == [""], "the target has not logged these GTIDs: {purged:?}");
        }
        Flavour::MariaDb => {
            let logged = rig.target.sql("SELECT @@GLOBAL.gtid_binlog_state").await?.concat();
            ensure!(
                logged.split(',').any(|gtid| gtid == newest),
                "the target has logged up to {logged}, not up to {newest}"
            );
        }
    }
    Ok(())
}

async fn rounds(cast: Cast) -> Result<()> {
    let mut random = seeded(&format!("{cast:?}"));
    play(cast, &mut random, if is_long() { 15 } else { 5 }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_loses_nothing_when_killed_in_source_order() -> Result<()> {
    rounds((ServerKind::Mariadb1011, CommitOrder::Source, GtidMode::Log)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_loses_nothing_when_killed_in_independent_order() -> Result<()> {
    if tailwater_sandbox::server_or_skip::is_skipped_in_ci(
        "mysql_loses_nothing_when_killed_in_independent_order",
        "mysql_loses_nothing_when_killed_under_the_sources_gtids",
    ) {
        return Ok(());
    }
    rounds((ServerKind::Mysql97, CommitOrder::Independent, GtidMode::Log)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_loses_nothing_when_killed_under_the_sources_gtids() -> Result<()> {
    rounds((ServerKind::Mysql97, CommitOrder::Independent, GtidMode::Preserve)).await
}

/// A target logs transactions under the source's GTIDs and loses them in a crash. The channel must not assume
/// that the target still has these transactions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_a_mysql_target_logged_and_lost_are_detected() -> Result<()> {
    let Some(mut rig) = Rig::start(ServerKind::Mysql97, &[], FORGETFUL).await? else { return Ok(()) };
    Tally::prepare(&rig.source).await?;
    let options = ChannelOptions { gtid: GtidMode::Preserve, ..rig.options("lost") };
    let channel = rig.channel(options);
    rig.wait_applied(&channel).await?;
    rig.source.sql("INSERT INTO tally.notes VALUES (1, 1, 'lost')").await?;
    rig.wait_applied(&channel).await?;
    rig.target.kill().await?;
    rig.target.start_again().await?;
    rig.source.sql("INSERT INTO tally.notes VALUES (2, 2, 'new')").await?;
    match rig.wait_applied(&channel).await {
        // The target may have written the transactions to disk before it was killed.
        Ok(()) => rig.ensure_equal(TALLY).await?,
        Err(error) => {
            ensure!(format!("{error:#}").contains("TW-APP-0006"), "wrong error after the kill: {error:#}")
        }
    }
    channel.shut_down().await;
    Ok(())
}

/// Tests every combination of server, commit order and GTID mode. The test runs only in long test runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_orders_and_gtid_modes() -> Result<()> {
    if !is_long() {
        return Ok(());
    }
    for kind in [ServerKind::Mariadb1011, ServerKind::Mysql97] {
        for order in [CommitOrder::Source, CommitOrder::Independent] {
            for gtid in [GtidMode::Own, GtidMode::Preserve, GtidMode::Log] {
                rounds((kind, order, gtid)).await?;
            }
        }
    }
    Ok(())
}
