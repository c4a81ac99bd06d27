//! `FORMAT_DESCRIPTION_EVENT`: the server that wrote a file, and the layout of its events.

use super::checksum::{CHECKSUM_BYTES, ChecksumAlgorithm, strip_checksum};
use super::event_header::{EVENT_HEADER_BYTES, EventHeader, EventType};
use crate::byte_cursor::ByteCursor;
use crate::server_version::{ServerFeature, parse_version};
use crate::{Flavour, WireError};

const WHAT: &str = "format description event";

/// Length of the zero-padded server version, in bytes.
const SERVER_VERSION_BYTES: usize = 50;

/// The first event type of MariaDB's own range. A format description with more types than this was written by
/// MariaDB.
const FIRST_MARIADB_TYPE: usize = 160;

/// The format of the events that follow a format description event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatDescription {
    /// Always 4: the version of MySQL 5.0 and later, and of every MariaDB.
    pub binlog_version: u16,
    /// The version of the server that wrote the file, such as `9.7.0` or `10.11.14-MariaDB-0+deb12u2-log`.
    pub server_version: String,
    /// When the server started, in seconds since 1970. Only the first file after the start has this time. It
    /// is 0 in later files, and in a stream that begins in the middle of a file.
    pub created: u32,
    /// Length of the fixed part of each event type, in bytes; type 1 is at index 0.
    pub post_header_lengths: Vec<u8>,
    /// The checksum algorithm of the following events. `None` if the server does not support checksums
    /// (before MySQL 5.6.1 and MariaDB 5.3). Such a server does not write the byte that names the algorithm.
    pub checksum: Option<ChecksumAlgorithm>,
}

