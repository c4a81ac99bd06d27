//! Each act of a failover on real servers, and its undoing.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::actions::read_only::is_writable;
use tailwater_manager::actions::replication::{executed, read_from, status};
use tailwater_manager::actions::semi_sync::verify_waiting;
use tailwater_manager::actions::{
    ActionTimeouts, ExecutorConfig, HookServer, ManagedServer, RelayEndpoint, ReplicaAccount, ServerExecutor,
};
use tailwater_manager::model::LeaseToken;
use tailwater_manager::model::{ActionOutcome, RunAction};
use tailwater_sandbox::replication::{REPLICATION_PASSWORD, REPLICATION_USER};
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_session::Connection;
use tailwater_topology::Member;
use tailwater_topology::ServerVersion;
use tailwater_topology::observation::IoState;
use tailwater_topology::probe::ProbeTarget;
use tailwater_wire::Flavour;

use super::cluster::{
    Cluster, PATIENCE, address, as_leader, connect, on_both_families, rows, statement, wait_until_received,
};

on_both_families!(a_replica_becomes_primary_and_is_one_no_more);

pub fn participant(name: &str, server: &Server) -> ManagedServer {
    let subject = ProbeTarget { name: name.to_owned(), connect: as_leader(server) };
    ManagedServer { subject, member: Member { name: name.to_owned(), ..Member::default() }, feed: None }
}

fn actor(cluster: &Cluster, change: Duration) -> ServerExecutor {
    ServerExecutor::new(setup(cluster, change))
}

pub fn setup(cluster: &Cluster, change: Duration) -> ExecutorConfig {
    ExecutorConfig {
        run: "f1".into(),
        primary: HookServer { name: "db1".into(), host: "127.0.0.1".into(), port: cluster.primary.port() },
        flavour: cluster.kind.flavour(),
        version: ServerVersion::read(cluster.primary.version()),
        servers: vec![participant("db2", &cluster.replica), participant("db3", &cluster.log)],
        ackers: Default::default(),
        logs: vec![RelayEndpoint { name: "relay".into(), address: address(&cluster.log) }],
        replica_account: ReplicaAccount {
            user: REPLICATION_USER.into(),
            password: REPLICATION_PASSWORD.into(),
            ..ReplicaAccount::default()
        },
        hooks: Vec::new(),
        limits: ActionTimeouts { change, look: PATIENCE, drain: PATIENCE, ..ActionTimeouts::default() },
    }
}

pub async fn does(actor: &ServerExecutor, act: RunAction) -> Result<Option<String>> {
    match actor.execute(&act, LeaseToken(7)).await {
        ActionOutcome::Done => Ok(None),
        ActionOutcome::DoneWithNote(note) => Ok(Some(note)),
        other => bail!("{act}: {other:?}"),
    }
}

pub async fn fails(actor: &ServerExecutor, act: RunAction, with: &str) -> Result<()> {
    match actor.execute(&act, LeaseToken(7)).await {
        ActionOutcome::Failed(reason) | ActionOutcome::Unknown(reason) if reason.contains(with) => Ok(()),
        other => bail!("{act}: {other:?}, and not {with:?}"),
    }
}

fn server() -> String {
    "db2".into()
}

