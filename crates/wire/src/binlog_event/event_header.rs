//! The common header of every binlog event, and the event types of both flavours.

use std::fmt;

use crate::{ServerId, WireError};

/// The length of the common event header in binlog format 4, in bytes.
pub const EVENT_HEADER_BYTES: usize = 19;

/// The four magic bytes at the start of every binlog file.
pub const BINLOG_MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];

/// Offset of the first event of a binlog file, after the magic bytes.
pub const FIRST_EVENT_OFFSET: u64 = BINLOG_MAGIC.len() as u64;

/// The common header of a binlog event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHeader {
    /// When the statement began on the server that first executed it, in seconds since 1970; 0 in artificial
    /// events.
    pub timestamp: u32,
    /// The event type, which determines the format of the body.
    pub event_type: EventType,
    /// The `server_id` of the server that first executed the event.
    pub server_id: ServerId,
    /// The length of the whole event in bytes, header and checksum included.
    pub event_length: u32,
    /// The offset of the end of the event in the source's binlog file. It wraps at 4 GiB. It is 0 in
    /// artificial events and, since MariaDB 11.4, in events inside a transaction.
    pub end_log_pos: u32,
    /// The `LOG_EVENT_*_F` bits: see the `FLAG_*` constants of this type.
    pub flags: u16,
}

impl EventHeader {
    /// In a format description event: the file is open for writing, or the server crashed while it was open.
    pub const FLAG_BINLOG_IN_USE: u16 = 0x0001;
    /// The statement used temporary tables, so it depends on its connection.
    pub const FLAG_THREAD_SPECIFIC: u16 = 0x0004;
    /// The event is artificial: it is not in a file. An example is the rotate event that begins a stream.
    pub const FLAG_ARTIFICIAL: u16 = 0x0020;
    /// The I/O thread of a replica wrote the event to a relay log.
    pub const FLAG_RELAY_LOG: u16 = 0x0040;
    /// Readers that do not know the event type may skip the event.
    pub const FLAG_IGNORABLE: u16 = 0x0080;
    /// MariaDB: a replica may skip the event (`skip_replication`).
    pub const FLAG_SKIP_REPLICATION: u16 = 0x8000;

    /// Parses the first [`EVENT_HEADER_BYTES`] of `bytes`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer bytes; [`WireError::Malformed`] if the stated event length
    /// is shorter than the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let Some(bytes) = bytes.first_chunk::<EVENT_HEADER_BYTES>() else {
            let needed = EVENT_HEADER_BYTES - bytes.len();
            return Err(WireError::Truncated { what: "event header", offset: bytes.len(), needed });
        };
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let header = Self {
            timestamp: u32_at(0),
            event_type: EventType(bytes[4]),
            server_id: ServerId(u32_at(5)),
            event_length: u32_at(9),
            end_log_pos: u32_at(13),
            flags: u16::from_le_bytes([bytes[17], bytes[18]]),
        };
        if (header.event_length as usize) < EVENT_HEADER_BYTES {
            return Err(WireError::malformed(
                "event header",
                format!("the stated event length {} is shorter than the header", header.event_length),
            ));
        }
        Ok(header)
    }

    /// Returns the header as bytes.
    pub fn to_bytes(&self) -> [u8; EVENT_HEADER_BYTES] {
        let mut bytes = [0; EVENT_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.timestamp.to_le_bytes());
        bytes[4] = self.event_type.0;
        bytes[5..9].copy_from_slice(&self.server_id.0.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.event_length.to_le_bytes());
        bytes[13..17].copy_from_slice(&self.end_log_pos.to_le_bytes());
        bytes[17..19].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }

    /// Returns whether the bits of `flag` are set.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Returns whether the event is artificial, that is, not in a file.
    pub fn is_artificial(&self) -> bool {
        self.has(Self::FLAG_ARTIFICIAL)
    }

    /// Whether a server made the event for the stream of one client, so that it is in no binlog file.
    pub fn is_made_for_stream(&self) -> bool {
        match self.event_type {
            EventType::HEARTBEAT | EventType::HEARTBEAT_V2 => true,
            // MariaDB 11.4 and later write no position into events inside a transaction, but they always
            // write it into events of these types. So the position 0 means that such an event is artificial.
            EventType::ROTATE
            | EventType::FORMAT_DESCRIPTION
            | EventType::MARIADB_GTID_LIST
            | EventType::PREVIOUS_GTIDS => self.is_artificial() || self.end_log_pos == 0,
            _ => self.is_artificial(),
        }
    }
}

/// The type byte of an event. This is a newtype and not an enum, because unknown types are valid input.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventType(pub u8);

macro_rules! event_types {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl EventType {
            $(#[doc = concat!("`", $text, "`, type ", stringify!($value), ".")] pub const $name: Self = Self($value);)*

            /// Returns the name of the type as `SHOW BINLOG EVENTS` prints it, or `None` if the type is
            /// unknown.
            pub fn name(self) -> Option<&'static str> {
                match self { $(Self::$name => Some($text),)* _ => None }
            }
        }
    };
}

