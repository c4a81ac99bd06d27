//! TABLE_MAP events: the definition of a table when the following rows were logged.

use crate::byte_cursor::ByteCursor;
use crate::row_event::optional_metadata::{self, TableMetadata};
use crate::row_event::table_map_column::{BinlogColumn, ColumnType};
use crate::{Flavour, WireError};

/// The maximum number of columns of a table in either flavour.
pub const COLUMNS_MAX: usize = 4096;

/// A table id that no table map has. A rows event with this id has no rows and only ends its statement.
pub const TABLE_ID_DUMMY: u64 = 0x00ff_ffff;

const WHAT: &str = "table map";

/// The definition of a table for the rows that the source logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMap {
    /// The flavour of the server that logged the rows.
    pub flavour: Flavour,
    /// The table id. The rows events of this table in the same statement have the same id.
    pub table_id: u64,
    /// Flag bits: see the constants of this type.
    pub flags: u16,
    /// The name of the database.
    pub schema: String,
    /// The name of the table.
    pub table: String,
    /// The columns of the rows, in order. They do not include columns that the server does not log (hidden
    /// columns of functional indexes).
    pub columns: Vec<BinlogColumn>,
    /// The optional metadata of the table.
    pub metadata: TableMetadata,
}

impl TableMap {
    /// Every table map since MySQL 5.1 has this flag.
    pub const FLAG_BIT_LENGTHS_EXACT: u16 = 0x0001;
    /// MySQL (NDB only): a foreign key of the table refers to another table, or a foreign key of another
    /// table refers to this table.
    pub const FLAG_REFERRED_FOREIGN_KEY: u16 = 0x0002;
    /// MySQL: the first column is a generated invisible primary key.
    pub const FLAG_GENERATED_INVISIBLE_PRIMARY_KEY: u16 = 0x0004;
    /// MariaDB: the table has AFTER or BEFORE triggers, which a replica may want to run.
    pub const FLAG_HAS_TRIGGERS: u16 = 0x4000;

    /// Parses the body of a TABLE_MAP event, without header and checksum.
    ///
    /// The caller must pass the flavour, because some metadata fields count GEOMETRY columns on MariaDB but
    /// not on MySQL.
    ///
    /// # Errors
    /// [`WireError`] if the bytes end early, are inconsistent, or name an unknown column type.
    pub fn parse(body: &[u8], flavour: Flavour) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new(WHAT, body);
        let table_id = cursor.u48()?;
        let flags = cursor.u16()?;
        let schema = name(&mut cursor)?;
        let table = name(&mut cursor)?;
        let count = match usize::try_from(cursor.lenenc_int()?) {
            Ok(count) if count <= COLUMNS_MAX => count,
            _ => {
                return Err(WireError::malformed(
                    WHAT,
                    format!("the table has more than {COLUMNS_MAX} columns"),
                ));
            }
        };
        let type_codes = cursor.bytes(count)?;
        let mut type_metadata = ByteCursor::new("column metadata", cursor.lenenc_bytes()?);
        let nullable = cursor.bytes(count.div_ceil(8))?;
        let mut columns = Vec::with_capacity(count);
        for (index, code) in type_codes.iter().enumerate() {
            let (column_type, metadata) = ColumnType::read(*code, &mut type_metadata)?;
            let nullable = nullable[index / 8] >> (index % 8) & 1 != 0;
            columns.push(BinlogColumn::new(column_type, *code, metadata, nullable));
        }
        if !type_metadata.is_empty() {
            return Err(WireError::malformed(
                WHAT,
                format!(
                    "the table map has {} bytes of column metadata more than its columns need",
                    type_metadata.remaining()
                ),
            ));
        }
        let metadata = optional_metadata::read(cursor.rest(), &mut columns, flavour)?;
        Ok(Self { flavour, table_id, flags, schema, table, columns, metadata })
    }

    /// Returns the table id of a table map's body without parsing the rest.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the body is too short to hold the table id.
    pub fn peek_table_id(body: &[u8]) -> Result<u64, WireError> {
        ByteCursor::new(WHAT, body).u48()
    }

    /// Returns whether the first column is a generated invisible primary key.
    pub fn has_generated_invisible_primary_key(&self) -> bool {
        self.flavour == Flavour::MySql && self.flags & Self::FLAG_GENERATED_INVISIBLE_PRIMARY_KEY != 0
    }

    /// Returns the number of MySQL JSON columns. A partial update has one bit for each of them.
    pub fn json_columns(&self) -> usize {
        self.columns.iter().filter(|column| matches!(column.column_type, ColumnType::Json { .. })).count()
    }
}

