//! The session variables that a statement depends on: the status variables of a `QUERY_EVENT`, in both
//! flavours.

use crate::WireError;
use crate::byte_cursor::ByteCursor;

const WHAT: &str = "query status variables";

/// The status variables of an event. If the event does not contain a variable, its field is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusVars<'a> {
    /// Session options as bits: see the `OPTION_*` constants.
    pub flags2: Option<u32>,
    /// The value of `sql_mode` as bits.
    pub sql_mode: Option<u64>,
    /// The catalog name, always `std`.
    pub catalog: Option<&'a [u8]>,
    /// `auto_increment_increment` and `auto_increment_offset`, unless both are 1.
    pub auto_increment: Option<AutoIncrement>,
    /// The collations of the client, the connection and the server.
    pub charset: Option<SessionCharset>,
    /// The value of `time_zone`.
    pub time_zone: Option<&'a [u8]>,
    /// The number of the locale in `lc_time_names`, if it is not `en_US`.
    pub lc_time_names: Option<u16>,
    /// The number of the collation in `collation_database`.
    pub charset_database: Option<u16>,
    /// For a multi-table update, one bit per table: set if the statement changes the table.
    pub table_map_for_update: Option<u64>,
    /// The length that the event had on the source, if the replica that wrote the relay log has changed the
    /// length (MySQL 5.0).
    pub master_data_written: Option<u32>,
    /// The account that is the default definer of objects that the statement creates.
    pub invoker: Option<Invoker<'a>>,
    /// The databases that the statement changes.
    pub updated_databases: Option<UpdatedDatabases<'a>>,
    /// The microseconds of the event's timestamp (MySQL).
    pub microseconds: Option<u32>,
    /// The logical clock as MySQL 5.7.2 to 5.7.4 wrote it.
    pub commit_ts: Option<u64>,
    /// The value of `explicit_defaults_for_timestamp`.
    pub explicit_defaults_for_timestamp: Option<bool>,
    /// The number of an atomic DDL statement in the storage engines (MySQL 8).
    pub ddl_xid: Option<u64>,
    /// The number of the collation in `default_collation_for_utf8mb4` (MySQL 8).
    pub default_collation_for_utf8mb4: Option<u16>,
    /// The value of `sql_require_primary_key` (MySQL 8).
    pub sql_require_primary_key: Option<u8>,
    /// The value of `default_table_encryption` (MySQL 8).
    pub default_table_encryption: Option<u8>,
    /// Whether triggers fire on rows changed by foreign keys (MySQL 9).
    pub enable_cascade_triggers: Option<u8>,
    /// The microseconds of the event's timestamp (MariaDB).
    pub hrnow: Option<u32>,
    /// The number of a DDL statement in the storage engines (MariaDB 10.6).
    pub xid: Option<u64>,
    /// Which half of a two-phase `ALTER TABLE` the statement is (MariaDB 10.8).
    pub gtid_flags: Option<GtidFlags>,
    /// `character_set_collations` (MariaDB 11.3): pairs of a character set and its default collation. The
    /// first number is the number of a collation of the character set. The second is the number of the
    /// default collation.
    pub character_set_collations: Option<Vec<(u16, u16)>>,
    /// The code of the first unknown variable and all bytes after it. Empty if every variable is known.
    pub unknown: &'a [u8],
}

/// The `AUTO_INCREMENT` settings of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoIncrement {
    /// The value of `auto_increment_increment`.
    pub increment: u16,
    /// The value of `auto_increment_offset`.
    pub offset: u16,
}

/// The collations of a session, as collation numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionCharset {
    /// A collation of the character set in `character_set_client`.
    pub client: u16,
    /// The number of the collation in `collation_connection`.
    pub connection: u16,
    /// The number of the collation in `collation_server`.
    pub server: u16,
}

/// The account that is the default definer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invoker<'a> {
    /// The user name or the role name.
    pub user: &'a [u8],
    /// The host name; empty for a role.
    pub host: &'a [u8],
}

/// The databases that a statement changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdatedDatabases<'a> {
    /// The statement changes only these databases.
    Named(Vec<&'a [u8]>),
    /// The statement changes more than 16 databases, the maximum that the event can name.
    TooMany,
}

/// The position of a statement in a two-phase `ALTER TABLE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GtidFlags {
    /// The `EXTRA_*` bits of [`super::MariadbGtidEvent`].
    pub flags_extra: u8,
    /// The sequence number of the `START ALTER` that this statement commits or rolls back.
    pub start_alter_sequence: Option<u64>,
}

