//! Why a capture stops, and whether trying again can help.

use tailwater_log::LogError;
use tailwater_session::{ServerError, SessionError};
use tailwater_wire::{Flavour, WireError};

/// Which server has the number that a capture registers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerIdHolder {
    /// The source.
    Source,
    /// Another replica of the source.
    Replica,
}

/// Why a capture could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The connection failed or broke.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The log cannot take more. Nothing that it did not make durable has been acknowledged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An event's bytes cannot be understood or fail their checksum.
    #[error("event at {file}:{position} of the source: {error}")]
    Event {
        /// The source's binlog file.
        file: String,
        /// Offset of the event in it.
        position: u64,
        /// What is wrong with it.
        error: WireError,
    },
    /// The stream contradicts itself.
    #[error("the replication stream contradicts itself: {detail}")]
    Stream {
        /// How.
        detail: String,
    },
    /// Bytes of the source's binlog are missing from the stream.
    #[error(
        "the replication stream jumps from {file}:{expected} to {found}: nothing was taken from behind the gap"
    )]
    Gap {
        /// The source's binlog file.
        file: String,
        /// Where the next event should have been.
        expected: u64,
        /// Where it was.
        found: u64,
    },
    /// The source has other bytes than the log at the same place.
    #[error(
        "the source's history differs from the log's at {file}:{position}: {detail}; it was rebuilt or rewound and \
         written to since; the log keeps what it has, and this source must be healed (rejoin) or given a new log"
    )]
    Diverged {
        /// The source's binlog file.
        file: String,
        /// Offset in it.
        position: u64,
        /// What differs.
        detail: String,
    },
    /// The source has lost transactions that the log has.
    #[error(
        "the source is behind the log: {detail} (missing there: {missing}); it lost them in a crash or was restored \
         from older data; the log keeps them, and this source must be healed (rejoin) before it is written to"
    )]
    Rewound {
        /// What the source lacks.
        missing: String,
        /// How it shows.
        detail: String,
    },
    /// The source no longer has what comes next.
    #[error(
        "the source cannot give what comes next in the log, {needed}: {detail}; start a new log for this source"
    )]
    Purged {
        /// What is needed.
        needed: String,
        /// Why it is not there.
        detail: String,
    },
    /// The configured address now belongs to a server of the other family.
    #[error("the log holds a {log} source, but the server there is {source_flavour}; check the address")]
    WrongFlavour {
        /// What the log holds.
        log: Flavour,
        /// What the server is.
        source_flavour: Flavour,
    },
    /// The source was killed while it wrote to its newest file, and has not begun another.
    #[error(
        "the source's newest binlog file {file} ends in the middle of an event; waiting for it to begin the next file"
    )]
    TornTail {
        /// The file.
        file: String,
    },
    /// The source answered a question of ours with something that we do not understand.
    #[error("the source's answer about {what} cannot be understood: {detail}")]
    Answer {
        /// What was asked.
        what: &'static str,
        /// What is wrong with the answer.
        detail: String,
    },
    /// The operating system refuses a thread, or the capture failed of a fault of Tailwater's own.
    #[error("the capture failed: {detail}")]
    Runtime {
        /// What happened.
        detail: String,
    },
    /// The source, or another replica of it, has our `server_id`.
    #[error(
        "{} has server_id {server_id} too{}; set server_id of this [[source]] to a number that no server of the cluster has",
        match holder {
            ServerIdHolder::Source => "the source itself",
            ServerIdHolder::Replica => "another replica of the source",
        },
        match holder {
            ServerIdHolder::Source => ", and sends no events to a replica with its own number",
            ServerIdHolder::Replica => ", and the source ends the connection of one replica when the other connects",
        }
    )]
    ServerIdTaken {
        /// Who has it.
        holder: ServerIdHolder,
        /// The number.
        server_id: u32,
    },
    /// An empty log was to begin at a place that the source does not have.
    #[error(
        "the source cannot begin at {start}: {reason}; choose another start (SHOW BINARY LOGS lists its files)"
    )]
    StartRefused {
        /// File and offset.
        start: String,
        /// The source's words.
        reason: String,
    },
    /// The source writes no binlog.
    #[error("the source writes no binlog; set log_bin and restart it")]
    NoBinlog,
    /// Semi-sync was asked for, but the source does not offer it.
    #[error(
        "semi-synchronous replication is not enabled on the source, so commits would not wait for the log; enable it, \
         or set semi_sync = false to capture without that promise (the log is then synced behind, unless ack = \"durable\")"
    )]
    SemiSyncOff,
    /// An order of a term of the lease that is over.
    #[error(
        "an order of the lease's term {token} comes too late: one of term {seen} was obeyed; another manager has taken over"
    )]
    StaleOrder {
        /// The order's term.
        token: u64,
        /// The highest that was seen.
        seen: u64,
    },
    /// The capture is to follow a server that the configuration does not name.
    #[error(
        "the capture is to follow {server:?}, and the configuration has no [[server]] of that name for this source \
         (there are: {known}); add it, or order the capture to follow another"
    )]
    UnknownServer {
        /// The name.
        server: String,
        /// Those that there are.
        known: String,
    },
    /// The order to follow was kept, and the server does not give a stream yet.
    #[error("the capture is to follow {server}, and does not yet: {reason}; it goes on trying")]
    NotFollowing {
        /// The name.
        server: String,
        /// What is the matter.
        reason: String,
    },
    /// Nobody took the order.
    #[error("the capture did not take the order: {reason}")]
    OrderNotTaken {
        /// Why.
        reason: String,
    },
    /// The binlog server cannot listen.
    #[error("clients cannot be received at {address}: {source}")]
    Listen {
        /// The address of the configuration.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
}

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureRetry {
    /// Connect again after a pause; the fault may pass.
    Reconnect,
    /// This source stops until a person has acted; others go on.
    Refuse,
    /// The process must end: the log's promise can no longer be kept.
    Fatal,
}

