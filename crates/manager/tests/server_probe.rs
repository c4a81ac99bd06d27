//! Tests of probes and pings, on real servers.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_manager::actions::semi_sync_source::make_source;
use tailwater_manager::lossless_rules::{AckRequirement, SemiSyncWait};
use tailwater_sandbox::unusual_settings::{accept_odd_settings, apply_odd_settings, reset_odd_settings};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_topology::failure_analysis::{
    AnalysisSettings, ClusterMembers, FailoverGuard, FailureCode, ObservationHistory, Observed, Observer,
    ObserverReport, analyse,
};
use tailwater_topology::probe_failure::ProbeFailure;
use tailwater_topology::server_probe::server_ping::Pinger;
use tailwater_topology::server_probe::{ProbeTarget, probe_server, probe_servers};
use tailwater_topology::server_state::{IoState, Observation, PingKind, PingResult};
use tailwater_topology::{
    Cluster, ClusterPlan, Member, NodeRole, ProblemCode, RelayPlan, TopologyNode, build_tree,
};
use tailwater_wire::Flavour;

/// A time limit that is reached only if a test fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit for a probe of a server that answers, which takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for a probe of a server that does not answer.
const SHORT: Duration = Duration::from_millis(300);

on_each_server!(
    the_topology_of_real_servers_is_observed,
    pings_detect_each_kind_of_failure,
    the_probe_predicts_whether_semi_sync_survives_a_restart,
    odd_global_settings_do_not_change_a_probe,
);

fn subject(name: &str, server: &Server) -> ProbeTarget {
    ProbeTarget { name: name.to_owned(), connect: server.connect_options() }
}

fn member(name: &str, server: &Server) -> Member {
    Member { name: name.to_owned(), address: server.address().to_string(), ..Member::default() }
}

fn statement(kind: ServerKind, mysql: &'static str, mariadb: &'static str) -> &'static str {
    match kind.flavour() {
        Flavour::MySql => mysql,
        Flavour::MariaDb => mariadb,
    }
}

struct Pair {
    primary: Server,
    replica: Server,
}

