//! The target of a channel becomes primary, and other servers replicate from it by GTIDs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_manager::action_executor::{AckerError, ActionExecutor};
use tailwater_manager::actions::relay_log_drain::wait_executed;
use tailwater_manager::actions::replication_setup::{executed, read_from};
use tailwater_manager::actions::{ActionTimeouts, ChannelControl, ChannelFuture, ServerExecutor};
use tailwater_manager::candidates::ReplicationKind;
use tailwater_manager::model::{ActionOutcome, LeaseToken, RunAction};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use super::primary_promotion::{does, fails, participant, setup};
use super::test_cluster::{Cluster, PATIENCE, address, connect, rows, statement};

/// Replaces a channel with `gtid = "log"` in this test. When it stops, it publishes the applied transactions
/// as the GTID position of its target, because they are in no binlog. The real channel has its own tests.
struct Channel {
    target: ConnectOptions,
    brought: Mutex<Option<GtidSet>>,
    keeps_gtids: AtomicBool,
    is_whole: AtomicBool,
    is_paused: AtomicBool,
}

impl Channel {
    async fn publish(&self) -> Result<GtidSet> {
        let brought = self.progress().context("the channel has applied nothing")?;
        let mut target = Connection::connect(&self.target).await?;
        let has = executed(&mut target).await?;
        if !brought.is_subset_of(&has) {
            let statement = match &brought {
                GtidSet::MySql(set) => format!("SET GLOBAL gtid_purged = '{set}'"),
                GtidSet::MariaDb(state) => format!("SET GLOBAL gtid_slave_pos = '{}'", state.position()),
            };
            target.execute(&statement).await?;
        }
        Ok(brought)
    }
}

impl ChannelControl for Channel {
    fn progress(&self) -> Option<GtidSet> {
        self.brought.lock().unwrap().clone()
    }

    fn keeps_gtids(&self) -> bool {
        self.keeps_gtids.load(Ordering::Relaxed)
    }

    fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    fn pause(&self) -> ChannelFuture<'_, GtidSet> {
        Box::pin(async {
            self.is_paused.store(true, Ordering::Relaxed);
            self.publish().await.map_err(|error| AckerError::Unknown(error.to_string()))
        })
    }

    fn resume(&self) -> ChannelFuture<'_, ()> {
        self.is_paused.store(false, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }
}

/// The last server of the cluster becomes a channel target, which has all rows and no GTIDs. The old primary
/// plays the role of the relay's log.
pub async fn a_channel_target_becomes_primary(cluster: &mut Cluster) -> Result<()> {
    let (target, log) = (&cluster.log, &cluster.primary);
    let all = executed(&mut connect(log).await?).await?;
    wait_executed(&mut connect(target).await?, &all, PATIENCE).await?;
    let forget = statement(
        cluster.kind,
        "STOP REPLICA; RESET REPLICA ALL; RESET BINARY LOGS AND GTIDS",
        "STOP SLAVE; RESET SLAVE ALL; RESET MASTER; SET GLOBAL gtid_slave_pos = ''",
    );
    target.sql(forget).await?;

    let channel = Arc::new(Channel {
        target: target.connect_options(),
        brought: Mutex::new(None),
        keeps_gtids: AtomicBool::new(true),
        is_whole: AtomicBool::new(true),
        is_paused: AtomicBool::new(false),
    });
    let mut setup = setup(cluster, PATIENCE);
    setup.servers = vec![participant("db3", target)];
    setup.servers[0].feed = Some(Arc::<Channel>::clone(&channel));
    setup.limits = ActionTimeouts { supply: Duration::from_millis(50), ..setup.limits };
    let actor = ServerExecutor::new(setup);
    let look = async || match actor.execute(&RunAction::ProbeCandidates, LeaseToken(7)).await {
        ActionOutcome::Candidates(servers) => servers.into_iter().next().context("no server was probed"),
        other => anyhow::bail!("the probe has the wrong outcome: {other:?}"),
    };
    let db3 = || "db3".to_owned();
    let what = all.subtract(&GtidSet::empty(all.flavour()))?.to_string();
    let supply = RunAction::Backfill { server: db3(), from: "relay".into(), what };

    // The progress of the channel is first unknown, then too small, and at last complete.
    let seen = look().await?;
    ensure!(
        seen.feed == ReplicationKind::Channel && seen.received.is_none(),
        "the probe returned the wrong state of the channel target: {seen:?}"
    );
    fails(&actor, supply.clone(), "does not report").await?;
    *channel.brought.lock().unwrap() = Some(GtidSet::empty(all.flavour()));
    fails(&actor, supply.clone(), "has not applied").await?;
    *channel.brought.lock().unwrap() = Some(all.clone());
    does(&actor, supply).await?;
    ensure!(look().await?.received.as_ref() == Some(&all));

    // A target with its own GTIDs is refused, because no replica could continue from it.
    channel.keeps_gtids.store(false, Ordering::Relaxed);
    ensure!(look().await?.feed == ReplicationKind::ChannelOwnGtids);
    fails(&actor, RunAction::DrainRelayLog { server: db3() }, "the target's own GTIDs").await?;
    channel.keeps_gtids.store(true, Ordering::Relaxed);

    // A target with a part of the data is refused too.
    channel.is_whole.store(false, Ordering::Relaxed);
    ensure!(look().await?.feed == ReplicationKind::PartialChannel);
    fails(&actor, RunAction::DrainRelayLog { server: db3() }, "not a copy").await?;
    channel.is_whole.store(true, Ordering::Relaxed);

    // After the undo, the channel runs again.
    let make_source = || RunAction::EnableSemiSyncSource { server: db3(), acks: 1 };
    does(&actor, RunAction::DrainRelayLog { server: db3() }).await?;
    does(&actor, make_source()).await?;
    ensure!(channel.is_paused.load(Ordering::Relaxed));
    does(&actor, RunAction::DisableSemiSyncSource { server: db3() }).await?;
    ensure!(!channel.is_paused.load(Ordering::Relaxed));

    does(&actor, RunAction::DrainRelayLog { server: db3() }).await?;
    does(&actor, make_source()).await?;
    does(&actor, RunAction::MakeWritable { server: db3() }).await?;
    if cluster.kind.flavour() == Flavour::MariaDb {
        // `gtid_slave_pos`, from which MariaDB numbers its transactions and serves its replicas, must survive
        // a restart, although the binlog does not contain this position.
        cluster.log.restart(None).await?;
    }
    let (target, log) = (&cluster.log, &cluster.primary);
    log.enable_semi_sync_replica().await?;
    read_from(&mut connect(log).await?, &address(target), PATIENCE).await?;
    target.sql("INSERT INTO shop.t VALUES (21)").await?;
    let arrived = async || Ok(rows(log).await? == rows(target).await?);
    cluster.wait(log, "the server has the row that the new primary wrote", arrived).await?;
    // The new primary's own transaction must come after all earlier transactions.
    let now = executed(&mut connect(target).await?).await?;
    ensure!(
        all.is_subset_of(&now) && now.subtract(&all)?.to_string() != "",
        "the new position {now} does not come after {all}"
    );
    // This transaction prevents another drain, because the channel did not apply it.
    fails(&actor, RunAction::DrainRelayLog { server: db3() }, "transactions that its channel did not apply")
        .await
}