impl RelayError {
    pub(crate) fn runtime(error: std::io::Error) -> Self {
        Self::Runtime { detail: error.to_string() }
    }

    pub(crate) fn gtids(error: WireError) -> Self {
        Self::Answer { what: "a GTID set", detail: error.to_string() }
    }

    pub(crate) fn stream(detail: impl Into<String>) -> Self {
        Self::Stream { detail: detail.into() }
    }

    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session(error) => error.code(),
            Self::Log(error) => error.code(),
            Self::Event { error, .. } => error.code(),
            Self::Stream { .. } => "TW-RELAY-0001",
            Self::Gap { .. } => "TW-RELAY-0002",
            Self::Diverged { .. } => "TW-RELAY-0003",
            Self::Rewound { .. } => "TW-RELAY-0004",
            Self::Purged { .. } => "TW-RELAY-0005",
            Self::WrongFlavour { .. } => "TW-RELAY-0006",
            Self::NoBinlog => "TW-RELAY-0007",
            Self::SemiSyncOff => "TW-RELAY-0008",
            Self::Answer { .. } => "TW-RELAY-0009",
            Self::Runtime { .. } => "TW-RELAY-0010",
            Self::TornTail { .. } => "TW-RELAY-0011",
            Self::ServerIdTaken { .. } => "TW-RELAY-0012",
            Self::StartRefused { .. } => "TW-RELAY-0013",
            Self::Listen { .. } => "TW-RELAY-0014",
            Self::StaleOrder { .. } => "TW-RELAY-0015",
            Self::UnknownServer { .. } => "TW-RELAY-0016",
            Self::NotFollowing { .. } => "TW-RELAY-0017",
            Self::OrderNotTaken { .. } => "TW-RELAY-0018",
        }
    }

    /// Whether the source says that its file ends in the middle of an event (MariaDB, after it was killed while it wrote
    /// there): a read of the stream fails with "binlog truncated in the middle of event".
    pub(crate) fn reports_torn_file(&self) -> bool {
        let Self::Session(error) = self else { return false };
        error.server_error().is_some_and(|server| {
            server.number == ServerError::SOURCE_FATAL_ERROR_READING_BINLOG
                && server.message.expose().contains("truncated in the middle of event")
        })
    }

    /// Whether the source says that another replica with our `server_id` has come.
    pub(crate) fn reports_duplicate_server_id(&self) -> bool {
        let Self::Session(error) = self else { return false };
        error
            .server_error()
            .is_some_and(|server| server.message.expose().contains("same server_uuid/server_id"))
    }

    /// Whether trying again can help.
    pub fn retry(&self) -> CaptureRetry {
        match self {
            // Damage on the way passes with a new connection; damage at the source comes again, at growing intervals,
            // and is told each time.
            Self::Event { error: WireError::Unsupported { .. }, .. } => CaptureRetry::Refuse,
            Self::Event { .. } | Self::Stream { .. } | Self::Gap { .. } => CaptureRetry::Reconnect,
            Self::Diverged { .. }
            | Self::Rewound { .. }
            | Self::Purged { .. }
            | Self::WrongFlavour { .. }
            | Self::StartRefused { .. }
            | Self::Listen { .. }
            // Of these only the second ever ends a capture; the others are told to whoever gave the order.
            | Self::StaleOrder { .. }
            | Self::UnknownServer { .. }
            | Self::NotFollowing { .. }
            | Self::OrderNotTaken { .. } => CaptureRetry::Refuse,
            // A person may be about to enable these, or the source is still starting.
            Self::NoBinlog
            | Self::SemiSyncOff
            | Self::Answer { .. }
            | Self::TornTail { .. }
            | Self::ServerIdTaken { .. } => CaptureRetry::Reconnect,
            // An event that cannot stand where it came: as damage on the way.
            Self::Log(LogError::Event { .. }) => CaptureRetry::Reconnect,
            Self::Log(LogError::FlavourMismatch { .. }) => CaptureRetry::Refuse,
            Self::Log(_) | Self::Runtime { .. } => CaptureRetry::Fatal,
            // A wrong password or a missing grant does not mend itself, but a person who mends it should not have to
            // restart the daemon too. What a refused stream means was looked at where it was refused.
            Self::Session(_) => CaptureRetry::Reconnect,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::semi_sync_monitor::SemiSyncAlarm;

    #[test]
    fn who_has_the_server_id_is_said() {
        let said = |holder| RelayError::ServerIdTaken { holder, server_id: 7 }.to_string();
        let (source, replica) = (said(ServerIdHolder::Source), said(ServerIdHolder::Replica));
        assert!(
            source.contains("the source itself has server_id 7") && !source.contains("replica of"),
            "{source}"
        );
        assert!(
            replica.contains("another replica of the source has") && !replica.contains("itself"),
            "{replica}"
        );
    }

    #[test]
    fn every_code_is_explained_once_and_no_other() {
        let page = include_str!("../../../docs/reference/errors.md");
        let text = String::new;
        let errors = [
            RelayError::stream(""),
            RelayError::Gap { file: text(), expected: 0, found: 0 },
            RelayError::Diverged { file: text(), position: 0, detail: text() },
            RelayError::Rewound { missing: text(), detail: text() },
            RelayError::Purged { needed: text(), detail: text() },
            RelayError::WrongFlavour { log: Flavour::MySql, source_flavour: Flavour::MariaDb },
            RelayError::NoBinlog,
            RelayError::SemiSyncOff,
            RelayError::Answer { what: "", detail: text() },
            RelayError::Runtime { detail: text() },
            RelayError::TornTail { file: text() },
            RelayError::ServerIdTaken { holder: ServerIdHolder::Source, server_id: 1 },
            RelayError::StartRefused { start: text(), reason: text() },
            RelayError::Listen {
                address: std::net::SocketAddr::from(([127, 0, 0, 1], 1)),
                source: std::io::Error::other(""),
            },
            RelayError::StaleOrder { token: 1, seen: 2 },
            RelayError::UnknownServer { server: text(), known: text() },
            RelayError::NotFollowing { server: text(), reason: text() },
            RelayError::OrderNotTaken { reason: text() },
        ];
        let alarms = [
            SemiSyncAlarm::Disabled,
            SemiSyncAlarm::FallenBack,
            SemiSyncAlarm::WaitsAfterCommit,
            SemiSyncAlarm::TimeoutShort(Duration::ZERO),
            SemiSyncAlarm::CommitsWithoutAck(1),
        ];
        let codes: Vec<_> =
            errors.iter().map(RelayError::code).chain(alarms.iter().map(SemiSyncAlarm::code)).collect();
        for code in &codes {
            let row = format!("\n| {code} |");
            assert_eq!(page.matches(&row).count(), 1, "{code} in docs/reference/errors.md");
        }
        assert_eq!(
            page.matches("\n| TW-RELAY-").count(),
            codes.len(),
            "errors.md explains codes that nothing has"
        );
    }
}
