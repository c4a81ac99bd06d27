//! The errors of a capture, and whether a retry can help.

use tailwater_log::LogError;
use tailwater_session::{ServerError, SessionError};
use tailwater_wire::{Flavour, WireError};

/// Which server has the `server_id` that the capture is configured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerIdHolder {
    /// The source itself.
    Source,
    /// Another replica of the source.
    Replica,
}

/// Why a capture could not continue.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The connection to the source failed or broke.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The log cannot be written. Everything that was acknowledged to the source is durable.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The bytes of an event cannot be parsed, or do not match their checksum.
    #[error("cannot read the event at {file}:{position} of the source: {error}")]
    Event {
        /// The source's binlog file that contains the event.
        file: String,
        /// The offset of the event in the file.
        position: u64,
        /// What is wrong with the event.
        error: WireError,
    },
    /// The events of the stream contradict each other.
    #[error("the replication stream contradicts itself: {detail}")]
    Stream {
        /// Which events contradict each other, and how.
        detail: String,
    },
    /// Bytes of the source's binlog are missing from the stream.
    #[error(
        "the replication stream jumps from {file}:{expected} to {found}: nothing after the gap was captured"
    )]
    Gap {
        /// The source's binlog file with the gap.
        file: String,
        /// The offset at which the next event should start.
        expected: u64,
        /// The offset at which the next event does start.
        found: u64,
    },
    /// The source's binlog and the log have different bytes at the same position.
    #[error(
        "the source's binlog differs from the log at {file}:{position}: {detail}; the source was rebuilt or rewound, and \
         then written to; the log is unchanged; repair this source (rejoin), or give it a new log"
    )]
    Diverged {
        /// The source's binlog file.
        file: String,
        /// The offset of the difference in the file.
        position: u64,
        /// What differs.
        detail: String,
    },
    /// The source has lost transactions that the log has.
    #[error(
        "the source is behind the log: {detail} (missing on the source: {missing}); the source lost this data in \
         a crash, or was restored from an older copy; the log keeps the data; repair this source (rejoin) before \
         clients write to it"
    )]
    Rewound {
        /// The transactions or bytes that the source lacks.
        missing: String,
        /// How the capture detected that the source lacks data.
        detail: String,
    },
    /// The source does not have the transactions any more that the log needs next.
    #[error(
        "the source no longer has what the log needs next, {needed}: {detail}; start a new log for this source"
    )]
    Purged {
        /// The transactions, or the binlog position, that the capture needs.
        needed: String,
        /// Why the source cannot send the needed transactions.
        detail: String,
    },
    /// The server at the configured address has another flavour than the log.
    #[error(
        "the log is of a {log} source, but the server at the configured address is {source_flavour}; check the address"
    )]
    WrongFlavour {
        /// The flavour of the log.
        log: Flavour,
        /// The flavour of the server.
        source_flavour: Flavour,
    },
    /// The source was killed while it wrote to its newest binlog file, and has not started the next file yet.
    #[error(
        "the source's newest binlog file {file} ends in the middle of an event; waiting until it starts the next file"
    )]
    TornTail {
        /// The binlog file that ends in the middle of an event.
        file: String,
    },
    /// The source's answer to a query is invalid.
    #[error("the source's answer to a query for {what} is invalid: {detail}")]
    Answer {
        /// What the capture queried, as a noun.
        what: &'static str,
        /// What is wrong with the answer.
        detail: String,
    },
    /// The operating system could not create a thread, or the capture panicked.
    #[error("the capture failed: {detail}")]
    Runtime {
        /// What failed.
        detail: String,
    },
    /// The source, or another replica of it, has the same `server_id` as the capture.
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
        /// The server that has this `server_id`.
        holder: ServerIdHolder,
        /// The `server_id`.
        server_id: u32,
    },
    /// The configured start position of an empty log does not exist on the source.
    #[error(
        "the source cannot send a stream from {start}: {reason}; choose another start (SHOW BINARY LOGS lists its files)"
    )]
    StartRefused {
        /// The configured file and offset.
        start: String,
        /// The error that the source returned.
        reason: String,
    },
    /// The source does not write a binlog.
    #[error("the source writes no binlog; set log_bin and restart it")]
    NoBinlog,
    /// Semi-sync was requested, but the source does not offer it.
    #[error(
        "semi-synchronous replication is not enabled on the source, so commits would not wait for the log; enable it, \
         or set semi_sync = false to capture without this guarantee (the log is then synced later, unless ack = \"durable\")"
    )]
    SemiSyncOff,
    /// The manager's order has an earlier lease term than an order that the capture has executed.
    #[error(
        "the order of lease term {token} is stale: an order of lease term {seen} was executed; another manager has taken over"
    )]
    StaleOrder {
        /// The lease term of this order.
        token: u64,
        /// The highest lease term of all orders so far.
        seen: u64,
    },
    /// The manager's order belongs to an earlier failover or switchover than an order of the same lease term
    /// that the capture has executed.
    #[error(
        "the order belongs to failover or switchover {run} of lease term {token}, and an order of the later one {seen} was \
         executed: it arrived too late, and has no effect"
    )]
    SupersededOrder {
        /// The lease term of this order.
        token: u64,
        /// The number of this order's failover or switchover within the lease term.
        run: u64,
        /// The highest such number of all orders of the lease term so far.
        seen: u64,
    },
    /// The capture is ordered to follow a server that the configuration does not have.
    #[error(
        "the capture must follow {server:?}, but the configuration has no [[server]] with this name for this source \
         (it has: {known}); add it, or order the capture to follow another server"
    )]
    UnknownServer {
        /// The name of the server in the order.
        server: String,
        /// The names of the servers in the configuration.
        known: String,
    },
    /// The order to follow a server was persisted, but this server has not sent a stream yet.
    #[error("the capture does not follow {server} yet: {reason}; it keeps trying")]
    NotFollowing {
        /// The name of the server.
        server: String,
        /// Why the server has not sent a stream yet.
        reason: String,
    },
    /// The capture did not execute the order of the manager.
    #[error("the capture did not execute the order that it received: {reason}")]
    OrderNotTaken {
        /// Why the capture did not execute the order.
        reason: String,
    },
}

