//! Tests of each action of a failover on real servers, and of its undo action.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::actions::read_only_switch::is_writable;
use tailwater_manager::actions::replication_setup::{executed, read_from, status};
use tailwater_manager::actions::semi_sync_source::verify_waiting;
use tailwater_manager::actions::{
    ActionTimeouts, ExecutorConfig, HookServer, ManagedServer, RelayEndpoint, ReplicaAccount, ServerExecutor,
};
use tailwater_manager::model::{ActionOutcome, LeaseToken, RunAction};
use tailwater_sandbox::replication_setup::{REPLICATION_PASSWORD, REPLICATION_USER};
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_session::Connection;
use tailwater_topology::server_probe::ProbeTarget;
use tailwater_topology::server_state::IoState;
use tailwater_topology::{Member, ServerVersion};
use tailwater_wire::Flavour;

use super::test_cluster::{
    Cluster, PATIENCE, address, as_leader, connect, on_both_families, rows, statement, wait_until_received,
};

on_both_families!(a_replica_is_promoted_and_each_step_can_be_undone);

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
        other => bail!("the action failed: {act}: {other:?}"),
    }
}

pub async fn fails(actor: &ServerExecutor, act: RunAction, with: &str) -> Result<()> {
    match actor.execute(&act, LeaseToken(7)).await {
        ActionOutcome::Failed(reason) | ActionOutcome::Unknown(reason) if reason.contains(with) => Ok(()),
        other => bail!("the action must fail with {with:?}, but its outcome is {other:?}: {act}"),
    }
}

fn server() -> String {
    "db2".into()
}

