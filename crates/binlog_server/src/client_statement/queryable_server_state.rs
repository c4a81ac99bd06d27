//! The data that statements can query about the binlog server, the log and its capture, at the moment of the
//! statement.

use std::collections::BTreeMap;

use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::ChecksumAlgorithm;
use tailwater_wire::gtid::{MariadbBinlogState, MysqlGtidSet};

/// Everything that a statement can query.
#[derive(Debug, Clone)]
pub struct ServerView {
    /// The version in the binlog server's greeting. It is the version of the source.
    pub server_version: String,
    /// The `server_id` that clients see.
    pub server_id: u32,
    /// The `server_uuid` that clients see (MySQL only).
    pub server_uuid: String,
    /// The host name of this machine.
    pub hostname: String,
    /// The port that the server listens on.
    pub port: u16,
    /// The transactions in the log.
    pub gtids: ServedGtids,
    /// The checksum algorithm of the newest events in the log.
    pub checksum: ChecksumAlgorithm,
    /// The served binlog files with their sizes in bytes, oldest first. The size of the last file is the end
    /// of the log.
    pub files: Vec<(String, u64)>,
    /// The connected replicas that have registered.
    pub replicas: Vec<ReplicaView>,
    /// The connections of clients.
    pub processes: Vec<ProcessView>,
    /// The capture that writes the log.
    pub capture: ReceiverView,
    /// The source's global variables that readers of its binlog query, with the values that the capture last
    /// read: `binlog_format`, `binlog_row_image`, `character_set_server` and others. They take precedence
    /// over this server's own values.
    pub source_variables: BTreeMap<String, String>,
    /// Whether replicas can acknowledge transactions.
    pub semi_sync: bool,
    /// The current time on the source's clock, in microseconds since 1970.
    pub now_us: u64,
    /// Seconds since the server started.
    pub uptime_seconds: u64,
    /// The client's account and address, such as `repl@192.0.2.7`.
    pub user: String,
    /// The connection id of the client.
    pub connection_id: u32,
}

impl ServerView {
    /// The flavour of the log's source.
    pub fn flavour(&self) -> Flavour {
        match self.gtids {
            ServedGtids::Mysql { .. } => Flavour::MySql,
            ServedGtids::Mariadb { .. } => Flavour::MariaDb,
        }
    }

    /// The newest file, and the offset of its end.
    pub(super) fn end(&self) -> (&str, u64) {
        self.files.last().map_or(("", 0), |(name, size)| (name.as_str(), *size))
    }

    pub(super) fn checksum_name(&self) -> &'static str {
        match self.checksum {
            ChecksumAlgorithm::Crc32 => "CRC32",
            _ => "NONE",
        }
    }
}

/// The transactions of the log, by flavour.
#[derive(Debug, Clone)]
pub enum ServedGtids {
    /// The transactions of a MySQL source.
    Mysql {
        /// All transactions in the log, and all transactions before the log.
        executed: MysqlGtidSet,
        /// The transactions before the oldest segment.
        purged: MysqlGtidSet,
        /// The source's `gtid_mode`.
        mode: String,
    },
    /// The transactions of a MariaDB source.
    Mariadb {
        /// The source's binlog state (`gtid_binlog_state`) at the end of the log.
        state: MariadbBinlogState,
        /// The source's `gtid_domain_id`.
        domain: u32,
    },
}

/// A replica that has registered.
#[derive(Debug, Clone, Default)]
pub struct ReplicaView {
    /// The replica's `server_id`.
    pub server_id: u32,
    /// The host name that the replica registered.
    pub host: String,
    /// The port that the replica registered.
    pub port: u16,
    /// The replica's `server_uuid` (MySQL only).
    pub uuid: String,
    /// The account that the replica uses.
    pub user: String,
    /// Whether the replica acknowledges transactions.
    pub semi_sync: bool,
}

/// A connection of a client.
#[derive(Debug, Clone, Default)]
pub struct ProcessView {
    /// The connection id.
    pub id: u32,
    /// The account that the client uses.
    pub user: String,
    /// The address and port of the client.
    pub host: String,
    /// The command: `Binlog Dump GTID`, `Query` or `Sleep`.
    pub command: String,
    /// Seconds since the command started.
    pub seconds: u64,
    /// What the connection is doing.
    pub state: String,
}

/// The state of the capture. `SHOW REPLICA STATUS` shows it as the state of a receiver thread.
#[derive(Debug, Clone, Default)]
pub struct ReceiverView {
    /// Whether the stream from the source is open.
    pub streaming: bool,
    /// Whether the capture tries to open the stream. If the capture is neither streaming nor connecting, the
    /// capture was stopped or has failed.
    pub connecting: bool,
    /// The state of the capture as text.
    pub state: String,
    /// The source's host.
    pub source_host: String,
    /// The source's port.
    pub source_port: u16,
    /// The account that the capture uses on the source.
    pub source_user: String,
    /// The source's `server_id`. `None` if the capture has never reached the source.
    pub source_server_id: Option<u32>,
    /// The source's `server_uuid` (MySQL only).
    pub source_uuid: Option<String>,
    /// The binlog file that the capture reads, by its name on the source.
    pub file: String,
    /// The offset in `file` up to which the log is durable.
    pub position: u64,
    /// Seconds since the commit of the log's newest transaction, while the source has more transactions. 0 if
    /// the source has no more transactions. `None` if it is unknown whether the source has more.
    pub seconds_behind: Option<u64>,
    /// Seconds between two attempts of the capture to connect.
    pub retry_seconds: u64,
    /// The last error that ended the stream from the source.
    pub last_error: Option<ReceiverError>,
    /// The size of the log in bytes.
    pub log_bytes: u64,
    /// Whether the connection to the source is encrypted.
    pub tls: bool,
}

/// The error that ended the stream from the source.
#[derive(Debug, Clone, Default)]
pub struct ReceiverError {
    /// The error number that the source sent. For a broken connection it is 2013, as on a replica.
    pub number: u16,
    /// The text of the error.
    pub message: String,
    /// When the stream ended, in seconds since 1970.
    pub time: u64,
}
