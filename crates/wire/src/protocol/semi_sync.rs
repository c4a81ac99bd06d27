//! Semi-synchronous replication: the two-byte header before each event, and the ACK (acknowledgement) of a
//! replica.
//!
//! The source decides at the start of the dump whether its packets have the header, and does not announce the
//! decision. The first packet of the stream shows it. This packet holds an artificial rotate event with the
//! timestamp 0. So if there is no header, the first byte is never [`MAGIC`].

use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// The first byte of semi-sync headers and ACKs.
pub const MAGIC: u8 = 0xef;

/// The length of the semi-sync header in bytes.
pub const HEADER_BYTES: usize = 2;

/// The maximum length of a file name in an ACK, in bytes. The receive buffers of MySQL and MariaDB have this
/// limit.
pub const FILE_NAME_BYTES_MAX: usize = 512;

/// The semi-sync header before an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemiSyncHeader {
    /// Whether the source waits with a commit until this event is acknowledged.
    pub ack_requested: bool,
}

impl SemiSyncHeader {
    /// Parses the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Malformed`] if the magic byte is missing.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("semi-sync header", bytes);
        let magic = cursor.u8()?;
        if magic != MAGIC {
            return Err(WireError::malformed(
                "semi-sync header",
                format!("the packet begins with the byte {magic:#04x}"),
            ));
        }
        Ok(Self { ack_requested: cursor.u8()? & 1 != 0 })
    }

    /// Returns the header as bytes.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        [MAGIC, u8::from(self.ack_requested)]
    }
}

/// The ACK of a replica. It means that the replica has stored all events up to a position of the source's
/// binlog. An ACK has packet number 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The offset of the end of the acknowledged event.
    pub position: u64,
    /// The source's binlog file, without a folder.
    pub file: &'a [u8],
}

impl<'a> Ack<'a> {
    /// Parses the payload of an ACK.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Malformed`] if the magic byte is missing;
    /// [`WireError::TooLarge`] if the file name is longer than [`FILE_NAME_BYTES_MAX`].
    pub fn parse(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("semi-sync acknowledgement", payload);
        let magic = cursor.u8()?;
        if magic != MAGIC {
            let reason = format!("the packet begins with the byte {magic:#04x}");
            return Err(WireError::malformed("semi-sync acknowledgement", reason));
        }
        let position = cursor.u64()?;
        let file = cursor.rest();
        // Some replicas send the file name with a final zero byte.
        let file = file.strip_suffix(&[0]).unwrap_or(file);
        check_file_name(file)?;
        Ok(Self { position, file })
    }

    /// Appends the payload to `out`.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] if the file name is longer than [`FILE_NAME_BYTES_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        check_file_name(self.file)?;
        out.push(MAGIC);
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(self.file);
        Ok(())
    }
}

fn check_file_name(file: &[u8]) -> Result<(), WireError> {
    if file.len() > FILE_NAME_BYTES_MAX {
        return Err(WireError::TooLarge {
            what: "file name of a semi-sync acknowledgement",
            size: file.len() as u64,
            size_max: FILE_NAME_BYTES_MAX as u64,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_header_says_whether_an_ack_is_requested() {
        assert_eq!(SemiSyncHeader::parse(&[0xef, 1]), Ok(SemiSyncHeader { ack_requested: true }));
        assert_eq!(SemiSyncHeader::parse(&[0xef, 0, 7]), Ok(SemiSyncHeader { ack_requested: false }));
        assert!(SemiSyncHeader::parse(&[0xee, 1]).is_err());
        assert!(SemiSyncHeader::parse(&[0xef]).is_err());
    }

    #[test]
    fn an_ack_has_the_same_bytes_as_that_of_native_replicas() {
        let mut out = Vec::new();
        Ack { position: 0x0102, file: b"binlog.000001" }.encode(&mut out).unwrap();
        assert_eq!(out, b"\xef\x02\x01\0\0\0\0\0\0binlog.000001");
    }

    proptest! {
        #[test]
        fn acknowledgements_round_trip(position: u64, file in "[a-z.0-9]{0,80}") {
            let ack = Ack { position, file: file.as_bytes() };
            let mut out = Vec::new();
            ack.encode(&mut out).unwrap();
            prop_assert_eq!(Ack::parse(&out).unwrap(), ack);
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes: Vec<u8>) {
            let _ = Ack::parse(&bytes);
            let _ = SemiSyncHeader::parse(&bytes);
        }
    }
}
