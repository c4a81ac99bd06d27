//! Pings: small, frequent checks whether a server answers and takes writes.

use std::time::{Duration, Instant};

use tailwater_session::{ConnectOptions, Connection, SessionError, SessionPreset};
use tokio::task::JoinHandle;

use super::{bounded, probe_error};
use crate::probe_failure::ProbeFailure;
use crate::server_state::{PingKind, PingResult, ProbeError};

/// Pings one server. Uses at most two connections: one for queries, one for a write that may hang.
#[derive(Debug)]
pub struct Pinger {
    connect: ConnectOptions,
    /// Key of this manager's row in `tailwater.ping`.
    manager: String,
    timeout: Duration,
    standing: Option<Connection>,
    /// A write that exceeded its time limit. It is not cancelled, because a commit that waits for an ACK
    /// would then become visible without an ACK. No other write is sent until this write has ended.
    writing: Option<JoinHandle<Result<Connection, SessionError>>>,
    writer: Option<Connection>,
}

/// The longest key of a manager's row, in characters.
const MANAGER_CHARACTERS_MAX: usize = 64;

impl Pinger {
    /// Creates a pinger for the server at `connect`, in the name of a manager. Each ping takes at most
    /// `timeout`.
    pub fn new(connect: &ConnectOptions, manager: &str, timeout: Duration) -> Self {
        let mut connect = bounded(connect, timeout);
        // The connection for writes has no read time-out: a write may hang for a long time, and has its own
        // limit.
        connect.read_timeout = None;
        Self {
            connect,
            manager: manager.chars().take(MANAGER_CHARACTERS_MAX).collect(),
            timeout,
            standing: None,
            writing: None,
            writer: None,
        }
    }

    /// Pings the server once, within the time-out.
    pub async fn ping(&mut self, kind: PingKind) -> PingResult {
        let began = Instant::now();
        let timeout = self.timeout;
        let work = async {
            match kind {
                PingKind::Select => self.select().await,
                PingKind::Connect => self.connect().await,
                PingKind::Insert => self.insert().await,
            }
        };
        let outcome = match tokio::time::timeout(timeout, work).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(probe_error(&error.into())),
            Err(_) => {
                if kind == PingKind::Select {
                    self.standing = None;
                }
                let endpoint = &self.connect.endpoint;
                Err(ProbeError {
                    failure: ProbeFailure::TimedOut,
                    message: format!("{endpoint} did not answer within {} s", timeout.as_secs_f64()),
                })
            }
        };
        PingResult { kind, took: began.elapsed(), outcome }
    }

    async fn select(&mut self) -> Result<(), SessionError> {
        if let Some(mut connection) = self.standing.take() {
            match connection.query("SELECT 1").await {
                Ok(_) => {
                    self.standing = Some(connection);
                    return Ok(());
                }
                // The server restarted, or the session was killed. A new connection shows which of these has
                // happened.
                Err(error) if ProbeFailure::from_error(&error) == ProbeFailure::ConnectionLost => {}
                Err(error) => return Err(error),
            }
        }
        let mut connection = Connection::connect(&self.connect).await?;
        connection.query("SELECT 1").await?;
        self.standing = Some(connection);
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), SessionError> {
        // The connection only logs in, and executes no statement.
        let login = ConnectOptions { session_preset: SessionPreset::Inherited, ..self.connect.clone() };
        Connection::connect(&login).await?.close().await;
        Ok(())
    }

    async fn insert(&mut self) -> Result<(), SessionError> {
        if self.writing.is_none() {
            let connection = match self.writer.take() {
                Some(connection) => connection,
                None => Connection::connect(&self.connect).await?,
            };
            self.writing = Some(tokio::spawn(write(connection, self.manager.clone())));
        }
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let written = writing.await;
        self.writing = None;
        match written {
            Ok(Ok(connection)) => {
                self.writer = Some(connection);
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Writes the manager's row, and creates the table if it does not exist. The statements go into the binlog,
/// and their commits wait for ACKs, like the commits of clients.
async fn write(mut connection: Connection, manager: String) -> Result<Connection, SessionError> {
    const NO_DATABASE: u16 = 1049;
    const NO_TABLE: u16 = 1146;
    // The name is written as hexadecimal digits, so that none of its characters can end the string literal.
    let name: String = manager.bytes().map(|byte| format!("{byte:02x}")).collect();
    let insert = format!(
        "INSERT INTO tailwater.ping (manager, pings) VALUES (CONVERT(0x{name} USING utf8mb4), 1) \
         ON DUPLICATE KEY UPDATE pings = pings + 1"
    );
    match connection.execute(&insert).await {
        Ok(_) => return Ok(connection),
        Err(error) => {
            let number = error.server_error().map(|error| error.number);
            if !matches!(number, Some(NO_DATABASE | NO_TABLE)) {
                return Err(error);
            }
        }
    }
    connection.execute("CREATE DATABASE IF NOT EXISTS tailwater").await?;
    let comment = "one row for each manager that asks whether this server takes writes";
    connection
        .execute(&format!(
            "CREATE TABLE IF NOT EXISTS tailwater.ping (manager VARCHAR({MANAGER_CHARACTERS_MAX}) CHARACTER SET utf8mb4 \
             PRIMARY KEY, pings BIGINT UNSIGNED NOT NULL) ENGINE = InnoDB COMMENT = '{comment}'"
        ))
        .await?;
    connection.execute(&insert).await?;
    Ok(connection)
}
