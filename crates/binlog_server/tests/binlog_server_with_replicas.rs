//! Tailwater as a binlog server in this process, and real replicas that read from it.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use tailwater_binlog_server::{BinlogServer, SHARED_TAIL_BYTES_MAX, ServeOptions, ServedLog};
use tailwater_capture::CaptureOptions;
use tailwater_capture::resume_position::StartPolicy;
use tailwater_sandbox::replication_setup::{REPLICATION_PASSWORD, REPLICATION_USER};
use tailwater_sandbox::{Ledger, ReplicaOf, ReservedPort, Server, ServerKind, ServerSpec};
use tailwater_session::server::{Accounts, ConnectionLimits, Credential, ServerTls};
use tailwater_session::{ConnectOptions, Connection, Endpoint, TlsMode, TlsOptions};
use tailwater_wire::Flavour;

use self::receiver_status_from_capture::CaptureReceiver;
use crate::capture_test_source::{PATIENCE, Running, Source};

// The daemon and these tests use this module to connect the capture with the binlog server.
#[path = "../../daemon/src/options_from_config/receiver_status_from_capture.rs"]
mod receiver_status_from_capture;

/// The name of an account without `admin`.
pub const READER: &str = "reader";
/// The password of the account [`READER`].
pub const READER_PASSWORD: &str = "reads-only";

/// A capture, and two binlog servers for its log. One accepts all clients, the other only clients with TLS.
pub struct Tailwater {
    /// The options of the capture. Changes of this field, of `limits` and of `server_id` take effect at the
    /// next start.
    pub capture: CaptureOptions,
    /// Limits on client connections.
    pub limits: ConnectionLimits,
    /// The `server_id` that clients see.
    pub server_id: u32,
    port: ReservedPort,
    pub tls_port: ReservedPort,
    pub running: Option<Running>,
    servers: Vec<BinlogServer>,
}

impl Tailwater {
    /// The same as [`Tailwater::start`], but nothing is started yet.
    pub fn of(source: &Source) -> Result<Self> {
        let mut capture = source.options("log", 4200);
        capture.semi_sync = false;
        capture.start = StartPolicy::Oldest;
        Ok(Self {
            capture,
            // All clients come from the same address, and many connect at once.
            limits: ConnectionLimits { connections_per_second_max: 10_000, ..ConnectionLimits::default() },
            server_id: 4300,
            port: ReservedPort::pick()?,
            tls_port: ReservedPort::pick()?,
            running: None,
            servers: Vec::new(),
        })
    }

    /// Starts the capture and the servers, and waits until the stream has started.
    pub async fn start_again(&mut self) -> Result<()> {
        self.open().await?;
        self.running()?.until_streaming().await
    }

    /// Starts the capture and the servers.
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
            shared_tail_bytes_max: SHARED_TAIL_BYTES_MAX,
        })
    }

    /// Stops the capture and the servers in an orderly way.
    pub async fn stop(&mut self) -> Result<()> {
        self.stop_serving().await;
        self.running.take().context("the capture is not running")?.stop().await
    }

    /// Stops the servers. The capture continues, if it runs.
    pub async fn stop_serving(&mut self) {
        for server in self.servers.drain(..) {
            server.stop().await;
        }
    }

    pub fn running(&self) -> Result<&Running> {
        self.running.as_ref().context("the capture is not running")
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// How a replica connects: by GTIDs, with the account that has `admin`.
    pub fn replica(&self) -> ReplicaOf {
        ReplicaOf::port(self.port())
    }

    /// How a client with the account that has `admin` connects.
    pub fn admin(&self) -> ConnectOptions {
        self.account(REPLICATION_USER, REPLICATION_PASSWORD)
    }

    pub fn account(&self, user: &str, password: &str) -> ConnectOptions {
        let tls = TlsOptions { mode: TlsMode::Off, ..TlsOptions::default() };
        ConnectOptions::new(Endpoint::tcp("127.0.0.1", self.port()), user).password(password).tls(tls)
    }

    /// Runs a statement with the account that has `admin`. Returns the rows with tab-separated columns.
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
}

/// Server options that avoid most syncs to disk. If only the server process is killed, the server still loses
/// nothing.
const RELAXED: [&str; 3] =
    ["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--relay-log-recovery=ON"];

/// The specification of a server that becomes a replica. `options` are added to the options of all replicas.
pub fn replica_spec(kind: ServerKind, name: &str, options: &[&str]) -> ServerSpec {
    ServerSpec::new(kind).name(name).options(RELAXED).options(options.iter().copied())
}

/// Starts a server for a replica.
pub async fn start_replica(kind: ServerKind, name: &str, options: &[&str]) -> Result<Server> {
    Ok(Server::start(replica_spec(kind, name, options)).await?)
}

/// All transactions that a source has written to its binlog, in the form that replicas wait for.
pub async fn written_by(source: &Server) -> Result<String> {
    let variable = match source.kind().flavour() {
        Flavour::MySql => "gtid_executed",
        Flavour::MariaDb => "gtid_binlog_pos",
    };
    Ok(source.sql(&format!("SELECT @@global.{variable}")).await?.concat().replace("\\n", ""))
}

/// Waits until a replica has applied everything that its source has written.
pub async fn until_in_step(replica: &Server, source: &Server) -> Result<()> {
    let gtids = written_by(source).await?;
    if replica.wait_for_gtids(&gtids, PATIENCE).await? {
        return Ok(());
    }
    bail!(
        "the replica {} does not reach the GTIDs {gtids}: {:?}",
        replica.name(),
        replica.replica_status().await?
    );
}

/// Waits until a replica has applied everything, and then compares it with the source and the ledger.
pub async fn check_equal(replica: &Server, source: &Server, ledger: &Ledger) -> Result<()> {
    until_in_step(replica, source).await?;
    let (name, ours, theirs) = (replica.name(), replica.replicated_gtids().await?, written_by(source).await?);
    ensure!(ours == theirs, "the replica {name} has the GTIDs {ours}, but its source has {theirs}");
    check_tables(replica, source, ledger).await
}

/// Compares the tables of a replica with the tables of the source and with the ledger.
pub async fn check_tables(replica: &Server, source: &Server, ledger: &Ledger) -> Result<()> {
    let name = replica.name();
    let report = ledger.compare_with_server(&replica.connect_options()).await?;
    let wrong = report.missing.count + report.altered.count + report.failed_but_present.count;
    ensure!(
        wrong == 0 && report.unlisted == 0 && report.rows > 0,
        "the rows of {name} do not match the ledger: {report:?}"
    );
    let checksums = "CHECKSUM TABLE tw_load.tw_ledger, tw_load.orders, tw_load.items, tw_load.accounts, tw_load.documents";
    let (ours, theirs) = (replica.sql(checksums).await?, source.sql(checksums).await?);
    ensure!(
        ours == theirs,
        "the tables of the replica {name} have the checksums {ours:?}, but on the source they are {theirs:?}"
    );
    Ok(())
}

/// The value of a server's status variable.
pub async fn status_variable(server: &Server, name: &str) -> Result<String> {
    let lines = server.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'")).await?;
    let value = lines.first().and_then(|line| line.split('\t').nth(1));
    Ok(value.with_context(|| format!("the server has no status variable {name}"))?.to_owned())
}
