//! MariaDB's GTID event, which opens a transaction.

use super::event_header::{EventHeader, EventType};
use super::format_description::FormatDescription;
use super::xid_and_xa_prepare_event::Xid;
use crate::WireError;
use crate::byte_cursor::ByteCursor;
use crate::gtid::MariadbGtid;

const WHAT: &str = "gtid event (mariadb)";

/// `GTID_EVENT` (162): opens an event group and takes the place of `BEGIN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MariadbGtidEvent<'a> {
    /// The GTID of the transaction. Its server id comes from the event header.
    pub gtid: MariadbGtid,
    /// The `FLAG_*` bits.
    pub flags: u8,
    /// The number of the commit group. The transactions of one group committed together, so they do not
    /// conflict.
    pub commit_id: Option<u64>,
    /// The XID of a prepared or completed XA transaction.
    pub xid: Option<Xid<'a>>,
    /// The `EXTRA_*` bits.
    pub flags_extra: u8,
    /// The number of storage engines in addition to the first. Present only with the flag
    /// [`Self::EXTRA_MULTI_ENGINE`].
    pub extra_engines: u8,
    /// The sequence number of the `START ALTER` that this event group commits or rolls back.
    pub start_alter_sequence: Option<u64>,
    /// The id of the connection that executed the transaction (MariaDB 11.5 and later).
    pub thread_id: Option<u32>,
}

impl<'a> MariadbGtidEvent<'a> {
    /// The event group is one statement, such as DDL, without a `COMMIT` at its end.
    pub const FLAG_STANDALONE: u8 = 0x01;
    /// The field `commit_id` is present.
    pub const FLAG_GROUP_COMMIT_ID: u8 = 0x02;
    /// The transaction can be rolled back.
    pub const FLAG_TRANSACTIONAL: u8 = 0x04;
    /// The source allows optimistic parallel execution (`skip_parallel_replication` was off).
    pub const FLAG_ALLOW_PARALLEL: u8 = 0x08;
    /// On the source, the transaction waited for a row lock of another transaction.
    pub const FLAG_WAITED: u8 = 0x10;
    /// The event group holds DDL.
    pub const FLAG_DDL: u8 = 0x20;
    /// The event group ends in `XA PREPARE`.
    pub const FLAG_PREPARED_XA: u8 = 0x40;
    /// The event group is an `XA COMMIT` or `XA ROLLBACK`.
    pub const FLAG_COMPLETED_XA: u8 = 0x80;

    /// The field `extra_engines` is present.
    pub const EXTRA_MULTI_ENGINE: u8 = 0x01;
    /// The event group is the first half of an `ALTER TABLE`.
    pub const EXTRA_START_ALTER: u8 = 0x02;
    /// The event group is the second half of an `ALTER TABLE` that succeeded.
    pub const EXTRA_COMMIT_ALTER: u8 = 0x04;
    /// The event group is the second half of an `ALTER TABLE` that failed.
    pub const EXTRA_ROLLBACK_ALTER: u8 = 0x08;
    /// The field `thread_id` is present.
    pub const EXTRA_THREAD_ID: u8 = 0x10;

    /// The minimum length of the body, in bytes. Servers pad a shorter body with zeros.
    const BODY_BYTES_MIN: usize = 19;

    /// Parses the event body, which must not include the checksum.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for an invalid XID; [`WireError::Unsupported`] for
    /// an unknown extra flag, because its fields may have an unknown length.
    pub fn parse(
        header: &EventHeader,
        body: &'a [u8],
        format: &FormatDescription,
    ) -> Result<Self, WireError> {
        format.post_header_length_of(EventType::MARIADB_GTID, Self::BODY_BYTES_MIN)?;
        let mut cursor = ByteCursor::new(WHAT, body);
        let sequence = cursor.u64()?;
        let gtid = MariadbGtid { domain: cursor.u32()?, server_id: header.server_id.0, sequence };
        let flags = cursor.u8()?;
        let has = |flag| flags & flag != 0;
        let mut event = Self { gtid, flags, ..Self::bare(gtid) };
        if has(Self::FLAG_GROUP_COMMIT_ID) {
            event.commit_id = Some(cursor.u64()?);
        }
        if has(Self::FLAG_PREPARED_XA | Self::FLAG_COMPLETED_XA) {
            let format_id = cursor.u32()?;
            let lengths = [cursor.u8()?, cursor.u8()?];
            event.xid = Some(Xid::read(WHAT, &mut cursor, format_id, lengths.map(u32::from))?);
        }
        if cursor.is_empty() {
            return Ok(event);
        }
        // In a padded body, this byte is zero, so it means "no extra flags".
        event.flags_extra = cursor.u8()?;
        let has_extra = |flag| event.flags_extra & flag != 0;
        let unknown = event.flags_extra & !0x1f;
        if unknown != 0 {
            return Err(WireError::unsupported(WHAT, format!("the extra flags {unknown:#04x} are unknown")));
        }
        if has_extra(Self::EXTRA_MULTI_ENGINE) {
            event.extra_engines = cursor.u8()?;
        }
        if has_extra(Self::EXTRA_COMMIT_ALTER | Self::EXTRA_ROLLBACK_ALTER) {
            event.start_alter_sequence = Some(cursor.u64()?);
        }
        if has_extra(Self::EXTRA_THREAD_ID) {
            event.thread_id = Some(cursor.u32()?);
        }
        Ok(event)
    }

    /// Returns an event with this GTID and no flags.
    pub fn bare(gtid: MariadbGtid) -> Self {
        Self {
            gtid,
            flags: 0,
            commit_id: None,
            xid: None,
            flags_extra: 0,
            extra_engines: 0,
            start_alter_sequence: None,
            thread_id: None,
        }
    }

    /// Returns whether the bits of `flag` are set in `flags`.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the body without a checksum. Writes the fields that are present, even if the flags do not
    /// announce them.
    pub fn to_body(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(Self::BODY_BYTES_MIN + 19);
        body.extend_from_slice(&self.gtid.sequence.to_le_bytes());
        body.extend_from_slice(&self.gtid.domain.to_le_bytes());
        let commit_flag = if self.commit_id.is_some() { Self::FLAG_GROUP_COMMIT_ID } else { 0 };
        body.push(self.flags & !Self::FLAG_GROUP_COMMIT_ID | commit_flag);
        if let Some(commit_id) = self.commit_id {
            body.extend_from_slice(&commit_id.to_le_bytes());
        }
        if let Some(xid) = &self.xid {
            body.extend_from_slice(&xid.format_id.to_le_bytes());
            body.push(xid.gtrid.len() as u8);
            body.push(xid.bqual.len() as u8);
            body.extend_from_slice(xid.gtrid);
            body.extend_from_slice(xid.bqual);
        }
        if self.flags_extra != 0 {
            body.push(self.flags_extra);
            if self.flags_extra & Self::EXTRA_MULTI_ENGINE != 0 {
                body.push(self.extra_engines);
            }
            if let Some(sequence) = self.start_alter_sequence {
                body.extend_from_slice(&sequence.to_le_bytes());
            }
            if let Some(thread_id) = self.thread_id {
                body.extend_from_slice(&thread_id.to_le_bytes());
            }
        }
        if body.len() < Self::BODY_BYTES_MIN {
            body.resize(Self::BODY_BYTES_MIN, 0);
        }
        body
    }
}
