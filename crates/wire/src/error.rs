//! Errors of parsing bytes that a server, a client or a file supplied.

/// Why bytes could not be parsed.
///
/// Offsets count from the start of the structure that is parsed. The caller adds the file and position to the
/// message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The input ends before the structure is complete.
    #[error("{what} is truncated: {needed} more bytes needed at offset {offset}")]
    Truncated {
        /// The structure being parsed.
        what: &'static str,
        /// The offset in the structure at which bytes are missing.
        offset: usize,
        /// The minimum number of missing bytes.
        needed: usize,
    },
    /// The bytes violate the format.
    #[error("{what} is malformed: {reason}")]
    Malformed {
        /// The structure being parsed.
        what: &'static str,
        /// What is wrong with the bytes.
        reason: String,
    },
    /// This crate does not support the format or a feature of it. Parsers return this error rather than skip
    /// the data silently.
    #[error("{what} is not supported: {detail}")]
    Unsupported {
        /// The structure being parsed.
        what: &'static str,
        /// The variant, version or type that is not supported.
        detail: String,
    },
    /// The CRC32 at the end of an event does not match its bytes.
    #[error("the event contains the checksum {stored:08x}, but its bytes have the checksum {computed:08x}")]
    Checksum {
        /// The checksum that is stored in the event.
        stored: u32,
        /// The checksum computed from the received bytes.
        computed: u32,
    },
    /// The value of a column in a row could not be parsed.
    #[error("column {column}: {error}")]
    Column {
        /// The name of the column, or its number from 1 if the binlog does not hold the name.
        column: String,
        /// Why the value could not be parsed.
        error: Box<Self>,
    },
    /// A length exceeds a limit of this crate. The limits bound the memory that a parser uses.
    #[error("{what} of {size} bytes exceeds the limit of {size_max}")]
    TooLarge {
        /// The structure being parsed.
        what: &'static str,
        /// The size of the structure in bytes.
        size: u64,
        /// The limit in bytes.
        size_max: u64,
    },
}

impl WireError {
    /// Returns the stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "TW-WIRE-0001",
            Self::Malformed { .. } => "TW-WIRE-0002",
            Self::Unsupported { .. } => "TW-WIRE-0003",
            Self::Checksum { .. } => "TW-WIRE-0004",
            Self::TooLarge { .. } => "TW-WIRE-0005",
            Self::Column { error, .. } => error.code(),
        }
    }

    /// Returns a [`WireError::Malformed`].
    pub fn malformed(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Malformed { what, reason: reason.into() }
    }

    /// Wraps the error in a [`WireError::Column`] that names the column of the row.
    #[must_use]
    pub fn in_column(self, column: &crate::row_event::BinlogColumn, index: usize) -> Self {
        let column = column.name.clone().unwrap_or_else(|| (index + 1).to_string());
        Self::Column { column, error: Box::new(self) }
    }

    /// Returns a [`WireError::Unsupported`].
    pub fn unsupported(what: &'static str, detail: impl Into<String>) -> Self {
        Self::Unsupported { what, detail: detail.into() }
    }
}
