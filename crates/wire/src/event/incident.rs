//! `INCIDENT_EVENT`: the source lost something, so a replica must stop.

use crate::WireError;
use crate::cursor::ByteCursor;

/// Something that the binlog does not hold happened to the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incident<'a> {
    /// What happened; servers know only [`Incident::LOST_EVENTS`].
    pub kind: u16,
    /// The server's words.
    pub message: &'a [u8],
}

impl<'a> Incident<'a> {
    /// Events may be missing.
    pub const LOST_EVENTS: u16 = 1;

    /// Parses the body without checksum.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if it ends early.
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("incident event", body);
        let kind = cursor.u16()?;
        let length = usize::from(cursor.u8()?);
        Ok(Self { kind, message: cursor.bytes(length)? })
    }
}