/// Whether a retry can help after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureRetry {
    /// Connect again after a pause, because the cause may be temporary.
    Reconnect,
    /// Stop the capture of this source until an operator has acted. Captures of other sources continue.
    Refuse,
    /// End the process, because the log cannot guarantee any more that acknowledged transactions are durable.
    Fatal,
}

impl CaptureError {
    pub(crate) fn runtime(error: std::io::Error) -> Self {
        Self::Runtime { detail: error.to_string() }
    }

    pub(crate) fn gtids(error: WireError) -> Self {
        Self::Answer { what: "a GTID set", detail: error.to_string() }
    }

    pub(crate) fn stream(detail: impl Into<String>) -> Self {
        Self::Stream { detail: detail.into() }
    }

    /// The stable code of this error, as in docs/reference/errors.md.
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
            Self::StaleOrder { .. } | Self::SupersededOrder { .. } => "TW-RELAY-0015",
            Self::UnknownServer { .. } => "TW-RELAY-0016",
            Self::NotFollowing { .. } => "TW-RELAY-0017",
            Self::OrderNotTaken { .. } => "TW-RELAY-0018",
        }
    }

    /// Whether the source reports that its binlog file ends in the middle of an event. MariaDB then ends the
    /// stream with "binlog truncated in the middle of event". This happens if the server was killed while it
    /// wrote to the file.
    pub(crate) fn reports_torn_file(&self) -> bool {
        let Self::Session(error) = self else { return false };
        error.server_error().is_some_and(|server| {
            server.number == ServerError::SOURCE_FATAL_ERROR_READING_BINLOG
                && server.message.expose().contains("truncated in the middle of event")
        })
    }

    /// Whether the source reports that another replica with the same `server_id` has connected.
    pub(crate) fn reports_duplicate_server_id(&self) -> bool {
        let Self::Session(error) = self else { return false };
        error
            .server_error()
            .is_some_and(|server| server.message.expose().contains("same server_uuid/server_id"))
    }

    /// Whether a retry can help.
    pub fn retry(&self) -> CaptureRetry {
        match self {
            Self::Event { error: WireError::Unsupported { .. }, .. } => CaptureRetry::Refuse,
            // If an event was damaged in transit, a new connection delivers it correctly. If it is damaged on
            // the source, each attempt fails again. Then the capture retries less and less often, and reports
            // each failure.
            Self::Event { .. } | Self::Stream { .. } | Self::Gap { .. } => CaptureRetry::Reconnect,
            Self::Diverged { .. }
            | Self::Rewound { .. }
            | Self::Purged { .. }
            | Self::WrongFlavour { .. }
            | Self::StartRefused { .. }
            // The errors from here to `OrderNotTaken` are about orders. Only `UnknownServer` can end a
            // capture. The others are returned to the sender of the order.
            | Self::StaleOrder { .. }
            | Self::SupersededOrder { .. }
            | Self::UnknownServer { .. }
            | Self::NotFollowing { .. }
            | Self::OrderNotTaken { .. } => CaptureRetry::Refuse,
            // Retry after the following errors, because an operator may be about to correct the cause, or the
            // source may still be starting.
            Self::NoBinlog
            | Self::SemiSyncOff
            | Self::Answer { .. }
            | Self::TornTail { .. }
            | Self::ServerIdTaken { .. } => CaptureRetry::Reconnect,
            // An event that the log rejects is treated like damage in transit: a new connection may deliver
            // it correctly.
            Self::Log(LogError::Event { .. }) => CaptureRetry::Reconnect,
            Self::Log(LogError::FlavourMismatch { .. }) => CaptureRetry::Refuse,
            Self::Log(_) | Self::Runtime { .. } => CaptureRetry::Fatal,
            // An operator must correct a wrong password or a missing privilege. Because the capture retries,
            // the operator need not restart the daemon. A refused stream is not a `Session` error here,
            // because the capture has already converted it to another error.
            Self::Session(_) => CaptureRetry::Reconnect,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::semi_sync_monitor::SemiSyncAlarm;

    #[test]
    fn the_server_id_error_names_the_server_that_has_it() {
        let text = |holder| CaptureError::ServerIdTaken { holder, server_id: 7 }.to_string();
        let (source, replica) = (text(ServerIdHolder::Source), text(ServerIdHolder::Replica));
        assert!(
            source.contains("the source itself has server_id 7") && !source.contains("replica of"),
            "unexpected error text: {source}"
        );
        assert!(
            replica.contains("another replica of the source has") && !replica.contains("itself"),
            "unexpected error text: {replica}"
        );
    }

    #[test]
    fn the_errors_page_documents_exactly_these_codes() {
        let page = include_str!("../../../docs/reference/errors.md");
        let text = String::new;
        let errors = [
            CaptureError::stream(""),
            CaptureError::Gap { file: text(), expected: 0, found: 0 },
            CaptureError::Diverged { file: text(), position: 0, detail: text() },
            CaptureError::Rewound { missing: text(), detail: text() },
            CaptureError::Purged { needed: text(), detail: text() },
            CaptureError::WrongFlavour { log: Flavour::MySql, source_flavour: Flavour::MariaDb },
            CaptureError::NoBinlog,
            CaptureError::SemiSyncOff,
            CaptureError::Answer { what: "", detail: text() },
            CaptureError::Runtime { detail: text() },
            CaptureError::TornTail { file: text() },
            CaptureError::ServerIdTaken { holder: ServerIdHolder::Source, server_id: 1 },
            CaptureError::StartRefused { start: text(), reason: text() },
            CaptureError::StaleOrder { token: 1, seen: 2 },
            CaptureError::SupersededOrder { token: 1, run: 1, seen: 2 },
            CaptureError::UnknownServer { server: text(), known: text() },
            CaptureError::NotFollowing { server: text(), reason: text() },
            CaptureError::OrderNotTaken { reason: text() },
        ];
        let alarms = [
            SemiSyncAlarm::Disabled,
            SemiSyncAlarm::FallenBack,
            SemiSyncAlarm::WaitsAfterCommit,
            SemiSyncAlarm::TimeoutShort(Duration::ZERO),
            SemiSyncAlarm::CommitsWithoutAck(1),
        ];
        // The two errors of an order that is refused have the same code.
        let codes: BTreeSet<_> =
            errors.iter().map(CaptureError::code).chain(alarms.iter().map(SemiSyncAlarm::code)).collect();
        for code in &codes {
            let row = format!("\n| {code} |");
            assert_eq!(
                page.matches(&row).count(),
                1,
                "the number of rows for {code} in docs/reference/errors.md"
            );
        }
        assert_eq!(
            page.matches("\n| TW-RELAY-").count(),
            // The error reference page has one more code with this prefix: TW-RELAY-0014 belongs to the
            // binlog server, and this crate does not use it.
            codes.len() + 1,
            "docs/reference/errors.md documents codes that no error has"
        );
    }
}