/// Reads a name: its length, its bytes, and a zero byte that the length does not count.
fn name(cursor: &mut ByteCursor<'_>) -> Result<String, WireError> {
    let bytes = cursor.lenenc_bytes()?;
    if cursor.u8()? != 0 {
        return Err(WireError::malformed(WHAT, "a name has no terminating zero"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(WireError::malformed(WHAT, "a name is not UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::row_event::optional_metadata::KeyPart;

    fn hex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len() / 2)
            .map(|index| u8::from_str_radix(&digits[2 * index..][..2], 16).unwrap())
            .collect()
    }

    /// Builds the body of a table map of table `t.t` with id 5 and flags 1.
    fn body(types: &[u8], metadata: &str, nullable: &str, optional: &str) -> Vec<u8> {
        let mut body = hex("0500 0000 0000 0100 0174 00 0174 00");
        let metadata = hex(metadata);
        body.push(types.len() as u8);
        body.extend_from_slice(types);
        body.push(metadata.len() as u8);
        body.extend(metadata);
        body.extend(hex(nullable));
        body.extend(hex(optional));
        body
    }

    fn collations(map: &TableMap) -> Vec<Option<u32>> {
        map.columns.iter().map(|column| column.collation).collect()
    }

    #[test]
    fn signedness_counts_year() {
        // The columns are tinyint unsigned, year, tinyint unsigned not null, float unsigned, double, decimal
        // unsigned, int. MySQL 9.7 and MariaDB 11.8 log the same bytes.
        let body = body(&[1, 13, 1, 4, 5, 246, 3], "04 08 0a 02", "7b", "01 01 f4");
        for flavour in [Flavour::MySql, Flavour::MariaDb] {
            let map = TableMap::parse(&body, flavour).unwrap();
            let unsigned: Vec<_> = map.columns.iter().map(|column| column.unsigned.unwrap()).collect();
            assert_eq!(unsigned, [true, true, true, true, false, true, false]);
            assert!(map.columns[0].nullable && !map.columns[2].nullable);
        }
    }

    #[test]
    fn geometry_has_a_collation_on_mariadb_only() {
        // The columns are char latin1, geometry, varchar utf8mb4, blob, enum utf8mb3, set utf8mb4, binary,
        // tinytext, longtext utf16.
        let types = [254, 255, 15, 252, 254, 254, 254, 252, 252];
        let metadata = "fe03 04 2800 02 f701 f801 fe04 01 04";
        let mysql = body(&types, metadata, "ff01", "03 0a 08 fcff00 3f 3f fcff00 36 0b 04 21 fcff00");
        let map = TableMap::parse(&mysql, Flavour::MySql).unwrap();
        let expected =
            [8, 0, 255, 63, 33, 255, 63, 255, 54].map(|collation| (collation != 0).then_some(collation));
        assert_eq!(collations(&map), expected);
        let mariadb = body(&types, metadata, "ff01", "03 07 08 3f 2d 3f 3f 08 36 0b 02 21 08");
        let map = TableMap::parse(&mariadb, Flavour::MariaDb).unwrap();
        assert_eq!(collations(&map), [8, 63, 45, 63, 33, 8, 63, 8, 54].map(Some));
    }

    #[test]
    fn a_default_collation_has_exceptions_by_character_column() {
        // The columns are char latin1, geometry, varchar utf8mb4, blob, enum, binary, longtext utf16, json,
        // point, set, linestring, as MariaDB 10.11 logs them.
        let types = [254, 255, 15, 252, 254, 254, 252, 252, 255, 254, 255];
        let body = body(
            &types,
            "fe03 04 2800 02 f701 fe04 04 04 04 f801 04",
            "ff07",
            "02 09 3f 0008 022d 0536 062e 07 03 00 01 02",
        );
        let map = TableMap::parse(&body, Flavour::MariaDb).unwrap();
        let binary = Some(63);
        assert_eq!(
            collations(&map),
            [Some(8), binary, Some(45), binary, None, binary, Some(54), Some(46), binary, None, binary]
        );
        assert_eq!(map.columns[10].geometry_type, Some(2));
    }

    #[test]
    fn names_members_keys_visibility_and_vector_sizes_are_parsed() {
        let optional = "04 06 0161 0162 0163  05 04 02 0178 00  06 05 02 0161 0162  \
                        09 04 020a 0000  0c 01 a0  0d 03 fc0008";
        let body = body(&[242, 254, 254], "04 f801 f701", "00", optional);
        let map = TableMap::parse(&body, Flavour::MySql).unwrap();
        let names: Vec<_> = map.columns.iter().map(|column| column.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(map.columns[1].members, Some(vec![b"x".to_vec(), vec![]]));
        assert_eq!(map.columns[2].members, Some(vec![b"a".to_vec(), b"b".to_vec()]));
        let key = [KeyPart { column: 2, prefix: 10 }, KeyPart { column: 0, prefix: 0 }];
        assert_eq!(map.metadata.primary_key.as_deref(), Some(&key[..]));
        assert_eq!(
            map.columns.iter().map(|column| column.visible).collect::<Vec<_>>(),
            [Some(true), Some(false), Some(true)]
        );
        assert_eq!(map.columns[0].vector_dimensions, Some(2048));
    }

    #[test]
    fn unknown_metadata_is_kept() {
        let map = TableMap::parse(&body(&[3], "", "00", "c8 02 beef"), Flavour::MariaDb).unwrap();
        assert_eq!(map.metadata.unknown, [(200, vec![0xbe, 0xef])]);
    }

    #[test]
    fn inconsistent_table_maps_are_refused() {
        // The cases: a key on a column that does not exist, a member count that is larger than the field, and
        // a collation for a column that does not exist.
        for (types, metadata, optional) in
            [(3, "", "08 01 01"), (254, "f701", "06 02 fa 00"), (254, "fe03", "02 03 08 01 08")]
        {
            assert!(
                TableMap::parse(&body(&[types], metadata, "00", optional), Flavour::MySql).is_err(),
                "invalid metadata was accepted: {optional}"
            );
        }
        assert!(TableMap::parse(&body(&[3], "01", "00", ""), Flavour::MySql).is_err());
        let mut huge = hex("0500 0000 0000 0100 0174 00 0174 00 fe ffff ffff ffff ff7f");
        huge.extend([3; 100]);
        assert!(TableMap::parse(&huge, Flavour::MySql).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, mariadb: bool) {
            let flavour = if mariadb { Flavour::MariaDb } else { Flavour::MySql };
            let _ = TableMap::parse(&bytes, flavour);
        }

        #[test]
        fn arbitrary_columns_never_panic(
            types in proptest::collection::vec(prop_oneof![0u8..=20, 140u8..=141, 242u8..=255], 0..20),
            tail: Vec<u8>,
            mariadb: bool,
        ) {
            let flavour = if mariadb { Flavour::MariaDb } else { Flavour::MySql };
            let mut bytes = body(&types, "", "", "");
            bytes.pop();
            bytes.extend(tail);
            let _ = TableMap::parse(&bytes, flavour);
        }
    }
}