impl FormatDescription {
    /// Parses the body: everything after the 19-byte header, with the byte of the checksum algorithm and the
    /// checksum.
    ///
    /// A server that supports checksums writes a checksum on this event even if checksums are off.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Unsupported`] if the binlog version is not 4, the header length
    /// is not 19, or the checksum algorithm is unknown.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        // Only the parsed body shows whether it ends in a checksum: this depends on the server version in the
        // body.
        match Self::parse_stripped(body) {
            Ok(format) if format.checksum.is_none() => Ok(format),
            _ => Self::parse_stripped(strip_checksum(body)?),
        }
    }

    /// Parses the body with the byte of the checksum algorithm, but without the checksum.
    ///
    /// # Errors
    /// As [`FormatDescription::parse`].
    pub(crate) fn parse_stripped(body: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new(WHAT, body);
        let binlog_version = cursor.u16()?;
        if binlog_version != 4 {
            let detail =
                format!("binlog version {binlog_version}; only version 4 (MySQL 5.0 and later) is supported");
            return Err(WireError::unsupported(WHAT, detail));
        }
        let padded = cursor.bytes(SERVER_VERSION_BYTES)?;
        let version = padded.split(|byte| *byte == 0).next().unwrap_or_default();
        let server_version = match std::str::from_utf8(version) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err(WireError::malformed(WHAT, "the server version is not text")),
        };
        let created = cursor.u32()?;
        let header_length = cursor.u8()?;
        if usize::from(header_length) != EVENT_HEADER_BYTES {
            return Err(WireError::unsupported(
                WHAT,
                format!("event headers of {header_length} bytes; only headers of 19 bytes are supported"),
            ));
        }
        let rest = cursor.rest();
        let (post_header_lengths, checksum) = if knows_checksums(&server_version) {
            let Some((algorithm, lengths)) = rest.split_last() else {
                return Err(WireError::Truncated { what: WHAT, offset: body.len(), needed: 1 });
            };
            (lengths, Some(ChecksumAlgorithm::from_byte(*algorithm)?))
        } else {
            (rest, None)
        };
        // An event type is one byte, so a length after the 255th does not belong to a type.
        if post_header_lengths.len() > usize::from(u8::MAX) {
            return Err(WireError::malformed(
                WHAT,
                format!("the event states lengths for {} event types", post_header_lengths.len()),
            ));
        }
        let post_header_lengths = post_header_lengths.to_vec();
        Ok(Self { binlog_version, server_version, created, post_header_lengths, checksum })
    }

    /// Returns the format to assume for the artificial rotate event, which precedes the format description in
    /// a stream. Tests use this format too. The fixed parts of its event types have the same lengths as in
    /// all servers since MySQL 5.6 and MariaDB 10.0.
    pub fn assumed(flavour: Flavour, checksum: ChecksumAlgorithm) -> Self {
        let (server_version, types) = match flavour {
            Flavour::MySql => ("8.4.0", usize::from(EventType::GTID_TAGGED.0)),
            Flavour::MariaDb => ("10.11.0-MariaDB", usize::from(EventType::MARIADB_DELETE_ROWS_COMPRESSED.0)),
        };
        let mut post_header_lengths: Vec<u8> =
            (1..=types).map(|event_type| usual_post_header_length(EventType(event_type as u8))).collect();
        if flavour == Flavour::MariaDb {
            // MariaDB does not know the event types that MySQL added later.
            for event_type in [EventType::GTID, EventType::ANONYMOUS_GTID, EventType::PREVIOUS_GTIDS] {
                post_header_lengths[usize::from(event_type.0) - 1] = 0;
            }
        }
        Self {
            binlog_version: 4,
            server_version: server_version.to_owned(),
            created: 0,
            post_header_lengths,
            checksum: Some(checksum),
        }
    }

    /// Returns the body up to the byte of the checksum algorithm. The caller adds the checksum.
    pub fn to_body(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(57 + self.post_header_lengths.len() + 1);
        body.extend_from_slice(&self.binlog_version.to_le_bytes());
        let mut version = [0; SERVER_VERSION_BYTES];
        // The last byte of the version field remains zero, because readers expect a final zero byte.
        let length = self.server_version.len().min(SERVER_VERSION_BYTES - 1);
        version[..length].copy_from_slice(&self.server_version.as_bytes()[..length]);
        body.extend_from_slice(&version);
        body.extend_from_slice(&self.created.to_le_bytes());
        body.push(EVENT_HEADER_BYTES as u8);
        body.extend_from_slice(&self.post_header_lengths);
        if let Some(checksum) = self.checksum {
            body.push(checksum.to_byte());
        }
        body
    }

    /// Returns the flavour. It is MariaDB if the version contains `MariaDB`, or if there are more event types
    /// than MySQL has.
    pub fn flavour(&self) -> Flavour {
        if self.server_version.contains("MariaDB") || self.post_header_lengths.len() >= FIRST_MARIADB_TYPE {
            Flavour::MariaDb
        } else {
            Flavour::MySql
        }
    }

    /// Returns whether the following events have a checksum.
    pub fn has_checksums(&self) -> bool {
        self.checksum == Some(ChecksumAlgorithm::Crc32)
    }

    /// Returns the length of the checksum of an event with this header, in bytes.
    ///
    /// A format description event has space for a checksum even if checksums are off.
    pub fn trailer_bytes(&self, header: &EventHeader) -> usize {
        let room = match header.event_type {
            EventType::FORMAT_DESCRIPTION => self.checksum.is_some(),
            _ => self.has_checksums(),
        };
        if room { CHECKSUM_BYTES } else { 0 }
    }

    /// Returns the length in bytes of the fixed part of an event type, or `None` for a type that the file's
    /// server does not know.
    pub fn post_header_length(&self, event_type: EventType) -> Option<usize> {
        let index = usize::from(event_type.0).checked_sub(1)?;
        self.post_header_lengths.get(index).map(|length| usize::from(*length))
    }

    /// Returns the length of the fixed part of an event type. Returns an error if it is less than `known`,
    /// the length that this crate parses.
    pub(crate) fn post_header_length_of(
        &self,
        event_type: EventType,
        known: usize,
    ) -> Result<usize, WireError> {
        match self.post_header_length(event_type) {
            Some(length) if length >= known => Ok(length),
            Some(length) => Err(WireError::unsupported(
                "event layout",
                format!(
                    "a fixed part of {length} bytes in {event_type}; at least {known} bytes are expected"
                ),
            )),
            None => Ok(known),
        }
    }
}

