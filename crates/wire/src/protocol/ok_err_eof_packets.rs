//! The three packets that can end an exchange: OK, ERR and EOF.

use super::capabilities::{Capabilities, ServerStatus};
use crate::WireError;
use crate::byte_cursor::{ByteCursor, put_lenenc_int};

/// The first byte of an OK packet.
pub const OK: u8 = 0x00;
/// The first byte of an EOF packet. With [`Capabilities::DEPRECATE_EOF`] also the first byte of the OK packet
/// that ends the rows.
pub const EOF: u8 = 0xfe;
/// The first byte of an ERR packet.
pub const ERR: u8 = 0xff;
/// The first byte of a server's request for a file of the client (`LOAD DATA LOCAL`).
pub const LOCAL_INFILE: u8 = 0xfb;

/// The maximum length of an error message in bytes. Servers write at most 512.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// An OK packet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OkPacket {
    /// The number of changed rows, or with [`Capabilities::FOUND_ROWS`] the number of matched rows.
    pub affected_rows: u64,
    /// The first AUTO_INCREMENT value that was generated; 0 for none.
    pub last_insert_id: u64,
    /// The status flags of the server.
    pub status: ServerStatus,
    /// The number of warnings that `SHOW WARNINGS` lists.
    pub warnings: u16,
}

impl OkPacket {
    /// Parses an OK packet. A packet that replaces an EOF packet begins with [`EOF`]. Ignores the text after
    /// the number of warnings.
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::Malformed`].
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("OK packet", payload);
        match cursor.u8()? {
            OK | EOF => {}
            other => {
                return Err(WireError::malformed(
                    "OK packet",
                    format!("the packet begins with {other:#04x}"),
                ));
            }
        }
        Ok(Self {
            affected_rows: cursor.lenenc_int()?,
            last_insert_id: cursor.lenenc_int()?,
            status: ServerStatus(cursor.u16()?),
            warnings: cursor.u16()?,
        })
    }

    /// Appends the payload of the packet. `first_byte` is [`OK`], or [`EOF`] if the packet replaces an EOF
    /// packet.
    pub fn encode(&self, first_byte: u8, out: &mut Vec<u8>) {
        out.push(first_byte);
        put_lenenc_int(out, self.affected_rows);
        put_lenenc_int(out, self.last_insert_id);
        out.extend_from_slice(&self.status.0.to_le_bytes());
        out.extend_from_slice(&self.warnings.to_le_bytes());
    }
}

/// An ERR packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrPacket {
    /// The server's error number.
    pub number: u16,
    /// The SQL state of five characters. It is `HY000` if the server sends no SQL state. Before the
    /// handshake, servers send none.
    pub sql_state: String,
    /// The message of the server. Invalid UTF-8 is replaced.
    pub message: String,
}

impl ErrPacket {
    /// Parses an ERR packet with or without an SQL state.
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::Malformed`].
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("ERR packet", payload);
        let first = cursor.u8()?;
        if first != ERR {
            return Err(WireError::malformed("ERR packet", format!("the packet begins with {first:#04x}")));
        }
        let number = cursor.u16()?;
        let sql_state = if cursor.peek_u8() == Some(b'#') {
            cursor.skip(1)?;
            String::from_utf8_lossy(cursor.bytes(5)?).into_owned()
        } else {
            "HY000".to_owned()
        };
        let message = cursor.rest();
        let message = &message[..message.len().min(MESSAGE_BYTES_MAX)];
        Ok(Self { number, sql_state, message: String::from_utf8_lossy(message).into_owned() })
    }

    /// Appends the packet's payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(ERR);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.push(b'#');
        let mut state = [b'0'; 5];
        for (to, from) in state.iter_mut().zip(self.sql_state.bytes()) {
            *to = from;
        }
        out.extend_from_slice(&state);
        out.extend_from_slice(self.message.as_bytes());
    }

    /// Appends the payload without an SQL state, for an error packet that is sent instead of a greeting.
    pub fn encode_before_greeting(&self, out: &mut Vec<u8>) {
        out.push(ERR);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(self.message.as_bytes());
    }
}

/// An EOF packet, which ends a part of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EofPacket {
    /// The number of warnings that `SHOW WARNINGS` lists.
    pub warnings: u16,
    /// The status flags of the server.
    pub status: ServerStatus,
}

