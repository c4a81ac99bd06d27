//! Errors of the binlog server itself. The errors that clients get are in [`crate::client_error`].

use std::net::SocketAddr;

use tailwater_session::SessionError;

/// Why a binlog server could not start.
#[derive(Debug, thiserror::Error)]
pub enum BinlogServerError {
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The server cannot listen on the configured address.
    #[error("cannot listen for clients at {address}: {source}")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl BinlogServerError {
    /// The stable code of this error, as in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session(error) => error.code(),
            Self::Listen { .. } => "TW-RELAY-0014",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_page_documents_the_code() {
        let page = include_str!("../../../docs/reference/errors.md");
        let error = BinlogServerError::Listen {
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            source: std::io::Error::other(""),
        };
        assert_eq!(page.matches(&format!("\n| {} |", error.code())).count(), 1);
    }
}
