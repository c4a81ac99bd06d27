//! The target of a channel, a native GTID replica and a native replica with file and position are servers on
//! one machine that loses power. The channel must continue exactly once. What the native replicas do is
//! recorded: equal, different, or stopped.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tailwater_lab::fault_trial::{SOURCE_NAME, Trial, TrialDurability, TrialFolder, TrialSpec};
use tailwater_log::AckMode;
use tailwater_lossy_disk::{LossyDisk, NameDurability};
use tailwater_sandbox::{ReplicaOf, ReplicaStart, Server, ServerKind, ServerSpec, require};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Durability, Plan, cut_power, say};
use crate::shell_session::PROGRAM;

/// Time limit of each wait for a server that must reach a state.
const PATIENCE: Duration = Duration::from_secs(90);
const CLIENTS: u64 = 3;

/// Queries whose result changes if a transaction is applied twice or never.
const SUMS: &str = "SELECT SUM(n) FROM tally.hot; SELECT COUNT(*) FROM tally.notes; \
                    CHECKSUM TABLE tally.hot, tally.notes EXTENDED";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_continues_exactly_once_after_power_cuts_of_its_target_mysql() -> Result<()> {
    targets_lose_power(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_continues_exactly_once_after_power_cuts_of_its_target_mariadb() -> Result<()> {
    targets_lose_power(ServerKind::Mariadb1011).await
}

/// The result of a native replica after power cuts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum NativeResult {
    Equal,
    /// The replica states that it has executed everything, but its data differ from the source.
    Different,
    /// Replication stopped with this error number of the server.
    Stopped(u64),
    /// The server started, but not replication, without an error in the status. The error log has the cause.
    NotReplicating,
    /// The server lost the settings of its source.
    NotAReplica,
    /// The replica neither stops nor executes everything.
    NoProgress,
    NotStarted,
}

impl fmt::Display for NativeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal => f.write_str("equal"),
            Self::Different => f.write_str("**different data**"),
            Self::Stopped(error) => write!(f, "stopped, error {error}"),
            Self::NotReplicating => f.write_str("replication does not start"),
            Self::NotAReplica => f.write_str("lost its source's address and position"),
            Self::NoProgress => f.write_str("no progress"),
            Self::NotStarted => f.write_str("server does not start"),
        }
    }
}

/// How often each result occurred.
#[derive(Debug, Default)]
struct NativeResults(BTreeMap<NativeResult, u32>);

