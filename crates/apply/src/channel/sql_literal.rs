//! SQL literals.

use std::fmt::Write;

/// A string literal for any `sql_mode` and any session character set. Quotes are doubled. Strings with a
/// backslash, a control character or non-ASCII text are written in hexadecimal.
pub(crate) fn quote(text: &str) -> String {
    if text.chars().any(|c| !c.is_ascii() || c == '\\' || c.is_control()) {
        let mut literal = String::from("_utf8mb4 x'");
        for byte in text.bytes() {
            // Writing to a string cannot fail.
            let _ = write!(literal, "{byte:02x}");
        }
        literal.push('\'');
        return literal;
    }
    format!("'{}'", text.replace('\'', "''"))
}

/// Appends `bytes` as hexadecimal digits.
pub(super) fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 * bytes.len());
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_quoted_or_hexadecimal() {
        assert_eq!(quote("it's"), "'it''s'");
        assert_eq!(quote("a\\"), "_utf8mb4 x'615c'");
        let mut out = Vec::new();
        hex(&[0, 0xab, 0xff], &mut out);
        assert_eq!(out, b"00abff");
    }
}
