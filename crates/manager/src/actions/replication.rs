//! Makes a server a native replica by GTIDs, in both flavours, and related steps: reading its status, waiting
//! for transactions, removing its source.
//!
//! CHANGE SOURCE drops relay logs if both threads are stopped. Nothing here changes the source of a server
//! with unexecuted transactions; [`super::relay_log_drain`] executes them first.

use std::time::{Duration, Instant};

use tailwater_session::{Connection, PasswordText};
use tailwater_topology::observation::{IoState, ReplicaChannel};
use tailwater_topology::probe;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tailwater_wire::sql_quote::string_literal;

use super::replication_dialect::{ReplicationDialect, setting};
use crate::error::ManagerError;

/// Encryption of a replica's connection to its source. File paths are on the replica's host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ReplicaTls {
    /// No TLS.
    #[default]
    Off,
    /// TLS without verification of the certificate.
    Required,
    /// TLS with verification by the given CA file, or by the replica's system if absent.
    Verified {
        /// Path of the CA certificate.
        ca: Option<String>,
    },
}

/// The position from which a MariaDB replica requests transactions. MySQL requests all that are missing,
/// whichever server wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplicaPosition {
    /// `gtid_slave_pos`: what it executed as a replica.
    #[default]
    Replicated,
    /// `gtid_current_pos`: also what it wrote itself as a primary.
    WithOwnWrites,
}

/// A replication source as a replica is configured with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicationSource {
    /// Host as the replica resolves it.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User name.
    pub user: String,
    /// Password.
    pub password: PasswordText,
    /// TLS mode.
    pub tls: ReplicaTls,
    /// Position to start from.
    pub position: ReplicaPosition,
}

impl ReplicationSource {
    /// A source without TLS, from `gtid_slave_pos`.
    pub fn new(host: &str, port: u16, user: &str, password: PasswordText) -> Self {
        Self {
            host: host.to_owned(),
            port,
            user: user.to_owned(),
            password,
            tls: ReplicaTls::default(),
            position: ReplicaPosition::default(),
        }
    }

    /// Whether the channel reads from this source.
    pub fn is_source_of(&self, channel: &ReplicaChannel) -> bool {
        channel.source_host == self.host && channel.source_port == self.port && channel.uses_gtids
    }

    fn settings(&self, words: &ReplicationDialect) -> Vec<String> {
        let prefix = words.prefix;
        let mut out = Vec::new();
        setting(&mut out, format_args!("{prefix}_HOST"), string_literal(&self.host));
        setting(&mut out, format_args!("{prefix}_PORT"), self.port);
        setting(&mut out, format_args!("{prefix}_USER"), string_literal(&self.user));
        setting(&mut out, format_args!("{prefix}_PASSWORD"), string_literal(self.password.expose()));
        setting(&mut out, format_args!("{prefix}_CONNECT_RETRY"), 1);
        let (encrypted, verified, ca) = match &self.tls {
            ReplicaTls::Off => (0, 0, None),
            ReplicaTls::Required => (1, 0, None),
            ReplicaTls::Verified { ca } => (1, 1, ca.as_deref()),
        };
        setting(&mut out, format_args!("{prefix}_SSL"), encrypted);
        setting(&mut out, format_args!("{prefix}_SSL_VERIFY_SERVER_CERT"), verified);
        setting(&mut out, format_args!("{prefix}_SSL_CA"), string_literal(ca.unwrap_or_default()));
        match words.flavour {
            Flavour::MySql => {
                setting(&mut out, "SOURCE_AUTO_POSITION", 1);
                // Without TLS, caching_sha2_password encrypts the password with the source's key.
                setting(&mut out, "GET_SOURCE_PUBLIC_KEY", i32::from(encrypted == 0));
                // The default is 10 since 9.0, after which replication gives up.
                setting(&mut out, "SOURCE_RETRY_COUNT", 86400);
            }
            Flavour::MariaDb => setting(&mut out, "MASTER_USE_GTID", "slave_pos"),
        }
        out
    }
}

