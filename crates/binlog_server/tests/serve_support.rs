//! Tailwater as a binlog server in this process, and the real replicas that read from it.

use std::collections::{BTreeSet, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tailwater_binlog_server::{BinlogServer, ServeOptions, ServedLog};
use tailwater_capture::resume::StartPolicy;
use tailwater_capture::{CaptureError, CaptureOptions};
use tailwater_log::LogHandle;
use tailwater_sandbox::replication::{REPLICATION_PASSWORD, REPLICATION_USER};
use tailwater_sandbox::{Ledger, ReplicaOf, ReplicaStatus, ReservedPort, Server, ServerKind, ServerSpec};
use tailwater_session::server::{Accounts, ConnectionLimits, Credential, ServerTls};
use tailwater_session::{ConnectOptions, Connection, Endpoint, TlsMode, TlsOptions};
use tailwater_wire::Flavour;

use self::capture_receiver::CaptureReceiver;
use crate::support::{PATIENCE, Running, Source};

// The daemon joins capture and binlog server; the tests use the same code.
#[path = "../../daemon/src/wiring/capture_receiver.rs"]
mod capture_receiver;

/// A read-only account.
pub const READER: &str = "reader";
/// Its password.
pub const READER_PASSWORD: &str = "reads-only";

/// A capture, and two binlog servers of its log: one for all, one for clients with TLS only.
pub struct Tailwater {
    /// Options of the capture. Takes effect at the next start, like the following fields.
    pub capture: CaptureOptions,
    /// Limits on client connections.
    pub limits: ConnectionLimits,
    /// The `server_id` that clients see.
    pub server_id: u32,
    port: ReservedPort,
    tls_port: ReservedPort,
    running: Option<Running>,
    servers: Vec<BinlogServer>,
}

impl Tailwater {
    /// Captures `source` from its oldest file on, without semi-sync, and waits until it streams.
    pub async fn start(source: &Source) -> Result<Self> {
        let mut tailwater = Self::of(source)?;
        tailwater.start_again().await?;
        Ok(tailwater)
    }

    /// The same, not started.
    pub fn of(source: &Source) -> Result<Self> {
        let mut capture = source.options("log", 4200);
        capture.semi_sync = false;
        capture.start = StartPolicy::Oldest;
        Ok(Self {
            capture,
            // All clients come from one address, at once.
            limits: ConnectionLimits { connections_per_second_max: 10_000, ..ConnectionLimits::default() },
            server_id: 4300,
            port: ReservedPort::pick()?,
            tls_port: ReservedPort::pick()?,
            running: None,
            servers: Vec::new(),
        })
    }

    /// Starts capture and servers, and waits until the capture streams.
    pub async fn start_again(&mut self) -> Result<()> {
        self.open().await?;
        self.running()?.until_streaming().await
    }

    /// Starts capture and servers.
    pub async fn open(&mut self) -> Result<()> {
        let running = Running::start(self.capture.clone())?;
        for (port, require_tls) in [(self.port.number(), false), (self.tls_port.number(), true)] {
            let served = ServedLog {
                log: running.log(),
                receiver: Arc::new(CaptureReceiver(running.status.clone())),
                source_host: "127.0.0.1".into(),
                source_port: 0,
                source_user: REPLICATION_USER.into(),
                source_tls: false,
            };
            self.servers.push(BinlogServer::start(self.serve_options(port, require_tls)?, served).await?);
        }
        self.running = Some(running);
        Ok(())
    }

    fn serve_options(&self, port: u16, require_tls: bool) -> Result<ServeOptions> {
        let mut accounts = Accounts::new();
        accounts.add(REPLICATION_USER, &[Credential::password(REPLICATION_PASSWORD)])?;
        accounts.add(READER, &[Credential::password(READER_PASSWORD)])?;
        Ok(ServeOptions {
            name: "log".into(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            server_id: self.server_id,
            server_uuid: "7a11a7e5-0000-4000-8000-000000004300".into(),
            accounts,
            admins: HashSet::from([REPLICATION_USER.to_owned()]),
            tls: ServerTls::Generated,
            require_tls,
            limits: self.limits.clone(),
        })
    }

    /// Stops everything in an orderly way.
    pub async fn stop(&mut self) -> Result<()> {
        self.stop_serving().await;
        self.running.take().context("nothing runs")?.stop().await
    }

    /// Waits for the end of a capture with a permanent error, and stops.
    pub async fn refusal(&mut self) -> Result<CaptureError> {
        let error = self.running.take().context("nothing runs")?.refusal().await?;
        Ok(error)
    }

    /// Stops serving; the capture continues, if there is one.
    pub async fn stop_serving(&mut self) {
        for server in self.servers.drain(..) {
            server.stop().await;
        }
    }

    pub fn running(&self) -> Result<&Running> {
        self.running.as_ref().context("nothing runs")
    }

    pub fn log(&self) -> Result<LogHandle> {
        Ok(self.running()?.log())
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// By GTIDs, as an administrator.
    pub fn replica(&self) -> ReplicaOf {
        ReplicaOf::port(self.port())
    }

    /// The same with TLS, at the server that requires it.
    pub fn replica_with_tls(&self) -> ReplicaOf {
        ReplicaOf { tls: true, ..ReplicaOf::port(self.tls_port.number()) }
    }

    /// How an administrator connects.
    pub fn admin(&self) -> ConnectOptions {
        self.account(REPLICATION_USER, REPLICATION_PASSWORD)
    }

    pub fn account(&self, user: &str, password: &str) -> ConnectOptions {
        let tls = TlsOptions { mode: TlsMode::Off, ..TlsOptions::default() };
        ConnectOptions::new(Endpoint::tcp("127.0.0.1", self.port()), user).password(password).tls(tls)
    }

    /// Runs a statement as an administrator; returns the rows with tab-separated columns.
    pub async fn sql(&self, statement: &str) -> Result<Vec<String>> {
        let mut connection = Connection::connect(&self.admin()).await?;
        let answer = connection.query(statement).await?;
        connection.close().await;
        let columns = answer.columns.len();
        let text = |row: &tailwater_session::TextRow| {
            let cells = (0..columns).map(|column| row.get_str(column).unwrap_or("NULL").to_owned());
            cells.collect::<Vec<_>>().join("\t")
        };
        Ok(answer.rows.iter().map(text).collect())
    }

    /// The connections that read a stream: connection id and state of each.
    pub async fn streams(&self) -> Result<Vec<(u32, String)>> {
        let lines = self.sql("SHOW PROCESSLIST").await?;
        let dumps = lines.iter().filter(|line| line.contains("Binlog Dump"));
        dumps.map(|line| Ok((line.split('\t').next().unwrap_or_default().parse()?, line.clone()))).collect()
    }

    /// Waits until the streams satisfy a condition.
    pub async fn until_streams(
        &self,
        what: &str,
        wished: impl Fn(&[(u32, String)]) -> bool,
    ) -> Result<Vec<(u32, String)>> {
        let begin = Instant::now();
        loop {
            let streams = self.streams().await?;
            if wished(&streams) {
                return Ok(streams);
            }
            ensure!(begin.elapsed() < PATIENCE, "{what} never comes: {streams:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Options that make a server fast, and lose nothing when only its process is killed.
const RELAXED: [&str; 3] =
    ["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--relay-log-recovery=ON"];

/// Options of a source whose replicas go by position and are interrupted. MariaDB from 11.4 on writes no
/// positions inside a transaction; its replicas count wrongly there, and no source can resume them.
pub fn with_positions(kind: ServerKind) -> Option<&'static str> {
    (kind == ServerKind::Mariadb118).then_some("--binlog-legacy-event-pos=ON")
}

/// A server for a replica, with these options in addition.
pub fn replica_spec(kind: ServerKind, name: &str, options: &[&str]) -> ServerSpec {
    ServerSpec::new(kind).name(name).options(RELAXED).options(options.iter().copied())
}

/// Starts one.
pub async fn start_replica(kind: ServerKind, name: &str, options: &[&str]) -> Result<Server> {
    Ok(Server::start(replica_spec(kind, name, options)).await?)
}

/// Every transaction that a source has written, in the form that replicas wait for.
pub async fn written_by(source: &Server) -> Result<String> {
    let variable = match source.kind().flavour() {
        Flavour::MySql => "gtid_executed",
        Flavour::MariaDb => "gtid_binlog_pos",
    };
    Ok(source.sql(&format!("SELECT @@global.{variable}")).await?.concat().replace("\\n", ""))
}

/// Whether two GTID texts are equal: MariaDB lists its domains in any order.
pub fn same_gtids(ours: &str, theirs: &str) -> bool {
    let sorted = |gtids: &str| gtids.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
    sorted(ours) == sorted(theirs)
}

/// Waits until a replica has applied everything that its source has written.
pub async fn until_in_step(replica: &Server, source: &Server) -> Result<()> {
    let gtids = written_by(source).await?;
    if replica.wait_for_gtids(&gtids, PATIENCE).await? {
        return Ok(());
    }
    bail!("{} does not come to {gtids}: {:?}", replica.name(), replica.replica_status().await?);
}

/// Compares a replica, once it has applied everything, with the source and the ledger.
pub async fn check_equal(replica: &Server, source: &Server, ledger: &Ledger) -> Result<()> {
    until_in_step(replica, source).await?;
    let (name, ours, theirs) = (replica.name(), replica.replicated_gtids().await?, written_by(source).await?);
    ensure!(ours == theirs, "{name} has {ours}, its source {theirs}");
    check_tables(replica, source, ledger).await
}

/// Compares the tables of a replica with the source and the ledger.
pub async fn check_tables(replica: &Server, source: &Server, ledger: &Ledger) -> Result<()> {
    let name = replica.name();
    let report = ledger.compare_with_server(&replica.connect_options()).await?;
    let wrong = report.missing.count + report.altered.count + report.failed_but_present.count;
    ensure!(wrong == 0 && report.unlisted == 0 && report.rows > 0, "{name}: {report:?}");
    let checksums = "CHECKSUM TABLE tw_load.tw_ledger, tw_load.orders, tw_load.items, tw_load.accounts, tw_load.documents";
    let (ours, theirs) = (replica.sql(checksums).await?, source.sql(checksums).await?);
    ensure!(ours == theirs, "the tables of {name} are {ours:?}, those of its source {theirs:?}");
    Ok(())
}

/// The error that ends a dump. A MySQL replica has an error number of its own for it, and names this one in
/// its text.
pub const FATAL: u64 = 1236;

/// Waits until a replica's receiver thread has an error with this number and text.
pub async fn until_io_error(replica: &Server, number: u64, words: &str) -> Result<ReplicaStatus> {
    let begin = Instant::now();
    let fatal = number == FATAL;
    let number = if fatal && replica.kind().flavour() == Flavour::MySql { 13114 } else { number };
    loop {
        let status = replica.replica_status().await?.context("it is no replica")?;
        let has_error = status.io_error.0 == number && status.io_error.1.contains(words);
        // It reports the error before it has stopped.
        if has_error && !(fatal && status.io_running != "No") {
            return Ok(status);
        }
        ensure!(
            begin.elapsed() < PATIENCE,
            "{} does not report {number} {words}: {status:?}",
            replica.name()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The value of a server's status variable.
pub async fn status_variable(server: &Server, name: &str) -> Result<String> {
    let lines = server.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'")).await?;
    let value = lines.first().and_then(|line| line.split('\t').nth(1));
    Ok(value.with_context(|| format!("no {name}"))?.to_owned())
}
