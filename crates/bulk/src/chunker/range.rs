//! What a chunk covers: a range of a table's key, ends and all.

use serde::{Deserialize, Serialize};

/// One value of a key as an SQL literal that compares as the column does: a number, a quoted text, or bytes in hexadecimal
/// behind their character set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyLiteral(pub String);

impl KeyLiteral {
    /// Whether it is a literal and nothing else: what stands in a file becomes a part of statements.
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
    /// Whether its keys are literals.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Keys { after, to } => after.iter().chain(to).flatten().all(KeyLiteral::is_literal),
            Self::All | Self::Nulls | Self::Integers { .. } => true,
        }
    }
}

/// Which rows of a table, or of one of its partitions, a chunk holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkRange {
    /// Only this partition; absent for tables without partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Which keys.
    pub keys: KeyRange,
}

/// Which keys a chunk holds. The ranges of one walk cover every row once, whatever is in the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyRange {
    /// All rows.
    All,
    /// Rows with a NULL in one of the key's columns, which a unique key lets occur more than once.
    Nulls,
    /// Integers from `from` to `to`, both included; absent ends are open.
    Integers {
        /// The lowest.
        #[serde(deserialize_with = "Option::deserialize")]
        from: Option<i128>,
        /// The highest.
        #[serde(deserialize_with = "Option::deserialize")]
        to: Option<i128>,
    },
    /// Keys behind `after`, up to and including `to`, as the server orders them; absent ends are open.
    Keys {
        /// The last key that does not belong to it any more.
        #[serde(deserialize_with = "Option::deserialize")]
        after: Option<Vec<KeyLiteral>>,
        /// The last key that belongs to it.
        #[serde(deserialize_with = "Option::deserialize")]
        to: Option<Vec<KeyLiteral>>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_literals_are_literals() {
        let is = |text: &str| KeyLiteral(text.to_owned()).is_literal();
        for good in
            ["-1.50", "18446744073709551615", "1e-300", "'-838:59:59.000'", "X''", "_latin1 X'E4'", "''"]
        {
            assert!(is(good), "{good}");
        }
        for bad in
            ["", "1 OR 1", "'a' OR 'b'", "X'00", "_latin1 X'zz'", "_x SLEEP(1)", "NULL", "inf", "'''", "'\\'"]
        {
            assert!(!is(bad), "{bad}");
        }
    }
}
