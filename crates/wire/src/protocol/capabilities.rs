//! Capability flags and server status flags of the protocol.

use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

macro_rules! bits {
    ($(#[$doc:meta])* $type:ident: $int:ty { $($(#[$bit_doc:meta])* $name:ident = $shift:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $type(pub $int);

        impl $type {
            $($(#[$bit_doc])* pub const $name: Self = Self(1 << $shift);)*

            /// Returns whether all bits of `other` are set.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the bits of both values. Can be used in constants.
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl BitOr for $type {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl BitAnd for $type {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl Sub for $type {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut rest = *self;
                let mut first = true;
                $(
                    if self.has(Self::$name) {
                        rest = rest - Self::$name;
                        f.write_str(if first { "" } else { "|" })?;
                        f.write_str(stringify!($name))?;
                        first = false;
                    }
                )*
                match (first, rest.0) {
                    (true, 0) => f.write_str("0"),
                    (_, 0) => Ok(()),
                    (true, other) => write!(f, "{other:#x}"),
                    (false, other) => write!(f, "|{other:#x}"),
                }
            }
        }
    };
}

bits! {
    /// The capabilities of client and server. A capability applies if both announce it.
    Capabilities: u32 {
        /// MySQL sets this bit. MariaDB clears it to announce its extended capabilities.
        LONG_PASSWORD = 0;
        /// `affected rows` counts the rows that matched, not only the rows that changed.
        FOUND_ROWS = 1;
        /// The flags of a column definition take two bytes.
        LONG_FLAG = 2;
        /// The client's answer to the greeting names a database.
        CONNECT_WITH_DB = 3;
        /// The server refuses `db.table.column`.
        NO_SCHEMA = 4;
        /// Packets are compressed with zlib.
        COMPRESS = 5;
        /// No meaning since MySQL 3.22.
        ODBC = 6;
        /// The client can send files for `LOAD DATA LOCAL`.
        LOCAL_FILES = 7;
        /// The server ignores spaces before `(`.
        IGNORE_SPACE = 8;
        /// The protocol of MySQL 4.1 and later. Tailwater requires it.
        PROTOCOL_41 = 9;
        /// The server uses `interactive_timeout` instead of `wait_timeout`.
        INTERACTIVE = 10;
        /// The connection uses TLS.
        SSL = 11;
        /// No meaning.
        IGNORE_SIGPIPE = 12;
        /// The server reports its status in every OK packet.
        TRANSACTIONS = 13;
        /// The old name of the 4.1 protocol.
        RESERVED = 14;
        /// The authentication data has 20 bytes or more.
        SECURE_CONNECTION = 15;
        /// The client may send several statements in one COM_QUERY.
        MULTI_STATEMENTS = 16;
        /// The client accepts several results for one COM_QUERY.
        MULTI_RESULTS = 17;
        /// The client accepts several results for one COM_STMT_EXECUTE.
        PS_MULTI_RESULTS = 18;
        /// Client and server support authentication plugins.
        PLUGIN_AUTH = 19;
        /// The client sends connection attributes.
        CONNECT_ATTRS = 20;
        /// The authentication data may be longer than 255 bytes.
        PLUGIN_AUTH_LENENC_DATA = 21;
        /// The client can handle an expired password.
        CAN_HANDLE_EXPIRED_PASSWORDS = 22;
        /// OK packets hold changes of the session state.
        SESSION_TRACK = 23;
        /// Results end with an OK packet instead of an EOF packet.
        DEPRECATE_EOF = 24;
        /// The server may omit the metadata of results.
        OPTIONAL_RESULTSET_METADATA = 25;
        /// Packets are compressed with zstd.
        ZSTD_COMPRESSION = 26;
        /// COM_QUERY holds query attributes.
        QUERY_ATTRIBUTES = 27;
        /// The authentication may have several factors.
        MULTI_FACTOR_AUTHENTICATION = 28;
        /// No meaning in the protocol.
        CAPABILITY_EXTENSION = 29;
        /// No meaning in the protocol.
        SSL_VERIFY_SERVER_CERT = 30;
        /// No meaning in the protocol.
        REMEMBER_OPTIONS = 31;
    }
}

bits! {
    /// MariaDB's extended capabilities: bits 32 and higher in MariaDB's numbering.
    MariadbCapabilities: u32 {
        /// ERR packets may report progress.
        PROGRESS = 0;
        /// COM_MULTI, which MariaDB removed.
        COM_MULTI = 1;
        /// The server supports bulk execution of prepared statements.
        STMT_BULK_OPERATIONS = 2;
        /// Column definitions hold extended type names.
        EXTENDED_METADATA = 3;
        /// The server may omit column definitions that did not change.
        CACHE_METADATA = 4;
        /// Bulk execution returns one result per row.
        BULK_UNIT_RESULTS = 5;
    }
}

bits! {
    /// The status flags of the server in OK and EOF packets.
    ServerStatus: u16 {
        /// A transaction is open.
        IN_TRANS = 0;
        /// Autocommit is on.
        AUTOCOMMIT = 1;
        /// Another result follows this result.
        MORE_RESULTS_EXISTS = 3;
        /// No good index was used.
        NO_GOOD_INDEX_USED = 4;
        /// No index was used.
        NO_INDEX_USED = 5;
        /// A cursor is open.
        CURSOR_EXISTS = 6;
        /// The last row of the cursor was sent.
        LAST_ROW_SENT = 7;
        /// A database was dropped.
        DB_DROPPED = 8;
        /// A backslash in a string literal is not an escape.
        NO_BACKSLASH_ESCAPES = 9;
        /// The metadata of a prepared statement changed.
        METADATA_CHANGED = 10;
        /// The query was slow.
        QUERY_WAS_SLOW = 11;
        /// The result holds the output parameters of a procedure.
        PS_OUT_PARAMS = 12;
        /// The open transaction is read-only.
        IN_TRANS_READONLY = 13;
        /// The session state changed.
        SESSION_STATE_CHANGED = 14;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_printed_by_name() {
        let capabilities = Capabilities::SSL | Capabilities::PROTOCOL_41;
        assert_eq!(format!("{capabilities:?}"), "PROTOCOL_41|SSL");
        assert_eq!(format!("{:?}", Capabilities(0)), "0");
        assert_eq!(format!("{:?}", ServerStatus(0x8001)), "IN_TRANS|0x8000");
        assert!(capabilities.has(Capabilities::SSL) && !capabilities.has(Capabilities::COMPRESS));
        assert_eq!(capabilities - Capabilities::SSL, Capabilities::PROTOCOL_41);
    }
}
