//! Errors that the binlog server sends to a client. They have the error numbers of MySQL and MariaDB, and the
//! text of those servers where one exists. Replicas and monitoring check both.

use std::borrow::Cow;
use std::fmt;

use tailwater_wire::protocol::ErrPacket;

/// The maximum length of an error's text in bytes. Clients keep 512 bytes with a terminating zero
/// (`MYSQL_ERRMSG_SIZE`).
pub const MESSAGE_BYTES_MAX: usize = 511;

/// The maximum length in bytes of a part of a client's statement that an error quotes. The rest of the
/// message must fit too.
const QUOTED_BYTES_MAX: usize = 80;

/// An error for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientError {
    /// The error number, as the servers use it.
    pub code: u16,
    /// The SQLSTATE, five characters.
    pub sqlstate: &'static str,
    /// The cause and the remedy; at most [`MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
}

impl ClientError {
    /// Ends a binlog stream. A replica that gets this error does not retry.
    pub const FATAL_ERROR_READING_BINLOG: u16 = 1236;
    /// The statement is not in the supported grammar.
    pub const PARSE_ERROR: u16 = 1064;
    /// A statement that this server does not support.
    pub const NOT_SUPPORTED_YET: u16 = 1235;
    /// The statement would change something.
    pub const OPTION_PREVENTS_STATEMENT: u16 = 1290;
    /// An unknown system variable.
    pub const UNKNOWN_SYSTEM_VARIABLE: u16 = 1193;
    /// A function or statement has a wrong argument.
    pub const WRONG_ARGUMENTS: u16 = 1210;
    /// An unknown function.
    pub const NO_SUCH_FUNCTION: u16 = 1305;
    /// The column is unknown; this server has no tables.
    pub const UNKNOWN_COLUMN: u16 = 1054;
    /// A GTID set that cannot be parsed.
    pub const MALFORMED_GTID_SET: u16 = 1772;
    /// The statement exceeds a limit of this server.
    pub const OUT_OF_RESOURCES: u16 = 1041;

    /// Creates an error with this number. Cuts off a message that is longer than [`MESSAGE_BYTES_MAX`], as
    /// clients would do.
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

    /// An error that ends a binlog stream.
    pub fn dump(message: impl Into<String>) -> Self {
        Self::new(Self::FATAL_ERROR_READING_BINLOG, message)
    }

    /// The error as a packet.
    pub fn packet(&self) -> ErrPacket {
        ErrPacket { number: self.code, sql_state: self.sqlstate.to_owned(), message: self.message.clone() }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.code, self.sqlstate, self.message)
    }
}

/// The longest prefix of `text` that has at most `bytes_max` bytes and does not cut a character.
pub(crate) fn beginning(text: &str, bytes_max: usize) -> &str {
    (0..=bytes_max.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

/// Shortens a part of a client's statement to the length that an error may quote.
pub(crate) fn quoted(words: &str) -> Cow<'_, str> {
    let shown = beginning(words, QUOTED_BYTES_MAX);
    if shown.len() < words.len() { format!("{shown}...").into() } else { words.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let refusal = ClientError::dump("ä".repeat(300));
        assert_eq!(refusal.message, "ä".repeat(255));
        assert_eq!(quoted("name"), "name");
        assert_eq!(quoted(&"n".repeat(80)), "n".repeat(80));
        assert_eq!(quoted(&"€".repeat(80)), format!("{}...", "€".repeat(26)));
    }
}
