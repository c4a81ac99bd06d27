//! MySQL's events that open a transaction: `GTID_LOG_EVENT`, `ANONYMOUS_GTID_LOG_EVENT` and
//! `GTID_TAGGED_LOG_EVENT`.

use super::mysql_serialization::SerializedMessage;
use crate::WireError;
use crate::byte_cursor::{ByteCursor, put_lenenc_int};
use crate::gtid::{MYSQL_NUMBER_MAX, MYSQL_TAG_CHARACTERS_MAX, MysqlGtid};

const WHAT: &str = "gtid event";
const WHAT_TAGGED: &str = "tagged gtid event";

/// The type code of the logical clock. Servers before 5.7.5 wrote other clocks under other codes, and those
/// clocks cannot be compared with it.
const LOGICAL_CLOCK: u8 = 2;

/// The event that opens a MySQL transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GtidEvent {
    /// The GTID; `None` in anonymous transactions.
    pub gtid: Option<MysqlGtid>,
    /// Flag bits: see [`GtidEvent::FLAG_MAY_HAVE_STATEMENTS`].
    pub flags: u8,
    /// The logical clock; `None` if a server before MySQL 5.7.5 wrote the event.
    pub logical_clock: Option<LogicalClock>,
    /// When the server that wrote this file committed the transaction, in microseconds since 1970 (MySQL 8.0
    /// and later).
    pub immediate_commit_time_us: Option<u64>,
    /// When the server that first executed the transaction committed it, in microseconds since 1970.
    pub original_commit_time_us: Option<u64>,
    /// Length of the whole transaction in the file in bytes, this event and the checksums included.
    pub transaction_bytes: Option<u64>,
    /// Version of the server that wrote this file: 80400 for 8.4.0.
    pub immediate_server_version: Option<u32>,
    /// Version of the server that first executed the transaction.
    pub original_server_version: Option<u32>,
    /// Group Replication's number that orders the transactions of one commit group.
    pub commit_group_ticket: Option<u64>,
}

/// MySQL's `last_committed` and `sequence_number`, counted from the start of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogicalClock {
    /// The newest transaction of the file that this transaction may depend on; 0 for none.
    pub last_committed: i64,
    /// The number of this transaction in the file.
    pub sequence_number: i64,
}

impl GtidEvent {
    /// In `flags`: the transaction may hold statements, not only rows.
    pub const FLAG_MAY_HAVE_STATEMENTS: u8 = 1;

    /// The highest bit of the time field. If it is set, the time of the original server follows.
    const TIME_MARK: u64 = 1 << 55;
    /// The highest bit of the version field. If it is set, the version of the original server follows.
    const VERSION_MARK: u32 = 1 << 31;
    /// The number that servers write if the version is unknown.
    const VERSION_UNKNOWN: u32 = 999_999;

