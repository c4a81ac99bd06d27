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
    while let Some(at) = place_of_special(rest) {
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

/// Bytes that are looked at together: as many as the compiler makes few instructions of.
const BLOCK_BYTES: usize = 32;

fn is_special(byte: u8) -> bool {
    (byte == b'\\') | (byte == b'\t') | (byte == b'\n') | (byte == 0)
}

/// Where the first byte stands that must be escaped, or that ends a field or is an escape. Most values have none, and most of a dump's time would go into looking
/// byte by byte.
pub(crate) fn place_of_special(value: &[u8]) -> Option<usize> {
    // Without leaving a block early it is one pass over all its bytes at once.
    let plain = |block: &&[u8]| !block.iter().fold(false, |any, &byte| any | is_special(byte));
    let mut at = value.chunks_exact(BLOCK_BYTES).take_while(plain).count() * BLOCK_BYTES;
    at += value[at..].chunks_exact(8).take_while(|word| is_plain_word(word)).count() * 8;
    Some(at + value[at..].iter().position(|&byte| is_special(byte))?)
}

/// Whether none of eight bytes is special, all looked at as one number.
fn is_plain_word(word: &[u8]) -> bool {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let Ok(bytes) = word.try_into() else { return false };
    let word = u64::from_ne_bytes(bytes);
    // Not 0 if, and only if, one of the bytes is `byte`.
    let has = |byte: u8| {
        let others = word ^ (LOW * u64::from(byte));
        others.wrapping_sub(LOW) & !others & HIGH
    };
    has(b'\\') | has(b'\t') | has(b'\n') | has(0) == 0
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

    #[test]
    fn a_special_byte_is_found_wherever_it_stands() {
        for length in [0, 1, 31, 32, 33, 64, 100] {
            assert_eq!(place_of_special(&vec![b'a'; length]), None);
            for at in 0..length {
                let mut value = vec![b'a'; length];
                value[at] = b'\t';
                value[length - 1] = 0;
                assert_eq!(place_of_special(&value), Some(at));
            }
        }
    }

    proptest! {
        #[test]
        fn the_first_special_byte_is_found(value: Vec<u8>, letters in "[a-z\\\\\t\n]{0,100}") {
            for value in [&value[..], letters.as_bytes()] {
                prop_assert_eq!(place_of_special(value), value.iter().position(|&byte| is_special(byte)));
            }
        }

        #[test]
        fn fields_round_trip(value: Option<Vec<u8>>) {
            let field = field(value.as_deref());
            prop_assert!(!field.iter().any(|byte| matches!(byte, b'\t' | b'\n' | 0)));
            prop_assert_eq!(read(&field), value);
        }
    }
}
