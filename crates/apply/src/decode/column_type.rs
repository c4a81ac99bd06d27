//! A column's type as `information_schema` spells it, into the type that table maps have for it.

use tailwater_wire::Flavour;
use tailwater_wire::rows::ColumnType;

use crate::target::TargetColumn;

/// A type with what decides how values look in row images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParsedType {
    pub(super) column_type: ColumnType,
    pub(super) unsigned: bool,
    /// Of an ENUM or SET.
    pub(super) members: Option<Vec<String>>,
}

/// Character sets of more than one byte to a character, and how many at most.
const BYTES_OF_CHARACTERS: [(&str, u32); 16] = [
    ("utf8mb4", 4),
    ("utf8mb3", 3),
    ("utf8", 3),
    ("utf16", 4),
    ("utf16le", 4),
    ("utf32", 4),
    ("ucs2", 2),
    ("big5", 2),
    ("gbk", 2),
    ("gb2312", 2),
    ("gb18030", 4),
    ("sjis", 2),
    ("cp932", 2),
    ("euckr", 2),
    ("ujis", 3),
    ("eucjpms", 3),
];

/// A column's character set, by its collation; `None` for none and for binary.
pub(super) fn charset_of(column: &TargetColumn) -> Option<&str> {
    let collation = column.collation.as_deref()?;
    match collation.split('_').next()? {
        "binary" => None,
        "utf8" => Some("utf8mb3"),
        charset => Some(charset),
    }
}

/// The type of a column of the target; `None` if it is not known here.
pub(super) fn parse(column: &TargetColumn, flavour: Flavour) -> Option<ParsedType> {
    let text = column.column_type.as_str();
    // MariaDB says in a comment that a column is compressed, or has the layout of before 5.6.
    let (plain, comment) = text.split_once("/*").unwrap_or((text, ""));
    let plain = plain.trim();
    let base_end = plain.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(plain.len());
    let (base, rest) = plain.split_at(base_end);
    let rest = rest.trim_start();
    let inside = rest.strip_prefix('(').and_then(|rest| Some(&rest[..rest.rfind(')')?]));
    // Table maps have YEAR for unsigned, and its type does not say so.
    let unsigned = rest.contains("unsigned") || rest.contains("zerofill") || base == "year";
    let numbers = |inside: Option<&str>| -> Vec<u32> {
        inside
            .map(|inside| inside.split(',').filter_map(|part| part.trim().parse().ok()).collect())
            .unwrap_or_default()
    };
    let numbers = numbers(inside.filter(|_| !matches!(base, "enum" | "set")));
    let first = numbers.first().copied();
    let compressed = comment.contains("compressed");
    let members = matches!(base, "enum" | "set").then(|| members(inside.unwrap_or_default()));
    let count = members.as_ref().map_or(0, Vec::len);
    let column_type = match base {
        "tinyint" => ColumnType::Tiny,
        "smallint" => ColumnType::Short,
        "mediumint" => ColumnType::Int24,
        "int" => ColumnType::Long,
        "bigint" => ColumnType::LongLong,
        "float" => ColumnType::Float,
        "double" => ColumnType::Double,
        "decimal" => ColumnType::Decimal {
            precision: small(first.unwrap_or(10))?,
            scale: small(numbers.get(1).copied().unwrap_or(0))?,
        },
        "bit" => ColumnType::Bit { bits: small(first.unwrap_or(1))? },
        "year" => ColumnType::Year,
        "date" => ColumnType::Date,
        "time" | "datetime" | "timestamp" => temporal(base, small(first.unwrap_or(0))?, comment)?,
        "char" | "binary" => ColumnType::Char { bytes_max: bytes(column, first.unwrap_or(1))? },
        "varchar" | "varbinary" => string(bytes(column, first?)?, compressed),
        "inet4" => ColumnType::Char { bytes_max: 4 },
        "inet6" | "uuid" => ColumnType::Char { bytes_max: 16 },
        "tinyblob" | "tinytext" => blob(1, compressed),
        "blob" | "text" => blob(2, compressed),
        "mediumblob" | "mediumtext" => blob(3, compressed),
        "longblob" | "longtext" => blob(4, compressed),
        "json" => match flavour {
            Flavour::MySql => ColumnType::Json { length_bytes: 4 },
            Flavour::MariaDb => blob(4, compressed),
        },
        "vector" => match flavour {
            Flavour::MySql => ColumnType::Vector { length_bytes: 4 },
            Flavour::MariaDb => ColumnType::VarChar { bytes_max: u16::try_from(first? * 4).ok()? },
        },
        "enum" => ColumnType::Enum { bytes: if count < 256 { 1 } else { 2 } },
        "set" => ColumnType::Set { bytes: set_bytes(count) },
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
        | "multipolygon" | "geometrycollection" | "geomcollection" => {
            ColumnType::Geometry { length_bytes: 4 }
        }
        _ => return None,
    };
    Some(ParsedType { column_type, unsigned, members })
}

fn small(number: u32) -> Option<u8> {
    u8::try_from(number).ok()
}

/// The length in bytes of so many characters, as a table map has it.
fn bytes(column: &TargetColumn, characters: u32) -> Option<u16> {
    let charset = charset_of(column).unwrap_or_default();
    let each = BYTES_OF_CHARACTERS.iter().find(|(name, _)| *name == charset).map_or(1, |(_, bytes)| *bytes);
    u16::try_from(characters.checked_mul(each)?).ok()
}

fn string(bytes_max: u16, compressed: bool) -> ColumnType {
    match compressed {
        // With the byte that says how.
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

fn temporal(base: &str, fraction: u8, comment: &str) -> Option<ColumnType> {
    let old = comment.contains("mariadb-5.3") || comment.contains("5.5 binary format");
    Some(match (base, old) {
        ("time", false) => ColumnType::Time { fraction },
        ("datetime", false) => ColumnType::DateTime { fraction },
        ("timestamp", false) => ColumnType::Timestamp { fraction },
        ("time", true) => ColumnType::TimeOld { fraction },
        ("datetime", true) => ColumnType::DateTimeOld { fraction },
        ("timestamp", true) => ColumnType::TimestampOld { fraction },
        _ => return None,
    })
}

fn set_bytes(members: usize) -> u8 {
    match members.div_ceil(8) {
        0 | 1 => 1,
        // From five bytes on, eight.
        5.. => 8,
        bytes => bytes as u8,
    }
}

/// The members of `'one','it''s'`.
fn members(inside: &str) -> Vec<String> {
    let mut members = Vec::new();
    let mut rest = inside.chars().peekable();
    while rest.find(|letter| *letter == '\'').is_some() {
        let mut member = String::new();
        while let Some(letter) = rest.next() {
            if letter == '\'' && rest.next_if_eq(&'\'').is_none() {
                break;
            }
            member.push(letter);
        }
        members.push(member);
    }
    members
}
