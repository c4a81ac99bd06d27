//! Native replicas of a sandbox server, or of a program that serves a binlog at a port.

use std::fmt;
use std::time::{Duration, Instant};

use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;

use crate::error::SandboxError;
use crate::replication_setup::{REPLICATION_PASSWORD, REPLICATION_USER};
use crate::sandbox_server::Server;

/// The source of a replica, and how the replica connects to it.
#[derive(Debug, Clone)]
pub struct ReplicaOf {
    /// Host of the source: a loopback address.
    pub host: String,
    /// Port of the source.
    pub port: u16,
    /// User of the replication account.
    pub user: String,
    /// Password of the replication account.
    pub password: String,
    /// Start position.
    pub start: ReplicaStart,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// Start position of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaStart {
    /// By GTIDs: the replica gets everything that it lacks. MySQL's auto-position, MariaDB's `slave_pos`.
    Gtid,
    /// MariaDB's `current_pos`. On MySQL the same as [`ReplicaStart::Gtid`].
    CurrentPos,
    /// A position in a binlog file of the source.
    FilePosition {
        /// Name of the binlog file.
        file: String,
        /// Offset of an event in the file.
        position: u64,
    },
}

impl ReplicaOf {
    /// Returns a source at a port of 127.0.0.1, with GTIDs, with the sandbox's replication account, without
    /// TLS.
    pub fn port(port: u16) -> Self {
        Self {
            host: "127.0.0.1".into(),
            port,
            user: REPLICATION_USER.into(),
            password: REPLICATION_PASSWORD.into(),
            start: ReplicaStart::Gtid,
            tls: false,
        }
    }

    /// Sets another start position.
    pub fn start(self, start: ReplicaStart) -> Self {
        Self { start, ..self }
    }

    /// Returns the statement that configures a server, whose replication is stopped, as this replica.
    pub fn change_statement(&self, flavour: Flavour) -> String {
        let Self { host, port, user, password, .. } = self;
        let account = |prefix: &str| {
            format!(
                "{prefix}_HOST='{host}', {prefix}_PORT={port}, {prefix}_USER='{user}', \
                 {prefix}_PASSWORD='{password}', {prefix}_CONNECT_RETRY=1, {prefix}_SSL={}",
                u8::from(self.tls)
            )
        };
        let place = |prefix: &str, file: &str, position: u64| {
            format!("{prefix}_LOG_FILE='{file}', {prefix}_LOG_POS={position}")
        };
        match flavour {
            Flavour::MySql => {
                let start = match &self.start {
                    ReplicaStart::FilePosition { file, position } => {
                        format!("SOURCE_AUTO_POSITION=0, {}", place("SOURCE", file, *position))
                    }
                    _ => "SOURCE_AUTO_POSITION=1".into(),
                };
                // Without TLS, caching_sha2_password needs the source's public key to encrypt the password.
                format!(
                    "CHANGE REPLICATION SOURCE TO {}, {start}, GET_SOURCE_PUBLIC_KEY=1, SOURCE_RETRY_COUNT=86400",
                    account("SOURCE")
                )
            }
            Flavour::MariaDb => {
                let start = match &self.start {
                    ReplicaStart::FilePosition { file, position } => {
                        format!("{}, MASTER_USE_GTID=no", place("MASTER", file, *position))
                    }
                    ReplicaStart::CurrentPos => "MASTER_USE_GTID=current_pos".into(),
                    ReplicaStart::Gtid => "MASTER_USE_GTID=slave_pos".into(),
                };
                // Since 11.4, a MariaDB replica verifies the certificate by default.
                format!("CHANGE MASTER TO {}, MASTER_SSL_VERIFY_SERVER_CERT=0, {start}", account("MASTER"))
            }
        }
    }
}

/// Returns the statement that starts the replication threads.
pub fn start_statement(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::MySql => "START REPLICA",
        Flavour::MariaDb => "START SLAVE",
    }
}

/// Returns the statement that stops the replication threads.
pub fn stop_statement(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::MySql => "STOP REPLICA",
        Flavour::MariaDb => "STOP SLAVE",
    }
}

