//! The CRC32 at the end of events: computation, verification and removal. Works on complete events and on
//! events that arrive in chunks.

use super::event_header::{EVENT_HEADER_BYTES, EventHeader, EventType};
use crate::WireError;

/// Length of the checksum at the end of an event, in bytes.
pub const CHECKSUM_BYTES: usize = 4;

/// Offset of the event type in the header.
const EVENT_TYPE_OFFSET: usize = 4;
/// Offset of the flags (two bytes) in the header.
const FLAGS_OFFSET: usize = 17;

/// The checksum algorithm of a file: the last byte of a format description event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumAlgorithm {
    /// Events have no checksum.
    Off,
    /// Each event ends in a CRC32 of all its bytes before the checksum.
    Crc32,
}

impl ChecksumAlgorithm {
    /// Returns the algorithm that this byte of a format description event represents.
    ///
    /// # Errors
    /// [`WireError::Unsupported`] for any algorithm except off and CRC32.
    pub fn from_byte(byte: u8) -> Result<Self, WireError> {
        match byte {
            0 => Ok(Self::Off),
            1 => Ok(Self::Crc32),
            other => Err(WireError::unsupported("checksum algorithm", other.to_string())),
        }
    }

    /// Returns the byte that names the algorithm in a format description event.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Crc32 => 1,
        }
    }

    /// Returns the length of the checksum of each event, in bytes.
    pub fn trailer_bytes(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Crc32 => CHECKSUM_BYTES,
        }
    }
}

/// Verifies the CRC32 at the end of a complete event. The CRC32 covers the header too.
///
/// When servers close a file, they clear the "in use" flag of its format description event in place. So they
/// compute the checksum of this event as if the flag were cleared. This function does the same.
///
/// # Errors
/// [`WireError::Checksum`] if the checksum does not match; [`WireError::Truncated`] if the event is too short
/// to have one.
pub fn verify_checksum(event: &[u8]) -> Result<(), WireError> {
    let (data, stored) = event
        .split_last_chunk::<CHECKSUM_BYTES>()
        .filter(|(data, _)| data.len() >= EVENT_HEADER_BYTES)
        .ok_or_else(|| too_short(event.len() as u64, EVENT_HEADER_BYTES + CHECKSUM_BYTES))?;
    let (stored, computed) = (u32::from_le_bytes(*stored), compute_checksum(data));
    if stored == computed { Ok(()) } else { Err(WireError::Checksum { stored, computed }) }
}

/// Returns an event, or an event body, without the checksum at its end.
///
/// # Errors
/// [`WireError::Truncated`] if the bytes are too short to hold a checksum.
pub fn strip_checksum(event: &[u8]) -> Result<&[u8], WireError> {
    match event.len().checked_sub(CHECKSUM_BYTES) {
        Some(length) => Ok(&event[..length]),
        None => Err(too_short(event.len() as u64, CHECKSUM_BYTES)),
    }
}

/// Returns the CRC32 of `event`, a complete event without its checksum.
pub fn compute_checksum(event: &[u8]) -> u32 {
    match event.split_first_chunk::<EVENT_HEADER_BYTES>() {
        Some((header, body)) if header[EVENT_TYPE_OFFSET] == EventType::FORMAT_DESCRIPTION.0 => {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&as_checksummed(header));
            hasher.update(body);
            hasher.finalize()
        }
        // Use one call for the whole event, because several calls take several times as long for short
        // events.
        _ => crc32fast::hash(event),
    }
}

/// Returns the header in the form that the checksum covers: the "in use" flag of a format description event
/// is cleared.
fn as_checksummed(header: &[u8; EVENT_HEADER_BYTES]) -> [u8; EVENT_HEADER_BYTES] {
    let mut copy = *header;
    if copy[EVENT_TYPE_OFFSET] == EventType::FORMAT_DESCRIPTION.0 {
        copy[FLAGS_OFFSET] &= !(EventHeader::FLAG_BINLOG_IN_USE as u8);
    }
    copy
}

fn too_short(length: u64, needed: usize) -> WireError {
    WireError::Truncated { what: "event checksum", offset: 0, needed: needed.saturating_sub(length as usize) }
}

/// Verifies the checksum of an event that arrives in chunks of any size.
#[derive(Debug, Clone)]
pub struct ChecksumChecker {
    hasher: crc32fast::Hasher,
    /// The header of the event. It is buffered until it is complete, because the checksum does not cover one
    /// of its flags.
    header: [u8; EVENT_HEADER_BYTES],
    event_length: u64,
    seen: u64,
    stored: [u8; CHECKSUM_BYTES],
}

impl ChecksumChecker {
    /// Creates a checker for an event of `event_length` bytes, header and checksum included.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if an event of that length cannot hold a header and a checksum.
    pub fn new(event_length: u64) -> Result<Self, WireError> {
        if event_length < (EVENT_HEADER_BYTES + CHECKSUM_BYTES) as u64 {
            return Err(too_short(event_length, EVENT_HEADER_BYTES + CHECKSUM_BYTES));
        }
        Ok(Self {
            hasher: crc32fast::Hasher::new(),
            header: [0; EVENT_HEADER_BYTES],
            event_length,
            seen: 0,
            stored: [0; CHECKSUM_BYTES],
        })
    }

