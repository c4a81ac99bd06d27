//! `INCIDENT_EVENT`: the source lost events, so replicas must stop.

use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// An incident on the source: data may have changed without an event in the binlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incident<'a> {
    /// The kind of incident. Servers use only [`Incident::LOST_EVENTS`].
    pub kind: u16,
    /// The message that the server wrote.
    pub message: &'a [u8],
}

impl<'a> Incident<'a> {
    /// Events may be missing from the binlog.
    pub const LOST_EVENTS: u16 = 1;

    /// Parses the event body, which must not include the checksum.
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