impl EofPacket {
    /// Returns whether `payload` is the packet that ends rows or column definitions. It must have been
    /// received in the place of a row or a column definition.
    ///
    /// A row may also begin with `0xfe` (if its first value has 16 MiB or more). So this function also checks
    /// the length of the payload.
    #[inline]
    pub fn ends(payload: &[u8], capabilities: Capabilities) -> bool {
        let bytes_max = if capabilities.has(Capabilities::DEPRECATE_EOF) {
            super::packet::PACKET_PAYLOAD_BYTES_MAX
        } else {
            9
        };
        payload.first() == Some(&EOF) && payload.len() < bytes_max
    }

    /// Parses the packet for which [`EofPacket::ends`] returns true: an EOF packet or the OK packet that
    /// replaces it.
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::Malformed`].
    pub fn parse(payload: &[u8], capabilities: Capabilities) -> Result<Self, WireError> {
        if capabilities.has(Capabilities::DEPRECATE_EOF) {
            let ok = OkPacket::parse(payload)?;
            return Ok(Self { warnings: ok.warnings, status: ok.status });
        }
        let mut cursor = ByteCursor::new("EOF packet", payload);
        let first = cursor.u8()?;
        if first != EOF {
            return Err(WireError::malformed("EOF packet", format!("the packet begins with {first:#04x}")));
        }
        Ok(Self { warnings: cursor.u16()?, status: ServerStatus(cursor.u16()?) })
    }

    /// Appends the payload of the packet. `capabilities` select between the EOF packet and the OK packet that
    /// replaces it.
    pub fn encode(&self, capabilities: Capabilities, out: &mut Vec<u8>) {
        if capabilities.has(Capabilities::DEPRECATE_EOF) {
            OkPacket { warnings: self.warnings, status: self.status, ..OkPacket::default() }.encode(EOF, out);
        } else {
            out.push(EOF);
            out.extend_from_slice(&self.warnings.to_le_bytes());
            out.extend_from_slice(&self.status.0.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_error_before_the_handshake_has_no_sql_state() {
        let error = ErrPacket::parse(b"\xff\x10\x04Too many connections").unwrap();
        assert_eq!((error.number, error.message.as_str()), (1040, "Too many connections"));
        assert_eq!(error.sql_state, "HY000");
        let mut out = Vec::new();
        error.encode_before_greeting(&mut out);
        assert_eq!(out, b"\xff\x10\x04Too many connections");
    }

    #[test]
    fn a_long_value_does_not_end_the_rows() {
        let mut row = vec![0xfe; 9];
        assert!(!EofPacket::ends(&row, Capabilities::default()));
        assert!(EofPacket::ends(&row, Capabilities::DEPRECATE_EOF));
        row.truncate(5);
        assert!(EofPacket::ends(&row, Capabilities::default()));
    }

    proptest! {
        #[test]
        fn packets_round_trip(
            rows: u64, id: u64, status: u16, warnings: u16, number: u16, message in ".{0,60}", deprecate: bool,
        ) {
            let ok = OkPacket {
                affected_rows: rows, last_insert_id: id, status: ServerStatus(status), warnings,
            };
            let mut out = Vec::new();
            ok.encode(OK, &mut out);
            prop_assert_eq!(OkPacket::parse(&out).unwrap(), ok);

            let error = ErrPacket { number, sql_state: "42000".to_owned(), message };
            let mut out = Vec::new();
            error.encode(&mut out);
            prop_assert_eq!(ErrPacket::parse(&out).unwrap(), error);

            let capabilities = if deprecate { Capabilities::DEPRECATE_EOF } else { Capabilities::default() };
            let eof = EofPacket { warnings, status: ServerStatus(status) };
            let mut out = Vec::new();
            eof.encode(capabilities, &mut out);
            prop_assert!(EofPacket::ends(&out, capabilities));
            prop_assert_eq!(EofPacket::parse(&out, capabilities).unwrap(), eof);
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes: Vec<u8>) {
            let _ = OkPacket::parse(&bytes);
            let _ = ErrPacket::parse(&bytes);
            let _ = EofPacket::parse(&bytes, Capabilities::default());
            let _ = EofPacket::parse(&bytes, Capabilities::DEPRECATE_EOF);
        }
    }
}