async fn a_replica_becomes_primary_and_is_one_no_more(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut cluster = Cluster::start(kind).await?;
    let actor = actor(&cluster, PATIENCE);
    // It receives one row that it does not execute, and lacks another that the log has.
    cluster.receive_only(1).await?;
    cluster.replica.sql(statement(kind, "STOP REPLICA IO_THREAD", "STOP SLAVE IO_THREAD")).await?;
    cluster.insert(2).await?;
    let has = executed(&mut connect(&cluster.primary).await?).await?;
    cluster.wait(&cluster.log, "in the log", async || Ok(rows(&cluster.log).await? == "1,2")).await?;
    cluster.primary.pause()?;

    let ActionOutcome::Candidates(seen) = actor.execute(&RunAction::ProbeCandidates, LeaseToken(7)).await
    else {
        bail!("no servers")
    };
    ensure!(seen.iter().map(|one| one.name.as_str()).eq(["db2", "db3"]), "{seen:?}");
    let received = seen[0].received.clone().context("nothing received")?;
    let what = has.subtract(&received)?.to_string();
    ensure!(!received.is_subset_of(seen[0].executed.as_ref().context("nothing executed")?), "{seen:?}");

    // An account that may not do it is no use, and that is known before anything is changed.
    let mut unfit = setup(&cluster, PATIENCE);
    unfit.servers[0].subject.connect = cluster.replica.replication_options();
    let ActionOutcome::Candidates(lacking) =
        ServerExecutor::new(unfit).execute(&RunAction::ProbeCandidates, LeaseToken(7)).await
    else {
        bail!("no servers")
    };
    let told = lacking[0].reached.as_ref().is_err_and(|reason| reason.contains("run: GRANT"));
    ensure!(told && lacking[1].reached.is_ok(), "{lacking:?}");

    // Nor one that may do all but load semi-sync, where that is not loaded.
    if kind.flavour() == Flavour::MySql {
        let revoke = "SET SESSION sql_log_bin = 0; REVOKE INSERT ON mysql.plugin FROM leader@'%'";
        cluster.log.sql(revoke).await?;
        let ActionOutcome::Candidates(seen) = actor.execute(&RunAction::ProbeCandidates, LeaseToken(7)).await
        else {
            bail!("no servers")
        };
        ensure!(seen[0].semi_sync_unavailable.is_none() && seen[1].reached.is_ok(), "{seen:?}");
        let lack = seen[1].semi_sync_unavailable.as_ref().context("it may")?;
        let says = ["TW-SES-0019", "run: GRANT INSERT ON mysql.plugin TO 'leader'@'%'"];
        ensure!(says.iter().all(|text| lack.contains(text)), "{lack}");
        cluster.log.sql("SET SESSION sql_log_bin = 0; GRANT INSERT ON mysql.plugin TO leader@'%'").await?;
    }

    fails(&actor, RunAction::MakeWritable { server: server() }, "not drained").await?;
    let supply = |from: &str| RunAction::Backfill { server: server(), from: from.into(), what: what.clone() };
    fails(&actor, supply("nobody"), "no address").await?;
    for from in ["relay", "relay", "db3"] {
        does(&actor, supply(from)).await?;
    }
    let mut replica = connect(&cluster.replica).await?;
    let channel = status(&mut replica).await?.context("no channel")?;
    ensure!(address(&cluster.log).is_source_of(&channel), "{channel:?}");
    // A drain that takes too long leaves it as it was: another server may be chosen.
    let mut locker = Connection::connect(&cluster.replica.connect_options()).await?;
    locker.execute("LOCK TABLES shop.t WRITE").await?;
    cluster.log.sql("INSERT INTO shop.t VALUES (30); DELETE FROM shop.t WHERE id = 30").await?;
    let log_origin = executed(&mut connect(&cluster.log).await?).await?;
    wait_until_received(&mut replica, &log_origin).await?;
    let mut hasty = setup(&cluster, PATIENCE);
    hasty.limits.drain = Duration::from_millis(100);
    fails(&ServerExecutor::new(hasty), RunAction::DrainRelayLog { server: server() }, "TW-MGR-0061").await?;
    let channel = status(&mut replica).await?.context("no channel")?;
    ensure!(channel.io != IoState::Stopped, "it does not read from the log any more: {channel:?}");
    locker.execute("UNLOCK TABLES").await?;
    does(&actor, RunAction::DrainRelayLog { server: server() }).await?;
    ensure!(
        rows(&cluster.replica).await? == "1,2",
        "what was received is not dropped, what was lacking came"
    );
    fails(&actor, RunAction::MakeWritable { server: server() }, "ACKs").await?;

    // It waits for ACKs, though its semi-sync was not even loaded, and replicates again when that is undone.
    fails(&actor, RunAction::EnableSemiSyncSource { server: server(), acks: 0 }, "0 ACKs").await?;
    make_source(&actor, kind).await?;
    make_source(&actor, kind).await?;
    verify_waiting(&mut replica, 1).await?;
    ensure!(!is_writable(&mut replica).await?);
    for _ in 0..2 {
        does(&actor, RunAction::DisableSemiSyncSource { server: server() }).await?;
        ensure!(verify_waiting(&mut replica, 1).await.is_err());
        let channel = status(&mut replica).await?.context("no channel")?;
        ensure!(channel.sql_running, "{channel:?}");
    }

    // Writable: its source is forgotten, and a commit waits for its ACK without losing its connection.
    does(&actor, RunAction::DrainRelayLog { server: server() }).await?;
    make_source(&actor, kind).await?;
    for _ in 0..2 {
        does(&actor, RunAction::MakeWritable { server: server() }).await?;
        ensure!(is_writable(&mut replica).await? && status(&mut replica).await?.is_none());
    }
    fails(&actor, RunAction::DisableSemiSyncSource { server: server() }, "read-only first").await?;
    let mut client = Connection::connect(&cluster.replica.connect_options()).await?;
    let commit = tokio::spawn(async move { client.execute("INSERT INTO shop.t VALUES (3)").await });
    let waits = statement(kind, "Rpl_semi_sync_source_wait_sessions", "Rpl_semi_sync_master_wait_sessions");
    let question = format!("SHOW GLOBAL STATUS LIKE '{waits}'");
    let is_waiting_now = async || Ok(cluster.replica.sql(&question).await? == [format!("{waits}\t1")]);
    cluster.wait(&cluster.replica, "waiting", is_waiting_now).await?;
    let hasty = self::actor(&cluster, Duration::from_secs(1));
    fails(&hasty, RunAction::MakeReadOnly { server: server() }, "").await?;
    ensure!(!commit.is_finished());
    cluster.log.enable_semi_sync_replica().await?;
    let mut log = connect(&cluster.log).await?;
    read_from(&mut log, &address(&cluster.replica), PATIENCE).await?;
    commit.await??;
    cluster.wait(&cluster.log, "in the log", async || Ok(rows(&cluster.log).await? == "1,2,3")).await?;
    does(&actor, RunAction::MakeReadOnly { server: server() }).await?;
    ensure!(!is_writable(&mut replica).await?);

    // A restart keeps what can be kept.
    cluster.replica.kill().await?;
    cluster.replica.start_again().await?;
    let mut replica = connect(&cluster.replica).await?;
    let kept = verify_waiting(&mut replica, 1).await;
    ensure!(kept.is_ok() == (kind.flavour() == Flavour::MySql), "{kept:?}");
    // With another connection, as the one that stood has broken.
    does(&actor, RunAction::MakeReadOnly { server: server() }).await?;
    cluster.replica.kill().await?;
    fails(&actor, RunAction::MakeReadOnly { server: server() }, "TW-SES").await
}

async fn make_source(actor: &ServerExecutor, kind: ServerKind) -> Result<()> {
    let note = does(actor, RunAction::EnableSemiSyncSource { server: server(), acks: 1 }).await?;
    // Only one of the families needs the operator's hand.
    ensure!(note.is_some() == (kind.flavour() == Flavour::MariaDb), "{note:?}");
    Ok(())
}