impl fmt::Display for NativeResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (result, count)) in self.0.iter().enumerate() {
            write!(f, "{}{result}: {count}", if index > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct SettingResult {
    cuts: u32,
    transactions: u64,
    /// Number of power cuts after which the channel continued exactly once.
    channel_equal: u32,
    /// Whether the server of the channel's target did not start after the last power cut.
    target_lost: bool,
    gtid: NativeResults,
    file_position: NativeResults,
}

async fn targets_lose_power(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut plan = Plan::new(1, 6);
    let mut table =
        "| servers | sync_binlog | trx_commit | power cuts | transactions | channel | native GTID replica | \
                     native file and position |\n|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for durability in plan.settings.clone() {
        let Some(disk) = LossyDisk::for_test(NameDurability::Journal) else { return Ok(()) };
        let context = format!("TAILWATER_SEED={}: {kind} {durability}", plan.seed);
        let result = cuts_at_setting(kind, durability, disk, &mut plan).await.context(context)?;
        let Durability { sync_binlog, trx_commit } = durability;
        let SettingResult { cuts, transactions, channel_equal, target_lost, gtid, file_position } = result;
        let lost = if target_lost { "; server does not start: 1" } else { "" };
        table += &format!(
            "| {kind} | {sync_binlog} | {trx_commit} | {cuts} | {transactions} | equal: {channel_equal}{lost} | {gtid} | {file_position} |\n"
        );
        say(&table);
    }
    Ok(())
}

/// A native replica. A replica that stopped or differs is created again for the next power cut.
struct NativeReplica {
    name: &'static str,
    is_gtid: bool,
    server: Option<Server>,
    created: u32,
}

async fn cuts_at_setting(
    kind: ServerKind,
    durability: Durability,
    mut disk: LossyDisk,
    plan: &mut Plan,
) -> Result<SettingResult> {
    let folder = TrialFolder::new(None)?;
    let target_options = durability.options();
    let target = ServerSpec::new(kind).name("target").options(target_options);
    let mut target = Server::start(target.new_data(disk.path().join("target"))).await?;
    disk.sync_everything();
    let mut trial = start_source(kind, &folder, &target).await?;
    let mut replicas = [
        NativeReplica { name: "gtid", is_gtid: true, server: None, created: 0 },
        NativeReplica { name: "position", is_gtid: false, server: None, created: 0 },
    ];
    let mut result = SettingResult::default();
    for _ in 0..plan.cuts {
        for replica in &mut replicas {
            replica.create_if_missing(kind, durability, &disk, &trial.primary).await?;
        }
        let enough = CancellationToken::new();
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (options, seed) = (trial.primary.connect_options(), plan.random.random());
            clients.spawn(count(options, client, seed, enough.clone()));
        }
        let load = Duration::from_millis(plan.random.random_range(700..1800));
        tokio::time::sleep(load).await;
        let cut = plan.next_cut();
        let mut servers: Vec<&mut Server> = vec![&mut target];
        servers.extend(replicas.iter_mut().filter_map(|replica| replica.server.as_mut()));
        cut_power(&mut disk, &mut servers, cut).await?;
        enough.cancel();
        while let Some(client) = clients.join_next().await {
            result.transactions += client??;
        }
        result.cuts += 1;
        if let Err(error) = target.start_again().await {
            // The server lost its own files, which happens only if it does not sync its binlog.
            ensure!(durability.sync_binlog == 0, "{cut:?}: the target does not start: {error}");
            say(&format!("{kind} {durability}: the target does not start after {cut:?}: {error}"));
            result.target_lost = true;
            return Ok(result);
        }
        let wanted = trial.primary.sql(SUMS).await?;
        wait_for_channel(&mut trial, &target, &wanted).await.with_context(|| format!("{cut:?}"))?;
        result.channel_equal += 1;
        for replica in &mut replicas {
            let results = if replica.is_gtid { &mut result.gtid } else { &mut result.file_position };
            let found = replica.result(&trial.primary, &wanted).await?;
            if found != NativeResult::Equal {
                say(&format!("{kind} {durability}, {}: {found} after {cut:?}", replica.name));
            }
            *results.0.entry(found).or_default() += 1;
        }
    }
    let sums = target.sql(SUMS).await?;
    let count = result.transactions.to_string();
    ensure!(
        sums.starts_with(&[count.clone(), count]),
        "after {} committed transactions, the target has {sums:?}",
        result.transactions
    );
    trial.stop_relay().await?;
    Ok(result)
}

/// Starts the source on another machine, and a daemon whose channel applies to `target`.
async fn start_source(kind: ServerKind, folder: &TrialFolder, target: &Server) -> Result<Trial> {
    let spec = TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PROGRAM.into(),
        folder: folder.path().to_owned(),
    };
    let mut trial = Trial::start(spec).await?;
    std::fs::write(folder.path().join("target.cnf"), "[client]\nuser=root\n")?;
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"target\"\nsource = \"{SOURCE_NAME}\"\nhost = \"127.0.0.1\"\nport = {}\n\
         defaults_file = \"target.cnf\"\ntls = \"off\"\nstart = \"oldest\"\n",
        target.port()
    ))?;
    trial.set_asynchronous().await?;
    trial.start_relay()?;
    let tables = "CREATE DATABASE tally; CREATE TABLE tally.hot (id INT PRIMARY KEY, n BIGINT NOT NULL); \
                  INSERT INTO tally.hot VALUES (0,0),(1,0),(2,0); CREATE TABLE tally.notes (client INT, n INT)";
    trial.primary.sql(tables).await?;
    Ok(trial)
}

/// Repeatedly increments a row that other clients increment too, and inserts a row into a table without a
/// key. Returns the number of committed transactions.
async fn count(source: ConnectOptions, client: u64, seed: u64, enough: CancellationToken) -> Result<u64> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut connection = Connection::connect(&source).await?;
    let mut done = 0;
    while !enough.is_cancelled() {
        let id = random.random_range(0..3);
        connection.execute("BEGIN").await?;
        connection.execute(&format!("UPDATE tally.hot SET n=n+1 WHERE id={id}")).await?;
        connection.execute(&format!("INSERT INTO tally.notes VALUES ({client}, {done})")).await?;
        connection.execute("COMMIT").await?;
        done += 1;
    }
    Ok(done)
}

