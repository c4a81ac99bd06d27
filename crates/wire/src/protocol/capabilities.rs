//! Capability and status bits.

use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

macro_rules! bits {
    ($(#[$doc:meta])* $type:ident: $int:ty { $($(#[$bit_doc:meta])* $name:ident = $shift:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $type(pub $int);

        impl $type {
            $($(#[$bit_doc])* pub const $name: Self = Self(1 << $shift);)*

            /// Whether all bits of `other` are set.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// The bits of both, usable in constants.
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
    /// Capabilities of client and server; those that both announce are in force.
    Capabilities: u32 {
        /// Set by MySQL; MariaDB clears it to announce its extended capabilities.
        LONG_PASSWORD = 0;
        /// Affected rows count the rows found, not the rows changed.
        FOUND_ROWS = 1;
        /// Column flags take two bytes.
        LONG_FLAG = 2;
        /// The client's answer names a database.
        CONNECT_WITH_DB = 3;
        /// `db.table.column` is refused.
        NO_SCHEMA = 4;
        /// zlib compression.
        COMPRESS = 5;
        /// No meaning since 3.22.
        ODBC = 6;
        /// The client serves `LOAD DATA LOCAL`.
        LOCAL_FILES = 7;
        /// Spaces before `(` are ignored.
        IGNORE_SPACE = 8;
        /// The protocol of 4.1 and later; everything here needs it.
        PROTOCOL_41 = 9;
        /// `interactive_timeout` instead of `wait_timeout`.
        INTERACTIVE = 10;
        /// TLS.
        SSL = 11;
        /// No meaning.
        IGNORE_SIGPIPE = 12;
        /// The server reports its status with every OK.
        TRANSACTIONS = 13;
        /// The 4.1 protocol's old name.
        RESERVED = 14;
        /// Authentication data of 20 bytes and more.
        SECURE_CONNECTION = 15;
        /// Several statements in one COM_QUERY.
        MULTI_STATEMENTS = 16;
        /// Several results for one COM_QUERY.
        MULTI_RESULTS = 17;
        /// Several results for one COM_STMT_EXECUTE.
        PS_MULTI_RESULTS = 18;
        /// Authentication plugins.
        PLUGIN_AUTH = 19;
        /// Connection attributes.
        CONNECT_ATTRS = 20;
        /// Authentication data may be longer than 255 bytes.
        PLUGIN_AUTH_LENENC_DATA = 21;
        /// The client copes with an expired password.
        CAN_HANDLE_EXPIRED_PASSWORDS = 22;
        /// OK packets carry session state changes.
        SESSION_TRACK = 23;
        /// Results end with an OK packet instead of EOF packets.
        DEPRECATE_EOF = 24;
        /// Result metadata may be left out.
        OPTIONAL_RESULTSET_METADATA = 25;
        /// zstd compression.
        ZSTD_COMPRESSION = 26;
        /// COM_QUERY carries query attributes.
        QUERY_ATTRIBUTES = 27;
        /// Several authentication factors.
        MULTI_FACTOR_AUTHENTICATION = 28;
        /// No meaning on the wire.
        CAPABILITY_EXTENSION = 29;
        /// No meaning on the wire.
        SSL_VERIFY_SERVER_CERT = 30;
        /// No meaning on the wire.
        REMEMBER_OPTIONS = 31;
    }
}

bits! {
    /// MariaDB's extended capabilities: bits 32 and up in its numbering.
    MariadbCapabilities: u32 {
        /// ERR packets that report progress.
        PROGRESS = 0;
        /// COM_MULTI, withdrawn.
        COM_MULTI = 1;
        /// Bulk execution of prepared statements.
        STMT_BULK_OPERATIONS = 2;
        /// Column definitions carry extended type names.
        EXTENDED_METADATA = 3;
        /// Column definitions may be left out when unchanged.
        CACHE_METADATA = 4;
        /// Bulk execution answers with one result per row.
        BULK_UNIT_RESULTS = 5;
    }
}

bits! {
    /// The server's status bits in OK and EOF packets.
    ServerStatus: u16 {
        /// A transaction is open.
        IN_TRANS = 0;
        /// Autocommit is on.
        AUTOCOMMIT = 1;
        /// Another result follows.
        MORE_RESULTS_EXISTS = 3;
        /// No good index was used.
        NO_GOOD_INDEX_USED = 4;
        /// No index was used.
        NO_INDEX_USED = 5;
        /// A cursor is open.
        CURSOR_EXISTS = 6;
        /// The cursor's last row was sent.
        LAST_ROW_SENT = 7;
        /// A database was dropped.
        DB_DROPPED = 8;
        /// Backslash is no escape.
        NO_BACKSLASH_ESCAPES = 9;
        /// Metadata of a prepared statement changed.
        METADATA_CHANGED = 10;
        /// The query was slow.
        QUERY_WAS_SLOW = 11;
        /// The result is the output parameters of a procedure.
        PS_OUT_PARAMS = 12;
        /// The open transaction only reads.
        IN_TRANS_READONLY = 13;
        /// Session state changed.
        SESSION_STATE_CHANGED = 14;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_print_by_name() {
        let capabilities = Capabilities::SSL | Capabilities::PROTOCOL_41;
        assert_eq!(format!("{capabilities:?}"), "PROTOCOL_41|SSL");
        assert_eq!(format!("{:?}", Capabilities(0)), "0");
        assert_eq!(format!("{:?}", ServerStatus(0x8001)), "IN_TRANS|0x8000");
        assert!(capabilities.has(Capabilities::SSL) && !capabilities.has(Capabilities::COMPRESS));
        assert_eq!(capabilities - Capabilities::SSL, Capabilities::PROTOCOL_41);
    }
}