impl<'a> StatusVars<'a> {
    /// In `flags2`: `autocommit` is off.
    pub const OPTION_NOT_AUTOCOMMIT: u32 = 1 << 19;
    /// In `flags2`: `sql_auto_is_null` is on.
    pub const OPTION_AUTO_IS_NULL: u32 = 1 << 14;
    /// In `flags2`: `foreign_key_checks` is off.
    pub const OPTION_NO_FOREIGN_KEY_CHECKS: u32 = 1 << 26;
    /// In `flags2`: `unique_checks` is off.
    pub const OPTION_RELAXED_UNIQUE_CHECKS: u32 = 1 << 27;

    /// In `flags2` of MariaDB: `check_constraint_checks` is off.
    pub const OPTION_NO_CHECK_CONSTRAINT_CHECKS: u32 = 1 << 15;
    /// In `flags2` of MariaDB: `explicit_defaults_for_timestamp` is on.
    pub const OPTION_EXPLICIT_DEFAULTS_FOR_TIMESTAMP: u32 = 1 << 24;
    /// In `flags2` of MariaDB: `sql_if_exists` is on.
    pub const OPTION_IF_EXISTS: u32 = 1 << 28;
    /// In `flags2` of MariaDB: `system_versioning_insert_history` is on.
    pub const OPTION_INSERT_HISTORY: u32 = 1 << 30;

    /// The maximum number of databases that servers name in the event.
    const UPDATED_DATABASES_MAX: u8 = 16;
    /// If one of these bits of [`GtidFlags::flags_extra`] is set, a sequence number follows:
    /// `EXTRA_COMMIT_ALTER | EXTRA_ROLLBACK_ALTER`.
    const GTID_FLAGS_WITH_SEQUENCE: u8 = 0x04 | 0x08;