/// Returns whether a server of this version writes the byte of the checksum algorithm.
fn knows_checksums(server_version: &str) -> bool {
    let flavour = if server_version.contains("MariaDB") { Flavour::MariaDb } else { Flavour::MySql };
    ServerFeature::BinlogChecksums.is_in(flavour, parse_version(server_version))
}

/// Returns the length of an event type's fixed part in current servers.
fn usual_post_header_length(event_type: EventType) -> u8 {
    match event_type {
        EventType::QUERY => 13,
        EventType::ROTATE => 8,
        EventType::APPEND_BLOCK | EventType::BEGIN_LOAD_QUERY | EventType::DELETE_FILE => 4,
        EventType::FORMAT_DESCRIPTION => 98,
        EventType::EXECUTE_LOAD_QUERY => 26,
        EventType::TABLE_MAP => 8,
        EventType::WRITE_ROWS_V1 | EventType::UPDATE_ROWS_V1 | EventType::DELETE_ROWS_V1 => 8,
        EventType::INCIDENT => 2,
        EventType::WRITE_ROWS_V2 | EventType::UPDATE_ROWS_V2 | EventType::DELETE_ROWS_V2 => 10,
        EventType::PARTIAL_UPDATE_ROWS => 10,
        EventType::GTID | EventType::ANONYMOUS_GTID => 42,
        EventType::TRANSACTION_CONTEXT => 18,
        EventType::VIEW_CHANGE => 52,
        EventType::TRANSACTION_PAYLOAD => 40,
        EventType::MARIADB_BINLOG_CHECKPOINT | EventType::MARIADB_GTID_LIST => 4,
        EventType::MARIADB_GTID => 19,
        EventType::MARIADB_QUERY_COMPRESSED => 13,
        EventType::MARIADB_WRITE_ROWS_COMPRESSED_V1
        | EventType::MARIADB_UPDATE_ROWS_COMPRESSED_V1
        | EventType::MARIADB_DELETE_ROWS_COMPRESSED_V1 => 8,
        EventType::MARIADB_WRITE_ROWS_COMPRESSED
        | EventType::MARIADB_UPDATE_ROWS_COMPRESSED
        | EventType::MARIADB_DELETE_ROWS_COMPRESSED => 10,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_descriptions_of_both_flavours_round_trip() {
        for flavour in [Flavour::MySql, Flavour::MariaDb] {
            for checksum in [ChecksumAlgorithm::Off, ChecksumAlgorithm::Crc32] {
                let format = FormatDescription::assumed(flavour, checksum);
                let mut body = format.to_body();
                body.extend_from_slice(&[0; CHECKSUM_BYTES]);
                let parsed = FormatDescription::parse(&body).unwrap();
                assert_eq!(parsed, format);
                assert_eq!(parsed.flavour(), flavour);
                assert_eq!(parsed.has_checksums(), checksum == ChecksumAlgorithm::Crc32);
                assert_eq!(parsed.post_header_length(EventType::QUERY), Some(13));
                assert_eq!(parsed.post_header_length(EventType(250)), None);
            }
        }
    }

    #[test]
    fn servers_before_checksums_write_no_algorithm_byte() {
        for (version, knows) in [
            ("5.5.62-log", false),
            ("5.6.0", false),
            ("5.6.1", true),
            ("5.7.44-log", true),
            ("9.7.0", true),
            ("5.2.14-MariaDB", false),
            ("5.3.0-MariaDB", true),
            ("10.11.6-MariaDB-log", true),
            ("nonsense", false),
        ] {
            assert_eq!(knows_checksums(version), knows, "wrong checksum support of version {version}");
        }
    }

    #[test]
    fn other_versions_and_header_lengths_are_refused() {
        let mut body = FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off).to_body();
        body.extend_from_slice(&[0; 4]);
        for (at, value) in [(0usize, 3u8), (56, 27), (57 + 42, 9)] {
            let mut changed = body.clone();
            changed[at] = value;
            assert!(
                matches!(FormatDescription::parse(&changed), Err(WireError::Unsupported { .. })),
                "an event with a changed byte at offset {at} was accepted"
            );
        }
        for length in 0..body.len().min(61) {
            assert!(
                FormatDescription::parse(&body[..length]).is_err(),
                "a body of {length} bytes was accepted"
            );
        }
    }
}
