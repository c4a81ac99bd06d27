//! Errors of foreign bytes.

/// Why bytes could not be parsed.
///
/// Offsets count from the start of the structure being parsed; the caller adds file and position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The input ends before the structure does.
    #[error("{what} is truncated: {needed} more bytes needed at offset {offset}")]
    Truncated {
        /// The structure being parsed.
        what: &'static str,
        /// The offset of the parser.
        offset: usize,
        /// The minimum number of missing bytes.
        needed: usize,
    },
    /// The bytes contradict the format.
    #[error("{what} is malformed: {reason}")]
    Malformed {
        /// The structure being parsed.
        what: &'static str,
        /// What contradicts the format.
        reason: String,
    },
    /// The format exists or may exist, but is not supported. It is never skipped silently.
    #[error("{what} is not supported: {detail}")]
    Unsupported {
        /// The structure being parsed.
        what: &'static str,
        /// The variant, version or type.
        detail: String,
    },
    /// The CRC32 at the end of an event does not match its bytes.
    #[error("the event's checksum is {computed:08x}, but {stored:08x} is stored in it")]
    Checksum {
        /// The checksum in the event.
        stored: u32,
        /// The checksum of the bytes received.
        computed: u32,
    },
    /// The value of a column in a row.
    #[error("column {column}: {error}")]
    Column {
        /// Its name, or its number from 1 if the binlog does not hold the name.
        column: String,
        /// The cause.
        error: Box<Self>,
    },
    /// A length exceeds a limit of this crate, which bounds memory.
    #[error("{what} of {size} bytes exceeds the limit of {size_max}")]
    TooLarge {
        /// The structure being parsed.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        size_max: u64,
    },
}

impl WireError {
    /// The stable code of this error, as documented in docs/reference/errors.md.
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

    /// A [`WireError::Malformed`].
    pub fn malformed(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Malformed { what, reason: reason.into() }
    }

    /// Adds the column of a row.
    #[must_use]
    pub fn in_column(self, column: &crate::rows::BinlogColumn, index: usize) -> Self {
        let column = column.name.clone().unwrap_or_else(|| (index + 1).to_string());
        Self::Column { column, error: Box::new(self) }
    }

    /// A [`WireError::Unsupported`].
    pub fn unsupported(what: &'static str, detail: impl Into<String>) -> Self {
        Self::Unsupported { what, detail: detail.into() }
    }
}
