//! Errors of a rejoin.

use tailwater_apply::ApplyError;
use tailwater_log::{LogError, LogPosition};
use tailwater_session::SessionError;
use tailwater_wire::WireError;

/// Why a server could not be rejoined.
#[derive(Debug, thiserror::Error)]
pub enum RejoinError {
    /// A server could not be reached, or refused a statement.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A transaction cannot be decoded, or its rows cannot be written to the server.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A transaction can neither be undone nor be reapplied.
    #[error(
        "transaction {gtid} can neither be undone nor be reapplied: {reason}; copy the server from scratch (--copy)"
    )]
    Irreversible {
        /// GTID of the transaction.
        gtid: String,
        /// Why the transaction can neither be undone nor be reapplied.
        reason: String,
    },
    /// The server cannot be rejoined.
    #[error("the server cannot be rejoined: {reason}")]
    Impossible {
        /// Why the server cannot be rejoined, and what to do.
        reason: String,
    },
    /// The server has transactions that no other server has, and the caller does not allow the rejoin to undo
    /// them.
    #[error(
        "only this server has {gtids}, and clients may have received the OK for these transactions; `tailwater rejoin` undoes them"
    )]
    ErrantTransactions {
        /// The GTIDs of the transactions that only this server has.
        gtids: String,
    },
}

impl RejoinError {
    /// Returns the error for malformed rows in a transaction that was decoded.
    pub(crate) fn rows(error: WireError) -> Self {
        Self::Apply(ApplyError::Event { gtid: String::new(), position: LogPosition::ZERO, error })
    }

    /// Returns the error for a malformed event in the server's own binlog.
    pub(crate) fn own_binlog(error: WireError) -> Self {
        Self::Impossible {
            reason: format!(
                "an event of the server's own binlog is malformed: {error}; copy the server from scratch (--copy)"
            ),
        }
    }

    /// Returns the stable code of this error; see docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session(error) => error.code(),
            Self::Log(error) => error.code(),
            Self::Apply(error) => error.code(),
            Self::Irreversible { .. } => "TW-APP-0040",
            Self::Impossible { .. } => "TW-APP-0041",
            Self::ErrantTransactions { .. } => "TW-APP-0042",
        }
    }

    /// Whether the state of the server makes a repair impossible, so that a retry cannot help.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Irreversible { .. } | Self::Impossible { .. } | Self::ErrantTransactions { .. } => true,
            Self::Session(_) | Self::Log(_) | Self::Apply(_) => false,
        }
    }

    /// Returns the part of the error that messages must hide because it may contain row values.
    pub fn private_detail(&self) -> Option<String> {
        match self {
            Self::Session(error) => error.private_detail(),
            Self::Apply(error) => error.private_detail(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_page_documents_the_codes() {
        let page = include_str!("../../../docs/reference/errors.md");
        let text = String::new;
        for error in [
            RejoinError::Irreversible { gtid: text(), reason: text() },
            RejoinError::Impossible { reason: text() },
            RejoinError::ErrantTransactions { gtids: text() },
        ] {
            assert_eq!(page.matches(&format!("\n| {} |", error.code())).count(), 1, "{}", error.code());
            assert!(error.is_refusal());
        }
    }
}
