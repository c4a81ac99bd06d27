//! Whether the target's table takes a table's rows as the source logged them.

use tailwater_wire::Flavour;
use tailwater_wire::rows::column::type_code;
use tailwater_wire::rows::{Column, ColumnType, TableMap};

use super::column_type::{charset_of, parse};
use crate::target::{TargetColumn, TargetTable};

/// Why a column of the source has no place in the target's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Its name, or its number from 1 where the log has no names.
    pub column: String,
    /// What does not fit.
    pub reason: String,
}

/// Which column of the target each of the source's is: by name where the log has names, else by place.
///
/// # Errors
/// The columns that the target does not have.
pub fn target_columns(map: &TableMap, target: &TargetTable) -> Result<Vec<usize>, Vec<Misfit>> {
    let mut found = Vec::with_capacity(map.columns.len());
    let mut misfits = Vec::new();
    for (place, column) in map.columns.iter().enumerate() {
        let number = match &column.name {
            Some(name) => {
                let same = |of_target: &TargetColumn| same_name(name, &of_target.name);
                target.columns.iter().position(same)
            }
            None => Some(place).filter(|place| *place < target.columns.len()),
        };
        match number {
            Some(number) => found.push(number),
            None => misfits.push(Misfit {
                column: column.name.clone().unwrap_or_else(|| (place + 1).to_string()),
                reason: format!("the target's table has no such column; it has {}", target.columns.len()),
            }),
        }
    }
    if misfits.is_empty() { Ok(found) } else { Err(misfits) }
}

/// Whether the target takes the source's row images as they are: the same family, as many columns, and of each the same
/// type with the same length in bytes. Whatever the log does not say (MariaDB: signs, character sets and names, unless
/// `binlog_row_metadata` has them logged) is taken to be the same, as the servers' own replication does.
///
/// # Errors
/// The columns that the target does not have: then rows cannot go by SQL either.
pub fn same_shape(map: &TableMap, target: &TargetTable) -> Result<bool, Vec<Misfit>> {
    let columns = target_columns(map, target)?;
    let in_place = columns.iter().enumerate().all(|(place, column)| place == *column);
    Ok(map.flavour == target.flavour
        && map.columns.len() == target.columns.len()
        && in_place
        && map
            .columns
            .iter()
            .zip(&target.columns)
            .all(|(source, target)| same_column(source, target, map.flavour)))
}

/// Names of columns are the same in either case.
fn same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other) || one.to_lowercase() == other.to_lowercase()
}

fn same_column(source: &Column, target: &TargetColumn, flavour: Flavour) -> bool {
    let Some(parsed) = parse(target, flavour) else { return false };
    source.column_type == parsed.column_type
        && same_kind(source, target)
        && (target.nullable || !source.nullable)
        && source.unsigned.is_none_or(|unsigned| unsigned == parsed.unsigned)
        && source.collation.is_none_or(|collation| same_charset(collation, source, target))
        && source.members.as_ref().is_none_or(|members| same_members(members, parsed.members.as_deref()))
}

/// MariaDB logs its UUID and INET types as CHAR, and VECTOR as VARCHAR: these must not be taken for text.
fn same_kind(source: &Column, target: &TargetColumn) -> bool {
    const FIXED: [&str; 3] = ["uuid", "inet4", "inet6"];
    let fixed = FIXED.contains(&target.column_type.as_str());
    match source.column_type {
        // A binary string of that length may be one: the log does not tell them apart.
        ColumnType::Char { .. } => !fixed || source.collation.is_none_or(|number| number == BINARY),
        _ => true,
    }
}

/// The number of the pseudo character set of binary strings.
const BINARY: u32 = tailwater_wire::rows::column::CHARSET_BINARY;

fn same_charset(collation: u32, source: &Column, target: &TargetColumn) -> bool {
    let of_target = charset_of(target);
    match tailwater_wire::print::charset_name(collation) {
        Some("binary") => of_target.is_none(),
        Some(name) => of_target == Some(name),
        // A set that is not known here by number: all others that are must then differ from it; the length in bytes was
        // compared. A blob says nothing of it.
        None => {
            !matches!(source.type_code, type_code::BLOB)
                && of_target.is_some_and(|name| !KNOWN_BY_NUMBER.contains(&name))
        }
    }
}

