//! Returns the type that table maps contain for a column of the target.

use tailwater_wire::Flavour;
use tailwater_wire::row_event::ColumnType;

use super::TargetType;

/// Returns the type that a server of this flavour logs for a column; `None` if it is unknown.
pub(super) fn logged_type(own: &TargetType, flavour: Flavour) -> Option<ColumnType> {
    let first = own.numbers.first().copied();
    let fraction = || small(first.unwrap_or(0));
    Some(match own.name.as_str() {
        "tinyint" => ColumnType::Tiny,
        "smallint" => ColumnType::Short,
        "mediumint" => ColumnType::Int24,
        "int" => ColumnType::Long,
        "bigint" => ColumnType::LongLong,
        "float" => ColumnType::Float,
        "double" => ColumnType::Double,
        "decimal" => {
            ColumnType::Decimal { precision: small(own.number(0, 10))?, scale: small(own.number(1, 0))? }
        }
        "bit" => ColumnType::Bit { bits: small(first.unwrap_or(1))? },
        "year" => ColumnType::Year,
        "date" => ColumnType::Date,
        "time" if own.old_layout => ColumnType::TimeOld { fraction: fraction()? },
        "time" => ColumnType::Time { fraction: fraction()? },
        "datetime" if own.old_layout => ColumnType::DateTimeOld { fraction: fraction()? },
        "datetime" => ColumnType::DateTime { fraction: fraction()? },
        "timestamp" if own.old_layout => ColumnType::TimestampOld { fraction: fraction()? },
        "timestamp" => ColumnType::Timestamp { fraction: fraction()? },
        "char" | "binary" => ColumnType::Char { bytes_max: bytes(own, first.unwrap_or(1))? },
        "varchar" | "varbinary" => string(bytes(own, first?)?, own.compressed),
        "inet4" => ColumnType::Char { bytes_max: 4 },
        "inet6" | "uuid" => ColumnType::Char { bytes_max: 16 },
        "tinyblob" | "tinytext" => blob(1, own.compressed),
        "blob" | "text" => blob(2, own.compressed),
        "mediumblob" | "mediumtext" => blob(3, own.compressed),
        "longblob" | "longtext" => blob(4, own.compressed),
        "json" => match flavour {
            Flavour::MySql => ColumnType::Json { length_bytes: 4 },
            Flavour::MariaDb => blob(4, own.compressed),
        },
        "vector" => match flavour {
            Flavour::MySql => ColumnType::Vector { length_bytes: 4 },
            Flavour::MariaDb => {
                ColumnType::VarChar { bytes_max: u16::try_from(first?.checked_mul(4)?).ok()? }
            }
        },
        "enum" => ColumnType::Enum { bytes: if own.members.len() < 256 { 1 } else { 2 } },
        "set" => ColumnType::Set { bytes: set_bytes(own.members.len()) },
        _ if own.is_geometry() => ColumnType::Geometry { length_bytes: 4 },
        _ => return None,
    })
}

fn small(number: u32) -> Option<u8> {
    u8::try_from(number).ok()
}

/// Returns the length of `characters` characters in bytes, as table maps state the length.
fn bytes(own: &TargetType, characters: u32) -> Option<u16> {
    u16::try_from(characters.checked_mul(own.character_bytes_max())?).ok()
}

fn string(bytes_max: u16, compressed: bool) -> ColumnType {
    match compressed {
        // A compressed column has one more byte, for the compression method.
        true => ColumnType::VarCharCompressed { bytes_max: bytes_max.saturating_add(1) },
        false => ColumnType::VarChar { bytes_max },
    }
}

fn blob(length_bytes: u8, compressed: bool) -> ColumnType {
    match compressed {
        true => ColumnType::BlobCompressed { length_bytes },
        false => ColumnType::Blob { length_bytes },
    }
}

fn set_bytes(members: usize) -> u8 {
    match members.div_ceil(8) {
        0 | 1 => 1,
        // Servers store a SET of more than four bytes in eight bytes.
        5.. => 8,
        bytes => bytes as u8,
    }
}
