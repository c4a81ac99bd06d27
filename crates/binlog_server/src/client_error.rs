//! Errors sent to a client: the servers' error numbers and, where they exist, the servers' texts, because
//! replicas and monitoring look at both.

use std::borrow::Cow;
use std::fmt;

use tailwater_wire::protocol::ErrPacket;

/// Upper limit of an error's text in bytes: clients keep 512, with a terminating zero (`MYSQL_ERRMSG_SIZE`).
pub const MESSAGE_BYTES_MAX: usize = 511;

/// Upper limit, in bytes, of a client's own text that an error repeats; the rest of the message must fit too.
const QUOTED_BYTES_MAX: usize = 80;

/// An error for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientError {
    /// The servers' error number.
    pub code: u16,
    /// The SQLSTATE, five characters.
    pub sqlstate: &'static str,
    /// The cause and the remedy; at most [`MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
}

impl ClientError {
    /// Ends a dump; a replica that gets it does not retry.
    pub const FATAL_ERROR_READING_BINLOG: u16 = 1236;
    /// A statement that the grammar does not contain.
    pub const PARSE_ERROR: u16 = 1064;
    /// A statement that this server does not support.
    pub const NOT_SUPPORTED_YET: u16 = 1235;
    /// A statement that would change something.
    pub const OPTION_PREVENTS_STATEMENT: u16 = 1290;
    /// An unknown system variable.
    pub const UNKNOWN_SYSTEM_VARIABLE: u16 = 1193;
    /// A wrong argument of a function or statement.
    pub const WRONG_ARGUMENTS: u16 = 1210;
    /// An unknown function.
    pub const NO_SUCH_FUNCTION: u16 = 1305;
    /// An unknown column; there are no tables.
    pub const UNKNOWN_COLUMN: u16 = 1054;
    /// A GTID set that cannot be parsed.
    pub const MALFORMED_GTID_SET: u16 = 1772;
    /// A limit of this server.
    pub const OUT_OF_RESOURCES: u16 = 1041;

    /// An error with a number. Text beyond [`MESSAGE_BYTES_MAX`] is cut off, as clients do.
    pub fn new(code: u16, message: impl Into<String>) -> Self {
        let sqlstate = match code {
            Self::PARSE_ERROR | Self::NOT_SUPPORTED_YET | Self::NO_SUCH_FUNCTION => "42000",
            Self::UNKNOWN_COLUMN => "42S22",
            _ => "HY000",
        };
        let mut message = message.into();
        message.truncate(beginning(&message, MESSAGE_BYTES_MAX).len());
        Self { code, sqlstate, message }
    }

    /// An error that ends a dump.
    pub fn dump(message: impl Into<String>) -> Self {
        Self::new(Self::FATAL_ERROR_READING_BINLOG, message)
    }

    /// The error packet.
    pub fn packet(&self) -> ErrPacket {
        ErrPacket { number: self.code, sql_state: self.sqlstate.to_owned(), message: self.message.clone() }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.code, self.sqlstate, self.message)
    }
}

/// The longest prefix of whole characters within `bytes_max` bytes.
pub(crate) fn beginning(text: &str, bytes_max: usize) -> &str {
    (0..=bytes_max.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

/// A client's text as an error repeats it; long text is cut.
pub(crate) fn quoted(words: &str) -> Cow<'_, str> {
    let shown = beginning(words, QUOTED_BYTES_MAX);
    if shown.len() < words.len() { format!("{shown}...").into() } else { words.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters() {
        let refusal = ClientError::dump("ä".repeat(300));
        assert_eq!(refusal.message, "ä".repeat(255));
        assert_eq!(quoted("name"), "name");
        assert_eq!(quoted(&"n".repeat(80)), "n".repeat(80));
        assert_eq!(quoted(&"€".repeat(80)), format!("{}...", "€".repeat(26)));
    }
}