    /// Parses the variables.
    ///
    /// The length of an unknown variable cannot be known. So parsing ends at the first unknown variable, as
    /// it does in the servers. [`StatusVars::unknown`] contains the rest of the bytes for the caller.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if a known variable ends early.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut vars = Self::default();
        let mut cursor = ByteCursor::new(WHAT, bytes);
        while let Some(code) = cursor.peek_u8() {
            let from_here = cursor.peek_rest();
            cursor.skip(1)?;
            if !vars.read(code, &mut cursor)? {
                vars.unknown = from_here;
                break;
            }
        }
        Ok(vars)
    }

    /// Reads the value of the variable with this `code`. Returns false if the code is unknown.
    fn read(&mut self, code: u8, cursor: &mut ByteCursor<'a>) -> Result<bool, WireError> {
        match code {
            0 => self.flags2 = Some(cursor.u32()?),
            1 => self.sql_mode = Some(cursor.u64()?),
            2 => {
                self.catalog = Some(short_bytes(cursor)?);
                // This is the oldest form of a catalog name. Only this form ends with a zero byte.
                cursor.skip(1)?;
            }
            3 => {
                let (increment, offset) = (cursor.u16()?, cursor.u16()?);
                self.auto_increment = Some(AutoIncrement { increment, offset });
            }
            4 => {
                let (client, connection, server) = (cursor.u16()?, cursor.u16()?, cursor.u16()?);
                self.charset = Some(SessionCharset { client, connection, server });
            }
            5 => self.time_zone = Some(short_bytes(cursor)?),
            6 => self.catalog = Some(short_bytes(cursor)?),
            7 => self.lc_time_names = Some(cursor.u16()?),
            8 => self.charset_database = Some(cursor.u16()?),
            9 => self.table_map_for_update = Some(cursor.u64()?),
            10 => self.master_data_written = Some(cursor.u32()?),
            11 => {
                let (user, host) = (short_bytes(cursor)?, short_bytes(cursor)?);
                self.invoker = Some(Invoker { user, host });
            }
            12 => self.updated_databases = Some(read_databases(cursor)?),
            13 => self.microseconds = Some(cursor.u24()?),
            14 => self.commit_ts = Some(cursor.u64()?),
            16 => self.explicit_defaults_for_timestamp = Some(cursor.u8()? != 0),
            17 => self.ddl_xid = Some(cursor.u64()?),
            18 => self.default_collation_for_utf8mb4 = Some(cursor.u16()?),
            19 => self.sql_require_primary_key = Some(cursor.u8()?),
            20 => self.default_table_encryption = Some(cursor.u8()?),
            21 => self.enable_cascade_triggers = Some(cursor.u8()?),
            128 => self.hrnow = Some(cursor.u24()?),
            129 => self.xid = Some(cursor.u64()?),
            130 => {
                let flags_extra = cursor.u8()?;
                let start_alter_sequence = match flags_extra & Self::GTID_FLAGS_WITH_SEQUENCE {
                    0 => None,
                    _ => Some(cursor.u64()?),
                };
                self.gtid_flags = Some(GtidFlags { flags_extra, start_alter_sequence });
            }
            131 => {
                let count = usize::from(cursor.u8()?);
                let mut pairs = Vec::with_capacity(count);
                for _ in 0..count {
                    pairs.push((cursor.u16()?, cursor.u16()?));
                }
                self.character_set_collations = Some(pairs);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn short_bytes<'a>(cursor: &mut ByteCursor<'a>) -> Result<&'a [u8], WireError> {
    let length = cursor.u8()?;
    cursor.bytes(usize::from(length))
}

fn read_databases<'a>(cursor: &mut ByteCursor<'a>) -> Result<UpdatedDatabases<'a>, WireError> {
    let count = cursor.u8()?;
    if count > StatusVars::UPDATED_DATABASES_MAX {
        return Ok(UpdatedDatabases::TooMany);
    }
    let mut names = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        names.push(cursor.until_nul()?);
    }
    Ok(UpdatedDatabases::Named(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_known_variables_are_read_and_the_rest_is_unknown() {
        let mut bytes = vec![0, 0, 0, 8, 4];
        bytes.extend_from_slice(&[1, 0x20, 0, 0xa0, 0x45, 0, 0, 0, 0]);
        bytes.extend_from_slice(b"\x06\x03std\x03\x02\0\x01\0\x04\xff\0\xff\0\x08\0\x05\x06SYSTEM\x07\x05\0");
        bytes.extend_from_slice(b"\x08\x2d\0\x09\x03\0\0\0\0\0\0\0\x0b\x04root\x09localhost");
        bytes
            .extend_from_slice(b"\x0c\x02one\0two\0\x0d\x01\x02\x03\x10\x01\x11\x05\0\0\0\0\0\0\0\x12\xff\0");
        bytes.extend_from_slice(b"\x13\x01\x14\0\x80\x40\x42\x0f\x81\x07\0\0\0\0\0\0\0");
        bytes.extend_from_slice(b"\x82\x04\x2a\0\0\0\0\0\0\0\x83\x01\x2d\0\xe0\0\xc8future");
        let vars = StatusVars::parse(&bytes).unwrap();
        assert_eq!(
            vars.flags2,
            Some(StatusVars::OPTION_NO_FOREIGN_KEY_CHECKS | StatusVars::OPTION_NOT_AUTOCOMMIT)
        );
        assert_eq!(vars.sql_mode, Some(0x45a0_0020));
        assert_eq!(vars.catalog, Some(&b"std"[..]));
        assert_eq!(vars.auto_increment, Some(AutoIncrement { increment: 2, offset: 1 }));
        assert_eq!(vars.charset, Some(SessionCharset { client: 255, connection: 255, server: 8 }));
        assert_eq!(vars.time_zone, Some(&b"SYSTEM"[..]));
        assert_eq!((vars.lc_time_names, vars.charset_database), (Some(5), Some(45)));
        assert_eq!(vars.table_map_for_update, Some(3));
        assert_eq!(vars.invoker, Some(Invoker { user: b"root", host: b"localhost" }));
        let names = vec![&b"one"[..], &b"two"[..]];
        assert_eq!(vars.updated_databases, Some(UpdatedDatabases::Named(names)));
        assert_eq!((vars.microseconds, vars.hrnow), (Some(0x0003_0201), Some(1_000_000)));
        assert_eq!((vars.ddl_xid, vars.xid), (Some(5), Some(7)));
        assert_eq!(vars.default_collation_for_utf8mb4, Some(255));
        assert_eq!((vars.sql_require_primary_key, vars.default_table_encryption), (Some(1), Some(0)));
        assert_eq!(vars.explicit_defaults_for_timestamp, Some(true));
        let flags = GtidFlags { flags_extra: 4, start_alter_sequence: Some(42) };
        assert_eq!(vars.gtid_flags, Some(flags));
        assert_eq!(vars.character_set_collations, Some(vec![(45, 224)]));
        assert_eq!(vars.unknown, b"\xc8future");
    }

    #[test]
    fn a_statement_may_change_too_many_databases_to_name() {
        let vars = StatusVars::parse(b"\x0c\xfe\x0d\x01\0\0").unwrap();
        assert_eq!(vars.updated_databases, Some(UpdatedDatabases::TooMany));
        assert_eq!(vars.microseconds, Some(1));
        assert!(StatusVars::parse(b"\x0c\x02one\0two").is_err());
    }
}