/// Replication status; `None` if the server is no replica.
///
/// # Errors
/// [`ManagerError::ActionFailed`] if the server has several channels, because none is preferred, or if the
/// account lacks the privilege.
pub async fn status(connection: &mut Connection) -> Result<Option<ReplicaChannel>, ManagerError> {
    let (mut channels, unanswered) = probe::channels(connection).await?;
    if let Some(reason) = unanswered.first() {
        return Err(failed(connection, "asking how it replicates", reason.to_string()));
    }
    if channels.len() > 1 {
        let names: Vec<_> = channels
            .iter()
            .map(|channel| match channel.name.as_str() {
                "" => "the default channel".to_owned(),
                name => name.to_owned(),
            })
            .collect();
        let reason = format!(
            "it replicates on several channels ({}); leave one, or lead it by hand",
            names.join(", ")
        );
        return Err(failed(connection, "asking how it replicates", reason));
    }
    Ok(channels.pop())
}

/// All transactions executed; on MariaDB the replicated ones and those in its binlog state.
///
/// # Errors
/// Those of the session, and [`ManagerError::UnexpectedAnswer`].
pub async fn executed(connection: &mut Connection) -> Result<GtidSet, ManagerError> {
    Ok(probe::executed(connection).await?)
}

/// Stops the receiver; the applier continues.
///
/// # Errors
/// As [`status`], and those of the session.
pub async fn stop_receiving(connection: &mut Connection) -> Result<(), ManagerError> {
    let Some(channel) = status(connection).await? else { return Ok(()) };
    if channel.io != IoState::Stopped {
        let words = ReplicationDialect::of(connection);
        run(connection, &words.verb(words.stop, "IO_THREAD", &channel.name)).await?;
    }
    Ok(())
}

/// Bounds work to slightly more than `patience`: a server may hang in a statement, because stopping a thread
/// waits for what that thread waits for. After a time-out the connection is unusable.
pub(super) async fn within<T>(
    patience: Duration,
    endpoint: String,
    doing: &'static str,
    work: impl Future<Output = Result<T, ManagerError>>,
) -> Result<T, ManagerError> {
    /// For the last query of work that has its own end.
    const GRACE: Duration = Duration::from_secs(2);
    let waited = patience + GRACE;
    tokio::time::timeout(waited, work).await.unwrap_or_else(|_| {
        let reason = "it did not answer a statement".to_owned();
        Err(ManagerError::ActionTimeout { server: endpoint, doing, waited_ms: millis(waited), reason })
    })
}

/// Resumes receiving and executing. On MariaDB, if both threads are stopped, this drops the relay logs, and
/// the replica requests the transactions again.
///
/// # Errors
/// As [`status`], and those of the session.
pub async fn start(connection: &mut Connection) -> Result<(), ManagerError> {
    let Some(channel) = status(connection).await? else { return Ok(()) };
    let words = ReplicationDialect::of(connection);
    run(connection, &words.verb(words.start, "", &channel.name)).await
}

/// Makes the server a running replica of `from`, and returns once it receives. Does nothing if it already
/// does.
///
/// # Errors
/// [`ManagerError::ActionFailed`] if the server has unexecuted transactions (nothing is changed), if the
/// source refuses it, or as [`status`]; [`ManagerError::ActionTimeout`] if it does not receive within
/// `patience`, after which the connection may be unusable.
pub async fn read_from(
    connection: &mut Connection,
    from: &ReplicationSource,
    patience: Duration,
) -> Result<(), ManagerError> {
    let endpoint = connection.endpoint().to_owned();
    within(patience, endpoint, "changing its source", change_source(connection, from, patience)).await
}

async fn change_source(
    connection: &mut Connection,
    from: &ReplicationSource,
    patience: Duration,
) -> Result<(), ManagerError> {
    let before = status(connection).await?;
    let name = before.as_ref().map(|channel| channel.name.clone()).unwrap_or_default();
    let words = ReplicationDialect::of(connection);
    if let Some(channel) = &before {
        if from.is_source_of(channel) && channel.io == IoState::Running && channel.sql_running {
            return Ok(());
        }
        stop_drained(connection, &words, channel).await?;
    }
    // So that [`string_literal`]'s backslashes are escapes.
    run(connection, "SET SESSION sql_mode = ''").await?;
    if words.flavour == Flavour::MariaDb && from.position == ReplicaPosition::WithOwnWrites {
        let answer = connection.query("SELECT @@global.gtid_current_pos").await?;
        let position = answer.scalar().unwrap_or_default();
        run(connection, &format!("SET GLOBAL gtid_slave_pos = {}", string_literal(position))).await?;
    }
    run(connection, &words.change(&name, &from.settings(&words))).await?;
    run(connection, &words.verb(words.start, "", &name)).await?;
    wait_until_receiving(connection, patience).await
}

