//! Identifiers and string literals as SQL text. Every SQL statement that Tailwater builds quotes its names
//! and values with these functions.

use std::fmt::Write;

/// Returns an identifier in backticks. A backtick in the name is doubled.
pub fn quote_identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Appends an identifier in backticks. Works on bytes, because no byte of a multi-byte UTF-8 character is a
/// backtick.
pub fn put_identifier(out: &mut Vec<u8>, name: &[u8]) {
    out.push(b'`');
    for byte in name {
        out.extend(std::iter::repeat_n(*byte, 1 + usize::from(*byte == b'`')));
    }
    out.push(b'`');
}

/// Returns the quoted name of a table or another object with its schema: `` `schema`.`name` ``.
pub fn qualified_name(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

/// Returns a string literal for sessions whose `sql_mode` does not have `NO_BACKSLASH_ESCAPES`.
///
/// Replication statements (`CHANGE REPLICATION SOURCE`) accept only this form of literal. They accept neither
/// hexadecimal literals nor character set introducers.
pub fn string_literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('\'');
    for letter in text.chars() {
        match letter {
            '\'' => literal.push_str("''"),
            '\\' => literal.push_str("\\\\"),
            '\0' => literal.push_str("\\0"),
            other => literal.push(other),
        }
    }
    literal.push('\'');
    literal
}

/// Returns the texts as literals, separated by commas. Each literal is in the form of [`string_literal`].
pub fn string_literals<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(string_literal).collect::<Vec<_>>().join(",")
}

/// Returns a string literal that is correct in every `sql_mode` and with every connection character set.
///
/// Quotes are doubled. A text with a backslash, a control character or a character outside ASCII becomes a
/// hexadecimal literal.
pub fn portable_literal(text: &str) -> String {
    if text.chars().any(|letter| !letter.is_ascii() || letter == '\\' || letter.is_control()) {
        return hex_literal(Some("utf8mb4"), text.as_bytes());
    }
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns bytes as a hexadecimal literal: `_charset X'..'`, or without `charset` a binary string `X'..'`.
///
/// `charset` must be the name of a character set, because it is not quoted.
pub fn hex_literal(charset: Option<&str>, bytes: &[u8]) -> String {
    let introducer_bytes = charset.map_or(0, |charset| charset.len() + 2);
    let mut literal = String::with_capacity(introducer_bytes + 2 * bytes.len() + 3);
    if let Some(charset) = charset {
        // Writing to a string cannot fail.
        let _ = write!(literal, "_{charset} ");
    }
    literal.push_str("X'");
    for byte in bytes {
        let _ = write!(literal, "{byte:02X}");
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backtick_in_an_identifier_is_doubled() {
        assert_eq!(qualified_name("a`b", "c"), "`a``b`.`c`");
        let mut out = Vec::new();
        put_identifier(&mut out, b"a`\xff");
        assert_eq!(out, b"`a``\xff`");
    }

    #[test]
    fn a_string_literal_escapes_quotes_backslashes_and_zeros() {
        assert_eq!(string_literals(["it's", "\\", "\0"]), r"'it''s','\\','\0'");
        assert_eq!(string_literal("it's a \\ pass"), r"'it''s a \\ pass'");
    }

    #[test]
    fn a_portable_literal_has_no_backslash() {
        assert_eq!(portable_literal("it's"), "'it''s'");
        assert_eq!(portable_literal("a\\"), "_utf8mb4 X'615C'");
        assert_eq!(portable_literal("é"), "_utf8mb4 X'C3A9'");
    }

    #[test]
    fn a_hexadecimal_literal_names_its_character_set() {
        assert_eq!(hex_literal(None, &[0, 0xab, 0xff]), "X'00ABFF'");
        assert_eq!(hex_literal(Some("latin1"), b"a'"), "_latin1 X'6127'");
        assert_eq!(hex_literal(None, b""), "X''");
    }
}