    /// Parses the body, without its checksum, of event types 33 and 34.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for a transaction number out of range.
    pub fn parse(body: &[u8], anonymous: bool) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new(WHAT, body);
        let flags = cursor.u8()?;
        let uuid = cursor.array()?;
        let number = cursor.u64()?;
        let gtid = match (anonymous, number) {
            (true, 0) => None,
            (true, _) => {
                return Err(WireError::malformed(WHAT, "an anonymous transaction has a transaction number"));
            }
            (false, _) => Some(MysqlGtid { uuid, tag: String::new(), number: checked_number(WHAT, number)? }),
        };
        let mut event = Self { gtid, ..Self::bare(flags) };
        if cursor.is_empty() || cursor.u8()? != LOGICAL_CLOCK {
            return Ok(event);
        }
        event.logical_clock = Some(LogicalClock {
            last_committed: cursor.u64()?.cast_signed(),
            sequence_number: cursor.u64()?.cast_signed(),
        });
        // Newer servers have added fields at the end. So the body of an older server may end after any of the
        // following fields.
        if cursor.remaining() < 7 {
            return Ok(event);
        }
        let immediate = cursor.u56()?;
        event.immediate_commit_time_us = Some(immediate & !Self::TIME_MARK);
        event.original_commit_time_us = match immediate & Self::TIME_MARK {
            0 => event.immediate_commit_time_us,
            _ => Some(cursor.u56()?),
        };
        if cursor.is_empty() {
            return Ok(event);
        }
        event.transaction_bytes = Some(cursor.lenenc_int()?);
        if cursor.remaining() < 4 {
            return Ok(event);
        }
        let immediate = cursor.u32()?;
        event.immediate_server_version = known_version(immediate & !Self::VERSION_MARK);
        event.original_server_version = match immediate & Self::VERSION_MARK {
            0 => event.immediate_server_version,
            _ => known_version(cursor.u32()?),
        };
        if cursor.remaining() >= 8 {
            event.commit_group_ticket = Some(cursor.u64()?).filter(|ticket| *ticket != 0);
        }
        Ok(event)
    }

    /// Parses the body, without its checksum, of event type 42. Its fields are numbered and have variable
    /// lengths.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Malformed`] for an invalid number or tag;
    /// [`WireError::Unsupported`] for an unknown field that may not be ignored.
    pub fn parse_tagged(body: &[u8]) -> Result<Self, WireError> {
        let mut message = SerializedMessage::parse(WHAT_TAGGED, body, Self::TAGGED_FIELDS)?;
        let mut event = Self::bare(0);
        let (mut uuid, mut number, mut tag) = (None, None, String::new());
        let mut clock = LogicalClock { last_committed: 0, sequence_number: 0 };
        while let Some(field) = message.next_field()? {
            match field {
                0 => [event.flags] = message.byte_array()?,
                1 => uuid = Some(message.byte_array()?),
                2 => number = Some(checked_number(WHAT_TAGGED, message.int()?.cast_unsigned())?),
                3 => tag = checked_tag(message.string(MYSQL_TAG_CHARACTERS_MAX)?)?,
                4 => clock.last_committed = message.int()?,
                5 => clock.sequence_number = message.int()?,
                6 => event.immediate_commit_time_us = Some(message.uint()?),
                7 => event.original_commit_time_us = Some(message.uint()?),
                8 => event.transaction_bytes = Some(message.uint()?),
                9 => event.immediate_server_version = known_version(message.uint32()?),
                10 => event.original_server_version = known_version(message.uint32()?),
                11 => event.commit_group_ticket = Some(message.uint()?).filter(|ticket| *ticket != 0),
                // Unknown fields of newer servers come last, and the header of this message allows readers to
                // skip them.
                _ => break,
            }
        }
        let (Some(uuid), Some(number)) = (uuid, number) else {
            return Err(WireError::malformed(WHAT_TAGGED, "the event has no UUID or no transaction number"));
        };
        event.gtid = Some(MysqlGtid { uuid, tag, number });
        event.logical_clock = Some(clock);
        event.original_commit_time_us = event.original_commit_time_us.or(event.immediate_commit_time_us);
        event.original_server_version = event.original_server_version.or(event.immediate_server_version);
        Ok(event)
    }

    const TAGGED_FIELDS: u64 = 12;

    fn bare(flags: u8) -> Self {
        Self {
            gtid: None,
            flags,
            logical_clock: None,
            immediate_commit_time_us: None,
            original_commit_time_us: None,
            transaction_bytes: None,
            immediate_server_version: None,
            original_server_version: None,
            commit_group_ticket: None,
        }
    }

    /// Returns the body of an event of type 33 or 34, without checksum. These types have no tag.
    ///
    /// As in older servers, the first `None` field and all fields after it are omitted. Times are truncated
    /// to 55 bits and versions to 31 bits, because these event types have no more bits for them. Tagged
    /// events have more bits.
    pub fn to_body(&self) -> Vec<u8> {
        let mut body = vec![self.flags];
        let (uuid, number) = self.gtid.as_ref().map_or(([0; 16], 0), |gtid| (gtid.uuid, gtid.number));
        body.extend_from_slice(&uuid);
        body.extend_from_slice(&number.to_le_bytes());
        let Some(clock) = self.logical_clock else { return body };
        body.push(LOGICAL_CLOCK);
        body.extend_from_slice(&clock.last_committed.to_le_bytes());
        body.extend_from_slice(&clock.sequence_number.to_le_bytes());
        let Some(immediate) = self.immediate_commit_time_us else { return body };
        let immediate = immediate & !Self::TIME_MARK;
        match self.original_commit_time_us.filter(|original| *original != immediate) {
            None => body.extend_from_slice(&immediate.to_le_bytes()[..7]),
            Some(original) => {
                body.extend_from_slice(&(immediate | Self::TIME_MARK).to_le_bytes()[..7]);
                body.extend_from_slice(&original.to_le_bytes()[..7]);
            }
        }
        let Some(transaction_bytes) = self.transaction_bytes else { return body };
        put_lenenc_int(&mut body, transaction_bytes);
        let Some(immediate) = self.immediate_server_version else { return body };
        let immediate = immediate & !Self::VERSION_MARK;
        match self.original_server_version {
            Some(original) if original == immediate => body.extend_from_slice(&immediate.to_le_bytes()),
            original => {
                body.extend_from_slice(&(immediate | Self::VERSION_MARK).to_le_bytes());
                body.extend_from_slice(&original.unwrap_or(Self::VERSION_UNKNOWN).to_le_bytes());
            }
        }
        if let Some(ticket) = self.commit_group_ticket {
            body.extend_from_slice(&ticket.to_le_bytes());
        }
        body
    }
}

