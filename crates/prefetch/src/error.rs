//! The errors of the prefetch, with stable codes.

use tailwater_log::LogError;
use tailwater_session::SessionError;
use tailwater_wire::WireError;

/// Why the prefetch cannot work, or stopped for a while.
#[derive(Debug, thiserror::Error)]
pub enum PrefetchError {
    /// The replica or the source cannot be reached, or rejects a statement.
    #[error("{server}: {error}")]
    Session {
        /// The role of the server: the replica or the source.
        server: &'static str,
        /// The error of the session.
        error: Box<SessionError>,
    },
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An event of the binlog cannot be parsed.
    #[error("cannot read the event at {file}:{position} of the binlog: {error}")]
    Event {
        /// The binlog file.
        file: String,
        /// The offset after the event in the file.
        position: u64,
        /// What is wrong with the event.
        error: WireError,
    },
    /// The server replicates nothing, or several sources and no channel is named.
    #[error("{replica} has {channels} replication channels{name}; {remedy}")]
    NotAReplica {
        /// The address of the server.
        replica: String,
        /// How many replication channels match.
        channels: usize,
        /// The requested channel, as a part of the sentence.
        name: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The replica shows a position that cannot be parsed.
    #[error("{replica} shows the applied position {text:?}, which cannot be read: {error}")]
    Position {
        /// The address of the server.
        replica: String,
        /// The position.
        text: String,
        /// What is wrong with it.
        error: Box<WireError>,
    },
    /// The channel has not connected to its target since the daemon started.
    #[error("the channel has not started yet, so its position is unknown; the prefetch waits for it")]
    ChannelNotStarted,
    /// The events end, and no more come.
    #[error("the source ended the binlog stream at {file}:{position}")]
    StreamEnded {
        /// The binlog file.
        file: String,
        /// The offset in the file.
        position: u64,
    },
}

impl PrefetchError {
    /// Returns the stable code of the error, listed in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session { error, .. } => error.code(),
            Self::Log(error) => error.code(),
            Self::Event { .. } => "TW-PRE-0001",
            Self::NotAReplica { .. } => "TW-PRE-0002",
            Self::Position { .. } => "TW-PRE-0003",
            Self::StreamEnded { .. } => "TW-PRE-0004",
            Self::ChannelNotStarted => "TW-PRE-0005",
        }
    }

    /// The code and the message, for status.
    pub(crate) fn coded(&self) -> String {
        format!("{}: {self}", self.code())
    }

    pub(crate) fn replica(error: SessionError) -> Self {
        Self::Session { server: "the replica", error: Box::new(error) }
    }

    pub(crate) fn source(error: SessionError) -> Self {
        Self::Session { server: "the source", error: Box::new(error) }
    }
}
