//! Which rows a chunk has: a range of a table's key.

use serde::{Deserialize, Serialize};

/// A key value as an SQL literal that the server compares in the same way as the column. It is a number, a
/// string in quotes, or hexadecimal bytes that follow the name of a character set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyLiteral(pub String);

impl KeyLiteral {
    /// Returns whether the text is a single SQL literal. Values that are read from a file become part of
    /// statements, so nothing else is accepted.
    pub fn is_literal(&self) -> bool {
        let quoted = |text: &str, allowed: fn(u8) -> bool| {
            let inside = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
            inside.is_some_and(|inside| inside.bytes().all(allowed))
        };
        let text = self.0.as_str();
        let behind_charset = match text.strip_prefix('_').and_then(|text| text.split_once(' ')) {
            Some((charset, rest)) if charset.bytes().all(|byte| byte.is_ascii_alphanumeric()) => rest,
            _ => text,
        };
        if let Some(digits) = behind_charset.strip_prefix('X') {
            return quoted(digits, |byte| byte.is_ascii_hexdigit());
        }
        quoted(text, |byte| byte.is_ascii_alphanumeric() || b"-:. ".contains(&byte))
            || text.parse::<f64>().is_ok_and(f64::is_finite)
    }
}

impl KeyRange {
    /// Returns whether all keys of the range are literals.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Keys { after, to } => after.iter().chain(to).flatten().all(KeyLiteral::is_literal),
            Self::All | Self::Nulls | Self::Integers { .. } => true,
        }
    }
}

/// Which rows a chunk has, in a table or in one of its partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkRange {
    /// The partition; absent for tables without partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The range of the key.
    pub keys: KeyRange,
}

/// A range of a key. The ranges that a chunker returns cover every row of its table exactly once, whatever
/// rows the table has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyRange {
    /// All rows.
    All,
    /// Rows that have NULL in a column of the key. A unique key allows several such rows.
    Nulls,
    /// Integers from `from` to `to`, both included. An absent end means no limit.
    Integers {
        /// The lowest key of the range.
        #[serde(deserialize_with = "Option::deserialize")]
        from: Option<i128>,
        /// The highest key of the range.
        #[serde(deserialize_with = "Option::deserialize")]
        to: Option<i128>,
    },
    /// Keys after `after`, up to and including `to`, in the server's order. An absent end means no limit.
    Keys {
        /// The last key before the range.
        #[serde(deserialize_with = "Option::deserialize")]
        after: Option<Vec<KeyLiteral>>,
        /// The last key of the range.
        #[serde(deserialize_with = "Option::deserialize")]
        to: Option<Vec<KeyLiteral>>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_literals_are_accepted() {
        let is = |text: &str| KeyLiteral(text.to_owned()).is_literal();
        for good in
            ["-1.50", "18446744073709551615", "1e-300", "'-838:59:59.000'", "X''", "_latin1 X'E4'", "''"]
        {
            assert!(is(good), "a literal was refused: {good}");
        }
        for bad in
            ["", "1 OR 1", "'a' OR 'b'", "X'00", "_latin1 X'zz'", "_x SLEEP(1)", "NULL", "inf", "'''", "'\\'"]
        {
            assert!(!is(bad), "text that is not a literal was accepted: {bad}");
        }
    }
}
