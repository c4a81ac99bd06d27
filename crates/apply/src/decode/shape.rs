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
