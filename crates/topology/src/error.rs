//! Errors of the crate, each with a stable code.

use tailwater_session::SessionError;

/// Errors of probes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The connection to a server failed, or the server returned an error.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The server's answer to a query does not have the expected form.
    #[error(
        "the server {server} returned {what} that Tailwater cannot parse: {value:?}; is this server version supported?"
    )]
    UnexpectedAnswer {
        /// The server that answered.
        server: String,
        /// The kind of value that Tailwater queried, such as a GTID set.
        what: &'static str,
        /// The beginning of the value that is not understood.
        value: String,
    },
}

impl TopologyError {
    /// Returns the stable code, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session(error) => error.code(),
            Self::UnexpectedAnswer { .. } => "TW-MGR-0001",
        }
    }
}
