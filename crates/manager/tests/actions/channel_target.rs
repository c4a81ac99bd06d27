//! A server that a channel feeds becomes primary, and others go on behind it by GTIDs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_manager::action_executor::{AckerError, ActionExecutor};
use tailwater_manager::actions::relay_log_drain::wait_executed;
use tailwater_manager::actions::replication::{executed, read_from};
use tailwater_manager::actions::{ActionTimeouts, ChannelControl, ChannelFuture, ServerExecutor};
use tailwater_manager::candidates::ReplicationKind;
use tailwater_manager::model::LeaseToken;
use tailwater_manager::model::{ActionOutcome, RunAction};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use super::cluster::{Cluster, PATIENCE, address, connect, rows, statement};
use super::promotion::{does, fails, participant, setup};

/// What a channel with `gtid = "log"` does to its target when it stops: what it brought is in no binlog, and
/// is published as the target's position. The channel itself is tested in its own room.
struct Channel {
    target: ConnectOptions,
    brought: Mutex<Option<GtidSet>>,
    keeps_gtids: AtomicBool,
    is_whole: AtomicBool,
    is_paused: AtomicBool,
}

impl Channel {
    async fn publish(&self) -> Result<GtidSet> {
        let brought = self.progress().context("it has brought nothing")?;
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

/// The last server of the cluster is a target now, with all rows and no GTIDs; the old primary takes the
/// place of the log.
pub async fn what_a_channel_feeds_becomes_primary(cluster: &mut Cluster) -> Result<()> {
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
        ActionOutcome::Candidates(servers) => servers.into_iter().next().context("no server"),
        other => anyhow::bail!("{other:?}"),
    };
    let db3 = || "db3".to_owned();
    let what = all.subtract(&GtidSet::empty(all.flavour()))?.to_string();
    let supply = RunAction::Backfill { server: db3(), from: "relay".into(), what };

    // Nothing is known of it, then not enough, then everything.
    let seen = look().await?;
    ensure!(seen.feed == ReplicationKind::Channel && seen.received.is_none(), "{seen:?}");
    fails(&actor, supply.clone(), "does not report").await?;
    *channel.brought.lock().unwrap() = Some(GtidSet::empty(all.flavour()));
    fails(&actor, supply.clone(), "has not applied").await?;
    *channel.brought.lock().unwrap() = Some(all.clone());
    does(&actor, supply).await?;
    ensure!(look().await?.received.as_ref() == Some(&all));

    // Under GTIDs of its own nobody could go on behind it.
    channel.keeps_gtids.store(false, Ordering::Relaxed);
    ensure!(look().await?.feed == ReplicationKind::ChannelOwnGtids);
    fails(&actor, RunAction::DrainRelayLog { server: db3() }, "its own GTIDs").await?;
    channel.keeps_gtids.store(true, Ordering::Relaxed);

    // Nor is a part of the data enough.
    channel.is_whole.store(false, Ordering::Relaxed);
    ensure!(look().await?.feed == ReplicationKind::PartialChannel);
    fails(&actor, RunAction::DrainRelayLog { server: db3() }, "no copy").await?;
    channel.is_whole.store(true, Ordering::Relaxed);

    // Undone, it is fed again.
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
        // What it numbers its transactions by, and is asked by, is not in its binlog, and outlives a restart.
        cluster.log.restart(None).await?;
    }
    let (target, log) = (&cluster.log, &cluster.primary);
    log.enable_semi_sync_replica().await?;
    read_from(&mut connect(log).await?, &address(target), PATIENCE).await?;
    target.sql("INSERT INTO shop.t VALUES (21)").await?;
    let arrived = async || Ok(rows(log).await? == rows(target).await?);
    cluster.wait(log, "behind it", arrived).await?;
    // What it wrote is behind all that there was.
    let now = executed(&mut connect(target).await?).await?;
    ensure!(all.is_subset_of(&now) && now.subtract(&all)?.to_string() != "", "{now} behind {all}");
    // And stands in the way of draining it once more: its channel did not bring that.
    fails(&actor, RunAction::DrainRelayLog { server: db3() }, "transactions that its channel did not apply")
        .await
}
