//! The servers of a trial: a primary, its native replica, and the target of a channel.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tailwater_apply::channel::{ChannelEdit, ChannelState, ChannelStatus};
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::control_socket::{ask, socket_of};
use tailwater_lab::fault_trial::{SOURCE_NAME, Trial, TrialDurability, TrialFolder, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{Server, ServerKind, ServerSpec};
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;

use super::random_settings::ServerRotation;
use super::server_contents::{ServerContents, capture, ignore_refusal};

/// Name of the channel.
pub const CHANNEL: &str = "target";

/// A connection as the superuser. It connects again after the connection was lost.
#[derive(Debug)]
pub struct SuperuserClient {
    options: tailwater_session::ConnectOptions,
    connection: Option<Connection>,
}

impl SuperuserClient {
    /// Creates a client of a server. It connects when it is first used.
    pub fn new(server: &Server) -> Self {
        Self { options: server.socket_options(), connection: None }
    }

    /// Returns an open connection.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn connection(&mut self) -> Result<&mut Connection, SessionError> {
        let usable = match &mut self.connection {
            Some(connection) => connection.ping().await.is_ok(),
            None => false,
        };
        if !usable {
            self.connection = Some(Connection::connect(&self.options).await?);
        }
        self.connection.as_mut().ok_or(SessionError::OutOfStep)
    }

    /// Returns the first value in the result of a query.
    ///
    /// # Errors
    /// If the server cannot be reached, or rejects the query.
    pub async fn value(&mut self, question: &str) -> Result<String, SessionError> {
        let answer = self.connection().await?.query(question).await?;
        Ok(answer.scalar().unwrap_or_default().to_owned())
    }

    /// Closes the connection. The next statement opens a new one.
    pub fn close(&mut self) {
        self.connection = None;
    }
}

/// The three servers and the daemon of a trial.
#[derive(Debug)]
pub struct TestServers {
    /// The primary, and the daemon that captures it.
    pub trial: Trial,
    /// The native replica.
    pub native: Server,
    /// The target of the channel. The only purpose of the field is to keep the server running.
    _target: Server,
    /// Connection to the primary as superuser.
    pub on_primary: SuperuserClient,
    /// Connection to the native replica as superuser.
    pub on_native: SuperuserClient,
    /// Connection to the target as superuser.
    pub on_target: SuperuserClient,
    control: PathBuf,
    /// Contents of native replica and target before the first file. After each cleanup they must be the same.
    pub baseline: ServerContents,
    /// Global variables of the primary before the first file.
    pub globals: Vec<(String, String)>,
    // Declared last, so that the folder is removed after the servers are dropped.
    _folder: TrialFolder,
}

fn shared_options(kind: ServerKind, rotation: &ServerRotation) -> Vec<String> {
    let mut options: Vec<String> = [
        "--sync-binlog=0",
        "--innodb-flush-log-at-trx-commit=0",
        "--log-bin-trust-function-creators=1",
        "--local-infile=1",
        "--max-connections=200",
    ]
    .map(str::to_owned)
    .into();
    if kind.flavour() == Flavour::MariaDb {
        options.push("--character-set-server=latin1".to_owned());
        options.push("--plugin-maturity=unknown".to_owned());
    } else {
        options.extend(["--gtid-mode=ON".to_owned(), "--enforce-gtid-consistency=ON".to_owned()]);
    }
    // A table without an ENGINE clause gets the default engine of the server that executes the statement. So
    // all servers have the same default.
    options.push(format!("--default-storage-engine={}", rotation.engine));
    options
}

