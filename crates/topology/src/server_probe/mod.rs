//! Probes servers over ordinary connections, in bounded time.
//!
//! - `probe_queries`: the queries of a probe in each flavour and version.
//! - `connection_usage`: how many connections are in use, and by which sessions.
//! - `semi_sync_persistence`: whether semi-sync survives a restart.
//! - `named_result_values`: access to query results by column and variable names.
//! - [`server_ping`]: small, frequent checks whether a server answers.

mod connection_usage;
mod named_result_values;
mod probe_queries;
mod semi_sync_persistence;
pub mod server_ping;

use std::time::{Duration, Instant, SystemTime};

use tailwater_session::{ConnectOptions, Connection, SessionError};
use tailwater_wire::gtid::GtidSet;

use crate::error::TopologyError;
use crate::probe_failure::ProbeFailure;
use crate::server_state::{
    Observation, ProbeError, ReplicaChannel, SemiSyncReplica, SemiSyncSource, ServerState, UnansweredQuery,
};

/// A server to probe, and how to connect to it.
#[derive(Debug, Clone)]
pub struct ProbeTarget {
    /// Name of the server in the configuration.
    pub name: String,
    /// Address of the server, and the account.
    pub connect: ConnectOptions,
}

/// Probes a server over a new connection, as [`ServerProber::probe`] does.
pub async fn probe_server(subject: &ProbeTarget, timeout: Duration) -> Observation {
    let mut prober = ServerProber::new(subject.clone(), timeout);
    let observation = prober.probe().await;
    if let Some(connection) = prober.kept {
        connection.close().await;
    }
    observation
}

/// Probes one server again and again. Each probe opens a new connection, because another server may have
/// taken over the address. The last connection is kept: when all connections of the server are in use, it
/// accepts no new one, and the next probe uses the kept one.
#[derive(Debug)]
pub struct ServerProber {
    target: ProbeTarget,
    timeout: Duration,
    kept: Option<Connection>,
}

impl ServerProber {
    /// Creates a prober. Each probe takes at most `timeout`.
    pub fn new(target: ProbeTarget, timeout: Duration) -> Self {
        Self { target, timeout, kept: None }
    }

    /// Returns the name of the server in the configuration.
    pub fn server(&self) -> &str {
        &self.target.name
    }

    /// Probes the server once. The account needs REPLICATION CLIENT (MariaDB: BINLOG MONITOR and REPLICA
    /// MONITOR); queries refused for lack of other privileges are listed in [`ServerState::unanswered`].
    pub async fn probe(&mut self) -> Observation {
        let kept = self.kept.take();
        let (observation, connection) = observe(&self.target, kept, self.timeout).await;
        self.kept = connection;
        observation
    }
}

/// Probes a server over this connection, or over a new one. Returns the connection if it can be used again.
async fn observe(
    subject: &ProbeTarget,
    kept: Option<Connection>,
    timeout: Duration,
) -> (Observation, Option<Connection>) {
    let began = Instant::now();
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut reusable = None;
    let outcome = match tokio::time::timeout(timeout, look(&subject.connect, kept, timeout)).await {
        Ok(Ok((look, connection))) => {
            reusable = Some(connection);
            Ok(look)
        }
        Ok(Err(error)) => Err(probe_error(&error)),
        Err(_) => Err(ProbeError {
            failure: ProbeFailure::TimedOut,
            message: format!(
                "{} did not answer all queries of the probe within {} s",
                subject.connect.endpoint,
                timeout.as_secs_f64()
            ),
        }),
    };
    let observation = Observation {
        server: subject.name.clone(),
        address: subject.connect.endpoint.to_string(),
        began_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        outcome,
        earlier: None,
    };
    (observation, reusable)
}

/// Probes `followers` in parallel, and after that `primaries`. If a transaction was seen on a follower and
/// the primary had it, the transaction is then also seen on the primary. Returns all observations in order,
/// the followers first.
pub async fn probe_servers(
    followers: &[ProbeTarget],
    primaries: &[ProbeTarget],
    timeout: Duration,
) -> (Vec<Observation>, Vec<Observation>) {
    (side_by_side(followers, timeout).await, side_by_side(primaries, timeout).await)
}

/// The maximum number of connections at the same time.
const SIDE_BY_SIDE_MAX: usize = 64;

async fn side_by_side(subjects: &[ProbeTarget], timeout: Duration) -> Vec<Observation> {
    let mut observations = Vec::with_capacity(subjects.len());
    for group in subjects.chunks(SIDE_BY_SIDE_MAX) {
        let tasks: Vec<_> = group
            .iter()
            .cloned()
            .map(|subject| tokio::spawn(async move { probe_server(&subject, timeout).await }))
            .collect();
        for task in tasks {
            match task.await {
                Ok(observation) => observations.push(observation),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
    }
    observations
}

pub(crate) fn probe_error(error: &TopologyError) -> ProbeError {
    let failure = match error {
        TopologyError::Session(error) => ProbeFailure::from_error(error),
        TopologyError::UnexpectedAnswer { .. } => ProbeFailure::ProtocolError,
    };
    ProbeError { failure, message: format!("{}: {error}", error.code()) }
}

async fn look(
    connect: &ConnectOptions,
    kept: Option<Connection>,
    timeout: Duration,
) -> Result<(ServerState, Connection), TopologyError> {
    let is_full = |error: &SessionError| ProbeFailure::from_error(error) == ProbeFailure::TooManyConnections;
    let mut connection = match (Connection::connect(&bounded(connect, timeout)).await, kept) {
        (Ok(new), kept) => {
            if let Some(kept) = kept {
                kept.close().await;
            }
            new
        }
        (Err(error), Some(kept)) if is_full(&error) => kept,
        (Err(error), _) => return Err(error.into()),
    };
    let look = probe_queries::look(&mut connection).await?;
    Ok((look, connection))
}

/// Reads the replication channels of a server. Returns them with the queries that the server refused.
pub async fn channels(
    connection: &mut Connection,
) -> Result<(Vec<ReplicaChannel>, Vec<UnansweredQuery>), TopologyError> {
    let mut unanswered = Vec::new();
    let channels = probe_queries::channels(connection, &mut unanswered).await?;
    Ok((channels, unanswered))
}

/// Reads the state of semi-sync, for the server as a source and as a replica.
pub async fn semi_sync(
    connection: &mut Connection,
) -> Result<(Option<SemiSyncSource>, Option<SemiSyncReplica>), TopologyError> {
    probe_queries::semi_sync(connection).await
}

/// Reads the state of semi-sync for the server as a source. Does not determine whether it survives a restart.
pub async fn semi_sync_now(connection: &mut Connection) -> Result<Option<SemiSyncSource>, TopologyError> {
    probe_queries::semi_sync_now(connection).await
}

/// Reads all transactions that the server has executed.
pub async fn executed(connection: &mut Connection) -> Result<GtidSet, TopologyError> {
    let flavour = connection.server().flavour;
    Ok(probe_queries::ask_gtids(connection, flavour).await?.0)
}

/// Returns the same options, with every time-out reduced to `timeout`.
pub(crate) fn bounded(connect: &ConnectOptions, timeout: Duration) -> ConnectOptions {
    ConnectOptions {
        connect_timeout: connect.connect_timeout.min(timeout),
        read_timeout: Some(connect.read_timeout.map_or(timeout, |limit| limit.min(timeout))),
        write_timeout: Some(connect.write_timeout.map_or(timeout, |limit| limit.min(timeout))),
        ..connect.clone()
    }
}
