//! Rows of values for a prepared statement: how a server answers COM_STMT_PREPARE, and what stands in MariaDB's
//! COM_STMT_BULK_EXECUTE.

use crate::WireError;
use crate::cursor::{ByteCursor, put_lenenc_bytes};

/// The types of all values are told with them.
const SEND_TYPES: u16 = 128;

/// `MYSQL_TYPE_BLOB`: bytes without a character set, which become whatever their column holds.
const TYPE_BLOB: u8 = 252;

/// What stands before a value, and what in place of one that is NULL.
const VALUE: u8 = 0;
const NULL: u8 = 1;

/// The answer to COM_STMT_PREPARE. Behind it come definitions of its parameters, and of its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrepareOk {
    /// What the server calls the statement.
    pub id: u32,
    /// How many columns it gives.
    pub columns: u16,
    /// How many values it takes.
    pub parameters: u16,
}

impl PrepareOk {
    /// Parses the answer's first packet.
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::Malformed`].
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("answer to COM_STMT_PREPARE", payload);
        match cursor.u8()? {
            0 => Ok(Self { id: cursor.u32()?, columns: cursor.u16()?, parameters: cursor.u16()? }),
            other => Err(WireError::malformed(
                "answer to COM_STMT_PREPARE",
                format!("it begins with {other:#04x}"),
            )),
        }
    }
}

/// Appends what stands before the rows: for which statement they are, and that all values are bytes.
pub fn put_head(out: &mut Vec<u8>, statement: PrepareOk) {
    out.extend_from_slice(&statement.id.to_le_bytes());
    out.extend_from_slice(&SEND_TYPES.to_le_bytes());
    for _ in 0..statement.parameters {
        out.extend_from_slice(&[TYPE_BLOB, 0]);
    }
}

/// Appends the next value of the rows, each of which has as many as the statement takes.
pub fn put_value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) => {
            out.push(VALUE);
            put_lenenc_bytes(out, value);
        }
        None => out.push(NULL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_another_is_refused() {
        let prepared = PrepareOk { id: 0x0403_0201, columns: 5, parameters: 2 };
        assert_eq!(PrepareOk::parse(&[0, 1, 2, 3, 4, 5, 0, 2, 0, 0, 0, 0]), Ok(prepared));
        assert!(PrepareOk::parse(&[0, 1, 2, 3, 4, 5, 0, 2]).is_err());
        assert!(PrepareOk::parse(&[1, 1, 2, 3, 4, 5, 0, 2, 0]).is_err());
        assert!(PrepareOk::parse(&[]).is_err());
    }

    #[test]
    fn values_stand_behind_their_lengths() {
        let mut out = Vec::new();
        put_head(&mut out, PrepareOk { id: 7, columns: 0, parameters: 2 });
        put_value(&mut out, Some(b"ab"));
        put_value(&mut out, None);
        assert_eq!(out, [7, 0, 0, 0, 128, 0, 252, 0, 252, 0, 0, 2, b'a', b'b', 1]);
    }
}