impl TestServers {
    /// Starts all servers and the daemon, and waits until the channel runs.
    ///
    /// # Errors
    /// If a server, the daemon or the channel does not start.
    pub async fn start(kind: ServerKind, rotation: &ServerRotation) -> anyhow::Result<Self> {
        let folder = TrialFolder::new(None)?;
        let spec = TrialSpec {
            kind,
            durability: TrialDurability::Reduced,
            options: shared_options(kind, rotation),
            ack: AckMode::Received,
            program: std::env::current_exe()?,
            folder: folder.path().to_owned(),
        };
        let replica = |name: &str, id: u32| {
            ServerSpec::new(kind)
                .name(name)
                .options(shared_options(kind, rotation))
                // A channel may send rows to its target as statements, which are longer than row events.
                .option("--max-allowed-packet=1G")
                .option(format!("--server-id={id}"))
        };
        let (trial, native, target) = tokio::join!(
            Trial::start(spec),
            Server::start(replica("native", 30)),
            Server::start(replica("target", 20)),
        );
        let (mut trial, native, target) = (trial?, native?, target?);
        // The primary must not wait for ACKs of a daemon that has ended.
        trial.set_asynchronous().await?;
        native.replicate_from(&trial.primary).await?;
        // This account needs the privilege to read column definitions: the channel reads from the primary how
        // columns with the old temporal layout are declared.
        let account = trial.primary.replication_options().user;
        trial
            .primary
            .sql(&format!("SET SESSION sql_log_bin=0; GRANT SELECT ON *.* TO {account}@'%'"))
            .await?;
        // The channel gets the same mode as native replication. MariaDB's default is
        // `slave_ddl_exec_mode=IDEMPOTENT`.
        let mode = match kind.flavour() {
            Flavour::MySql => "strict",
            Flavour::MariaDb => "idempotent",
        };
        trial.add_channel(&format!(
            "\n[[channel]]\nname = \"{CHANNEL}\"\nsource = \"{SOURCE_NAME}\"\nsocket = {:?}\nuser = \"root\"\n\
             ddl_exec_mode = \"{mode}\"\n",
            target.socket()
        ))?;
        trial.start_relay()?;
        let mut servers = Self {
            on_primary: SuperuserClient::new(&trial.primary),
            on_native: SuperuserClient::new(&native),
            on_target: SuperuserClient::new(&target),
            control: socket_of(&folder.path().join("log")),
            trial,
            native,
            _target: target,
            baseline: ServerContents::new(),
            globals: Vec::new(),
            _folder: folder,
        };
        servers.prepare().await?;
        Ok(servers)
    }

