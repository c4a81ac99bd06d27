//! Errors with stable codes.

use tailwater_session::SessionError;
use tailwater_topology::TopologyError;

use crate::safety_refusal::SafetyRefusal;

/// Errors of probes and actions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The connection to a server.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A server's answer does not have the expected form.
    #[error(transparent)]
    UnexpectedAnswer(TopologyError),
    /// The lease time is out of range.
    #[error("a lease of {ttl_ms} ms: it must be 2000 to 86400000")]
    InvalidLeaseTtl {
        /// The requested time.
        ttl_ms: u64,
    },
    /// The etcd cluster that holds the lease cannot be used.
    #[error("etcd at {endpoints}: {reason}")]
    Etcd {
        /// The configured endpoints.
        endpoints: String,
        /// The cause.
        reason: String,
    },
    /// An action failed, or must not be executed.
    #[error("{server}, {doing}: {reason}")]
    ActionFailed {
        /// The server.
        server: String,
        /// The action.
        doing: &'static str,
        /// The cause and the remedy.
        reason: String,
    },
    /// An action was not finished in time.
    #[error("{server}, {doing}: not done within {waited_ms} ms: {reason}")]
    ActionTimeout {
        /// The server.
        server: String,
        /// The action.
        doing: &'static str,
        /// The time waited, in milliseconds.
        waited_ms: u64,
        /// The state at that time.
        reason: String,
    },
    /// A safety rule refuses to continue.
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
