//! Finds out whether the target's table accepts row images exactly as the source logged them.

use tailwater_wire::Flavour;
use tailwater_wire::row_event::table_map_column::type_code;
use tailwater_wire::row_event::{BinlogColumn, ColumnType, TableMap};

use super::TargetType;
use super::table_map_type::logged_type;
use crate::target_table::{TargetColumn, TargetTable};

/// Returns whether the target accepts the source's row images unchanged. This requires the same flavour, the
/// same number of columns, and for each column the same type with the same length in bytes. Properties that
/// the log does not contain are assumed to be equal, as in the servers' native replication. On MariaDB these
/// are signs, character sets and names, unless `binlog_row_metadata` enables them.
pub fn same_shape(map: &TableMap, target: &TargetTable, columns: &[usize]) -> bool {
    let in_place = columns.iter().enumerate().all(|(place, column)| place == *column);
    map.flavour == target.flavour
        && map.columns.len() == target.columns.len()
        && in_place
        && map
            .columns
            .iter()
            .zip(&target.columns)
            .all(|(source, target)| same_column(source, target, map.flavour))
}

fn same_column(source: &BinlogColumn, target: &TargetColumn, flavour: Flavour) -> bool {
    let own = TargetType::of(target);
    // Table maps mark YEAR columns as unsigned, although the declared type has no `unsigned`.
    let own_unsigned = own.unsigned || own.name == "year";
    logged_type(&own, flavour) == Some(source.column_type)
        && same_kind(source, &own)
        && (target.nullable || !source.nullable)
        && source.unsigned.is_none_or(|unsigned| unsigned == own_unsigned)
        && source.collation.is_none_or(|collation| same_charset(collation, source, &own))
        && source.members.as_ref().is_none_or(|members| same_members(source, members, &own))
}

/// Returns whether both columns are text, or both are not. MariaDB logs UUID and INET types as CHAR, and
/// VECTOR as VARCHAR. These types must not be treated as text.
fn same_kind(source: &BinlogColumn, own: &TargetType) -> bool {
    const FIXED: [&str; 3] = ["uuid", "inet4", "inet6"];
    let fixed = FIXED.contains(&own.name.as_str());
    match source.column_type {
        // The log does not distinguish UUID, INET and VECTOR from binary strings of the same length. So the
        // source's column may be such a binary string.
        ColumnType::Char { .. } => !fixed || source.collation.is_none_or(|number| number == BINARY),
        _ => true,
    }
}

/// The collation ID of the pseudo character set `binary`.
const BINARY: u32 = tailwater_wire::row_event::table_map_column::CHARSET_BINARY;

fn same_charset(collation: u32, source: &BinlogColumn, own: &TargetType) -> bool {
    let of_target = own.character_set.as_deref();
    match tailwater_wire::event_printer::charset::character_set(collation) {
        Some("binary") => of_target.is_none(),
        Some(name) => of_target == Some(name),
        // Tailwater does not know the source's collation ID, because the source is newer than this Tailwater.
        // So the source's character set is not in `KNOWN_BY_NUMBER`. If the target's character set is not in
        // that list either, the two character sets count as equal, because the lengths in bytes were already
        // compared. For a BLOB, the length shows nothing about the character set.
        None => {
            !matches!(source.type_code, type_code::BLOB)
                && of_target.is_some_and(|name| !KNOWN_BY_NUMBER.contains(&name))
        }
    }
}

/// Character sets whose collation IDs are all known here.
const KNOWN_BY_NUMBER: [&str; 7] = ["latin1", "utf8mb3", "utf8mb4", "ascii", "ucs2", "utf16", "utf32"];

