//! Rows as lines in the format that `LOAD DATA` reads with its default options: tabs between fields, a
//! backslash before special bytes, and `\N` for NULL.

use tailwater_session::{RawRow, SessionError};

/// Appends a row as a line. After an error, the line is incomplete.
///
/// # Errors
/// If the row's bytes are malformed.
pub fn put_row(lines: &mut Vec<u8>, row: &RawRow<'_>) -> Result<(), SessionError> {
    if put_plain_row(lines, row) {
        return Ok(());
    }
    for (index, value) in row.values().enumerate() {
        if index > 0 {
            lines.push(b'\t');
        }
        put_field(lines, value?);
    }
    lines.push(b'\n');
    Ok(())
}

/// Maximum length of a value whose length is one byte in the protocol. A greater first byte means NULL, or
/// that the length has more bytes.
const SHORT_BYTES_MAX: u8 = 250;

/// A fast version of [`put_row`] for a row that has no NULL, only short values, and no byte that might need
/// an escape. For any other row it returns `false` and appends nothing.
///
/// The bytes of such a row are equal to its line, except for one thing: the row has a length byte before each
/// value, and the line has a tab after each value.
fn put_plain_row(lines: &mut Vec<u8>, row: &RawRow<'_>) -> bool {
    let Some((_, first)) = row.bytes().split_first() else { return false };
    let begin = lines.len();
    lines.extend_from_slice(first);
    lines.push(b'\n');
    let (mut rest, mut values) = (row.bytes(), 0);
    while let Some((&length, after)) = rest.split_first() {
        let value = after.get(..usize::from(length)).filter(|_| length <= SHORT_BYTES_MAX);
        let Some(value) = value.filter(|value| is_plain(value)) else { break };
        rest = &after[value.len()..];
        values += 1;
        // The row was copied with a length byte before each value. `end` is the position of the next value's
        // length byte, which a tab replaces. After the last value, it is the position of the end of the line.
        let end = lines.len() - 1 - rest.len();
        if !rest.is_empty() {
            lines[end] = b'\t';
        }
    }
    let is_whole = rest.is_empty() && values == row.columns();
    if !is_whole {
        lines.truncate(begin);
    }
    is_whole
}

/// Appends the value of a field.
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

/// Number of bytes that are tested together. The compiler generates few instructions for blocks of this size.
const BLOCK_BYTES: usize = 32;

fn is_special(byte: u8) -> bool {
    (byte == b'\\') | (byte == b'\t') | (byte == b'\n') | (byte == 0)
}

/// Returns the position of the first byte that must be escaped, or that ends a field or an escape in a file.
/// Most values have no such byte, and testing byte by byte would take most of a dump's time.
pub fn place_of_special(value: &[u8]) -> Option<usize> {
    // A block is tested without an early exit, so that the compiler can test all its bytes in one pass.
    let plain = |block: &&[u8]| !block.iter().fold(false, |any, &byte| any | is_special(byte));
    let mut at = value.chunks_exact(BLOCK_BYTES).take_while(plain).count() * BLOCK_BYTES;
    at += value[at..].chunks_exact(8).take_while(|word| is_plain_word(word)).count() * 8;
    Some(at + value[at..].iter().position(|&byte| is_special(byte))?)
}

/// Returns whether the bytes certainly contain no special byte. For this test, all bytes up to the line feed
/// count as special, which halves the number of comparisons.
fn is_plain(value: &[u8]) -> bool {
    // If the length of a block is constant, the compiler generates few instructions.
    #[inline(always)]
    fn are_plain(bytes: &[u8]) -> bool {
        !bytes.iter().fold(false, |any, &byte| any | (byte <= b'\n') | (byte == b'\\'))
    }
    // The last block overlaps the block before it. So no bytes remain that would have to be tested one by
    // one.
    fn in_blocks<const BYTES: usize>(value: &[u8], last: &[u8; BYTES]) -> bool {
        value.as_chunks::<BYTES>().0.iter().all(|block| are_plain(block)) && are_plain(last)
    }
    match (value.last_chunk::<BLOCK_BYTES>(), value.last_chunk::<8>()) {
        (Some(last), _) => in_blocks(value, last),
        (None, Some(last)) => in_blocks(value, last),
        (None, None) => are_plain(value),
    }
}

/// Returns whether none of eight bytes is special. The bytes are tested as one number.
fn is_plain_word(word: &[u8]) -> bool {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let Ok(bytes) = word.try_into() else { return false };
    let word = u64::from_ne_bytes(bytes);
    // The result is not 0 if and only if one of the eight bytes is `byte`.
    let has = |byte: u8| {
        let others = word ^ (LOW * u64::from(byte));
        others.wrapping_sub(LOW) & !others & HIGH
    };
    has(b'\\') | has(b'\t') | has(b'\n') | has(0) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tailwater_wire::protocol::resultset::encode_text_row;

    use super::*;

    fn field(value: Option<&[u8]>) -> Vec<u8> {
        let mut line = Vec::new();
        put_field(&mut line, value);
        line
    }

    /// Encodes a row in the wire format, and returns its line.
    fn line(values: &[Option<Vec<u8>>]) -> Vec<u8> {
        let mut payload = Vec::new();
        encode_text_row(values.iter().map(Option::as_deref), &mut payload);
        let mut lines = b"before\n".to_vec();
        put_row(&mut lines, &RawRow::new(&payload, values.len())).unwrap();
        lines.split_off(7)
    }

    /// Reads a field in the same way as servers.
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
    fn bytes_that_end_a_field_are_escaped() {
        assert_eq!(field(None), b"\\N");
        assert_eq!(field(Some(b"")), b"");
        assert_eq!(field(Some(b"\\N")), b"\\\\N");
        assert_eq!(field(Some(b"a\tb\nc\0\r\xff")), b"a\\tb\\nc\\0\r\xff");
    }

    #[test]
    fn a_special_byte_is_found_at_any_position() {
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
        fn the_line_of_a_row_has_its_fields_separated_by_tabs(
            values in prop::collection::vec(prop::option::of("[a-z]{0,300}|[a-z\\\\\t\n\0]{0,20}"), 1..6),
        ) {
            let values: Vec<_> = values.into_iter().map(|value| value.map(String::into_bytes)).collect();
            let fields: Vec<_> = values.iter().map(|value| field(value.as_deref())).collect();
            prop_assert_eq!(line(&values), [fields.join(&b'\t'), b"\n".to_vec()].concat());
        }

        #[test]
        fn malformed_rows_are_refused(payload: Vec<u8>, columns in 0..5usize) {
            let row = RawRow::new(&payload, columns);
            let is_row = row.values().all(|value| value.is_ok());
            prop_assert_eq!(put_row(&mut Vec::new(), &row).is_ok(), is_row);
        }

        #[test]
        fn fields_round_trip(value: Option<Vec<u8>>) {
            let field = field(value.as_deref());
            prop_assert!(!field.iter().any(|byte| matches!(byte, b'\t' | b'\n' | 0)));
            prop_assert_eq!(read(&field), value);
        }
    }
}
