//! Does a server answer, and does it take writes? Small questions, asked often.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tailwater_session::{ConnectOptions, Connection, SessionError, SessionPreset};
use tokio::task::JoinHandle;

use super::{bounded, probe_error};
use crate::observation::ProbeError;
use crate::probe_failure::ProbeFailure;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PingKind {
    /// A statement on a connection that stands: is the process there, and does it work?
    Select,
    /// A new connection and a login: does it let clients in?
    Connect,
    /// A row of its own in `tailwater.ping`, through the binlog and semi-sync: does it take writes? A full disk, a server
    /// that is read-only, and commits that wait for acknowledgements for ever are seen by nothing else.
    Insert,
}

/// What a ping gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ping {
    /// What was asked.
    pub kind: PingKind,
    /// How long it took.
    pub took: Duration,
    /// Nothing to say, or what is wrong.
    pub outcome: Result<(), ProbeError>,
}

/// Pings one server. At most two connections at a time: one for questions, one for a write that hangs.
#[derive(Debug)]
pub struct Pinger {
    connect: ConnectOptions,
    /// Whose row of `tailwater.ping` it is.
    manager: String,
    timeout: Duration,
    standing: Option<Connection>,
    /// A write that was not done in time. It is left alone: a commit that waits for an acknowledgement must not be
    /// ended, or it would be visible without one. While it hangs, no other is tried.
    writing: Option<JoinHandle<Result<Connection, SessionError>>>,
    writer: Option<Connection>,
}

/// A manager's name, as the key of its row.
const MANAGER_CHARACTERS_MAX: usize = 64;

impl Pinger {
    /// Pings the server at `connect` as the manager of that name; each ping takes no longer than `timeout`.
    pub fn new(connect: &ConnectOptions, manager: &str, timeout: Duration) -> Self {
        let mut connect = bounded(connect, timeout);
        // A write may hang for long, and is waited for outside of this limit.
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

    /// Asks once. Never longer than the time-out.
    pub async fn ping(&mut self, kind: PingKind) -> Ping {
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
        Ping { kind, took: began.elapsed(), outcome }
    }

    async fn select(&mut self) -> Result<(), SessionError> {
        if let Some(mut connection) = self.standing.take() {
            match connection.query("SELECT 1").await {
                Ok(_) => {
                    self.standing = Some(connection);
                    return Ok(());
                }
                // The server was restarted, or somebody ended the connection: a new one tells.
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
        // A login and nothing else.
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

/// Writes the manager's row; makes its table if there is none. Ordinary statements: they go into the binlog, and their
/// commits wait as those of clients do.
async fn write(mut connection: Connection, manager: String) -> Result<Connection, SessionError> {
    const NO_DATABASE: u16 = 1049;
    const NO_TABLE: u16 = 1146;
    // The name is quoted in hexadecimal: no character of it can end the text.
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