async fn a_replica_is_promoted_and_each_step_can_be_undone(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut cluster = Cluster::start(kind).await?;
    let actor = actor(&cluster, PATIENCE);
    // The replica receives one row that it does not execute. The replica lacks another row that the log has.
    cluster.receive_only(1).await?;
    cluster.replica.sql(statement(kind, "STOP REPLICA IO_THREAD", "STOP SLAVE IO_THREAD")).await?;
    cluster.insert(2).await?;
    let has = executed(&mut connect(&cluster.primary).await?).await?;
    cluster
        .wait(&cluster.log, "the server that replaces the log has the new row", async || {
            Ok(rows(&cluster.log).await? == "1,2")
        })
        .await?;
    cluster.primary.pause()?;

    let ActionOutcome::Candidates(seen) = actor.execute(&RunAction::ProbeCandidates, LeaseToken(7)).await
    else {
        bail!("the probe returned no servers")
    };
    ensure!(
        seen.iter().map(|one| one.name.as_str()).eq(["db2", "db3"]),
        "the probe returned the wrong state of the servers: {seen:?}"
    );
    let received = seen[0].received.clone().context("the received transactions are unknown")?;
    let what = has.subtract(&received)?.to_string();
    ensure!(
        !received.is_subset_of(seen[0].executed.as_ref().context("the executed transactions are unknown")?),
        "the probe returned the wrong state of the servers: {seen:?}"
    );

    // A server whose account lacks a privilege cannot be used. This is reported before anything is changed.
    let mut unfit = setup(&cluster, PATIENCE);
    unfit.servers[0].subject.connect = cluster.replica.replication_options();
    let ActionOutcome::Candidates(lacking) =
        ServerExecutor::new(unfit).execute(&RunAction::ProbeCandidates, LeaseToken(7)).await
    else {
        bail!("the probe returned no servers")
    };
    let names_grant = lacking[0].reached.as_ref().is_err_and(|reason| reason.contains("run: GRANT"));
    ensure!(
        names_grant && lacking[1].reached.is_ok(),
        "the probe returned the wrong state of the servers: {lacking:?}"
    );

    // A server is excluded if semi-sync is not loaded and the account lacks the privilege to load it.
    if kind.flavour() == Flavour::MySql {
        let revoke = "SET SESSION sql_log_bin = 0; REVOKE INSERT ON mysql.plugin FROM leader@'%'";
        cluster.log.sql(revoke).await?;
        let ActionOutcome::Candidates(seen) = actor.execute(&RunAction::ProbeCandidates, LeaseToken(7)).await
        else {
            bail!("the probe returned no servers")
        };
        ensure!(
            seen[0].semi_sync_unavailable.is_none() && seen[1].reached.is_ok(),
            "the probe returned the wrong state of the servers: {seen:?}"
        );
        let lack = seen[1].semi_sync_unavailable.as_ref().context("semi-sync can be loaded")?;
        let says = ["TW-SES-0019", "run: GRANT INSERT ON mysql.plugin TO 'leader'@'%'"];
        ensure!(
            says.iter().all(|text| lack.contains(text)),
            "the probe returned the wrong reason why the server cannot become a semi-sync source: {lack}"
        );
        cluster.log.sql("SET SESSION sql_log_bin = 0; GRANT INSERT ON mysql.plugin TO leader@'%'").await?;
    }

    fails(&actor, RunAction::MakeWritable { server: server() }, "not drained").await?;
    let supply = |from: &str| RunAction::Backfill { server: server(), from: from.into(), what: what.clone() };
    fails(&actor, supply("nobody"), "no address").await?;
    for from in ["relay", "relay", "db3"] {
        does(&actor, supply(from)).await?;
    }
    let mut replica = connect(&cluster.replica).await?;
    let channel = status(&mut replica).await?.context("the server has no replication channel")?;
    ensure!(
        address(&cluster.log).is_source_of(&channel),
        "the server has the wrong replication status: {channel:?}"
    );
    // After a drain that exceeds its time limit, the replica replicates as before, because another server may
    // be chosen.
    let mut locker = Connection::connect(&cluster.replica.connect_options()).await?;
    locker.execute("LOCK TABLES shop.t WRITE").await?;
    cluster.log.sql("INSERT INTO shop.t VALUES (30); DELETE FROM shop.t WHERE id = 30").await?;
    let log_origin = executed(&mut connect(&cluster.log).await?).await?;
    wait_until_received(&mut replica, &log_origin).await?;
    let mut hasty = setup(&cluster, PATIENCE);
    hasty.limits.drain = Duration::from_millis(100);
    fails(&ServerExecutor::new(hasty), RunAction::DrainRelayLog { server: server() }, "TW-MGR-0061").await?;
    let channel = status(&mut replica).await?.context("the server has no replication channel")?;
    ensure!(channel.io != IoState::Stopped, "the replica no longer reads from the log: {channel:?}");
    locker.execute("UNLOCK TABLES").await?;
    does(&actor, RunAction::DrainRelayLog { server: server() }).await?;
    ensure!(
        rows(&cluster.replica).await? == "1,2",
        "the received row must not be dropped, and the missing row must arrive"
    );
    fails(&actor, RunAction::MakeWritable { server: server() }, "ACKs").await?;

    // The server waits for ACKs, although semi-sync was not loaded before. After the undo it replicates
    // again.
    fails(&actor, RunAction::EnableSemiSyncSource { server: server(), acks: 0 }, "0 ACKs").await?;
    make_source(&actor, kind).await?;
    make_source(&actor, kind).await?;
    verify_waiting(&mut replica, 1).await?;
    ensure!(!is_writable(&mut replica).await?);
    for _ in 0..2 {
        does(&actor, RunAction::DisableSemiSyncSource { server: server() }).await?;
        ensure!(verify_waiting(&mut replica, 1).await.is_err());
        let channel = status(&mut replica).await?.context("the server has no replication channel")?;
        ensure!(channel.sql_running, "the server has the wrong replication status: {channel:?}");
    }

    // The server becomes writable. Its replication source is removed. A commit waits for its ACK, and its
    // client keeps its connection.
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
    cluster.wait(&cluster.replica, "a session waits for an ACK", is_waiting_now).await?;
    let hasty = self::actor(&cluster, Duration::from_secs(1));
    fails(&hasty, RunAction::MakeReadOnly { server: server() }, "").await?;
    ensure!(!commit.is_finished());
    cluster.log.enable_semi_sync_replica().await?;
    let mut log = connect(&cluster.log).await?;
    read_from(&mut log, &address(&cluster.replica), PATIENCE).await?;
    commit.await??;
    cluster
        .wait(&cluster.log, "the server that replaces the log has the new row", async || {
            Ok(rows(&cluster.log).await? == "1,2,3")
        })
        .await?;
    does(&actor, RunAction::MakeReadOnly { server: server() }).await?;
    ensure!(!is_writable(&mut replica).await?);

    // After a restart, the settings that the flavour can persist are still there.
    cluster.replica.kill().await?;
    cluster.replica.start_again().await?;
    let mut replica = connect(&cluster.replica).await?;
    let kept = verify_waiting(&mut replica, 1).await;
    ensure!(
        kept.is_ok() == (kind.flavour() == Flavour::MySql),
        "the server has the wrong settings after the restart: {kept:?}"
    );
    // The old connection is broken, so the action must open another connection.
    does(&actor, RunAction::MakeReadOnly { server: server() }).await?;
    cluster.replica.kill().await?;
    fails(&actor, RunAction::MakeReadOnly { server: server() }, "TW-SES").await
}

async fn make_source(actor: &ServerExecutor, kind: ServerKind) -> Result<()> {
    let note = does(actor, RunAction::EnableSemiSyncSource { server: server(), acks: 1 }).await?;
    // Only MariaDB needs a change of the option file by the operator.
    ensure!(
        note.is_some() == (kind.flavour() == Flavour::MariaDb),
        "the operator got the wrong note: {note:?}"
    );
    Ok(())
}
