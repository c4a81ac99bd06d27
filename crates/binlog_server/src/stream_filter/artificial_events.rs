//! Artificial events: servers add them to a stream, but they are in no binlog file. This module also changes
//! the few events of a binlog file that servers change before they send them.

use tailwater_wire::binlog_event::checksum::compute_checksum;
use tailwater_wire::binlog_event::{
    CHECKSUM_BYTES, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription, Heartbeat, Rotate,
};
use tailwater_wire::gtid::MariadbGtidList;
use tailwater_wire::{Flavour, ServerId, WireError};

/// The offset in a format description event of the time at which the server started.
const CREATED_OFFSET: usize = EVENT_HEADER_BYTES + 2 + 50;

/// Builds artificial events with a given server id.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArtificialEventBuilder {
    pub server_id: ServerId,
    /// Whether the events get a checksum.
    pub checksum: bool,
}

impl ArtificialEventBuilder {
    /// A rotate event that announces the file and the offset of the next event.
    pub fn rotate(self, file: &str, position: u64) -> Vec<u8> {
        let body = Rotate { position, file_name: file.as_bytes() }.to_body();
        self.event(EventType::ROTATE, EventHeader::FLAG_ARTIFICIAL, 0, &body)
    }

    /// A heartbeat event that announces the stream's offset in a file. Heartbeats of version 1 have only 32
    /// bits for the offset. Beyond 4 GiB, MySQL sends the low 32 bits of the offset.
    pub fn heartbeat(self, flavour: Flavour, v2: bool, file: &str, position: u64) -> Vec<u8> {
        let heartbeat = Heartbeat { file_name: file.as_bytes(), position };
        match (v2, flavour) {
            (true, _) => self.event(EventType::HEARTBEAT_V2, 0, position as u32, &heartbeat.to_body_v2()),
            (false, Flavour::MySql) => self.event(EventType::HEARTBEAT, 0, position as u32, file.as_bytes()),
            (false, Flavour::MariaDb) => {
                let in_header = u32::try_from(position).unwrap_or(0);
                self.event(EventType::HEARTBEAT, 0, in_header, &heartbeat.to_body_v1())
            }
        }
    }

    /// For MariaDB: a GTID list event with the GTIDs that the stream has passed.
    pub fn gtid_list(self, list: &MariadbGtidList, position: u64) -> Result<Vec<u8>, WireError> {
        let body = list.encode()?;
        Ok(self.event(EventType::MARIADB_GTID_LIST, EventHeader::FLAG_ARTIFICIAL, position as u32, &body))
    }

    fn event(self, event_type: EventType, flags: u16, end_log_pos: u32, body: &[u8]) -> Vec<u8> {
        let trailer = if self.checksum { CHECKSUM_BYTES } else { 0 };
        let header = EventHeader {
            timestamp: 0,
            event_type,
            server_id: self.server_id,
            event_length: (EVENT_HEADER_BYTES + body.len() + trailer) as u32,
            end_log_pos,
            flags,
        };
        sealed(&header, body, self.checksum)
    }
}

fn sealed(header: &EventHeader, body: &[u8], checksum: bool) -> Vec<u8> {
    let mut event = Vec::with_capacity(header.event_length as usize);
    event.extend_from_slice(&header.to_bytes());
    event.extend_from_slice(body);
    if checksum {
        let checksum = compute_checksum(&event);
        event.extend_from_slice(&checksum.to_le_bytes());
    }
    event
}

/// The fields that are cleared in a format description event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClearedFields {
    /// No field: the client has never received this event.
    Nothing,
    /// The server's start time. A replica that receives a start time drops its temporary tables.
    Created,
    /// The server's start time and the event's end position. Used if the next events of the stream are not at
    /// the beginning of the file.
    CreatedAndPlace,
}

/// Makes the format description event for the beginning of a stream or file from the event's bytes in the
/// log.
pub(super) fn format_description(
    event: &[u8],
    format: &FormatDescription,
    cleared: ClearedFields,
) -> Vec<u8> {
    let mut event = event.to_vec();
    if cleared == ClearedFields::Nothing {
        return event;
    }
    if cleared == ClearedFields::CreatedAndPlace
        && let Some(place) = event.get_mut(13..17)
    {
        place.fill(0);
    }
    if let Some(created) = event.get_mut(CREATED_OFFSET..CREATED_OFFSET + 4) {
        created.fill(0);
    }
    if format.checksum.is_some()
        && let Some((body, trailer)) = event.split_last_chunk_mut::<CHECKSUM_BYTES>()
    {
        *trailer = compute_checksum(body).to_le_bytes();
    }
    event
}

/// Changes the file name in a rotate event of the log.
pub(super) fn renamed_rotate(
    header: &EventHeader,
    rotate: &Rotate<'_>,
    name: &str,
    checksum: bool,
) -> Vec<u8> {
    let body = Rotate { position: rotate.position, file_name: name.as_bytes() }.to_body();
    let trailer = if checksum { CHECKSUM_BYTES } else { 0 };
    let event_length = (EVENT_HEADER_BYTES + body.len() + trailer) as u32;
    sealed(&EventHeader { event_length, ..*header }, &body, checksum)
}
