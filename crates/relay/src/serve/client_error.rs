//! How a client is told no: the server's error numbers and, where there are any, its own words, since replicas and
//! monitoring look at both.

use std::borrow::Cow;
use std::fmt;

use tailwater_wire::protocol::ErrPacket;

/// The most bytes of an error's words: clients keep 512, with a zero behind them (`MYSQL_ERRMSG_SIZE`).
pub const MESSAGE_BYTES_MAX: usize = 511;

/// How much of a client's own words an error repeats, in bytes; what else it says has to fit too.
const QUOTED_BYTES_MAX: usize = 80;

/// An error for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientError {
    /// The server's number for it.
    pub code: u16,
    /// Five characters.
    pub sqlstate: &'static str,
    /// What is wrong and what to do; at most [`MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
}

impl ClientError {
    /// Ends a dump; a replica that gets it does not try again.
    pub const FATAL_ERROR_READING_BINLOG: u16 = 1236;
    /// A statement that the grammar does not have.
    pub const PARSE_ERROR: u16 = 1064;
    /// A statement that this server does not run.
    pub const NOT_SUPPORTED_YET: u16 = 1235;
    /// A statement that would change something here.
    pub const OPTION_PREVENTS_STATEMENT: u16 = 1290;
    /// There is no such variable.
    pub const UNKNOWN_SYSTEM_VARIABLE: u16 = 1193;
    /// An argument is not what a function takes.
    pub const WRONG_ARGUMENTS: u16 = 1210;
    /// There is no such function.
    pub const NO_SUCH_FUNCTION: u16 = 1305;
    /// There is no such column, as there are no tables.
    pub const UNKNOWN_COLUMN: u16 = 1054;
    /// A GTID set cannot be read.
    pub const MALFORMED_GTID_SET: u16 = 1772;
    /// A limit of ours.
    pub const OUT_OF_RESOURCES: u16 = 1041;

    /// An error by its number. Words beyond [`MESSAGE_BYTES_MAX`] are cut off, as clients would do.
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

    /// The packet.
    pub fn packet(&self) -> ErrPacket {
        ErrPacket { number: self.code, sql_state: self.sqlstate.to_owned(), message: self.message.clone() }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.code, self.sqlstate, self.message)
    }
}

/// As many whole characters of the beginning as there are in `bytes_max` bytes.
pub(crate) fn beginning(text: &str, bytes_max: usize) -> &str {
    (0..=bytes_max.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

/// Words of a client as an error repeats them: the beginning, if they are long.
pub(crate) fn quoted(words: &str) -> Cow<'_, str> {
    let shown = beginning(words, QUOTED_BYTES_MAX);
    if shown.len() < words.len() { format!("{shown}...").into() } else { words.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_would_cut_off_is_cut_between_characters() {
        let refusal = ClientError::dump("ä".repeat(300));
        assert_eq!(refusal.message, "ä".repeat(255));
        assert_eq!(quoted("name"), "name");
        assert_eq!(quoted(&"n".repeat(80)), "n".repeat(80));
        assert_eq!(quoted(&"€".repeat(80)), format!("{}...", "€".repeat(26)));
    }
}
