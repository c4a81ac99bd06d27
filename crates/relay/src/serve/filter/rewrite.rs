//! Events that are made up for a stream, and the few of the log that are changed on the way out.

use tailwater_wire::event::{
    CHECKSUM_BYTES, ChecksumAlgorithm, EVENT_HEADER_BYTES, EventBuilder, EventHeader, FormatDescription,
    Heartbeat, Rotate, compute_checksum,
};
use tailwater_wire::gtid::{MariadbBinlogState, MariadbGtidList};
use tailwater_wire::{ServerId, WireError};

/// Where `created` stands in a format description event: behind binlog version and server version.
const CREATED_OFFSET: usize = EVENT_HEADER_BYTES + 2 + 50;
/// Where the end position stands in an event's header.
const END_LOG_POS_OFFSET: usize = 13;
/// Where the length stands in an event's header.
const LENGTH_OFFSET: usize = 9;

/// Names the file that follows, and the offset in it.
///
/// # Errors
/// [`WireError::TooLarge`], never for a name that a file can have.
pub fn artificial_rotate(
    server_id: u32,
    checksum: ChecksumAlgorithm,
    file: &str,
    position: u64,
) -> Result<Vec<u8>, WireError> {
    let rotate = Rotate { position, file_name: file.as_bytes() };
    EventBuilder::new(ServerId(server_id), checksum).fake_rotate(rotate)
}

/// Says that the stream is alive and stands at an offset of a file.
///
/// # Errors
/// As [`artificial_rotate`].
pub fn heartbeat(
    server_id: u32,
    checksum: ChecksumAlgorithm,
    second_form: bool,
    file: &str,
    position: u64,
) -> Result<Vec<u8>, WireError> {
    let heartbeat = Heartbeat { file_name: file.as_bytes(), position };
    let mut builder = EventBuilder::new(ServerId(server_id), checksum);
    if second_form { builder.heartbeat_v2(heartbeat) } else { builder.heartbeat(heartbeat) }
}

/// MariaDB: says where in each domain the stream stands; with `until_reached`, that it has come to its end.
///
/// # Errors
/// As [`artificial_rotate`].
pub fn gtid_list(
    server_id: u32,
    checksum: ChecksumAlgorithm,
    state: &MariadbBinlogState,
    until_reached: bool,
    position: u64,
) -> Result<Vec<u8>, WireError> {
    let mut list = state.to_list();
    if until_reached {
        list.flags |= MariadbGtidList::FLAG_UNTIL_REACHED;
    }
    let mut builder = EventBuilder::new(ServerId(server_id), checksum);
    let mut event =
        builder.artificial(tailwater_wire::event::EventType::MARIADB_GTID_LIST, &list.encode()?)?;
    set_u32(&mut event, END_LOG_POS_OFFSET, position as u32);
    seal(&mut event, checksum);
    Ok(event)
}

/// Changes the format description event at the head of a stream or of a file. With `in_mid_file` it does not stand where
/// the client is, so it must not move the client's position; with that or `resumes`, the client has temporary tables that
/// the event would drop.
pub fn head(event: &mut [u8], format: &FormatDescription, in_mid_file: bool, resumes: bool) {
    if !in_mid_file && !resumes {
        return;
    }
    if in_mid_file {
        set_u32(event, END_LOG_POS_OFFSET, 0);
    }
    set_u32(event, CREATED_OFFSET, 0);
    // A server that knows of checksums puts one on this event whatever the algorithm says.
    if format.checksum.is_some() {
        seal(event, ChecksumAlgorithm::Crc32);
    }
}

/// A rotate event of the log with the name under which the next file is served.
///
/// # Errors
/// What is wrong with the event.
pub fn renamed_rotate(
    event: &[u8],
    format: &FormatDescription,
    rename: impl FnOnce(&str) -> String,
) -> Result<Vec<u8>, WireError> {
    let header = EventHeader::parse(event)?;
    let body_end = event.len().saturating_sub(format.trailer_bytes(&header));
    let body = event.get(EVENT_HEADER_BYTES..body_end).unwrap_or_default();
    let rotate = Rotate::parse(body, format)?;
    let name = rename(&String::from_utf8_lossy(rotate.file_name));
    let body = Rotate { position: rotate.position, file_name: name.as_bytes() }.to_body();
    let checksum = format.checksum.unwrap_or(ChecksumAlgorithm::Off);
    let mut renamed = header.to_bytes().to_vec();
    renamed.extend_from_slice(&body);
    renamed.resize(renamed.len() + checksum.trailer_bytes(), 0);
    let length = renamed.len() as u32;
    set_u32(&mut renamed, LENGTH_OFFSET, length);
    seal(&mut renamed, checksum);
    Ok(renamed)
}

fn set_u32(event: &mut [u8], offset: usize, value: u32) {
    if let Some(bytes) = event.get_mut(offset..offset + 4) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// Puts the right checksum at the end of an event that has room for one.
fn seal(event: &mut [u8], checksum: ChecksumAlgorithm) {
    if checksum == ChecksumAlgorithm::Off || event.len() < EVENT_HEADER_BYTES + CHECKSUM_BYTES {
        return;
    }
    let end = event.len() - CHECKSUM_BYTES;
    let sum = compute_checksum(&event[..end]);
    event[end..].copy_from_slice(&sum.to_le_bytes());
}