impl Pair {
    async fn start(kind: ServerKind) -> Result<Self> {
        let updates = statement(kind, "--log-replica-updates=1", "--log-slave-updates=1");
        let spec = |name: &str| ServerSpec::new(kind).name(name).options([updates, "--sync-binlog=0"]);
        let primary = Server::start(spec("primary").option("--server-id=1")).await?;
        let replica = Server::start(spec("replica").options(["--server-id=2", "--read-only=1"])).await?;
        replica.replicate_from(&primary).await?;
        primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)").await?;
        Ok(Self { primary, replica })
    }

    async fn look(&self, timeout: Duration) -> (Cluster, Vec<Observation>) {
        let plan = ClusterPlan {
            name: "orders".into(),
            primary: member("db1", &self.primary),
            servers: vec![member("db2", &self.replica)],
            relay: RelayPlan { server_id: 4201, ..RelayPlan::default() },
            ..ClusterPlan::default()
        };
        let (mut all, primaries) =
            probe_servers(&[subject("db2", &self.replica)], &[subject("db1", &self.primary)], timeout).await;
        all.extend(primaries);
        (build_tree(&plan, &all), all)
    }

    /// Probes the servers until the replica is in the wanted state.
    async fn until(&self, what: &str, is_so: impl Fn(&TopologyNode) -> bool) -> Result<Cluster> {
        let started = Instant::now();
        loop {
            let (cluster, _) = self.look(TIMEOUT).await;
            let replica = find(&cluster, "db2")?;
            if is_so(replica) {
                return Ok(cluster);
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "the replica did not reach this state in time: {what}: {replica:#?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn find<'a>(cluster: &'a Cluster, name: &str) -> Result<&'a TopologyNode> {
    let mut all = cluster.nodes.iter().flat_map(TopologyNode::walk);
    all.find(|node| node.name == name).with_context(|| format!("the tree has no node {name}: {cluster:#?}"))
}

fn has(node: &TopologyNode, code: ProblemCode) -> bool {
    node.problems.iter().any(|problem| problem.code == code)
}

fn in_step(node: &TopologyNode) -> bool {
    node.gtid_state.as_ref().is_some_and(|state| state.behind == 0)
}

async fn the_topology_of_real_servers_is_observed(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut pair = Pair::start(kind).await?;
    let cluster =
        pair.until("in step", |node| in_step(node) && !has(node, ProblemCode::IoConnecting)).await?;
    let primary = &cluster.nodes[0];
    ensure!(
        primary.role == NodeRole::Primary && primary.writable == Some(true),
        "the tree shows the wrong state of the primary: {primary:#?}"
    );
    // With sync_binlog off, a crash may lose commits. The topology must report this problem and no other.
    ensure!(
        primary.problems.iter().all(|problem| problem.code == ProblemCode::NotDurable),
        "the tree shows the wrong state of the primary: {primary:#?}"
    );
    let below: Vec<_> = primary.children.iter().map(|node| (node.name.as_str(), node.role)).collect();
    ensure!(
        below == [("tailwater", NodeRole::Relay), ("db2", NodeRole::Replica)],
        "the tree shows the wrong nodes below the primary: {below:?}"
    );
    let replica = find(&cluster, "db2")?;
    ensure!(
        replica.problems.is_empty() && replica.lag_seconds == Some(0.0),
        "the tree shows the wrong state of the replica: {replica:#?}"
    );
    ensure!(
        replica.server_id == Some(2) && replica.writable == Some(false),
        "the tree shows the wrong state of the replica: {replica:#?}"
    );

    // The replica receives a transaction and does not apply it.
    let stop = statement(kind, "STOP REPLICA SQL_THREAD", "STOP SLAVE SQL_THREAD");
    pair.replica.sql(stop).await?;
    pair.primary.sql("INSERT INTO shop.t VALUES (1)").await?;
    let cluster = pair
        .until("the replica is one transaction behind", |node| has(node, ProblemCode::SqlStopped))
        .await?;
    let behind = find(&cluster, "db2")?.gtid_state.as_ref().map(|state| state.behind);
    ensure!(
        behind == Some(1),
        "the tree shows the wrong number of transactions that the replica lacks: {behind:?}"
    );
    pair.replica.sql(statement(kind, "START REPLICA", "START SLAVE")).await?;
    pair.until("the replica is up to date again", in_step).await?;

    // The replica gets an errant transaction.
    pair.replica.sql("INSERT INTO shop.t VALUES (100)").await?;
    let (cluster, _) = pair.look(TIMEOUT).await;
    let errant = find(&cluster, "db2")?.gtid_state.as_ref().and_then(|state| state.errant.clone());
    let written = match kind.flavour() {
        Flavour::MySql => format!("{}:1", pair.replica.sql("SELECT @@global.server_uuid").await?.concat()),
        Flavour::MariaDb => pair.replica.sql("SELECT @@global.gtid_binlog_pos").await?.concat(),
    };
    ensure!(
        errant.as_deref() == Some(&written),
        "the tree shows {errant:?} as errant, but the replica wrote {written}"
    );
    ensure!(has(find(&cluster, "db2")?, ProblemCode::Errant));

    // The replica gets a transaction that it cannot apply. The topology must show the error.
    pair.primary.sql("INSERT INTO shop.t VALUES (100)").await?;
    let cluster = pair
        .until("the replica has stopped with an error", |node| has(node, ProblemCode::SqlStopped))
        .await?;
    let problems = &find(&cluster, "db2")?.problems;
    ensure!(
        problems.iter().any(|problem| problem.text.contains("1062")),
        "the error of the replica is missing among the problems: {problems:#?}"
    );

    // A frozen primary does not delay the probe beyond its time-out.
    pair.primary.pause()?;
    let (cluster, seen) = pair.look(SHORT).await;
    let failure = seen[1].outcome.as_ref().err().map(|unreached| unreached.failure);
    ensure!(
        failure == Some(ProbeFailure::TimedOut),
        "the probe or ping failed with the wrong error: {failure:?}"
    );
    ensure!(has(&cluster.nodes[0], ProblemCode::NotReached) && find(&cluster, "db2")?.reached);
    // The replica does not notice that the primary is frozen.
    let channel = seen[0]
        .state()
        .and_then(|look| look.channels.first())
        .context("the replica has no replication channel")?;
    ensure!(channel.io == IoState::Running, "the server has the wrong replication status: {channel:?}");
    pair.primary.resume()?;

    pair.replica.kill().await?;
    let (cluster, seen) = pair.look(TIMEOUT).await;
    let failure = seen[0].outcome.as_ref().err().map(|unreached| unreached.failure);
    ensure!(
        failure == Some(ProbeFailure::Refused),
        "the probe or ping failed with the wrong error: {failure:?}"
    );
    ensure!(has(find(&cluster, "db2")?, ProblemCode::NotReached) && cluster.nodes[0].reached);
    Ok(())
}

/// Unusual global settings, which new sessions inherit, must not affect the sessions of a manager: it
/// observes the same values and can still write.
async fn odd_global_settings_do_not_change_a_probe(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let updates = statement(kind, "--log-replica-updates=1", "--log-slave-updates=1");
    let spec = |name: &str| {
        accept_odd_settings(ServerSpec::new(kind)).name(name).options([updates, "--sync-binlog=0"])
    };
    let primary = Server::start(spec("primary").option("--server-id=1")).await?;
    let replica = Server::start(spec("replica").options(["--server-id=2", "--read-only=1"])).await?;
    replica.replicate_from(&primary).await?;
    primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)").await?;
    let pair = Pair { primary, replica };
    pair.until("in step", in_step).await?;
    let looks = async || -> Result<Vec<String>> {
        let (_, observations) = pair.look(TIMEOUT).await;
        let text = |observation: &Observation| {
            let mut look = observation.state().with_context(|| format!("{observation:?}"))?.clone();
            look.uptime_seconds = 0;
            for channel in &mut look.channels {
                // The executed position is not compared, because a replica reports it a moment after it has
                // executed the transaction.
                channel.executed_position = Default::default();
                // Only whether the lag is known is compared, not its value.
                channel.lag_seconds = channel.lag_seconds.map(|_| Default::default());
            }
            Ok(format!("{look:#?}"))
        };
        observations.iter().map(text).collect()
    };
    let before = looks().await?;
    ensure!(before.len() == 2, "the probe returned the wrong number of observations: {before:?}");
    apply_odd_settings(&pair.primary).await?;
    apply_odd_settings(&pair.replica).await?;
    let after = looks().await?;
    ensure!(
        after == before,
        "unusual global settings change the probe\nwith them: {after:#?}\nwithout them: {before:#?}"
    );
    let mut pinger = Pinger::new(&pair.primary.connect_options(), "odd", TIMEOUT);
    for ping in [PingKind::Select, PingKind::Connect, PingKind::Insert] {
        let ping = pinger.ping(ping).await;
        ensure!(ping.outcome.is_ok(), "the ping returned the wrong result: {ping:?}");
    }
    reset_odd_settings(&pair.primary).await?;
    let engine = "SELECT engine FROM information_schema.tables WHERE table_schema = 'tailwater' AND table_name = 'ping'";
    let engine = pair.primary.sql(engine).await?;
    ensure!(engine == ["InnoDB"], "the table has the wrong storage engine: {engine:?}");
    Ok(())
}

/// Whether the server waits for ACKs losslessly now, and whether the probe expects this after a restart.
async fn waits(server: &Server) -> Result<(bool, bool)> {
    let seen = probe_server(&subject("s", server), TIMEOUT).await;
    let look = seen.state().with_context(|| format!("{:?}", seen.outcome))?;
    ensure!(look.unanswered.is_empty(), "the server did not answer these queries: {:?}", look.unanswered);
    let Some(source) = &look.semi_sync_source else { return Ok((false, false)) };
    let now = SemiSyncWait::seen(source, source.survives_restart).acks();
    Ok((matches!(now, AckRequirement::Required(_)), source.survives_restart))
}

/// The probe predicts whether semi-sync survives a restart. The test then restarts the server to verify this.
async fn the_probe_predicts_whether_semi_sync_survives_a_restart(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut server = Server::start(ServerSpec::new(kind).name("restarted").semi_sync_source()).await?;
    ensure!(
        waits(&server).await? == (true, true),
        "semi-sync from the command line must be active, and must count as surviving a restart"
    );
    if kind.flavour() == Flavour::MariaDb {
        server.restart(None).await?;
        ensure!(
            waits(&server).await? == (true, true),
            "semi-sync from the command line must be active after a restart"
        );
    }
    // If all settings are already in place, a promotion does not change them: see `make_source`.
    if kind.flavour() == Flavour::MariaDb {
        let mut connection = Connection::connect(&server.connect_options()).await?;
        let (before, note) = make_source(&mut connection, 1).await?;
        ensure!(
            before.source && note.is_none() && waits(&server).await? == (true, true),
            "the operator got the wrong note, or the server has the wrong settings: {note:?}"
        );
        connection.close().await;
    }
    // The account has only the privileges of a replication user.
    let account = server.create_replication_user().await?;
    let seen = probe_server(&ProbeTarget { name: "s".into(), connect: account }, TIMEOUT).await;
    let source = seen
        .state()
        .and_then(|look| look.semi_sync_source.as_ref())
        .context("the server has no semi-sync source plugin")?;
    ensure!(source.survives_restart, "semi-sync must survive a restart: {seen:?}");
    let side = statement(kind, "rpl_semi_sync_source", "rpl_semi_sync_master");
    server.sql(&format!("SET GLOBAL {side}_timeout = 2000000000")).await?;
    ensure!(
        waits(&server).await? == (true, false),
        "a value that a statement has set must count as lost at a restart"
    );
    if kind.flavour() == Flavour::MySql {
        server.sql("SET GLOBAL rpl_semi_sync_source_timeout = DEFAULT").await?;
        server.sql("SET PERSIST rpl_semi_sync_source_timeout = 2000000000").await?;
        ensure!(waits(&server).await? == (true, true), "a persisted value must count as surviving a restart");
        server.sql("SET PERSIST_ONLY rpl_semi_sync_source_enabled = 0").await?;
        ensure!(
            waits(&server).await? == (true, false),
            "semi-sync must not count as surviving a restart if a persisted value contradicts the command line"
        );
        server.sql("RESET PERSIST").await?;
    }

    server.restart(Some(Vec::new())).await?;
    server.enable_semi_sync_source().await?;
    ensure!(
        waits(&server).await? == (true, false),
        "semi-sync that a statement has enabled must count as lost at a restart"
    );
    let mut connection = Connection::connect(&server.connect_options()).await?;
    let (_, note) = make_source(&mut connection, 1).await?;
    connection.close().await;
    let keeps = kind.flavour() == Flavour::MySql;
    ensure!(
        note.is_none() == keeps,
        "the operator got the wrong note, or the server has the wrong settings: {note:?}"
    );
    ensure!(
        waits(&server).await? == (true, keeps),
        "semi-sync that was enabled as in a failover must be active, and must survive a restart only on MySQL"
    );
    if kind.flavour() == Flavour::MySql {
        server.restart(None).await?;
        ensure!(
            waits(&server).await? == (true, true),
            "semi-sync that was enabled as in a failover must be active after a restart of MySQL"
        );
        server.sql("RESET PERSIST; SET GLOBAL rpl_semi_sync_source_enabled = 1").await?;
        ensure!(
            waits(&server).await? == (true, false),
            "semi-sync must count as lost at a restart after RESET PERSIST"
        );
        return Ok(());
    }
    server.restart(None).await?;
    ensure!(!waits(&server).await?.0, "semi-sync must be off after a restart");
    Ok(())
}

async fn pings_detect_each_kind_of_failure(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    // No acker is connected, so each commit waits.
    let spec = ServerSpec::new(kind).name("pinged").semi_sync_source();
    let mut server = Server::start(spec).await?;
    server
        .sql("SET SESSION sql_log_bin = 0; CREATE USER pinger@'%'; GRANT ALL ON tailwater.* TO pinger@'%'")
        .await?;
    let connect = ConnectOptions { user: "pinger".into(), ..server.connect_options() };
    let mut pinger = Pinger::new(&connect, "m'1", TIMEOUT);
    let mut hasty = Pinger::new(&connect, "m'2", SHORT);
    for kind in [PingKind::Select, PingKind::Select, PingKind::Connect] {
        let ping = pinger.ping(kind).await;
        ensure!(ping.outcome.is_ok(), "the ping returned the wrong result: {ping:?}");
    }
    // The write hangs and is not cancelled. No second write is started meanwhile.
    for _ in 0..3 {
        let failure = hasty.ping(PingKind::Insert).await.outcome.err().map(|unreached| unreached.failure);
        ensure!(
            failure == Some(ProbeFailure::TimedOut),
            "the probe or ping failed with the wrong error: {failure:?}"
        );
        ensure!(hasty.ping(PingKind::Connect).await.outcome.is_ok());
    }
    let seen = probe_server(&subject("pinged", &server), TIMEOUT).await;
    let look = seen.state().context("the server was not observed")?;
    let semi_sync = look.semi_sync_source.as_ref().context("the server has no semi-sync source plugin")?;
    ensure!(
        semi_sync.enabled && semi_sync.active && semi_sync.wait_no_replica,
        "the server has the wrong semi-sync state: {semi_sync:?}"
    );
    let waiting = (semi_sync.clients, semi_sync.waiting_sessions, semi_sync.acks_needed);
    ensure!(waiting == (0, 1, 1), "the server has the wrong semi-sync state: {semi_sync:?}");
    // Semi-sync can be switched off here, because no client of a test server relies on its commits.
    server
        .sql(statement(
            kind,
            "SET GLOBAL rpl_semi_sync_source_enabled = 0",
            "SET GLOBAL rpl_semi_sync_master_enabled = 0",
        ))
        .await?;
    for pinger in [&mut hasty, &mut pinger] {
        let started = Instant::now();
        while let Err(unreached) = pinger.ping(PingKind::Insert).await.outcome {
            ensure!(
                started.elapsed() < PATIENCE,
                "pings still fail after semi-sync was switched off: {unreached:?}"
            );
        }
    }
    let rows = server.sql("SELECT manager FROM tailwater.ping ORDER BY manager").await?;
    ensure!(rows == ["m'1", "m'2"], "the table has the wrong rows: {rows:?}");

    server.sql("SET GLOBAL read_only = 1").await?;
    let failure = pinger.ping(PingKind::Insert).await.outcome.err().map(|unreached| unreached.failure);
    ensure!(
        failure == Some(ProbeFailure::ReadOnly),
        "the probe or ping failed with the wrong error: {failure:?}"
    );

    // A server that denies the login counts as alive.
    let stranger = ConnectOptions { user: "nobody".into(), ..server.connect_options() };
    let failure = Pinger::new(&stranger, "m", TIMEOUT).ping(PingKind::Select).await.outcome.err();
    ensure!(
        failure.as_ref().map(|unreached| unreached.failure) == Some(ProbeFailure::Denied),
        "the probe or ping failed with the wrong error: {failure:?}"
    );

    // After a restart of the server, the broken connection gives no information on the new server process.
    // The pinger must try a new connection at once.
    server.restart(None).await?;
    let ping = pinger.ping(PingKind::Select).await;
    ensure!(ping.outcome.is_ok(), "the ping returned the wrong result: {ping:?}");
    server.pause()?;
    let failure = hasty.ping(PingKind::Connect).await.outcome.err().map(|unreached| unreached.failure);
    ensure!(
        failure == Some(ProbeFailure::TimedOut),
        "the probe or ping failed with the wrong error: {failure:?}"
    );
    server.resume()?;
    // A connection that is refused because the process was killed is enough for a failover. The pings before
    // that must cause no finding.
    let mut record = ObservationHistory::new(
        ClusterMembers { primary: "pinged".into(), ..ClusterMembers::default() },
        AnalysisSettings::default(),
    );
    let mut codes = |at_ms, ping: &PingResult| {
        let saw = Observed::of_ping(ping);
        record.add(ObserverReport { at_ms, observer: Observer::Manager, about: "pinged".into(), saw });
        analyse(&record, &FailoverGuard::default(), at_ms)
            .iter()
            .map(|finding| finding.code)
            .collect::<Vec<_>>()
    };
    let ping = pinger.ping(PingKind::Connect).await;
    ensure!(codes(0, &ping).is_empty(), "the ping returned the wrong result: {ping:?}");
    server.kill().await?;
    let ping = pinger.ping(PingKind::Select).await;
    ensure!(codes(1, &ping) == [FailureCode::DeadPrimary], "the ping returned the wrong result: {ping:?}");
    for kind in [PingKind::Select, PingKind::Connect, PingKind::Insert] {
        let failure = pinger.ping(kind).await.outcome.err().map(|unreached| unreached.failure);
        // The connection for writes breaks first; the next attempt to connect is refused.
        let fits = failure == Some(ProbeFailure::Refused)
            || (kind == PingKind::Insert && failure == Some(ProbeFailure::ConnectionLost));
        ensure!(fits, "the {kind:?} ping failed with the wrong error: {failure:?}");
    }
    Ok(())
}
