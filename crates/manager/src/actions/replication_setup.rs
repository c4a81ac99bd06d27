//! Makes a server a native replica by GTIDs, in both flavours. Also reads the replication status, waits for
//! transactions, and removes the replication source.
//!
//! CHANGE SOURCE drops the relay logs if both threads are stopped. No function here changes the source of a
//! server that has unexecuted transactions; [`super::relay_log_drain`] executes them first.

use std::time::{Duration, Instant};

use tailwater_session::{Connection, PasswordText, set_mariadb_slave_position};
use tailwater_topology::server_probe;
use tailwater_topology::server_state::{IoState, ReplicaChannel};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tailwater_wire::sql_quote::string_literal;

use super::replication_sql_dialect::{ReplicationDialect, setting};
use crate::error::ManagerError;

/// TLS of a replica's connection to its source. File paths are on the replica's host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ReplicaTls {
    /// No TLS.
    #[default]
    Off,
    /// TLS without verification of the certificate.
    Required,
    /// TLS with verification of the certificate: by the given CA file, or by the CAs of the replica's system
    /// if none is given.
    Verified {
        /// Path of the CA certificate.
        ca: Option<String>,
    },
}

/// The position from which a MariaDB replica requests transactions. MySQL has no such choice: it requests all
/// missing transactions, whichever server wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplicaPosition {
    /// `gtid_slave_pos`: what the server executed as a replica.
    #[default]
    Replicated,
    /// `gtid_current_pos`: the replica also counts the transactions that it wrote itself as a primary.
    WithOwnWrites,
}

/// A replication source: the settings that CHANGE SOURCE sets on a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicationSource {
    /// Host name or address, as the replica resolves it.
    pub host: String,
    /// Port of the source.
    pub port: u16,
    /// User name for the connection to the source.
    pub user: String,
    /// Password for the connection to the source.
    pub password: PasswordText,
    /// TLS mode of the connection to the source.
    pub tls: ReplicaTls,
    /// Position from which a MariaDB replica starts.
    pub position: ReplicaPosition,
}

impl ReplicationSource {
    /// Returns a source without TLS. A MariaDB replica starts at its `gtid_slave_pos`.
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
                // Without TLS, a `caching_sha2_password` login encrypts the password with the public key of
                // the source, so the replica must request this key.
                setting(&mut out, "GET_SOURCE_PUBLIC_KEY", i32::from(encrypted == 0));
                // Since MySQL 9.0 the default is 10: after 10 failed attempts to connect, replication stops.
                setting(&mut out, "SOURCE_RETRY_COUNT", 86400);
            }
            Flavour::MariaDb => setting(&mut out, "MASTER_USE_GTID", "slave_pos"),
        }
        out
    }
}

/// Returns the replication status; `None` if the server is not a replica.
///
/// # Errors
/// [`ManagerError::ActionFailed`] if the server has several channels, because it is unclear which one to use,
/// or if the account lacks the privilege.
pub async fn status(connection: &mut Connection) -> Result<Option<ReplicaChannel>, ManagerError> {
    let (mut channels, unanswered) = server_probe::channels(connection).await?;
    if let Some(reason) = unanswered.first() {
        return Err(failed(connection, "reading the replication status", reason.to_string()));
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
            "the server replicates on several channels ({}); keep only one of them, or change its source by hand",
            names.join(", ")
        );
        return Err(failed(connection, "reading the replication status", reason));
    }
    Ok(channels.pop())
}

/// Returns all executed transactions. On MariaDB these are the replicated transactions and those in the
/// binlog state.
///
/// # Errors
/// [`ManagerError::Session`]; [`ManagerError::UnexpectedAnswer`].
pub async fn executed(connection: &mut Connection) -> Result<GtidSet, ManagerError> {
    Ok(server_probe::executed(connection).await?)
}

/// Stops the receiver thread of the replica. The applier continues.
///
/// # Errors
/// As [`status`]; [`ManagerError::Session`].
pub async fn stop_receiving(connection: &mut Connection) -> Result<(), ManagerError> {
    let Some(channel) = status(connection).await? else { return Ok(()) };
    if channel.io != IoState::Stopped {
        let words = ReplicationDialect::of(connection);
        run(connection, &words.verb(words.stop, "IO_THREAD", &channel.name)).await?;
    }
    Ok(())
}

/// Limits `work` to slightly more than `patience`. A server may hang in a statement that stops a replication
/// thread, because the statement waits until that thread can stop. After a time-out the connection is
/// unusable.
pub(super) async fn within<T>(
    patience: Duration,
    endpoint: String,
    doing: &'static str,
    work: impl Future<Output = Result<T, ManagerError>>,
) -> Result<T, ManagerError> {
    /// Additional time for the last query of work that has its own time limit.
    const GRACE: Duration = Duration::from_secs(2);
    let waited = patience + GRACE;
    tokio::time::timeout(waited, work).await.unwrap_or_else(|_| {
        let reason = "the server did not answer a statement".to_owned();
        Err(ManagerError::ActionTimeout { server: endpoint, doing, waited_ms: millis(waited), reason })
    })
}

