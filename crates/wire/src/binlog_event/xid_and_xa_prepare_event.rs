//! The events that end transactions: `XID_EVENT`, and `XA_PREPARE_LOG_EVENT` of both flavours.

use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// The maximum length of one part of an XA identifier, in bytes.
const XID_PART_BYTES_MAX: u32 = 64;

/// The identifier of an XA transaction, as the client gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Xid<'a> {
    /// The format id. It is 1 if the client did not give a format id.
    pub format_id: u32,
    /// The id of the global transaction, up to 64 bytes.
    pub gtrid: &'a [u8],
    /// The id of the branch, up to 64 bytes.
    pub bqual: &'a [u8],
}

impl<'a> Xid<'a> {
    /// Reads the two parts, which have the given `lengths`.
    pub(crate) fn read(
        what: &'static str,
        cursor: &mut ByteCursor<'a>,
        format_id: u32,
        lengths: [u32; 2],
    ) -> Result<Self, WireError> {
        for length in lengths {
            if length > XID_PART_BYTES_MAX {
                return Err(WireError::malformed(
                    what,
                    format!("the event states an XID part of {length} bytes"),
                ));
            }
        }
        let [gtrid, bqual] = lengths.map(|length| length as usize);
        Ok(Self { format_id, gtrid: cursor.bytes(gtrid)?, bqual: cursor.bytes(bqual)? })
    }
}

/// `XA_PREPARE_LOG_EVENT`: the last event of an XA transaction. It prepares the transaction, or commits it in
/// one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XaPrepare<'a> {
    /// True for `XA COMMIT ... ONE PHASE`: the transaction is committed, not only prepared.
    pub one_phase: bool,
    /// The identifier of the XA transaction.
    pub xid: Xid<'a>,
}

impl<'a> XaPrepare<'a> {
    /// Parses the body without its checksum. Both flavours use the same format.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for an invalid XID.
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        const WHAT: &str = "xa prepare event";
        let mut cursor = ByteCursor::new(WHAT, body);
        let one_phase = cursor.u8()? != 0;
        let format_id = cursor.u32()?;
        let lengths = [cursor.u32()?, cursor.u32()?];
        Ok(Self { one_phase, xid: Xid::read(WHAT, &mut cursor, format_id, lengths)? })
    }
}

/// Parses the body, without its checksum, of an `XID_EVENT`. Returns the number of the transaction in the
/// storage engines.
///
/// # Errors
/// [`WireError::Truncated`] if there are fewer than 8 bytes.
pub fn parse_xid_event(body: &[u8]) -> Result<u64, WireError> {
    ByteCursor::new("xid event", body).u64()
}
