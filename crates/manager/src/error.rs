//! What can go wrong, with stable codes.

use tailwater_session::SessionError;

use crate::safety_refusal::SafetyRefusal;

/// What can go wrong while servers are looked at and led.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The conversation with a server.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A server's answer is not of the form that was expected.
    #[error("{server}: {what} is not understood: {value:?}; is this a version that Tailwater knows?")]
    UnexpectedAnswer {
        /// Which server.
        server: String,
        /// What was asked.
        what: &'static str,
        /// What it answered, the front of it.
        value: String,
    },
    /// The times of a lease make no sense.
    #[error("a lease of {ttl_ms} ms: it must be 2000 to 86400000")]
    InvalidLeaseTtl {
        /// What was asked for.
        ttl_ms: u64,
    },
    /// The cluster that holds the lease cannot be used.
    #[error("etcd at {endpoints}: {reason}")]
    Etcd {
        /// As configured.
        endpoints: String,
        /// Why not.
        reason: String,
    },
    /// A server did not do what it was told, or must not.
    #[error("{server}, {doing}: {reason}")]
    ActionFailed {
        /// Which server.
        server: String,
        /// What it was to do.
        doing: &'static str,
        /// Why not, and what to do.
        reason: String,
    },
    /// A server did not get there in time.
    #[error("{server}, {doing}: not done within {waited_ms} ms: {reason}")]
    ActionTimeout {
        /// Which server.
        server: String,
        /// What it was to do.
        doing: &'static str,
        /// How long was waited, in milliseconds.
        waited_ms: u64,
        /// How it stood then.
        reason: String,
    },
    /// A rule forbids to go on.
    #[error(transparent)]
    Refused(#[from] SafetyRefusal),
}

impl ManagerError {
    /// The stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session(error) => error.code(),
            Self::UnexpectedAnswer { .. } => "TW-MGR-0001",
            Self::InvalidLeaseTtl { .. } => "TW-MGR-0050",
            Self::Etcd { .. } => "TW-MGR-0051",
            Self::ActionFailed { .. } => "TW-MGR-0060",
            Self::ActionTimeout { .. } => "TW-MGR-0061",
            Self::Refused(refusal) => refusal.code(),
        }
    }
}