/// Replication status of a replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// `Yes`, `No` or `Connecting`.
    pub io_running: String,
    /// `Yes` or `No`.
    pub sql_running: String,
    /// Last error of the I/O thread: its number (0 if there is none) and its text.
    pub io_error: (u64, String),
    /// Last error of the SQL threads: its number (0 if there is none) and its text.
    pub sql_error: (u64, String),
    /// Position up to which the replica has received: binlog file of the source, and offset.
    pub received: (String, u64),
}

impl fmt::Display for ReplicaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, offset) = &self.received;
        write!(
            f,
            "receives: {}, applies: {}, received to {file}:{offset}",
            self.io_running, self.sql_running
        )?;
        for (number, text) in [&self.io_error, &self.sql_error] {
            if *number != 0 {
                write!(f, ", error {number}: {text}")?;
            }
        }
        Ok(())
    }
}

impl Server {
    /// Makes this server a native replica of `source` from its first GTID, and starts replication.
    ///
    /// # Errors
    /// [`SandboxError::Client`] with the server's message.
    pub async fn replicate_from(&self, source: &Server) -> Result<(), SandboxError> {
        source.create_replication_user().await?;
        self.replicate(&ReplicaOf::port(source.port())).await
    }

    /// Makes this server a native replica, and starts replication.
    ///
    /// # Errors
    /// [`SandboxError::Client`] with the server's message.
    pub async fn replicate(&self, of: &ReplicaOf) -> Result<(), SandboxError> {
        let flavour = self.kind().flavour();
        let statements = format!("{}; {};", of.change_statement(flavour), start_statement(flavour));
        self.sql(&statements).await?;
        Ok(())
    }

    /// Returns the replication status; `None` if the server is not a replica.
    ///
    /// # Errors
    /// [`SessionError`] if the server cannot be queried.
    pub async fn replica_status(&self) -> Result<Option<ReplicaStatus>, SessionError> {
        let (show, names) = match self.kind().flavour() {
            Flavour::MySql => (
                "SHOW REPLICA STATUS",
                ["Replica_IO_Running", "Replica_SQL_Running", "Source_Log_File", "Read_Source_Log_Pos"],
            ),
            Flavour::MariaDb => (
                "SHOW SLAVE STATUS",
                ["Slave_IO_Running", "Slave_SQL_Running", "Master_Log_File", "Read_Master_Log_Pos"],
            ),
        };
        let mut connection = Connection::connect(&self.connect_options()).await?;
        let answer = connection.query(show).await?;
        let Some(row) = answer.first() else { return Ok(None) };
        let text = |name: &str| {
            let value = answer.column(name).and_then(|column| row.get_str(column));
            value.unwrap_or_default().to_owned()
        };
        let number = |name: &str| text(name).parse().unwrap_or_default();
        Ok(Some(ReplicaStatus {
            io_running: text(names[0]),
            sql_running: text(names[1]),
            io_error: (number("Last_IO_Errno"), text("Last_IO_Error")),
            sql_error: (number("Last_SQL_Errno"), text("Last_SQL_Error")),
            received: (text(names[2]), number(names[3])),
        }))
    }

    /// Returns the executed GTIDs: `gtid_executed` of MySQL, `gtid_slave_pos` of MariaDB.
    ///
    /// # Errors
    /// [`SandboxError::Client`] with the server's message.
    pub async fn replicated_gtids(&self) -> Result<String, SandboxError> {
        let variable = match self.kind().flavour() {
            Flavour::MySql => "gtid_executed",
            Flavour::MariaDb => "gtid_slave_pos",
        };
        Ok(self.sql(&format!("SELECT @@global.{variable}")).await?.concat().replace("\\n", ""))
    }

    /// Waits until the server has executed `gtids`: a GTID set of MySQL, a GTID position of MariaDB. Returns
    /// false if that takes longer than `patience`.
    ///
    /// # Errors
    /// [`SandboxError::Client`] with the server's message.
    pub async fn wait_for_gtids(&self, gtids: &str, patience: Duration) -> Result<bool, SandboxError> {
        let begin = Instant::now();
        loop {
            let question = match self.kind().flavour() {
                Flavour::MySql => format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 1)"),
                Flavour::MariaDb => format!("SELECT MASTER_GTID_WAIT('{gtids}', 1)"),
            };
            if self.sql(&question).await? == ["0"] {
                return Ok(true);
            }
            if begin.elapsed() > patience {
                return Ok(false);
            }
        }
    }
}