impl EventType {
    /// Returns whether events of this type hold rows.
    pub fn is_rows(self) -> bool {
        matches!(
            self,
            Self::WRITE_ROWS_V1
                | Self::UPDATE_ROWS_V1
                | Self::DELETE_ROWS_V1
                | Self::WRITE_ROWS_V2
                | Self::UPDATE_ROWS_V2
                | Self::DELETE_ROWS_V2
                | Self::PARTIAL_UPDATE_ROWS
                | Self::MARIADB_WRITE_ROWS_COMPRESSED_V1
                | Self::MARIADB_UPDATE_ROWS_COMPRESSED_V1
                | Self::MARIADB_DELETE_ROWS_COMPRESSED_V1
                | Self::MARIADB_WRITE_ROWS_COMPRESSED
                | Self::MARIADB_UPDATE_ROWS_COMPRESSED
                | Self::MARIADB_DELETE_ROWS_COMPRESSED
        )
    }
}

event_types! {
    START_V3 = 1, "Start_v3";
    QUERY = 2, "Query";
    STOP = 3, "Stop";
    ROTATE = 4, "Rotate";
    INTVAR = 5, "Intvar";
    LOAD = 6, "Load";
    SLAVE = 7, "Slave";
    CREATE_FILE = 8, "Create_file";
    APPEND_BLOCK = 9, "Append_block";
    EXEC_LOAD = 10, "Exec_load";
    DELETE_FILE = 11, "Delete_file";
    NEW_LOAD = 12, "New_load";
    RAND = 13, "RAND";
    USER_VAR = 14, "User var";
    FORMAT_DESCRIPTION = 15, "Format_desc";
    XID = 16, "Xid";
    BEGIN_LOAD_QUERY = 17, "Begin_load_query";
    EXECUTE_LOAD_QUERY = 18, "Execute_load_query";
    TABLE_MAP = 19, "Table_map";
    PRE_GA_WRITE_ROWS = 20, "Write_rows_event_old";
    PRE_GA_UPDATE_ROWS = 21, "Update_rows_event_old";
    PRE_GA_DELETE_ROWS = 22, "Delete_rows_event_old";
    WRITE_ROWS_V1 = 23, "Write_rows_v1";
    UPDATE_ROWS_V1 = 24, "Update_rows_v1";
    DELETE_ROWS_V1 = 25, "Delete_rows_v1";
    INCIDENT = 26, "Incident";
    HEARTBEAT = 27, "Heartbeat";
    IGNORABLE = 28, "Ignorable";
    ROWS_QUERY = 29, "Rows_query";
    WRITE_ROWS_V2 = 30, "Write_rows";
    UPDATE_ROWS_V2 = 31, "Update_rows";
    DELETE_ROWS_V2 = 32, "Delete_rows";
    GTID = 33, "Gtid";
    ANONYMOUS_GTID = 34, "Anonymous_Gtid";
    PREVIOUS_GTIDS = 35, "Previous_gtids";
    TRANSACTION_CONTEXT = 36, "Transaction_context";
    VIEW_CHANGE = 37, "View_change";
    XA_PREPARE = 38, "XA_prepare";
    PARTIAL_UPDATE_ROWS = 39, "Update_rows_partial";
    TRANSACTION_PAYLOAD = 40, "Transaction_payload";
    HEARTBEAT_V2 = 41, "Heartbeat_v2";
    GTID_TAGGED = 42, "Gtid_tagged_log_event";
    MARIADB_ANNOTATE_ROWS = 160, "Annotate_rows";
    MARIADB_BINLOG_CHECKPOINT = 161, "Binlog_checkpoint";
    MARIADB_GTID = 162, "Gtid (MariaDB)";
    MARIADB_GTID_LIST = 163, "Gtid_list";
    MARIADB_START_ENCRYPTION = 164, "Start_encryption";
    MARIADB_QUERY_COMPRESSED = 165, "Query_compressed";
    MARIADB_WRITE_ROWS_COMPRESSED_V1 = 166, "Write_rows_compressed_v1";
    MARIADB_UPDATE_ROWS_COMPRESSED_V1 = 167, "Update_rows_compressed_v1";
    MARIADB_DELETE_ROWS_COMPRESSED_V1 = 168, "Delete_rows_compressed_v1";
    MARIADB_WRITE_ROWS_COMPRESSED = 169, "Write_rows_compressed";
    MARIADB_UPDATE_ROWS_COMPRESSED = 170, "Update_rows_compressed";
    MARIADB_DELETE_ROWS_COMPRESSED = 171, "Delete_rows_compressed";
    MARIADB_PARTIAL_ROW_DATA = 172, "Partial_row_data";
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Unknown({})", self.0),
        }
    }
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} [{}]", self.0)
    }
}