/// Stops both threads of a replica that has executed everything it received. Any other replica is left as it
/// was.
async fn stop_drained(
    connection: &mut Connection,
    words: &ReplicationDialect,
    before: &ReplicaChannel,
) -> Result<(), ManagerError> {
    // In this order: if both threads were stopped, MariaDB would drop unexecuted transactions on the next
    // start.
    if before.io != IoState::Stopped {
        run(connection, &words.verb(words.stop, "IO_THREAD", &before.name)).await?;
    }
    let received = status(connection).await?.map(|channel| channel.received);
    let received = received.unwrap_or_else(|| before.received.clone());
    let has = executed(connection).await?;
    if !received.is_subset_of(&has) {
        if before.io != IoState::Stopped {
            run(connection, &words.verb(words.start, "IO_THREAD", &before.name)).await?;
        }
        let left = received.subtract(&has).map(|left| left.to_string()).unwrap_or_default();
        let reason = format!(
            "it has received {left} and not executed it; a change of source would drop that: drain it first"
        );
        return Err(failed(connection, "changing its source", reason));
    }
    run(connection, &words.verb(words.stop, "", &before.name)).await
}

/// Removes the replication source, so that a restart does not resume replication. Changes nothing if received
/// transactions are not executed.
///
/// # Errors
/// As [`read_from`].
pub async fn forget(connection: &mut Connection) -> Result<(), ManagerError> {
    let Some(channel) = status(connection).await? else { return Ok(()) };
    let words = ReplicationDialect::of(connection);
    stop_drained(connection, &words, &channel).await?;
    run(connection, &words.verb(words.reset_all, "", &channel.name)).await
}

/// Waits until the replica receives. A refusal of the source is returned at once.
async fn wait_until_receiving(connection: &mut Connection, patience: Duration) -> Result<(), ManagerError> {
    const DOING: &str = "waiting until it receives";
    let started = Instant::now();
    loop {
        let Some(channel) = status(connection).await? else {
            return Err(failed(connection, DOING, "its replication source was removed".to_owned()));
        };
        refused_by_source(connection, &channel, DOING)?;
        // MySQL reports a running receiver before its first request; the file name comes with the first
        // answer.
        if channel.io == IoState::Running && !channel.received_position.0.is_empty() {
            return Ok(());
        }
        if started.elapsed() >= patience {
            let last = channel.io_error.map(|error| format!("{} {}", error.number, error.message));
            let reason = last.unwrap_or_else(|| "its source does not answer".to_owned());
            return Err(too_long(connection, DOING, patience, reason));
        }
        pause(started).await;
    }
}

/// The error that ended receiving, if any.
pub(super) fn refused_by_source(
    connection: &Connection,
    channel: &ReplicaChannel,
    doing: &'static str,
) -> Result<(), ManagerError> {
    match &channel.io_error {
        Some(error) if channel.io == IoState::Stopped => {
            Err(failed(connection, doing, format!("receiving ended: {} {}", error.number, error.message)))
        }
        _ => Ok(()),
    }
}

/// Pause between two queries: short at first, because a run aims at less than a second, longer for slow work.
pub(super) async fn pause(started: Instant) {
    let milliseconds = u64::try_from(started.elapsed().as_millis() / 20).unwrap_or(u64::MAX);
    tokio::time::sleep(Duration::from_millis(milliseconds.clamp(1, 50))).await;
}

/// Executes a statement and drops its result.
pub(super) async fn run(connection: &mut Connection, statement: &str) -> Result<(), ManagerError> {
    connection.execute(statement).await?;
    Ok(())
}

pub(super) fn failed(connection: &Connection, doing: &'static str, reason: String) -> ManagerError {
    ManagerError::ActionFailed { server: connection.endpoint().to_owned(), doing, reason }
}

pub(super) fn too_long(
    connection: &Connection,
    doing: &'static str,
    patience: Duration,
    reason: String,
) -> ManagerError {
    let server = connection.endpoint().to_owned();
    ManagerError::ActionTimeout { server, doing, waited_ms: millis(patience), reason }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
