//! Events that name a position in a binlog file: the rotate event and the two heartbeat events.

use super::event_header::{EventHeader, EventType};
use super::format_description::FormatDescription;
use crate::WireError;
use crate::byte_cursor::{ByteCursor, put_lenenc_bytes, put_lenenc_int};

/// The longest file name that servers allow in these events, in bytes (their `FN_REFLEN`).
pub const BINLOG_FILE_NAME_BYTES_MAX: usize = 512;

/// `ROTATE_EVENT`: the stream continues in another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotate<'a> {
    /// The offset at which the next file starts. Always 4, except in the artificial rotate event that begins
    /// a stream.
    pub position: u64,
    /// The name of the next file, without a folder.
    pub file_name: &'a [u8],
}

impl<'a> Rotate<'a> {
    /// Parses the event body, which must not include the checksum.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the body ends early; [`WireError::Malformed`] if the file name is missing
    /// or longer than [`BINLOG_FILE_NAME_BYTES_MAX`].
    pub fn parse(body: &'a [u8], format: &FormatDescription) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("rotate event", body);
        let fixed = format.post_header_length_of(EventType::ROTATE, 8)?;
        let position = cursor.u64()?;
        cursor.skip(fixed - 8)?;
        Ok(Self { position, file_name: file_name("rotate event", cursor.rest())? })
    }

    /// Returns the body without a checksum.
    pub fn to_body(&self) -> Vec<u8> {
        let mut body = self.position.to_le_bytes().to_vec();
        body.extend_from_slice(self.file_name);
        body
    }
}

/// `HEARTBEAT_LOG_EVENT` and `HEARTBEAT_LOG_EVENT_V2`: the source's current position. A source sends a
/// heartbeat if it has had no event to send for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    /// The name of the file that the source is sending, without a folder.
    pub file_name: &'a [u8],
    /// The offset in the file `file_name`.
    pub position: u64,
}

impl<'a> Heartbeat<'a> {
    const V2_END: u64 = 0;
    const V2_FILE_NAME: u64 = 1;
    const V2_POSITION: u64 = 2;

    /// Parses the body of `HEARTBEAT_LOG_EVENT`, without its checksum.
    ///
    /// The position is in the event header. If the position does not fit into the header, MariaDB writes 0
    /// there and puts the position before the file name.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the body ends early; [`WireError::Malformed`] if the file name is missing
    /// or longer than [`BINLOG_FILE_NAME_BYTES_MAX`].
    pub fn parse_v1(header: &EventHeader, body: &'a [u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("heartbeat", body);
        let position = match header.end_log_pos {
            0 => cursor.u64()?,
            position => u64::from(position),
        };
        Ok(Self { file_name: file_name("heartbeat", cursor.rest())?, position })
    }

    /// Parses the body of `HEARTBEAT_LOG_EVENT_V2`, without its checksum: fields of type, length and value.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the body ends early; [`WireError::Malformed`] if there is no file name.
    pub fn parse_v2(body: &'a [u8]) -> Result<Self, WireError> {
        const WHAT: &str = "heartbeat (v2)";
        let mut cursor = ByteCursor::new(WHAT, body);
        let mut heartbeat = Self { file_name: &[], position: 0 };
        while !cursor.is_empty() {
            match cursor.lenenc_int()? {
                Self::V2_END => break,
                Self::V2_FILE_NAME => heartbeat.file_name = cursor.lenenc_bytes()?,
                Self::V2_POSITION => {
                    let mut value = ByteCursor::new(WHAT, cursor.lenenc_bytes()?);
                    heartbeat.position = value.lenenc_int()?;
                }
                // Skip a field of a newer server. Each field states its length.
                _ => drop(cursor.lenenc_bytes()?),
            }
        }
        file_name(WHAT, heartbeat.file_name)?;
        Ok(heartbeat)
    }

    /// Returns the body of `HEARTBEAT_LOG_EVENT`, without a checksum. The caller writes the position into the
    /// header, or 0 if the position does not fit there.
    pub fn to_body_v1(&self) -> Vec<u8> {
        let mut body = Vec::new();
        if self.position > u64::from(u32::MAX) {
            body.extend_from_slice(&self.position.to_le_bytes());
        }
        body.extend_from_slice(self.file_name);
        body
    }

    /// Returns the body of `HEARTBEAT_LOG_EVENT_V2`, without a checksum.
    pub fn to_body_v2(&self) -> Vec<u8> {
        let mut position = Vec::new();
        put_lenenc_int(&mut position, self.position);
        let mut body = Vec::new();
        for (field, value) in [(Self::V2_FILE_NAME, self.file_name), (Self::V2_POSITION, &position)] {
            put_lenenc_int(&mut body, field);
            put_lenenc_bytes(&mut body, value);
        }
        put_lenenc_int(&mut body, Self::V2_END);
        body
    }
}

fn file_name<'a>(what: &'static str, name: &'a [u8]) -> Result<&'a [u8], WireError> {
    match name.len() {
        0 => Err(WireError::malformed(what, "the event has no file name")),
        length if length > BINLOG_FILE_NAME_BYTES_MAX => Err(WireError::TooLarge {
            what: "binlog file name",
            size: length as u64,
            size_max: BINLOG_FILE_NAME_BYTES_MAX as u64,
        }),
        _ => Ok(name),
    }
}
