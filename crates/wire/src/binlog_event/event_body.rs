//! All event bodies as typed values.

use super::checksum::{strip_checksum, verify_checksum};
use super::event_header::{EVENT_HEADER_BYTES, EventHeader, EventType};
use super::format_description::FormatDescription;
use super::incident_event::Incident;
use super::intvar_rand_user_var_event::{IntVar, RandSeeds, UserVar};
use super::load_data_event::{ExecuteLoadQuery, LoadBlock, parse_delete_file};
use super::mariadb_checkpoint_encryption_partial_row_event::{
    PartialRowData, StartEncryption, parse_binlog_checkpoint,
};
use super::mariadb_gtid_event::MariadbGtidEvent;
use super::mysql_gtid_event::GtidEvent;
use super::query_event::QueryEvent;
use super::rotate_and_heartbeat_event::{Heartbeat, Rotate};
use super::rows_event::{RowsEvent, layout};
use super::transaction_payload_event::TransactionPayload;
use super::xid_and_xa_prepare_event::{XaPrepare, parse_xid_event};
use crate::WireError;
use crate::gtid::{MariadbGtidList, MysqlGtidSet};

/// A complete event.
#[derive(Debug, Clone, PartialEq)]
pub struct BinlogEvent<'a> {
    /// The header of the event.
    pub header: EventHeader,
    /// The body: everything after the header, without the checksum.
    pub body: EventBody<'a>,
}

impl<'a> BinlogEvent<'a> {
    /// Parses a complete event, and verifies its checksum if `format` has one.
    ///
    /// A format description event describes itself: `format` is ignored for it.
    ///
    /// # Errors
    /// [`WireError::Checksum`]; [`WireError::Malformed`] if the event does not have its stated length;
    /// otherwise as [`EventBody::parse`].
    pub fn parse(bytes: &'a [u8], format: &FormatDescription) -> Result<Self, WireError> {
        let header = EventHeader::parse(bytes)?;
        if header.event_length as usize != bytes.len() {
            let reason =
                format!("the event has {} bytes, but its header states {}", bytes.len(), header.event_length);
            return Err(WireError::malformed("event", reason));
        }
        let behind_header = &bytes[EVENT_HEADER_BYTES..];
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            let own = FormatDescription::parse(behind_header)?;
            if own.has_checksums() {
                verify_checksum(bytes)?;
            }
            return Ok(Self { header, body: EventBody::FormatDescription(own) });
        }
        let body = if format.has_checksums() {
            verify_checksum(bytes)?;
            strip_checksum(behind_header)?
        } else {
            behind_header
        };
        Ok(Self { header, body: EventBody::parse(&header, body, format)? })
    }
}

