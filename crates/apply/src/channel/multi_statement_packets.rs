//! Joins SQL statements into few packets. Many statements then need only one round trip. After a statement
//! that fails, no later statement runs.

use tailwater_session::Connection;

use crate::dml_statement::SqlStatement;
use crate::error::ApplyError;

/// Statements are joined up to this many bytes. A longer statement is sent alone.
const JOINED_BYTES_MAX: usize = 1 << 20;

/// How many bytes of a statement are searched for the start of its values. Error messages show a statement
/// only up to its values.
const SHOWN_BYTES_MAX: usize = 1000;

/// Statements to run on the target, in this order.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    packets: Vec<Packet>,
    changes: usize,
}

#[derive(Debug)]
struct Packet {
    text: Vec<u8>,
    statements: usize,
    /// The number of rows that the statement must match. Such a statement is sent alone, because only the
    /// last statement of a packet reports its number of rows.
    rows: Option<u64>,
}

impl Packets {
    /// Adds a statement.
    pub(crate) fn push(&mut self, statement: impl Into<Vec<u8>> + AsRef<[u8]>) {
        let length = statement.as_ref().len();
        match self.packets.last_mut() {
            Some(last) if last.rows.is_none() && last.text.len() + length < JOINED_BYTES_MAX => {
                last.text.push(b';');
                last.text.extend_from_slice(statement.as_ref());
                last.statements += 1;
            }
            _ => self.packets.push(Packet { text: statement.into(), statements: 1, rows: None }),
        }
    }

    /// Adds a statement that may have to match a certain number of rows.
    pub(crate) fn push_sql(&mut self, statement: SqlStatement) {
        match statement.rows {
            None => self.push(statement.text),
            rows => self.packets.push(Packet { text: statement.text, statements: 1, rows }),
        }
    }

    /// Adds `changes` to the number of changes in these packets. The number matters for nontransactional
    /// tables, because a server logs each change of such a table as a separate transaction.
    pub(crate) fn count_changes(&mut self, changes: usize) {
        self.changes += changes;
    }

    /// Returns the counted changes.
    pub(crate) fn changes(&self) -> usize {
        self.changes
    }

    /// Returns the total length of the statements, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.packets.iter().map(|packet| packet.text.len()).sum()
    }

    /// Runs the statements in order, up to the first that fails.
    ///
    /// # Errors
    /// [`ApplyError::Session`] for the statement that failed or for the connection;
    /// [`ApplyError::RowsMissing`].
    pub(crate) async fn run(self, connection: &mut Connection) -> Result<(), ApplyError> {
        for packet in self.packets {
            let ok = connection.execute_all(&packet.text, packet.statements).await?;
            ensure_found(ok.affected_rows, packet.rows, &packet.text)?;
        }
        Ok(())
    }
}

/// Checks that a statement matched the wanted number of rows. `text` is the beginning of the statement.
///
/// # Errors
/// [`ApplyError::RowsMissing`].
pub(crate) fn ensure_found(found: u64, wanted: Option<u64>, text: &[u8]) -> Result<(), ApplyError> {
    let Some(wanted) = wanted.filter(|wanted| *wanted != found) else { return Ok(()) };
    let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES_MAX)]);
    let end = [" VALUES", " WHERE", " SET "].iter().filter_map(|word| text.find(word)).min();
    // The error shows the statement only up to its values.
    let statement = text[..end.unwrap_or(0)].trim_end().to_owned();
    Err(ApplyError::RowsMissing { found, wanted, statement })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_statements_share_a_packet_and_long_statements_do_not() {
        let mut packets = Packets::default();
        packets.push("BEGIN");
        packets.push("DO 1");
        packets.push(vec![b'x'; JOINED_BYTES_MAX]);
        packets.push("COMMIT");
        let lengths: Vec<_> = packets.packets.iter().map(|packet| packet.text.len()).collect();
        assert_eq!(lengths, [10, JOINED_BYTES_MAX, 6]);
        assert_eq!(packets.packets[0].text, b"BEGIN;DO 1");
        assert_eq!(packets.packets[0].statements, 2);
        assert_eq!(packets.bytes(), JOINED_BYTES_MAX + 16);
    }
}
