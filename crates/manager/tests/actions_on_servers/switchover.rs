//! Tests of the actions of a switchover on real servers. Writes are paused in bounded time or not at all, and
//! the old primary becomes a replica.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tailwater_manager::action_executor::{AckerControl, ActionExecutor};
use tailwater_manager::actions::read_only_switch::is_writable;
use tailwater_manager::actions::replication_setup::{executed, read_from, status};
use tailwater_manager::actions::{
    ActionTimeouts, ExecutorConfig, HookServer, ManagedServer, RelayEndpoint, ReplicaAccount, ServerExecutor,
};
use tailwater_manager::lossless_rules::AckRequirement;
use tailwater_manager::model::{ActionOutcome, LeaseToken, RunAction};
use tailwater_sandbox::network_link::{Direction, LinkConditions};
use tailwater_sandbox::{Link, Server, ServerKind, require};
use tailwater_session::{ConnectOptions, Connection, Endpoint, SessionError};
use tailwater_topology::server_probe::ProbeTarget;
use tailwater_topology::server_state::IoState;
use tailwater_topology::{Member, ServerVersion};
use tailwater_wire::gtid::GtidSet;
use tokio::task::JoinHandle;

use super::test_cluster::{Cluster, PATIENCE, address, connect, on_both_families, rows, statement};

on_both_families!(
    writes_are_paused_in_bounded_time_or_not_at_all,
    a_late_action_has_no_effect_after_its_undo_action,
    the_old_primary_becomes_a_replica,
);

/// The server's error for a write by an account that cannot write while `read_only` is on:
/// ER_OPTION_PREVENTS_STATEMENT.
const READ_ONLY: u16 = 1290;

fn participant(name: &str, connect: ConnectOptions) -> ManagedServer {
    let subject = ProbeTarget { name: name.to_owned(), connect };
    ManagedServer { subject, member: Member { name: name.to_owned(), ..Member::default() }, feed: None }
}

fn actor(cluster: &Cluster) -> ServerExecutor {
    set_up(cluster, BTreeMap::new(), reached(cluster))
}

/// Returns an executor that controls the log as an acker.
pub fn actor_with(cluster: &Cluster, acker: Arc<dyn AckerControl>) -> ServerExecutor {
    set_up(cluster, BTreeMap::from([("relay".to_owned(), acker)]), reached(cluster))
}

/// Returns the connect options of both servers, the primary first.
fn reached(cluster: &Cluster) -> [ConnectOptions; 2] {
    [cluster.primary.connect_options(), cluster.replica.connect_options()]
}

fn set_up(
    cluster: &Cluster,
    ackers: BTreeMap<String, Arc<dyn AckerControl>>,
    [primary, replica]: [ConnectOptions; 2],
) -> ServerExecutor {
    ServerExecutor::new(ExecutorConfig {
        run: "s1".into(),
        primary: HookServer { name: "db1".into(), host: "127.0.0.1".into(), port: cluster.primary.port() },
        flavour: cluster.kind.flavour(),
        version: ServerVersion::read(cluster.primary.version()),
        servers: vec![participant("db2", replica)],
        ackers,
        logs: vec![RelayEndpoint { name: "relay".into(), address: address(&cluster.log) }],
        replica_account: ReplicaAccount::default(),
        hooks: Vec::new(),
        limits: ActionTimeouts {
            change: PATIENCE,
            look: PATIENCE,
            drain: PATIENCE,
            ..ActionTimeouts::default()
        },
    })
    .with_primary(participant("db1", primary))
}

/// Starts a cluster whose primary waits for the ACKs of the server that replaces the relay's log. The
/// cluster has an account that `read_only` prevents from writing.
pub async fn cluster(kind: ServerKind) -> Result<Cluster> {
    let cluster = Cluster::start(kind).await?;
    cluster.primary.sql("CREATE USER app@'%' IDENTIFIED BY 'app'; GRANT ALL ON shop.* TO app@'%'").await?;
    cluster.log.enable_semi_sync_replica().await?;
    let mut log = connect(&cluster.log).await?;
    stop_receiving(&cluster).await?;
    // A replica that connects before the semi-sync plugin is loaded sends no ACKs. So the server
    // `log` disconnects first, and connects again after the plugin is loaded.
    cluster.primary.enable_semi_sync_source().await?;
    start_receiving(&mut log).await?;
    Ok(cluster)
}

async fn stop_receiving(cluster: &Cluster) -> Result<()> {
    cluster.log.sql(statement(cluster.kind, "STOP REPLICA IO_THREAD", "STOP SLAVE IO_THREAD")).await?;
    Ok(())
}

