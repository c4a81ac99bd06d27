//! Whether a failover would succeed if the primary died now. The manager determines this by a rehearsal.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Result of the failover rehearsal for the present primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum FailoverReadiness {
    /// A failover would promote a server.
    Ready {
        /// The server that the failover would promote.
        server: String,
    },
    /// A safety rule would refuse the failover.
    NotReady {
        /// Code of the safety rule.
        rule: String,
        /// The text of the refusal: object, cause and remedy.
        reason: String,
    },
    /// Readiness cannot be determined at present.
    Unknown {
        /// Why the readiness cannot be determined.
        reason: String,
    },
}

impl FailoverReadiness {
    /// Returns the code of the safety rule that would refuse the failover, if any.
    pub fn rule(&self) -> Option<&str> {
        match self {
            Self::NotReady { rule, .. } => Some(rule),
            Self::Ready { .. } | Self::Unknown { .. } => None,
        }
    }
}

impl fmt::Display for FailoverReadiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { server } => write!(f, "ready: a failover would promote {server}"),
            Self::NotReady { rule, reason } => {
                write!(f, "not ready: every failover would be refused: {rule} {reason}")
            }
            Self::Unknown { reason } => write!(f, "not known: {reason}"),
        }
    }
}