fn known_version(version: u32) -> Option<u32> {
    (version != GtidEvent::VERSION_UNKNOWN).then_some(version)
}

fn checked_number(what: &'static str, number: u64) -> Result<u64, WireError> {
    if !(1..=MYSQL_NUMBER_MAX).contains(&number) {
        return Err(WireError::malformed(what, format!("transaction number {number} is out of range")));
    }
    Ok(number)
}

fn checked_tag(tag: &[u8]) -> Result<String, WireError> {
    let first_fits = tag.first().is_none_or(|first| first.is_ascii_lowercase() || *first == b'_');
    let rest_fits =
        tag.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_');
    match std::str::from_utf8(tag) {
        Ok(text) if first_fits && rest_fits => Ok(text.to_owned()),
        _ => Err(WireError::malformed(WHAT_TAGGED, format!("\"{}\" is not a tag", tag.escape_ascii()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of an event that MySQL 9.7 wrote after `set gtid_next = 'automatic:hello'`.
    const TAGGED: [u8; 60] = [
        0x02, 0x78, 0x00, 0x00, 0x00, 0x02, 0x91, 0x03, 0x91, 0x02, 0x69, 0x02, 0x4a, 0x95, 0x03, 0x8d, 0x03,
        0x22, 0xc5, 0x03, 0xa1, 0x02, 0xf9, 0x02, 0x04, 0xf1, 0x03, 0x00, 0x00, 0x00, 0x02, 0x04, 0x04, 0x06,
        0x0a, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x08, 0x08, 0x0a, 0x0c, 0x0c, 0x7f, 0xc2, 0x24, 0x30, 0xa3, 0xce,
        0x60, 0x06, 0x10, 0x35, 0x04, 0x12, 0x83, 0x12, 0x0b,
    ];

    #[test]
    fn a_tagged_gtid_parses_as_in_mysqlbinlog() {
        let event = GtidEvent::parse_tagged(&TAGGED).unwrap();
        assert_eq!(
            event.gtid.unwrap(),
            MysqlGtid::parse("e4a49a25-e5e3-11f1-a8be-02fc00000001:hello:1").unwrap()
        );
        assert_eq!(event.logical_clock, Some(LogicalClock { last_committed: 2, sequence_number: 3 }));
        assert_eq!(event.immediate_commit_time_us, Some(1_795_290_477_634_754));
        assert_eq!(event.original_commit_time_us, event.immediate_commit_time_us);
        assert_eq!(event.transaction_bytes, Some(269));
        assert_eq!(event.immediate_server_version, Some(90704));
        assert_eq!((event.flags, event.commit_group_ticket), (0, None));
    }

    #[test]
    fn fields_of_newer_servers_are_skipped_only_if_allowed() {
        let mut longer = TAGGED.to_vec();
        longer.extend_from_slice(&[12 << 1, 0x55, 0x66]);
        longer[1] = (longer.len() as u8) << 1;
        assert!(GtidEvent::parse_tagged(&longer).is_ok());
        // The head of the event contains the number of the last field that a reader must know, counted from
        // 1. Change this number.
        longer[2] = 13 << 1;
        assert!(matches!(GtidEvent::parse_tagged(&longer), Err(WireError::Unsupported { .. })));
        longer[2] = 12 << 1;
        assert!(GtidEvent::parse_tagged(&longer).is_ok());
        longer[1] += 2;
        assert!(matches!(GtidEvent::parse_tagged(&longer), Err(WireError::Malformed { .. })));
    }

    #[test]
    fn an_event_without_a_transaction_number_is_an_error() {
        let mut without = [&TAGGED[..31], &TAGGED[33..]].concat();
        without[1] = (without.len() as u8) << 1;
        let error = GtidEvent::parse_tagged(&without).unwrap_err();
        assert!(
            error.to_string().ends_with("the event has no UUID or no transaction number"),
            "unexpected error: {error}"
        );
    }

    #[test]
    fn invalid_tags_and_numbers_are_errors() {
        for (at, value) in [(36, b'A'), (35, b'1'), (36, b':'), (32, 0u8)] {
            let mut changed = TAGGED;
            changed[at] = value;
            assert!(
                matches!(GtidEvent::parse_tagged(&changed), Err(WireError::Malformed { .. })),
                "an event with a changed byte at offset {at} was accepted"
            );
        }
    }
}
