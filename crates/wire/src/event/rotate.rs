//! Events that name a position in a binlog file: rotate and the two heartbeats.

use super::format_description::FormatDescription;
use super::header::{EventHeader, EventType};
use crate::WireError;
use crate::cursor::{ByteCursor, put_lenenc_bytes, put_lenenc_int};

/// The longest file name that servers allow in these events, in bytes (their `FN_REFLEN`).
pub const BINLOG_FILE_NAME_BYTES_MAX: usize = 512;

/// `ROTATE_EVENT`: the stream continues in another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotate<'a> {
    /// Offset in the next file; always 4 except in the artificial rotate event that begins a stream.
    pub position: u64,
    /// The next file's name, without folder.
    pub file_name: &'a [u8],
}

impl<'a> Rotate<'a> {
    /// Parses the body without checksum.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if it ends early, [`WireError::Malformed`] if there is no name or a far too
    /// long one.
    pub fn parse(body: &'a [u8], format: &FormatDescription) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("rotate event", body);
        let fixed = format.post_header_length_of(EventType::ROTATE, 8)?;
        let position = cursor.u64()?;
        cursor.skip(fixed - 8)?;
        Ok(Self { position, file_name: file_name("rotate event", cursor.rest())? })
    }

    /// The body's bytes without checksum.
    pub fn to_body(&self) -> Vec<u8> {
        let mut body = self.position.to_le_bytes().to_vec();
        body.extend_from_slice(self.file_name);
        body
    }
}

/// `HEARTBEAT_LOG_EVENT` and `HEARTBEAT_LOG_EVENT_V2`: no event for a while; the source's current position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    /// The file the source is sending, without folder.
    pub file_name: &'a [u8],
    /// The offset in the file.
    pub position: u64,
}

impl<'a> Heartbeat<'a> {
    const V2_END: u64 = 0;
    const V2_FILE_NAME: u64 = 1;
    const V2_POSITION: u64 = 2;

    /// Parses the body without checksum of the first version.
    ///
    /// If the position does not fit the header, MariaDB writes 0 there and the position before the name.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if it ends early, [`WireError::Malformed`] if there is no name or a far too
    /// long one.
    pub fn parse_v1(header: &EventHeader, body: &'a [u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("heartbeat", body);
        let position = match header.end_log_pos {
            0 => cursor.u64()?,
            position => u64::from(position),
        };
        Ok(Self { file_name: file_name("heartbeat", cursor.rest())?, position })
    }

    /// Parses the body without checksum of the second version: fields of type, length, value.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if it ends early, [`WireError::Malformed`] if there is no file name.
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
                // Future fields: each has its length, so that readers can skip it.
                _ => drop(cursor.lenenc_bytes()?),
            }
        }
        file_name(WHAT, heartbeat.file_name)?;
        Ok(heartbeat)
    }

    /// The body without checksum in the first version. The position belongs in the header; if it does not fit
    /// there, the header must have 0.
    pub fn to_body_v1(&self) -> Vec<u8> {
        let mut body = Vec::new();
        if self.position > u64::from(u32::MAX) {
            body.extend_from_slice(&self.position.to_le_bytes());
        }
        body.extend_from_slice(self.file_name);
        body
    }

    /// The body's bytes without checksum in the second version.
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
        0 => Err(WireError::malformed(what, "no file name")),
        length if length > BINLOG_FILE_NAME_BYTES_MAX => Err(WireError::TooLarge {
            what: "binlog file name",
            size: length as u64,
            size_max: BINLOG_FILE_NAME_BYTES_MAX as u64,
        }),
        _ => Ok(name),
    }
}