    /// Adds the next bytes of the event. If there are bytes after the event's stated end, [`Self::finish`]
    /// returns an error.
    pub fn update(&mut self, mut chunk: &[u8]) {
        if self.seen < EVENT_HEADER_BYTES as u64 {
            let filled = self.seen as usize;
            let head = self.take(&mut chunk, EVENT_HEADER_BYTES as u64);
            self.header[filled..filled + head.len()].copy_from_slice(head);
            if self.seen == EVENT_HEADER_BYTES as u64 {
                self.hasher.update(&as_checksummed(&self.header));
            }
        }
        let body = self.take(&mut chunk, self.event_length - CHECKSUM_BYTES as u64);
        self.hasher.update(body);
        let stored_end = self.event_length;
        if !chunk.is_empty() && self.seen < stored_end {
            let filled = (self.seen + CHECKSUM_BYTES as u64 - stored_end) as usize;
            let tail = self.take(&mut chunk, stored_end);
            self.stored[filled..filled + tail.len()].copy_from_slice(tail);
        }
        self.seen += chunk.len() as u64;
    }

    /// Splits off the part of `chunk` that lies before offset `end` of the event.
    fn take<'c>(&mut self, chunk: &mut &'c [u8], end: u64) -> &'c [u8] {
        let room = end.saturating_sub(self.seen);
        let count = usize::try_from(room).unwrap_or(usize::MAX).min(chunk.len());
        let (head, rest) = chunk.split_at(count);
        *chunk = rest;
        self.seen += count as u64;
        head
    }

    /// Compares the checksums after the last chunk.
    ///
    /// # Errors
    /// [`WireError::Checksum`] if the checksums differ. [`WireError::Truncated`] or [`WireError::Malformed`]
    /// if the chunks held fewer or more bytes than the event has.
    pub fn finish(self) -> Result<(), WireError> {
        if self.seen < self.event_length {
            let needed = usize::try_from(self.event_length - self.seen).unwrap_or(usize::MAX);
            return Err(WireError::Truncated { what: "event", offset: self.seen as usize, needed });
        }
        if self.seen > self.event_length {
            let reason =
                format!("the caller passed {} bytes of an event of {} bytes", self.seen, self.event_length);
            return Err(WireError::malformed("event", reason));
        }
        let (stored, computed) = (u32::from_le_bytes(self.stored), self.hasher.finalize());
        if stored == computed { Ok(()) } else { Err(WireError::Checksum { stored, computed }) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(event_type: EventType, flags: u16, body: &[u8]) -> Vec<u8> {
        let header = EventHeader {
            timestamp: 7,
            event_type,
            server_id: crate::ServerId(1),
            event_length: (EVENT_HEADER_BYTES + body.len() + CHECKSUM_BYTES) as u32,
            end_log_pos: 1000,
            flags,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend_from_slice(body);
        let checksum = compute_checksum(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn the_checksum_ignores_the_in_use_flag_of_a_format_description() {
        let mut bytes = event(EventType::FORMAT_DESCRIPTION, 1, b"description");
        assert_eq!(verify_checksum(&bytes), Ok(()));
        bytes[FLAGS_OFFSET] = 0;
        assert_eq!(verify_checksum(&bytes), Ok(()));
        bytes[FLAGS_OFFSET] = 2;
        assert!(matches!(verify_checksum(&bytes), Err(WireError::Checksum { .. })));
        let mut other = event(EventType::QUERY, 1, b"query");
        other[FLAGS_OFFSET] = 0;
        assert!(matches!(verify_checksum(&other), Err(WireError::Checksum { .. })));
    }

    #[test]
    fn a_wrong_length_and_a_wrong_checksum_give_different_errors() {
        let bytes = event(EventType::QUERY, 0, b"some body");
        assert!(matches!(verify_checksum(&bytes[..10]), Err(WireError::Truncated { .. })));
        let mut checker = ChecksumChecker::new(bytes.len() as u64).unwrap();
        checker.update(&bytes[..bytes.len() - 1]);
        assert!(matches!(checker.clone().finish(), Err(WireError::Truncated { needed: 1, .. })));
        checker.update(&bytes[bytes.len() - 1..]);
        assert_eq!(checker.clone().finish(), Ok(()));
        checker.update(b"x");
        assert!(matches!(checker.finish(), Err(WireError::Malformed { .. })));
    }

    proptest! {
        #[test]
        fn chunks_of_any_size_give_the_same_checksum(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            event_type in prop_oneof![Just(EventType::FORMAT_DESCRIPTION), Just(EventType::XID)],
            flags in any::<u16>(),
            chunk in 1usize..60,
            damage in proptest::option::of(any::<proptest::sample::Index>()),
        ) {
            let mut bytes = event(event_type, flags, &body);
            if let Some(index) = &damage {
                // The changed byte is after the header, because the checksum ignores one flag of the header.
                let at = EVENT_HEADER_BYTES + index.index(bytes.len() - EVENT_HEADER_BYTES);
                bytes[at] ^= 0x10;
            }
            let mut checker = ChecksumChecker::new(bytes.len() as u64).unwrap();
            for part in bytes.chunks(chunk) {
                checker.update(part);
            }
            prop_assert_eq!(checker.finish(), verify_checksum(&bytes));
            prop_assert_eq!(verify_checksum(&bytes).is_ok(), damage.is_none());
        }
    }
}
