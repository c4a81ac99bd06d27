//! Text of SQL.

use std::fmt::Write;

/// A string literal, whatever `sql_mode` says about backslashes and whatever character set the session speaks: quotes are
/// doubled, and strings that hold more than ASCII, a backslash or a control character are written in hexadecimal.
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

/// Hexadecimal digits of `bytes`.
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
    fn literals_say_what_they_hold() {
        assert_eq!(quote("it's"), "'it''s'");
        assert_eq!(quote("a\\"), "_utf8mb4 x'615c'");
        let mut out = Vec::new();
        hex(&[0, 0xab, 0xff], &mut out);
        assert_eq!(out, b"00abff");
    }
}