/// What [`tailwater_wire::print::charset_name`] knows.
const KNOWN_BY_NUMBER: [&str; 7] = ["latin1", "utf8mb3", "utf8mb4", "ascii", "ucs2", "utf16", "utf32"];

fn same_members(source: &[Vec<u8>], target: Option<&[String]>) -> bool {
    let Some(target) = target else { return false };
    let same = |(one, other): (&Vec<u8>, &String)| {
        // In the column's character set here, in the session's there.
        one == other.as_bytes() || !one.is_ascii()
    };
    source.len() == target.len() && source.iter().zip(target).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;
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
        });
        TargetTable {
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

    fn map(columns: Vec<Column>) -> TableMap {
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

    fn column(column_type: ColumnType) -> Column {
        Column::new(column_type, 0, 0, true)
    }

    /// Whether a column fits one that the target spells like this.
    fn fits(source: Column, spelled: &str, collation: Option<&str>) -> bool {
        same_shape(&map(vec![source]), &target(Flavour::MySql, &[("c", spelled, collation)])).unwrap()
    }

    #[test]
    fn types_have_to_be_the_same_to_the_byte() {
        let unsigned = |unsigned| Column { unsigned: Some(unsigned), ..column(ColumnType::Long) };
        assert!(fits(unsigned(true), "int(10) unsigned", None) && fits(unsigned(false), "int", None));
        assert!(!fits(unsigned(true), "int", None) && !fits(unsigned(false), "bigint", None));
        assert!(fits(column(ColumnType::Long), "int unsigned", None), "not logged");
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
        let of = |collation| Column { collation: Some(collation), ..text(40) };
        assert!(
            fits(of(255), "varchar(10)", Some("utf8mb4_general_ci")),
            "collations do not matter, character sets do"
        );
        assert!(!fits(of(8), "varchar(10)", Some("utf8mb4_general_ci")));
        assert!(!fits(of(8), "varbinary(40)", None) && fits(of(63), "varbinary(40)", None));
        assert!(!fits(column(ColumnType::DateTimeOld { fraction: 0 }), "datetime", None));
        assert!(!fits(column(ColumnType::DateTime { fraction: 3 }), "datetime", None));
        assert!(!fits(column(ColumnType::Long), "something new", None));
        let of_members = |members: &[&str]| Column {
            members: Some(members.iter().map(|member| member.as_bytes().to_vec()).collect()),
            ..column(ColumnType::Enum { bytes: 1 })
        };
        let collation = Some("utf8mb4_bin");
        assert!(fits(of_members(&["a", "it's, (b)"]), "enum('a','it''s, (b)')", collation));
        assert!(!fits(of_members(&["a", "b"]), "enum('b','a')", collation));
        assert!(!fits(of_members(&["a"]), "enum('a','b')", collation));
    }

    #[test]
    fn columns_are_found_by_name_where_there_are_names() {
        let named = |name: &str| Column { name: Some(name.to_owned()), ..column(ColumnType::Long) };
        let ints = target(Flavour::MySql, &[("A", "int", None), ("b", "int", None)]);
        let source = map(vec![named("b"), named("a")]);
        assert_eq!(target_columns(&source, &ints), Ok(vec![1, 0]));
        assert_eq!(same_shape(&source, &ints), Ok(false));
        assert_eq!(same_shape(&map(vec![named("a"), named("B")]), &ints), Ok(true));
        let misfits = target_columns(&map(vec![named("a"), named("c")]), &ints).unwrap_err();
        assert_eq!(misfits[0].column, "c");
        let nameless = |count| map(vec![column(ColumnType::Long); count]);
        assert_eq!(same_shape(&nameless(2), &ints), Ok(true));
        assert_eq!(same_shape(&nameless(1), &ints), Ok(false));
        assert_eq!(target_columns(&nameless(3), &ints).unwrap_err()[0].column, "3");
    }

    #[test]
    fn other_families_and_nulls_go_by_sql() {
        let source = map(vec![column(ColumnType::Long)]);
        assert_eq!(same_shape(&source, &target(Flavour::MariaDb, &[("c", "int", None)])), Ok(false));
        let mut never_null = target(Flavour::MySql, &[("c", "int", None)]);
        never_null.columns[0].nullable = false;
        assert_eq!(same_shape(&source, &never_null), Ok(false));
    }
}