async fn start_receiving(log: &mut Connection) -> Result<()> {
    Ok(tailwater_manager::actions::replication_setup::start(log).await?)
}

pub async fn client(of: &Server) -> Result<Connection> {
    let options = ConnectOptions { user: "app".into(), password: "app".into(), ..of.connect_options() };
    Ok(Connection::connect(&options).await?)
}

async fn hold(actor: &ServerExecutor, within: Duration, grace: Duration) -> ActionOutcome {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let act = RunAction::PauseWrites { server: "db1".into(), within_ms: ms(within), grace_ms: ms(grace) };
    actor.execute(&act, LeaseToken(7)).await
}

async fn held(actor: &ServerExecutor, grace: Duration) -> Result<GtidSet> {
    match hold(actor, PATIENCE, grace).await {
        ActionOutcome::WritesPaused(position) => Ok(position),
        other => bail!("writes were not paused: {other:?}"),
    }
}

async fn does(actor: &ServerExecutor, act: RunAction) -> Result<()> {
    match actor.execute(&act, LeaseToken(7)).await {
        ActionOutcome::Done | ActionOutcome::DoneWithNote(_) => Ok(()),
        other => bail!("the action failed: {act}: {other:?}"),
    }
}

async fn release(actor: &ServerExecutor) -> Result<()> {
    does(actor, RunAction::ResumeWrites { server: "db1".into(), acks: 1 }).await
}

fn number<T: std::fmt::Debug>(result: Result<T, SessionError>) -> Option<u16> {
    match result {
        Err(SessionError::Server { error, .. }) => Some(error.number),
        _ => None,
    }
}