/// Starts both replication threads. If both are stopped on MariaDB, this drops the relay logs, and the
/// replica requests their transactions again.
///
/// # Errors
/// As [`status`]; [`ManagerError::Session`].
pub async fn start(connection: &mut Connection) -> Result<(), ManagerError> {
    let Some(channel) = status(connection).await? else { return Ok(()) };
    let words = ReplicationDialect::of(connection);
    run(connection, &words.verb(words.start, "", &channel.name)).await
}

/// Makes the server a running replica of `from`, and returns once it receives from there. Does nothing if the
/// server already replicates from `from`.
///
/// # Errors
/// [`ManagerError::ActionFailed`] if the server has unexecuted transactions (nothing is changed), if the
/// source refuses the replica, or for the reasons of [`status`]; [`ManagerError::ActionTimeout`] if the
/// replica does not receive within `patience`, after which the connection may be unusable.
pub async fn read_from(
    connection: &mut Connection,
    from: &ReplicationSource,
    patience: Duration,
) -> Result<(), ManagerError> {
    let endpoint = connection.endpoint().to_owned();
    within(patience, endpoint, "changing the replication source", change_source(connection, from, patience))
        .await
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
    // Without `NO_BACKSLASH_ESCAPES` in the SQL mode, the backslashes of [`string_literal`] are escapes.
    run(connection, "SET SESSION sql_mode = ''").await?;
    if words.flavour == Flavour::MariaDb && from.position == ReplicaPosition::WithOwnWrites {
        let answer = connection.query("SELECT @@global.gtid_current_pos").await?;
        let position = answer.scalar().unwrap_or_default();
        set_mariadb_slave_position(connection, &string_literal(position), patience).await?;
    }
    run(connection, &words.change(&name, &from.settings(&words))).await?;
    run(connection, &words.verb(words.start, "", &name)).await?;
    wait_until_receiving(connection, patience).await
}

/// Stops both threads of a replica that has executed everything it received. If received transactions are not
/// executed yet, returns an error and does not change the replica.
async fn stop_drained(
    connection: &mut Connection,
    words: &ReplicationDialect,
    before: &ReplicaChannel,
) -> Result<(), ManagerError> {
    // The receiver stops first, and the applier only when nothing is left to execute. If both threads were
    // stopped earlier, MariaDB would drop unexecuted transactions at the next start.
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
            "the server has received {left} but has not executed it; a change of its source would drop these transactions: drain the server first"
        );
        return Err(failed(connection, "changing the replication source", reason));
    }
    run(connection, &words.verb(words.stop, "", &before.name)).await
}

/// Removes the replication source, so that the server does not start replication again after a restart.
/// Changes nothing if the server has received transactions that it has not executed.
///
/// # Errors
/// As [`read_from`].
pub async fn forget(connection: &mut Connection) -> Result<(), ManagerError> {
    let Some(channel) = status(connection).await? else { return Ok(()) };
    let words = ReplicationDialect::of(connection);
    stop_drained(connection, &words, &channel).await?;
    run(connection, &words.verb(words.reset_all, "", &channel.name)).await
}

/// Waits until the replica receives from its source. Returns an error at once if the source refuses the
/// replica.
async fn wait_until_receiving(connection: &mut Connection, patience: Duration) -> Result<(), ManagerError> {
    const DOING: &str = "waiting until the replica receives";
    let started = Instant::now();
    loop {
        let Some(channel) = status(connection).await? else {
            return Err(failed(
                connection,
                DOING,
                "the replication source of the server was removed".to_owned(),
            ));
        };
        refused_by_source(connection, &channel, DOING)?;
        // MySQL reports the receiver as running before its first request to the source. The name of the
        // binlog file appears with the first answer of the source.
        if channel.io == IoState::Running && !channel.received_position.0.is_empty() {
            return Ok(());
        }
        if started.elapsed() >= patience {
            let last = channel.io_error.map(|error| format!("{} {}", error.number, error.message));
            let reason = last.unwrap_or_else(|| "the source of the replica does not answer".to_owned());
            return Err(too_long(connection, DOING, patience, reason));
        }
        pause(started).await;
    }
}

/// Returns an error if the receiver of the replica has stopped with an error.
pub(super) fn refused_by_source(
    connection: &Connection,
    channel: &ReplicaChannel,
    doing: &'static str,
) -> Result<(), ManagerError> {
    match &channel.io_error {
        Some(error) if channel.io == IoState::Stopped => Err(failed(
            connection,
            doing,
            format!("the receiver stopped with error {}: {}", error.number, error.message),
        )),
        _ => Ok(()),
    }
}

/// Waits between two queries of a loop. The wait is short at first, because a switchover should take less
/// than a second, and longer for slow work.
pub(super) async fn pause(started: Instant) {
    let milliseconds = u64::try_from(started.elapsed().as_millis() / 20).unwrap_or(u64::MAX);
    tokio::time::sleep(Duration::from_millis(milliseconds.clamp(1, 50))).await;
}

/// Executes a statement and ignores its result rows.
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
