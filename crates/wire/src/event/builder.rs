//! Builds events, for the binlog server's streams and for tests.

use super::checksum::{CHECKSUM_BYTES, ChecksumAlgorithm, compute_checksum};
use super::format_description::FormatDescription;
use super::gtid::GtidEvent;
use super::header::{EVENT_HEADER_BYTES, EventHeader, EventType};
use super::mariadb_gtid::MariadbGtidEvent;
use super::query::QueryEvent;
use super::rotate::{Heartbeat, Rotate};
use crate::gtid::{MariadbGtidList, MysqlGtidSet};
use crate::{ServerId, WireError};

/// Builds consecutive events with header, end position and checksum.
#[derive(Debug, Clone)]
pub struct EventBuilder {
    /// Written into the next event.
    pub server_id: ServerId,
    /// Written into the next event, in seconds since 1970.
    pub timestamp: u32,
    checksum: ChecksumAlgorithm,
    position: u64,
}

impl EventBuilder {
    /// The first event follows the magic of a file.
    pub fn new(server_id: ServerId, checksum: ChecksumAlgorithm) -> Self {
        Self { server_id, timestamp: 0, checksum, position: 4 }
    }

    /// Sets the offset of the next event in its file.
    #[must_use]
    pub fn at(mut self, position: u64) -> Self {
        self.position = position;
        self
    }

    /// The offset of the next event in its file, in bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// An event of the file. Its end position wraps at 4 GiB, as in the servers.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] if the event would be 4 GiB or longer; the same for all other methods.
    pub fn event(&mut self, event_type: EventType, flags: u16, body: &[u8]) -> Result<Vec<u8>, WireError> {
        let length = self.length(event_type, body)?;
        self.position += u64::from(length);
        self.build(event_type, flags, self.position as u32, length, body)
    }

    /// An artificial event, which is not in a file.
    pub fn artificial(&mut self, event_type: EventType, body: &[u8]) -> Result<Vec<u8>, WireError> {
        let length = self.length(event_type, body)?;
        self.build(event_type, EventHeader::FLAG_ARTIFICIAL, 0, length, body)
    }

    /// The head of a file. Its checksum algorithm applies from here on.
    pub fn format_description(
        &mut self,
        format: &FormatDescription,
        flags: u16,
    ) -> Result<Vec<u8>, WireError> {
        self.checksum = format.checksum.unwrap_or(ChecksumAlgorithm::Off);
        self.event(EventType::FORMAT_DESCRIPTION, flags, &format.to_body())
    }

    /// Ends a file.
    pub fn rotate(&mut self, rotate: Rotate<'_>) -> Result<Vec<u8>, WireError> {
        self.event(EventType::ROTATE, 0, &rotate.to_body())
    }

    /// The artificial rotate event that begins a stream and names its file.
    pub fn fake_rotate(&mut self, rotate: Rotate<'_>) -> Result<Vec<u8>, WireError> {
        self.artificial(EventType::ROTATE, &rotate.to_body())
    }

    /// A statement.
    pub fn query(&mut self, query: &QueryEvent<'_>) -> Result<Vec<u8>, WireError> {
        self.event(EventType::QUERY, 0, &query.to_body())
    }

    /// Commits.
    pub fn xid(&mut self, xid: u64) -> Result<Vec<u8>, WireError> {
        self.event(EventType::XID, 0, &xid.to_le_bytes())
    }

    /// Opens a MySQL transaction; anonymous without a GTID.
    ///
    /// # Errors
    /// [`WireError::Unsupported`] for a GTID with a tag, and [`WireError::TooLarge`].
    pub fn gtid(&mut self, gtid: &GtidEvent) -> Result<Vec<u8>, WireError> {
        match &gtid.gtid {
            Some(named) if !named.tag.is_empty() => {
                Err(WireError::unsupported("gtid event", "writing a tagged GTID"))
            }
            Some(_) => self.event(EventType::GTID, 0, &gtid.to_body()),
            None => self.event(EventType::ANONYMOUS_GTID, 0, &gtid.to_body()),
        }
    }

    /// Starts a MariaDB event group with a GTID event. The common event header gets the `server_id` of the
    /// GTID.
    pub fn mariadb_gtid(&mut self, gtid: &MariadbGtidEvent<'_>) -> Result<Vec<u8>, WireError> {
        let server_id = std::mem::replace(&mut self.server_id, ServerId(gtid.gtid.server_id));
        let event = self.event(EventType::MARIADB_GTID, 0, &gtid.to_body());
        self.server_id = server_id;
        event
    }

    /// The event at the head of MySQL's files.
    pub fn previous_gtids(&mut self, gtids: &MysqlGtidSet) -> Result<Vec<u8>, WireError> {
        self.event(EventType::PREVIOUS_GTIDS, EventHeader::FLAG_IGNORABLE, &gtids.encode())
    }

    /// The event at the head of MariaDB's files.
    pub fn mariadb_gtid_list(&mut self, list: &MariadbGtidList) -> Result<Vec<u8>, WireError> {
        self.event(EventType::MARIADB_GTID_LIST, 0, &list.encode()?)
    }

    /// A heartbeat in the form that all replicas understand.
    pub fn heartbeat(&mut self, heartbeat: Heartbeat<'_>) -> Result<Vec<u8>, WireError> {
        let body = heartbeat.to_body_v1();
        let length = self.length(EventType::HEARTBEAT, &body)?;
        let position = u32::try_from(heartbeat.position).unwrap_or(0);
        self.build(EventType::HEARTBEAT, 0, position, length, &body)
    }

    /// A heartbeat in the second form, for replicas that requested it (MySQL 8.0.26 and later).
    pub fn heartbeat_v2(&mut self, heartbeat: Heartbeat<'_>) -> Result<Vec<u8>, WireError> {
        let body = heartbeat.to_body_v2();
        let length = self.length(EventType::HEARTBEAT_V2, &body)?;
        self.build(EventType::HEARTBEAT_V2, 0, heartbeat.position as u32, length, &body)
    }

    /// The end of the last file of a server that stops.
    pub fn stop(&mut self) -> Result<Vec<u8>, WireError> {
        self.event(EventType::STOP, 0, &[])
    }

    /// Whether an event of this type has a checksum: a format description always has one.
    fn has_checksum(&self, event_type: EventType) -> bool {
        self.checksum == ChecksumAlgorithm::Crc32 || event_type == EventType::FORMAT_DESCRIPTION
    }

    fn length(&self, event_type: EventType, body: &[u8]) -> Result<u32, WireError> {
        let checksum = if self.has_checksum(event_type) { CHECKSUM_BYTES } else { 0 };
        let length = EVENT_HEADER_BYTES + body.len() + checksum;
        u32::try_from(length).map_err(|_| WireError::TooLarge {
            what: "event",
            size: length as u64,
            size_max: u64::from(u32::MAX),
        })
    }

    fn build(
        &self,
        event_type: EventType,
        flags: u16,
        end_log_pos: u32,
        event_length: u32,
        body: &[u8],
    ) -> Result<Vec<u8>, WireError> {
        let header = EventHeader {
            timestamp: self.timestamp,
            event_type,
            server_id: self.server_id,
            event_length,
            end_log_pos,
            flags,
        };
        let mut event = Vec::with_capacity(event_length as usize);
        event.extend_from_slice(&header.to_bytes());
        event.extend_from_slice(body);
        if self.has_checksum(event_type) {
            let checksum = compute_checksum(&event);
            event.extend_from_slice(&checksum.to_le_bytes());
        }
        Ok(event)
    }
}
