//! Prepared statements that take many rows of values: the answer to COM_STMT_PREPARE, and MariaDB's
//! COM_STMT_BULK_EXECUTE.

use crate::WireError;
use crate::byte_cursor::{ByteCursor, put_lenenc_bytes};

/// `STMT_BULK_FLAG_CLIENT_SEND_TYPES`: the command holds the types of the values.
const SEND_TYPES: u16 = 128;

/// `MYSQL_TYPE_BLOB`: bytes without a character set. The server converts them to the column's type.
const TYPE_BLOB: u8 = 252;

/// The indicator byte before a value that is not NULL.
const VALUE: u8 = 0;
/// The indicator byte that represents NULL.
const NULL: u8 = 1;

/// The first packet of the answer to COM_STMT_PREPARE. The definitions of the parameters and columns follow
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrepareOk {
    /// The statement id.
    pub id: u32,
    /// The number of columns of the statement's result.
    pub columns: u16,
    /// The number of the statement's parameters.
    pub parameters: u16,
}

impl PrepareOk {
    /// Parses the first packet of the answer to COM_STMT_PREPARE.
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::Malformed`].
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("answer to COM_STMT_PREPARE", payload);
        match cursor.u8()? {
            0 => Ok(Self { id: cursor.u32()?, columns: cursor.u16()?, parameters: cursor.u16()? }),
            other => Err(WireError::malformed(
                "answer to COM_STMT_PREPARE",
                format!("the answer begins with {other:#04x}"),
            )),
        }
    }
}

/// Appends the start of COM_STMT_BULK_EXECUTE: the statement id and the type of the values. All values are
/// sent as bytes.
pub fn put_head(out: &mut Vec<u8>, statement: PrepareOk) {
    out.extend_from_slice(&statement.id.to_le_bytes());
    out.extend_from_slice(&SEND_TYPES.to_le_bytes());
    for _ in 0..statement.parameters {
        out.extend_from_slice(&[TYPE_BLOB, 0]);
    }
}

/// Appends the next value. Each row has as many values as the statement has parameters.
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
    fn only_an_ok_answer_to_prepare_is_parsed() {
        let prepared = PrepareOk { id: 0x0403_0201, columns: 5, parameters: 2 };
        assert_eq!(PrepareOk::parse(&[0, 1, 2, 3, 4, 5, 0, 2, 0, 0, 0, 0]), Ok(prepared));
        assert!(PrepareOk::parse(&[0, 1, 2, 3, 4, 5, 0, 2]).is_err());
        assert!(PrepareOk::parse(&[1, 1, 2, 3, 4, 5, 0, 2, 0]).is_err());
        assert!(PrepareOk::parse(&[]).is_err());
    }

    #[test]
    fn values_follow_their_lengths() {
        let mut out = Vec::new();
        put_head(&mut out, PrepareOk { id: 7, columns: 0, parameters: 2 });
        put_value(&mut out, Some(b"ab"));
        put_value(&mut out, None);
        assert_eq!(out, [7, 0, 0, 0, 128, 0, 252, 0, 252, 0, 0, 2, b'a', b'b', 1]);
    }
}