/// The body of an event.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum EventBody<'a> {
    /// The first event of a file: the server that wrote it and the format of the events.
    FormatDescription(FormatDescription),
    /// The stream continues in another file.
    Rotate(Rotate<'a>),
    /// The server stopped, so the file ends.
    Stop,
    /// A statement, plain or compressed.
    Query(QueryEvent<'a>),
    /// Commits a transaction. The number identifies the transaction in the storage engines.
    Xid(u64),
    /// An auto-increment value for the next statement.
    IntVar(IntVar),
    /// The seeds of `RAND()` for the next statement.
    Rand(RandSeeds),
    /// A user variable for the next statement.
    UserVar(UserVar<'a>),
    /// The first block of a file that `LOAD DATA` loads.
    BeginLoadQuery(LoadBlock<'a>),
    /// A later block of a file that `LOAD DATA` loads.
    AppendBlock(LoadBlock<'a>),
    /// The `LOAD DATA` statement.
    ExecuteLoadQuery(ExecuteLoadQuery<'a>),
    /// The replica can delete the blocks of the loaded file with this id.
    DeleteFile(u32),
    /// The source lost events.
    Incident(Incident<'a>),
    /// The source has no new event to send.
    Heartbeat(Heartbeat<'a>),
    /// The statement that caused the following row events (MySQL).
    RowsQuery(&'a [u8]),
    /// The statement that caused the following row events (MariaDB).
    AnnotateRows(&'a [u8]),
    /// Opens a MySQL transaction. The transaction may have a tagged GTID, or no GTID.
    Gtid(GtidEvent),
    /// The GTIDs of all transactions in the previous files (MySQL).
    PreviousGtids(MysqlGtidSet),
    /// The last event of an XA transaction. It prepares the transaction, or commits it in one phase.
    XaPrepare(XaPrepare<'a>),
    /// The certification data of Group Replication, not decoded.
    TransactionContext(&'a [u8]),
    /// A membership change of Group Replication, not decoded.
    ViewChange(&'a [u8]),
    /// A compressed transaction (MySQL).
    TransactionPayload(TransactionPayload<'a>),
    /// Describes a table. The bytes are not decoded here: see [`crate::row_event`].
    TableMap(&'a [u8]),
    /// Changes rows. The images may be compressed or partial.
    Rows(RowsEvent<'a>),
    /// A fragment of a large row event (MariaDB 12.3 and later).
    PartialRowData(PartialRowData<'a>),
    /// Opens a MariaDB event group.
    MariadbGtid(MariadbGtidEvent<'a>),
    /// The last GTIDs in the previous files (MariaDB).
    MariadbGtidList(MariadbGtidList),
    /// The oldest binlog file that the source would need for crash recovery (MariaDB).
    BinlogCheckpoint(&'a [u8]),
    /// The rest of the file is encrypted (MariaDB).
    StartEncryption(StartEncryption),
    /// An event of unknown type that readers may skip, not decoded.
    Ignorable(&'a [u8]),
}

impl<'a> EventBody<'a> {
    /// Parses the body of an event: everything after the header, without the checksum.
    ///
    /// # Errors
    /// The error of the body's parser. [`WireError::Unsupported`] for an unknown type without the flag that
    /// allows skipping it, and for a type from before MySQL 5.1.
    pub fn parse(
        header: &EventHeader,
        body: &'a [u8],
        format: &FormatDescription,
    ) -> Result<Self, WireError> {
        let event_type = header.event_type;
        Ok(match event_type {
            EventType::FORMAT_DESCRIPTION => {
                Self::FormatDescription(FormatDescription::parse_stripped(body)?)
            }
            EventType::ROTATE => Self::Rotate(Rotate::parse(body, format)?),
            EventType::STOP => Self::Stop,
            EventType::QUERY | EventType::MARIADB_QUERY_COMPRESSED => {
                Self::Query(QueryEvent::parse(event_type, body, format)?)
            }
            EventType::XID => Self::Xid(parse_xid_event(body)?),
            EventType::INTVAR => Self::IntVar(IntVar::parse(body)?),
            EventType::RAND => Self::Rand(RandSeeds::parse(body)?),
            EventType::USER_VAR => Self::UserVar(UserVar::parse(body)?),
            EventType::BEGIN_LOAD_QUERY => Self::BeginLoadQuery(LoadBlock::parse(body)?),
            EventType::APPEND_BLOCK => Self::AppendBlock(LoadBlock::parse(body)?),
            EventType::EXECUTE_LOAD_QUERY => Self::ExecuteLoadQuery(ExecuteLoadQuery::parse(body, format)?),
            EventType::DELETE_FILE => Self::DeleteFile(parse_delete_file(body)?),
            EventType::INCIDENT => Self::Incident(Incident::parse(body)?),
            EventType::HEARTBEAT => Self::Heartbeat(Heartbeat::parse_v1(header, body)?),
            EventType::HEARTBEAT_V2 => Self::Heartbeat(Heartbeat::parse_v2(body)?),
            EventType::ROWS_QUERY => Self::RowsQuery(rows_query(body)?),
            EventType::MARIADB_ANNOTATE_ROWS => Self::AnnotateRows(body),
            EventType::GTID => Self::Gtid(GtidEvent::parse(body, false)?),
            EventType::ANONYMOUS_GTID => Self::Gtid(GtidEvent::parse(body, true)?),
            EventType::GTID_TAGGED => Self::Gtid(GtidEvent::parse_tagged(body)?),
            EventType::PREVIOUS_GTIDS => Self::PreviousGtids(MysqlGtidSet::decode(body)?),
            EventType::XA_PREPARE => Self::XaPrepare(XaPrepare::parse(body)?),
            EventType::TRANSACTION_CONTEXT => Self::TransactionContext(body),
            EventType::VIEW_CHANGE => Self::ViewChange(body),
            EventType::TRANSACTION_PAYLOAD => Self::TransactionPayload(TransactionPayload::parse(body)?),
            EventType::TABLE_MAP => Self::TableMap(body),
            EventType::MARIADB_PARTIAL_ROW_DATA => Self::PartialRowData(PartialRowData::parse(body)?),
            EventType::MARIADB_GTID => Self::MariadbGtid(MariadbGtidEvent::parse(header, body, format)?),
            EventType::MARIADB_GTID_LIST => Self::MariadbGtidList(MariadbGtidList::decode(body)?),
            EventType::MARIADB_BINLOG_CHECKPOINT => Self::BinlogCheckpoint(parse_binlog_checkpoint(body)?),
            EventType::MARIADB_START_ENCRYPTION => Self::StartEncryption(StartEncryption::parse(body)?),
            _ if layout(event_type).is_some() => Self::Rows(RowsEvent::parse(event_type, body, format)?),
            _ if event_type == EventType::IGNORABLE || header.has(EventHeader::FLAG_IGNORABLE) => {
                Self::Ignorable(body)
            }
            _ => return Err(WireError::unsupported("event type", event_type.to_string())),
        })
    }
}

/// Returns the statement of a `ROWS_QUERY_EVENT`.
fn rows_query(body: &[u8]) -> Result<&[u8], WireError> {
    // The first byte is the length of the statement modulo 256. It is useless for longer statements, so
    // ignore it.
    match body.split_first() {
        Some((_, statement)) => Ok(statement),
        None => Err(WireError::Truncated { what: "rows query event", offset: 0, needed: 1 }),
    }
}