/// Waits until the target has the same data as the source.
async fn wait_for_channel(trial: &mut Trial, target: &Server, wanted: &[String]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = target.sql(SUMS).await.unwrap_or_default();
        if found == wanted {
            return Ok(());
        }
        let words = trial.relay_log_tail();
        ensure!(
            trial.relay().context("the daemon is not running")?.is_running(),
            "the daemon ended: {words}"
        );
        ensure!(
            Instant::now() < deadline,
            "the target has {found:?}, expected {wanted:?}; the daemon logged: {words}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl NativeReplica {
    async fn create_if_missing(
        &mut self,
        kind: ServerKind,
        durability: Durability,
        disk: &LossyDisk,
        source: &Server,
    ) -> Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        self.created += 1;
        let data = disk.path().join(format!("{}-{}", self.name, self.created));
        // The manuals recommend this setting for replicas whose machine may crash.
        let spec = ServerSpec::new(kind).name(self.name).options(durability.options());
        let server = Server::start(spec.option("--relay-log-recovery=ON").new_data(data)).await?;
        disk.sync_everything();
        let files = source.sql("SHOW BINARY LOGS").await?;
        let file =
            files.first().and_then(|row| row.split('\t').next()).context("the source has no binlog")?;
        let start = match self.is_gtid {
            true => ReplicaStart::Gtid,
            false => ReplicaStart::FilePosition { file: file.to_owned(), position: 4 },
        };
        server.replicate(&ReplicaOf::port(source.port()).start(start)).await?;
        let wanted = source.sql(SUMS).await?;
        let deadline = Instant::now() + PATIENCE;
        while server.sql(SUMS).await.unwrap_or_default() != wanted {
            ensure!(Instant::now() < deadline, "the new replica {} does not catch up", self.name);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.server = Some(server);
        Ok(())
    }

    /// Starts the server after a power cut, and returns what became of the replica. A replica that is not
    /// equal is removed.
    async fn result(&mut self, source: &Server, wanted: &[String]) -> Result<NativeResult> {
        let mut server = self.server.take().context("the replica exists")?;
        let result = match server.start_again().await {
            Ok(()) => self.result_of(&server, source, wanted).await?,
            Err(_) => NativeResult::NotStarted,
        };
        if result == NativeResult::Equal {
            self.server = Some(server);
        }
        Ok(result)
    }

    async fn result_of(&self, server: &Server, source: &Server, wanted: &[String]) -> Result<NativeResult> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Replicas of both kinds say that they have executed everything, or they stop.
            let has_all = self.has_executed_all(server, source).await?;
            // A table or database may be lost.
            if server.sql(SUMS).await.unwrap_or_default() == wanted {
                return Ok(NativeResult::Equal);
            }
            let Some(status) = server.replica_status().await? else {
                return Ok(NativeResult::NotAReplica);
            };
            if has_all {
                say(&format!("{}: {status}", self.name));
                return Ok(NativeResult::Different);
            }
            let numbers = [(status.sql_running, status.sql_error.0), (status.io_running, status.io_error.0)];
            if let Some((_, number)) =
                numbers.iter().find(|(running, number)| running == "No" && *number != 0)
            {
                return Ok(NativeResult::Stopped(*number));
            }
            // The server starts the threads before it accepts clients.
            if numbers.iter().all(|(running, _)| running == "No") {
                return Ok(NativeResult::NotReplicating);
            }
            if Instant::now() >= deadline {
                return Ok(NativeResult::NoProgress);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether the replica states that it has executed everything that the source has.
    async fn has_executed_all(&self, server: &Server, source: &Server) -> Result<bool> {
        let is_mysql = source.kind().flavour() == Flavour::MySql;
        if self.is_gtid {
            let variable = if is_mysql { "gtid_executed" } else { "gtid_binlog_pos" };
            let gtids = source.sql(&format!("SELECT @@global.{variable}")).await?.concat().replace("\\n", "");
            return Ok(server.wait_for_gtids(&gtids, Duration::ZERO).await.unwrap_or(false));
        }
        let (show, wait) = match is_mysql {
            true => ("SHOW BINARY LOG STATUS", "SOURCE_POS_WAIT"),
            false => ("SHOW MASTER STATUS", "MASTER_POS_WAIT"),
        };
        let row = source.sql(show).await?.concat();
        let mut columns = row.split('\t');
        let (file, position) = columns.next().zip(columns.next()).context("the source has no binlog")?;
        let answer = server.sql(&format!("SELECT {wait}('{file}', {position}, 1)")).await;
        Ok(answer.unwrap_or_default().concat().parse::<i64>().is_ok_and(|events| events >= 0))
    }
}