async fn until_running(server: &Server, what: &str) -> Result<()> {
    let question = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '{what}%' OR state LIKE '{what}%'"
    );
    let started = std::time::Instant::now();
    while server.sql(&question).await? == ["0"] {
        ensure!(started.elapsed() < PATIENCE, "the server did not begin to execute {what} in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

async fn writes_are_paused_in_bounded_time_or_not_at_all(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let cluster = cluster(kind).await?;
    let actor = actor(&cluster);
    let ActionOutcome::ServerStatus(seen) = actor.execute(&RunAction::ProbePrimary, LeaseToken(7)).await
    else {
        bail!("the primary was not observed")
    };
    ensure!(seen.writable && seen.waiting.map(|waiting| waiting.acks()) == Some(AckRequirement::Required(1)));

    // An open transaction does not delay the pause, and can no longer commit.
    let mut open = client(&cluster.primary).await?;
    open.execute("BEGIN").await?;
    open.execute("INSERT INTO shop.t VALUES (1)").await?;
    let position = held(&actor, PATIENCE).await?;
    ensure!(number(open.execute("COMMIT").await) == Some(READ_ONLY));
    let mut app = client(&cluster.primary).await?;
    ensure!(number(app.execute("INSERT INTO shop.t VALUES (2)").await) == Some(READ_ONLY));
    let now = executed(&mut connect(&cluster.primary).await?).await?;
    ensure!(
        now.is_subset_of(&position) && position.is_subset_of(&now),
        "the primary has executed {now}, but reported {position} when its writes were paused"
    );
    for _ in 0..2 {
        release(&actor).await?;
    }
    app.execute("INSERT INTO shop.t VALUES (2)").await?;

    // A long statement that writes is killed after the grace period. A long statement that only reads is not
    // killed.
    let mut long = client(&cluster.primary).await?;
    let writing =
        tokio::spawn(async move { long.execute("INSERT INTO shop.t SELECT 900 + SLEEP(600)").await });
    let mut reader = client(&cluster.primary).await?;
    let reading = tokio::spawn(async move { reader.query("SELECT SLEEP(600)").await });
    until_running(&cluster.primary, "INSERT INTO shop.t SELECT 900").await?;
    until_running(&cluster.primary, "SELECT SLEEP(600)").await?;
    held(&actor, Duration::from_millis(50)).await?;
    ensure!(writing.await?.is_err() && !reading.is_finished());
    reading.abort();
    release(&actor).await?;

    // A commit waits for an ACK that does not arrive, so setting read_only cannot complete. The commit is not
    // killed, and the primary takes writes again.
    stop_receiving(&cluster).await?;
    let mut waiting = client(&cluster.primary).await?;
    let commit = tokio::spawn(async move { waiting.execute("INSERT INTO shop.t VALUES (3)").await });
    until_running(&cluster.primary, "Waiting for semi-sync").await?;
    let answer = hold(&actor, Duration::from_millis(200), Duration::from_millis(10)).await;
    ensure!(
        matches!(&answer, ActionOutcome::Failed(reason) if reason.contains("1 commits wait for ACKs")),
        "the action has the wrong outcome: {answer:?}"
    );
    ensure!(is_writable(&mut connect(&cluster.primary).await?).await? && !commit.is_finished());
    // A pause whose manager has disappeared can be undone too.
    let lost = tokio::time::timeout(Duration::from_millis(100), hold(&actor, PATIENCE, PATIENCE)).await;
    ensure!(lost.is_err() && !commit.is_finished());
    release(&actor).await?;
    start_receiving(&mut connect(&cluster.log).await?).await?;
    commit.await??;
    app.execute("INSERT INTO shop.t VALUES (4)").await?;
    ensure!(rows(&cluster.primary).await? == "2,3,4");
    Ok(())
}

/// The driver stops waiting for an action at its time limit, but the action itself continues.
async fn a_late_action_has_no_effect_after_its_undo_action(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let cluster = cluster(kind).await?;
    let mut links = Vec::new();
    let mut ways = reached(&cluster);
    for (way, server) in ways.iter_mut().zip([&cluster.primary, &cluster.replica]) {
        let link = Link::open((Ipv4Addr::LOCALHOST, server.port()).into()).await?;
        way.endpoint = Endpoint::tcp("127.0.0.1", link.port());
        links.push(link);
    }
    let actor = Arc::new(set_up(&cluster, BTreeMap::new(), ways));
    let (primary, candidate) = (|| "db1".to_owned(), || "db2".to_owned());
    actor.execute(&RunAction::ProbeCandidates, LeaseToken(7)).await;
    actor.execute(&RunAction::ProbePrimary, LeaseToken(7)).await;

    // The statement that pauses writes is delayed on the network.
    let within_ms = 60_000;
    let act = RunAction::PauseWrites { server: primary(), within_ms, grace_ms: within_ms };
    let late = begins_late(&actor, act, &links[0]).await;
    release(&actor).await?;
    let answer = late.await?;
    ensure!(
        !matches!(answer, ActionOutcome::WritesPaused(_)),
        "the action has the wrong outcome: {answer:?}"
    );
    client(&cluster.primary).await?.execute("INSERT INTO shop.t VALUES (1)").await?;

    // The statement that makes the candidate writable is delayed on the network.
    does(&actor, RunAction::PrepareSemiSyncSource { server: candidate(), acks: 1 }).await?;
    let what = held(&actor, PATIENCE).await?.to_string();
    does(&actor, RunAction::WaitForServer { server: candidate(), what, within_ms }).await?;
    does(&actor, RunAction::DrainRelayLog { server: candidate() }).await?;
    for act in [
        RunAction::EnableSemiSyncSource { server: candidate(), acks: 1 },
        RunAction::PersistSemiSyncSource { server: candidate(), acks: 1 },
    ] {
        does(&actor, act).await?;
    }
    let late = begins_late(&actor, RunAction::MakeWritable { server: candidate() }, &links[1]).await;
    does(&actor, RunAction::MakeReadOnly { server: candidate() }).await?;
    let answer = late.await?;
    ensure!(
        !is_writable(&mut connect(&cluster.replica).await?).await?,
        "the candidate is writable after the late action: {answer:?}"
    );
    release(&actor).await?;

    // A manager without any record finds the pending statement on the server.
    stop_receiving(&cluster).await?;
    let mut waiting = client(&cluster.primary).await?;
    let commit = tokio::spawn(async move { waiting.execute("INSERT INTO shop.t VALUES (2)").await });
    until_running(&cluster.primary, "Waiting for semi-sync").await?;
    let lost = tokio::time::timeout(Duration::from_millis(100), hold(&actor, PATIENCE, PATIENCE)).await;
    ensure!(lost.is_err() && !commit.is_finished());
    release(&self::actor(&cluster)).await?;
    start_receiving(&mut connect(&cluster.log).await?).await?;
    commit.await??;
    client(&cluster.primary).await?.execute("INSERT INTO shop.t VALUES (3)").await?;
    Ok(())
}

/// Starts an action whose first statement is delayed for seconds on the network. Later statements are not
/// delayed.
async fn begins_late(actor: &Arc<ServerExecutor>, act: RunAction, link: &Link) -> JoinHandle<ActionOutcome> {
    let latency = Duration::from_secs(3);
    link.set(Direction::ToServer, LinkConditions { latency, ..LinkConditions::default() });
    let actor = Arc::clone(actor);
    let late = tokio::spawn(async move { actor.execute(&act, LeaseToken(7)).await });
    tokio::time::sleep(latency / 6).await;
    link.set(Direction::ToServer, LinkConditions::default());
    late
}

async fn the_old_primary_becomes_a_replica(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let cluster = cluster(kind).await?;
    let actor = actor(&cluster);
    let server = || "db2".to_owned();
    actor.execute(&RunAction::ProbeCandidates, LeaseToken(7)).await;
    actor.execute(&RunAction::ProbePrimary, LeaseToken(7)).await;
    cluster.insert(1).await?;
    does(&actor, RunAction::PrepareSemiSyncSource { server: server(), acks: 1 }).await?;
    let less = executed(&mut connect(&cluster.primary).await?).await?.to_string();
    // The prepared candidate must not wait for ACKs for the rows that it replicates.
    cluster.insert(2).await?;
    cluster.in_step().await?;
    let mut open = client(&cluster.primary).await?;
    open.execute("BEGIN").await?;
    open.execute("UPDATE shop.t SET id = 20 WHERE id = 2").await?;
    // A transaction that has only read still holds a metadata lock on the table.
    let mut reader = client(&cluster.primary).await?;
    reader.execute("BEGIN").await?;
    reader.query("SELECT * FROM shop.t").await?;

    let position = held(&actor, PATIENCE).await?.to_string();
    let within_ms = 60_000;
    does(&actor, RunAction::WaitForServer { server: server(), what: position.clone(), within_ms }).await?;
    does(&actor, RunAction::DrainRelayLog { server: server() }).await?;
    does(&actor, RunAction::EnableSemiSyncSource { server: server(), acks: 1 }).await?;
    let mut log = connect(&cluster.log).await?;
    read_from(&mut log, &address(&cluster.replica), PATIENCE).await?;
    // So far the prepared candidate waits for ACKs only until a restart.
    let answer = actor.execute(&RunAction::MakeWritable { server: server() }, LeaseToken(7)).await;
    ensure!(
        matches!(&answer, ActionOutcome::Failed(reason) if reason.contains("after a restart")),
        "the action has the wrong outcome: {answer:?}"
    );
    does(&actor, RunAction::PersistSemiSyncSource { server: server(), acks: 1 }).await?;
    does(&actor, RunAction::MakeWritable { server: server() }).await?;
    cluster.replica.sql("UPDATE shop.t SET id = 3 WHERE id = 2").await?;
    cluster.replica.sql("ALTER TABLE shop.t ADD COLUMN note TEXT").await?;
    cluster.replica.sql("INSERT INTO shop.t (id) VALUES (4)").await?;

    // If the server has executed more than the given transactions, the demotion is refused and a rejoin is
    // needed.
    let demote = |has: &str| RunAction::Demote { server: "db1".into(), has: has.to_owned() };
    let answer = actor.execute(&demote(&less), LeaseToken(7)).await;
    ensure!(
        matches!(&answer, ActionOutcome::Failed(reason) if reason.contains("rejoin")),
        "the action has the wrong outcome: {answer:?}"
    );
    for _ in 0..2 {
        does(&actor, demote(&position)).await?;
    }
    for ended in [&mut open, &mut reader] {
        ensure!(ended.ping().await.is_err());
    }
    let mut old = connect(&cluster.primary).await?;
    let channel = status(&mut old).await?.context("the server has no replication channel")?;
    ensure!(
        address(&cluster.log).is_source_of(&channel) && !is_writable(&mut old).await?,
        "the server has the wrong replication status: {channel:?}"
    );
    let is_there = async || Ok(rows(&cluster.primary).await? == "1,3,4");
    cluster.wait(&cluster.primary, "the server has the row that the new primary wrote", is_there).await?;
    // A manager that dies may leave the server's replication stopped although its source is configured. The
    // next demotion then starts the replication.
    cluster.primary.sql(statement(kind, "STOP REPLICA", "STOP SLAVE")).await?;
    let has = executed(&mut connect(&cluster.replica).await?).await?.to_string();
    does(&actor, demote(&has)).await?;
    let channel = status(&mut connect(&cluster.primary).await?)
        .await?
        .context("the server has no replication channel")?;
    ensure!(
        channel.io != IoState::Stopped && channel.sql_running,
        "the server has the wrong replication status: {channel:?}"
    );
    Ok(())
}
