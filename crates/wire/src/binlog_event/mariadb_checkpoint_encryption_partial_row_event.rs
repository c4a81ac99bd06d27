//! MariaDB's events that describe a binlog file, and the fragments of large row events.

use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// Parses the body, without its checksum, of a `BINLOG_CHECKPOINT_EVENT` (161). Returns the name of the
/// oldest binlog file that the source would need for crash recovery.
///
/// # Errors
/// [`WireError::Truncated`] if the name ends early.
pub fn parse_binlog_checkpoint(body: &[u8]) -> Result<&[u8], WireError> {
    let mut cursor = ByteCursor::new("binlog checkpoint event", body);
    let length = cursor.u32()? as usize;
    cursor.bytes(length)
}

/// `START_ENCRYPTION_EVENT` (164): the rest of the file is encrypted. A source decrypts the events before it
/// sends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartEncryption {
    /// The encryption scheme. Servers use only 1.
    pub scheme: u8,
    /// The version of the encryption key.
    pub key_version: u32,
    /// The nonce of the file.
    pub nonce: [u8; 12],
}

impl StartEncryption {
    /// Parses the event body, which must not include the checksum.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than 17 bytes.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("start encryption event", body);
        Ok(Self { scheme: cursor.u8()?, key_version: cursor.u32()?, nonce: cursor.array()? })
    }
}

/// `PARTIAL_ROW_DATA_EVENT` (172, MariaDB 12.3 and later): a fragment of a row event that is too large for
/// one packet.
///
/// The fragments of a row event are consecutive. Their concatenated data is the row event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialRowData<'a> {
    /// The number of fragments of the row event.
    pub fragments: u32,
    /// The number of this fragment, counted from 1.
    pub fragment: u32,
    /// In the first fragment: the length of the row event in bytes.
    pub event_bytes: Option<u64>,
    /// The bytes of the fragment.
    pub data: &'a [u8],
}

impl<'a> PartialRowData<'a> {
    const FLAG_EVENT_BYTES: u8 = 1;

    /// Parses the event body, which must not include the checksum.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Malformed`] if the fragment number is out of range;
    /// [`WireError::Unsupported`] for unknown flags, because they may add fields.
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        const WHAT: &str = "partial row data event";
        let mut cursor = ByteCursor::new(WHAT, body);
        let (fragments, fragment) = (cursor.u32()?, cursor.u32()?);
        if !(1..=fragments).contains(&fragment) {
            return Err(WireError::malformed(
                WHAT,
                format!("the event is fragment {fragment} of {fragments}"),
            ));
        }
        let event_bytes = match cursor.u8()? {
            0 => None,
            Self::FLAG_EVENT_BYTES => Some(cursor.u64()?),
            flags => {
                return Err(WireError::unsupported(
                    WHAT,
                    format!("the event's flags {flags:#04x} are unknown"),
                ));
            }
        };
        Ok(Self { fragments, fragment, event_bytes, data: cursor.rest() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_is_parsed_with_its_number() {
        let first = b"\x02\0\0\0\x01\0\0\0\x01\x0a\0\0\0\0\0\0\0abcd";
        let parsed = PartialRowData::parse(first).unwrap();
        let expected = PartialRowData { fragments: 2, fragment: 1, event_bytes: Some(10), data: b"abcd" };
        assert_eq!(parsed, expected);
        let last = PartialRowData::parse(b"\x02\0\0\0\x02\0\0\0\0efghij").unwrap();
        assert_eq!((last.event_bytes, last.data), (None, &b"efghij"[..]));
        assert!(PartialRowData::parse(b"\x02\0\0\0\x03\0\0\0\0x").is_err());
        assert!(PartialRowData::parse(b"\x02\0\0\0\0\0\0\0\0x").is_err());
        assert!(matches!(
            PartialRowData::parse(b"\x02\0\0\0\x01\0\0\0\x02x"),
            Err(WireError::Unsupported { .. })
        ));
    }
}
