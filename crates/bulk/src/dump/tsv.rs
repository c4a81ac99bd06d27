//! Rows as the lines that `LOAD DATA` takes by default: tabs between fields, a backslash before what would end one, `\N`
//! for NULL.

use tailwater_session::{RawRow, SessionError};

/// Appends a row as a line; behind an error half of it.
///
/// # Errors
/// If the row's bytes make no sense.
pub fn put_row(lines: &mut Vec<u8>, row: &RawRow) -> Result<(), SessionError> {
    for (index, value) in row.values().enumerate() {
        if index > 0 {
            lines.push(b'\t');
        }
        put_field(lines, value?);
    }
    lines.push(b'\n');
    Ok(())
}

/// Appends a field's value.
pub fn put_field(line: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else {
        line.extend_from_slice(b"\\N");
        return;
    };
    let mut rest = value;
    while let Some(at) = rest.iter().position(|&byte| matches!(byte, b'\\' | b'\t' | b'\n' | 0)) {
        line.extend_from_slice(&rest[..at]);
        line.extend_from_slice(match rest[at] {
            b'\t' => b"\\t",
            b'\n' => b"\\n",
            0 => b"\\0",
            _ => b"\\\\",
        });
        rest = &rest[at + 1..];
    }
    line.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(value: Option<&[u8]>) -> Vec<u8> {
        let mut line = Vec::new();
        put_field(&mut line, value);
        line
    }

    /// As servers read a field.
    fn read(field: &[u8]) -> Option<Vec<u8>> {
        if field == b"\\N" {
            return None;
        }
        let mut value = Vec::new();
        let mut bytes = field.iter();
        while let Some(&byte) = bytes.next() {
            value.push(match byte {
                b'\\' => match bytes.next() {
                    Some(b't') => b'\t',
                    Some(b'n') => b'\n',
                    Some(b'0') => 0,
                    Some(&other) => other,
                    None => b'\\',
                },
                _ => byte,
            });
        }
        Some(value)
    }

    #[test]
    fn what_would_end_a_field_is_escaped() {
        assert_eq!(field(None), b"\\N");
        assert_eq!(field(Some(b"")), b"");
        assert_eq!(field(Some(b"\\N")), b"\\\\N");
        assert_eq!(field(Some(b"a\tb\nc\0\r\xff")), b"a\\tb\\nc\\0\r\xff");
    }

    proptest! {
        #[test]
        fn fields_round_trip(value: Option<Vec<u8>>) {
            let field = field(value.as_deref());
            prop_assert!(!field.iter().any(|byte| matches!(byte, b'\t' | b'\n' | 0)));
            prop_assert_eq!(read(&field), value);
        }
    }
}