    /// Creates the databases that the suites expect on a server: `test`, and the test runner's `mtr`.
    async fn prepare(&mut self) -> anyhow::Result<()> {
        let connection = self.on_primary.connection().await?;
        for statement in [
            "CREATE DATABASE IF NOT EXISTS test",
            "CREATE DATABASE IF NOT EXISTS mtr",
            "CREATE PROCEDURE mtr.add_suppression(pattern VARCHAR(255)) BEGIN DO 0; END",
            "CREATE PROCEDURE mtr.check_warnings(OUT result INT) BEGIN SET result = 0; END",
            "CREATE TABLE mtr.test_suppressions (pattern VARCHAR(255))",
        ] {
            connection
                .execute(statement)
                .await
                .with_context(|| format!("cannot execute on the primary: {statement}"))?;
        }
        let started = Instant::now();
        while !self.channel().is_ok_and(|channel| channel.state == ChannelState::Running) {
            ensure!(
                started.elapsed() < Duration::from_secs(60),
                "the channel does not start: {:?}",
                self.channel()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.globals = self.read_globals().await?;
        Ok(())
    }

    /// Returns the state of the channel.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn channel(&self) -> anyhow::Result<ChannelStatus> {
        self.request(&ControlCommand::List)
    }

    fn request(&self, request: &ControlCommand) -> anyhow::Result<ChannelStatus> {
        match ask(&self.control, request)? {
            ControlAnswer::Channels(channels) => channels
                .into_iter()
                .find(|channel| channel.name == CHANNEL)
                .context("the daemon does not list the trial's channel"),
            ControlAnswer::Failed { message, .. } => bail!("{message}"),
            other => bail!("unexpected answer of the daemon: {other:?}"),
        }
    }

    /// Makes the channel skip the transaction at which it stopped, and continue.
    ///
    /// # Errors
    /// If the daemon refuses the request.
    pub fn skip_on_channel(&self, gtid: &str) -> anyhow::Result<()> {
        self.request(&ControlCommand::Skip { channel: CHANNEL.into(), gtid: gtid.into() })?;
        self.start_channel()
    }

    /// Starts the channel again.
    ///
    /// # Errors
    /// If the daemon refuses the request.
    pub fn start_channel(&self) -> anyhow::Result<()> {
        let request =
            ControlCommand::Start { channel: CHANNEL.into(), until_gtid: None, until_time_us: None };
        self.request(&request).map(drop)
    }

    /// Changes settings of the channel.
    ///
    /// # Errors
    /// If the daemon refuses the request.
    pub fn set_channel(&self, edit: ChannelEdit) -> anyhow::Result<()> {
        self.request(&ControlCommand::Set { channel: CHANNEL.into(), edit }).map(drop)
    }

    /// Returns the GTID set that the primary has committed.
    ///
    /// # Errors
    /// If the primary does not answer.
    pub async fn committed(&mut self) -> anyhow::Result<String> {
        let question = match self.trial.primary.kind().flavour() {
            Flavour::MySql => "SELECT @@global.gtid_executed",
            Flavour::MariaDb => "SELECT @@global.gtid_binlog_pos",
        };
        Ok(self.on_primary.value(question).await?.replace('\n', ""))
    }

    /// Returns the contents of native replica and target.
    ///
    /// # Errors
    /// If a server does not answer.
    pub async fn states(&mut self) -> anyhow::Result<(ServerContents, ServerContents)> {
        let native = async { capture(self.on_native.connection().await?).await };
        let target = async { capture(self.on_target.connection().await?).await };
        let (native, target) = tokio::join!(native, target);
        let states = (
            native.context("cannot read the contents of the native replica"),
            target.context("cannot read the contents of the target"),
        );
        Ok((states.0?, states.1?))
    }

    /// Closes tables on native replica and target, so that the next comparison opens them. Returns false on
    /// MySQL, where nothing depends on the session that opened a table.
    ///
    /// # Errors
    /// If a server does not answer.
    pub async fn close_tables(&mut self, tables: &[String]) -> anyhow::Result<bool> {
        if self.trial.primary.kind().flavour() == Flavour::MySql {
            return Ok(false);
        }
        for client in [&mut self.on_native, &mut self.on_target] {
            for table in tables {
                let closed = client.connection().await?.execute(&format!("FLUSH LOCAL TABLES {table}")).await;
                ignore_refusal(closed)?;
            }
        }
        Ok(true)
    }

    /// Returns the contents of the primary.
    ///
    /// # Errors
    /// If the primary does not answer.
    pub async fn primary_state(&mut self) -> anyhow::Result<ServerContents> {
        let mut reader = SuperuserClient::new(&self.trial.primary);
        Ok(capture(reader.connection().await?).await?)
    }

    /// Returns the primary's global variables, without the variables of GTIDs.
    ///
    /// # Errors
    /// If the primary does not answer.
    pub async fn read_globals(&mut self) -> anyhow::Result<Vec<(String, String)>> {
        let answer = self.on_primary.connection().await?.query("SHOW GLOBAL VARIABLES").await?;
        let pairs = answer.rows.iter().map(|row| {
            let value = |column| String::from_utf8_lossy(row.get(column).unwrap_or_default()).into_owned();
            (value(0), value(1))
        });
        Ok(pairs.filter(|(name, _)| !name.starts_with("gtid_")).collect())
    }

    /// Returns the last lines of the daemon's output.
    pub fn daemon_log_tail(&self) -> String {
        self.trial.relay_log_tail()
    }
}
