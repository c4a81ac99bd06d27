//! The data for statement results: the binlog server, the log and its capture at the moment of the statement.

use std::collections::BTreeMap;

use tailwater_wire::Flavour;
use tailwater_wire::event::ChecksumAlgorithm;
use tailwater_wire::gtid::{MariadbBinlogState, MysqlGtidSet};

/// Everything that a statement can query.
#[derive(Debug, Clone)]
pub struct ServerView {
    /// The version in the server's greeting: the source's.
    pub server_version: String,
    /// The `server_id` that clients see.
    pub server_id: u32,
    /// The `server_uuid` that clients see (MySQL).
    pub server_uuid: String,
    /// The host's name.
    pub hostname: String,
    /// The port that the server listens on.
    pub port: u16,
    /// The transactions in the log.
    pub gtids: ServedGtids,
    /// The checksums of the events in the log.
    pub checksum: ChecksumAlgorithm,
    /// The served binlog files with their sizes in bytes, oldest first. The last one's size is the log's end.
    pub files: Vec<(String, u64)>,
    /// The connected replicas that have registered.
    pub replicas: Vec<ReplicaView>,
    /// The connections.
    pub processes: Vec<ProcessView>,
    /// The capture that writes the log.
    pub capture: ReceiverView,
    /// The source's settings that readers of its binlog ask for, as last queried: `binlog_format`,
    /// `binlog_row_image`, `character_set_server` and others. They take precedence over this server's own
    /// values.
    pub source_variables: BTreeMap<String, String>,
    /// Whether replicas can acknowledge transactions.
    pub semi_sync: bool,
    /// The current time on the source's clock, in microseconds since 1970.
    pub now_us: u64,
    /// Seconds since the server started.
    pub uptime_seconds: u64,
    /// The client's account and address: `repl@192.0.2.7`.
    pub user: String,
    /// The number of the client's connection.
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

    /// The newest file, and its end.
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

/// The transactions of the log.
#[derive(Debug, Clone)]
pub enum ServedGtids {
    /// Of a MySQL source.
    Mysql {
        /// Every transaction in the log, and all before it.
        executed: MysqlGtidSet,
        /// The transactions before the oldest segment.
        purged: MysqlGtidSet,
        /// The source's `gtid_mode`.
        mode: String,
    },
    /// Of a MariaDB source.
    Mariadb {
        /// The state of the binlog at the log's end.
        state: MariadbBinlogState,
        /// The source's `gtid_domain_id`.
        domain: u32,
    },
}

/// A replica.
#[derive(Debug, Clone, Default)]
pub struct ReplicaView {
    /// Its `server_id`.
    pub server_id: u32,
    /// The host that it registered.
    pub host: String,
    /// The port that it registered.
    pub port: u16,
    /// Its UUID (MySQL).
    pub uuid: String,
    /// The account that it uses.
    pub user: String,
    /// It acknowledges transactions.
    pub semi_sync: bool,
}

/// A connection.
#[derive(Debug, Clone, Default)]
pub struct ProcessView {
    /// Its number.
    pub id: u32,
    /// The account.
    pub user: String,
    /// Address and port of the client.
    pub host: String,
    /// `Binlog Dump GTID`, `Query`, `Sleep`.
    pub command: String,
    /// Seconds in this state.
    pub seconds: u64,
    /// What it is doing.
    pub state: String,
}

/// The state of the capture, shown as that of a receiver thread by `SHOW REPLICA STATUS`.
#[derive(Debug, Clone, Default)]
pub struct ReceiverView {
    /// The stream from the source is open.
    pub streaming: bool,
    /// It is trying to open the stream. If it is neither streaming nor connecting, it was stopped or has
    /// failed.
    pub connecting: bool,
    /// Its state as text.
    pub state: String,
    /// The source's host.
    pub source_host: String,
    /// The source's port.
    pub source_port: u16,
    /// The account at the source.
    pub source_user: String,
    /// The source's `server_id`, if it was ever reached.
    pub source_server_id: Option<u32>,
    /// The source's `server_uuid` (MySQL).
    pub source_uuid: Option<String>,
    /// The source's file being read, under the source's own name.
    pub file: String,
    /// Offset in it up to which the log is durable.
    pub position: u64,
    /// Seconds from the commit of the log's newest transaction to now, while the source has more; 0 if it has
    /// not; `None` if unknown.
    pub seconds_behind: Option<u64>,
    /// Seconds between two attempts to connect.
    pub retry_seconds: u64,
    /// Why the stream last ended.
    pub last_error: Option<ReceiverError>,
    /// Total bytes of the log.
    pub log_bytes: u64,
    /// The connection to the source is encrypted.
    pub tls: bool,
}

/// Why the stream from the source ended.
#[derive(Debug, Clone, Default)]
pub struct ReceiverError {
    /// The server's error number or, for a broken connection, 2013, as a replica reports it.
    pub number: u16,
    /// The error text.
    pub message: String,
    /// When, in seconds since 1970.
    pub time: u64,
}
