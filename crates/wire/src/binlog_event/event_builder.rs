//! Builds binlog events for the binlog server's streams and for tests.

use super::checksum::{CHECKSUM_BYTES, ChecksumAlgorithm, compute_checksum};
use super::event_header::{EVENT_HEADER_BYTES, EventHeader, EventType};
use super::format_description::FormatDescription;
use super::mariadb_gtid_event::MariadbGtidEvent;
use super::mysql_gtid_event::GtidEvent;
use super::query_event::QueryEvent;
use super::rotate_and_heartbeat_event::{Heartbeat, Rotate};
use crate::gtid::{MariadbGtidList, MysqlGtidSet};
use crate::{ServerId, WireError};

/// Builds consecutive events of a binlog file. Each has a header, an end position and a checksum.
#[derive(Debug, Clone)]
pub struct EventBuilder {
    /// The `server_id` in the header of the next event.
    pub server_id: ServerId,
    /// The timestamp in the header of the next event, in seconds since 1970.
    pub timestamp: u32,
    checksum: ChecksumAlgorithm,
    position: u64,
}

impl EventBuilder {
    /// Creates a builder whose first event directly follows the magic bytes of a file.
    pub fn new(server_id: ServerId, checksum: ChecksumAlgorithm) -> Self {
        Self { server_id, timestamp: 0, checksum, position: 4 }
    }

    /// Sets the offset of the next event in its file.
    #[must_use]
    pub fn at(mut self, position: u64) -> Self {
        self.position = position;
        self
    }

    /// Returns the offset of the next event in its file, in bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Builds the next event of the file. Its end position wraps at 4 GiB, as in the servers.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] if the event would be 4 GiB or longer. All other methods return the same
    /// error.
    pub fn event(&mut self, event_type: EventType, flags: u16, body: &[u8]) -> Result<Vec<u8>, WireError> {
        let length = self.length(event_type, body)?;
        self.position += u64::from(length);
        self.build(event_type, flags, self.position as u32, length, body)
    }

    /// Builds an artificial event, which is not in a file.
    pub fn artificial(&mut self, event_type: EventType, body: &[u8]) -> Result<Vec<u8>, WireError> {
        let length = self.length(event_type, body)?;
        self.build(event_type, EventHeader::FLAG_ARTIFICIAL, 0, length, body)
    }

    /// Builds the format description event, the first of a file. Its checksum algorithm applies to all
    /// following events.
    pub fn format_description(
        &mut self,
        format: &FormatDescription,
        flags: u16,
    ) -> Result<Vec<u8>, WireError> {
        self.checksum = format.checksum.unwrap_or(ChecksumAlgorithm::Off);
        self.event(EventType::FORMAT_DESCRIPTION, flags, &format.to_body())
    }

    /// Builds the rotate event that ends a file.
    pub fn rotate(&mut self, rotate: Rotate<'_>) -> Result<Vec<u8>, WireError> {
        self.event(EventType::ROTATE, 0, &rotate.to_body())
    }

    /// Builds the artificial rotate event that begins a stream and names the file.
    pub fn fake_rotate(&mut self, rotate: Rotate<'_>) -> Result<Vec<u8>, WireError> {
        self.artificial(EventType::ROTATE, &rotate.to_body())
    }

    /// Builds a query event, which holds a statement.
    pub fn query(&mut self, query: &QueryEvent<'_>) -> Result<Vec<u8>, WireError> {
        self.event(EventType::QUERY, 0, &query.to_body())
    }

    /// Builds the event that commits a transaction.
    pub fn xid(&mut self, xid: u64) -> Result<Vec<u8>, WireError> {
        self.event(EventType::XID, 0, &xid.to_le_bytes())
    }

    /// Builds the event that opens a MySQL transaction. Without a GTID the transaction is anonymous.
    ///
    /// # Errors
    /// [`WireError::Unsupported`] for a GTID with a tag, and [`WireError::TooLarge`].
    pub fn gtid(&mut self, gtid: &GtidEvent) -> Result<Vec<u8>, WireError> {
        match &gtid.gtid {
            Some(named) if !named.tag.is_empty() => {
                Err(WireError::unsupported("gtid event", "a GTID with a tag cannot be written"))
            }
            Some(_) => self.event(EventType::GTID, 0, &gtid.to_body()),
            None => self.event(EventType::ANONYMOUS_GTID, 0, &gtid.to_body()),
        }
    }

    /// Builds a GTID event, which starts a MariaDB event group. The common event header gets the `server_id`
    /// of the GTID.
    pub fn mariadb_gtid(&mut self, gtid: &MariadbGtidEvent<'_>) -> Result<Vec<u8>, WireError> {
        let server_id = std::mem::replace(&mut self.server_id, ServerId(gtid.gtid.server_id));
        let event = self.event(EventType::MARIADB_GTID, 0, &gtid.to_body());
        self.server_id = server_id;
        event
    }

    /// Builds MySQL's previous GTIDs event, the second event of a file.
    pub fn previous_gtids(&mut self, gtids: &MysqlGtidSet) -> Result<Vec<u8>, WireError> {
        self.event(EventType::PREVIOUS_GTIDS, EventHeader::FLAG_IGNORABLE, &gtids.encode())
    }

    /// Builds MariaDB's GTID list event, at the start of a file.
    pub fn mariadb_gtid_list(&mut self, list: &MariadbGtidList) -> Result<Vec<u8>, WireError> {
        self.event(EventType::MARIADB_GTID_LIST, 0, &list.encode()?)
    }

    /// Builds a heartbeat of version 1, which all replicas understand.
    pub fn heartbeat(&mut self, heartbeat: Heartbeat<'_>) -> Result<Vec<u8>, WireError> {
        let body = heartbeat.to_body_v1();
        let length = self.length(EventType::HEARTBEAT, &body)?;
        let position = u32::try_from(heartbeat.position).unwrap_or(0);
        self.build(EventType::HEARTBEAT, 0, position, length, &body)
    }

    /// Builds a heartbeat of version 2, for replicas that requested this version (MySQL 8.0.26 and later).
    pub fn heartbeat_v2(&mut self, heartbeat: Heartbeat<'_>) -> Result<Vec<u8>, WireError> {
        let body = heartbeat.to_body_v2();
        let length = self.length(EventType::HEARTBEAT_V2, &body)?;
        self.build(EventType::HEARTBEAT_V2, 0, heartbeat.position as u32, length, &body)
    }

    /// Builds the stop event, which ends the last file of a server that shuts down.
    pub fn stop(&mut self) -> Result<Vec<u8>, WireError> {
        self.event(EventType::STOP, 0, &[])
    }

    /// Returns whether an event of this type has a checksum. A format description event always has one.
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