fn same_members(source: &BinlogColumn, members: &[Vec<u8>], own: &TargetType) -> bool {
    !own.members.is_empty() && members.len() == own.members.len() && own.has_members(source, members, str::eq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column_matching::{ColumnMismatch, target_columns};
    use crate::writeset::IndexId;

    fn target(flavour: Flavour, columns: &[(&str, &str, Option<&str>)]) -> TargetTable {
        let columns = columns.iter().map(|(name, column_type, collation)| TargetColumn {
            name: (*name).to_owned(),
            column_type: (*column_type).to_owned(),
            collation: collation.map(str::to_owned),
            nullable: true,
            generated: false,
            auto_increment: false,
            stored: false,
            period: None,
        });
        TargetTable {
            transactional: true,
            engine: "INNODB".to_owned(),
            partitioned: false,
            flavour,
            schema: "s".to_owned(),
            table: "t".to_owned(),
            columns: columns.collect(),
            rows: IndexId(0),
            unique: Vec::new(),
            has_primary_key: false,
            parents: Vec::new(),
            children: Vec::new(),
            cascades: Vec::new(),
        }
    }

    fn map(columns: Vec<BinlogColumn>) -> TableMap {
        TableMap {
            flavour: Flavour::MySql,
            table_id: 1,
            flags: 1,
            schema: "s".to_owned(),
            table: "t".to_owned(),
            columns,
            metadata: Default::default(),
        }
    }

    fn column(column_type: ColumnType) -> BinlogColumn {
        BinlogColumn::new(column_type, 0, 0, true)
    }

    /// Matches the columns and compares the shape.
    fn same_shape(map: &TableMap, target: &TargetTable) -> Result<bool, Vec<ColumnMismatch>> {
        Ok(super::same_shape(map, target, &target_columns(map, target)?))
    }

    /// Returns whether a target column with type `spelled` accepts the source column's values unchanged.
    fn fits(source: BinlogColumn, spelled: &str, collation: Option<&str>) -> bool {
        same_shape(&map(vec![source]), &target(Flavour::MySql, &[("c", spelled, collation)])).unwrap()
    }

    #[test]
    fn types_must_have_the_same_length_in_bytes() {
        let unsigned = |unsigned| BinlogColumn { unsigned: Some(unsigned), ..column(ColumnType::Long) };
        assert!(fits(unsigned(true), "int(10) unsigned", None) && fits(unsigned(false), "int", None));
        assert!(!fits(unsigned(true), "int", None) && !fits(unsigned(false), "bigint", None));
        assert!(
            fits(column(ColumnType::Long), "int unsigned", None),
            "a column whose sign was not logged must fit"
        );
        assert!(fits(
            column(ColumnType::Decimal { precision: 10, scale: 2 }),
            "decimal(10,2) unsigned",
            None
        ));
        assert!(!fits(column(ColumnType::Decimal { precision: 10, scale: 2 }), "decimal(10,3)", None));
        let text = |bytes_max| column(ColumnType::VarChar { bytes_max });
        assert!(fits(text(40), "varchar(10)", Some("utf8mb4_bin")));
        assert!(
            !fits(text(40), "varchar(10)", Some("latin1_bin"))
                && !fits(text(44), "varchar(10)", Some("utf8mb4_bin"))
        );
        let of = |collation| BinlogColumn { collation: Some(collation), ..text(40) };
        assert!(
            fits(of(255), "varchar(10)", Some("utf8mb4_general_ci")),
            "the character sets must be equal; the collations may differ"
        );
        assert!(!fits(of(8), "varchar(10)", Some("utf8mb4_general_ci")));
        assert!(!fits(of(8), "varbinary(40)", None) && fits(of(63), "varbinary(40)", None));
        assert!(!fits(column(ColumnType::DateTimeOld { fraction: 0 }), "datetime", None));
        assert!(!fits(column(ColumnType::DateTime { fraction: 3 }), "datetime", None));
        assert!(!fits(column(ColumnType::Long), "something new", None));
        let of_members = |members: &[&str]| BinlogColumn {
            members: Some(members.iter().map(|member| member.as_bytes().to_vec()).collect()),
            ..column(ColumnType::Enum { bytes: 1 })
        };
        let collation = Some("utf8mb4_bin");
        assert!(fits(of_members(&["a", "it's, (b)"]), "enum('a','it''s, (b)')", collation));
        assert!(!fits(of_members(&["a", "b"]), "enum('b','a')", collation));
        assert!(!fits(of_members(&["a"]), "enum('a','b')", collation));
    }

    #[test]
    fn columns_are_matched_by_name_if_the_log_has_names() {
        let named = |name: &str| BinlogColumn { name: Some(name.to_owned()), ..column(ColumnType::Long) };
        let ints = target(Flavour::MySql, &[("A", "int", None), ("b", "int", None)]);
        let source = map(vec![named("b"), named("a")]);
        assert_eq!(target_columns(&source, &ints), Ok(vec![1, 0]));
        assert_eq!(same_shape(&source, &ints), Ok(false));
        assert_eq!(same_shape(&map(vec![named("a"), named("B")]), &ints), Ok(true));
        let mismatches = target_columns(&map(vec![named("a"), named("c")]), &ints).unwrap_err();
        assert_eq!(mismatches[0].column, "c");
        let nameless = |count| map(vec![column(ColumnType::Long); count]);
        assert_eq!(same_shape(&nameless(2), &ints), Ok(true));
        assert_eq!(same_shape(&nameless(1), &ints), Ok(false));
        assert_eq!(target_columns(&nameless(3), &ints).unwrap_err()[0].column, "3");
    }

    #[test]
    fn rows_of_another_flavour_or_with_other_nullability_are_written_as_sql() {
        let source = map(vec![column(ColumnType::Long)]);
        assert_eq!(same_shape(&source, &target(Flavour::MariaDb, &[("c", "int", None)])), Ok(false));
        let mut never_null = target(Flavour::MySql, &[("c", "int", None)]);
        never_null.columns[0].nullable = false;
        assert_eq!(same_shape(&source, &never_null), Ok(false));
    }
}
