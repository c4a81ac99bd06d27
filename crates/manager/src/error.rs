//! Errors of the crate, each with a stable code.

use tailwater_session::SessionError;
use tailwater_topology::TopologyError;

use crate::safety_refusals::SafetyRefusal;

/// Errors of probes and of actions on servers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The connection to a server failed, or the server returned an error.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The server's answer to a query does not have the expected form.
    #[error(transparent)]
    UnexpectedAnswer(TopologyError),
    /// The configured duration of the lease is out of range.
    #[error("a lease of {ttl_ms} ms is not possible: it must last 2000 to 86400000 ms")]
    InvalidLeaseTtl {
        /// The configured duration, in milliseconds.
        ttl_ms: u64,
    },
    /// The etcd cluster that holds the lease cannot be used.
    #[error("etcd at {endpoints} cannot be used: {reason}")]
    Etcd {
        /// The configured endpoints of etcd.
        endpoints: String,
        /// Why etcd cannot be used.
        reason: String,
    },
    /// An action on a server failed, or a check refused the action before it started.
    #[error("{server}: {doing} failed: {reason}")]
    ActionFailed {
        /// The server on which the action was executed.
        server: String,
        /// The action that failed.
        doing: &'static str,
        /// Why the action failed, and what to do.
        reason: String,
    },
    /// An action on a server did not finish within its time limit.
    #[error("{server}: {doing} was not finished within {waited_ms} ms: {reason}")]
    ActionTimeout {
        /// The server on which the action was executed.
        server: String,
        /// The action that was being executed.
        doing: &'static str,
        /// How long the manager waited, in milliseconds.
        waited_ms: u64,
        /// The state when the time limit was reached.
        reason: String,
    },
    /// A safety rule refuses the action.
    #[error(transparent)]
    Refused(#[from] SafetyRefusal),
}

impl ManagerError {
    /// The stable code, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session(error) => error.code(),
            Self::UnexpectedAnswer(error) => error.code(),
            Self::InvalidLeaseTtl { .. } => "TW-MGR-0050",
            Self::Etcd { .. } => "TW-MGR-0051",
            Self::ActionFailed { .. } => "TW-MGR-0060",
            Self::ActionTimeout { .. } => "TW-MGR-0061",
            Self::Refused(refusal) => refusal.code(),
        }
    }
}

impl From<TopologyError> for ManagerError {
    fn from(error: TopologyError) -> Self {
        match error {
            TopologyError::Session(error) => Self::Session(error),
            error => Self::UnexpectedAnswer(error),
        }
    }
}
