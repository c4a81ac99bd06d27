//! Statements, sent as few packets: one round trip for many, and none is run behind one that fails.

use tailwater_session::{Connection, SessionError};

/// Statements are joined up to this many bytes; a longer one goes alone.
const JOINED_BYTES_MAX: usize = 1 << 20;

/// Statements to be run one behind the other.
#[derive(Debug, Default)]
pub(super) struct Packets {
    packets: Vec<Vec<u8>>,
}

impl Packets {
    /// Adds a statement.
    pub(super) fn push(&mut self, statement: impl Into<Vec<u8>> + AsRef<[u8]>) {
        let length = statement.as_ref().len();
        match self.packets.last_mut() {
            Some(last) if last.len() + length < JOINED_BYTES_MAX => {
                last.push(b';');
                last.extend_from_slice(statement.as_ref());
            }
            _ => self.packets.push(statement.into()),
        }
    }

    /// Bytes in all.
    pub(super) fn bytes(&self) -> usize {
        self.packets.iter().map(Vec::len).sum()
    }

    /// Runs them, and stops at the first that fails.
    ///
    /// # Errors
    /// [`SessionError::Server`] for the statement that failed; anything that breaks the connection.
    pub(super) async fn run(self, connection: &mut Connection) -> Result<(), SessionError> {
        for packet in self.packets {
            connection.execute_bytes(&packet).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_statements_share_a_packet_and_long_ones_do_not() {
        let mut packets = Packets::default();
        packets.push("BEGIN");
        packets.push("DO 1");
        packets.push(vec![b'x'; JOINED_BYTES_MAX]);
        packets.push("COMMIT");
        let lengths: Vec<_> = packets.packets.iter().map(Vec::len).collect();
        assert_eq!(lengths, [10, JOINED_BYTES_MAX, 6]);
        assert_eq!(packets.packets[0], b"BEGIN;DO 1");
        assert_eq!(packets.bytes(), JOINED_BYTES_MAX + 16);
    }
}
