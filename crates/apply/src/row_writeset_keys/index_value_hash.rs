//! Hashes column values. Values that are equal in an index have equal hashes, even if their bytes differ.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::{FixedState, FoldHasher};
use tailwater_wire::row_event::ColumnType;

use crate::target_table::TargetColumn;
use crate::writeset::WritesetKey;

/// How a server compares the values of a column. This determines how the values are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// Little-endian numbers: integers, YEAR, ENUM, SET.
    Integer,
    /// FLOAT.
    Float,
    /// DOUBLE.
    Double,
    /// Values that are compared byte by byte: DECIMAL, DATE, BIT.
    Bytes,
    /// Values that are compared byte by byte without trailing zeros and spaces, because the log, or a column
    /// of another length, may lack these zeros and spaces. Used for binary strings and times. Also used for
    /// text with a `_bin` collation if its character set does not contain ASCII as single bytes.
    Trimmed,
    /// Other text with a `_bin` collation. It is hashed as [`Trimmed`](Self::Trimmed), but ASCII letters are
    /// hashed in one case, as in [`Ascii`](Self::Ascii). A foreign key may connect a column of this kind to a
    /// column of a table whose layout differs between source and target. That column is hashed as
    /// [`Ascii`](Self::Ascii), and equal values in both columns must have equal hashes.
    Folded,
    /// Text that is hashed only if it is printable ASCII: in one letter case, and without trailing spaces.
    Ascii,
    /// Values that are not hashed, because Tailwater does not know how the server compares them.
    Opaque,
}

/// Endings of collation names. In these collations, two strings of printable ASCII are equal only if they are
/// equal in lower case without trailing spaces. The list leaves out collations for single languages:
/// Hungarian treats `ccs` as `cscs`, Lithuanian treats `y` as `i`, Latin treats `v` as `u`.
const ASCII_COLLATIONS: [&str; 11] = [
    "general_ci",
    "general_cs",
    "general_mysql500_ci",
    "general_nopad_ci",
    "unicode_ci",
    "unicode_nopad_ci",
    "unicode_520_ci",
    "unicode_520_nopad_ci",
    "0900_ai_ci",
    "0900_as_ci",
    "0900_as_cs",
];

/// Full names of collations with the property described at [`ASCII_COLLATIONS`].
const ASCII_COLLATIONS_OF_CHARSETS: [&str; 9] = [
    "latin1_swedish_ci",
    "latin1_swedish_nopad_ci",
    "latin1_german1_ci",
    "cp932_japanese_ci",
    "eucjpms_japanese_ci",
    "euckr_korean_ci",
    "gb18030_chinese_ci",
    "sjis_japanese_ci",
    "ujis_japanese_ci",
];

/// Character sets whose `general_ci` collation treats different ASCII letters or punctuation marks as equal.
/// (The collation `big5_chinese_ci` does this too: in it, a backquote equals E.) Source: servers were queried
/// about every pair; see `tests/collation_key_conflicts.rs`.
const UNLIKE_ASCII: [&str; 3] = ["geostd8", "koi8u", "macce"];

/// Character sets in which the bytes 0 to 127 are not the ASCII characters, or in which an ASCII character
/// takes more than one byte.
const NOT_OVER_ASCII: [&str; 6] = ["ucs2", "utf16", "utf16le", "utf32", "swe7", "filename"];

impl ValueKind {
    /// Returns how the target's column compares values that the source logs as `source`.
    pub fn of(source: ColumnType, target: &TargetColumn, same_shape: bool) -> Self {
        use ColumnType as Type;
        let base =
            target.column_type.split(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or("");
        if !same_shape {
            return Self::of_other_shape(source, base, target);
        }
        match source {
            Type::Tiny
            | Type::Short
            | Type::Int24
            | Type::Long
            | Type::LongLong
            | Type::Year
            | Type::Enum { .. }
            | Type::Set { .. } => Self::Integer,
            Type::Float => Self::Float,
            Type::Double => Self::Double,
            Type::Decimal { .. } | Type::Bit { .. } | Type::Date => Self::Bytes,
            Type::TimeOld { .. }
            | Type::DateTimeOld { .. }
            | Type::TimestampOld { .. }
            | Type::Time { .. }
            | Type::DateTime { .. }
            | Type::Timestamp { .. } => Self::Trimmed,
            Type::Char { .. } | Type::VarChar { .. } | Type::Blob { .. } => Self::of_string(base, target),
            Type::VarCharCompressed { .. }
            | Type::BlobCompressed { .. }
            | Type::Geometry { .. }
            | Type::Json { .. }
            | Type::Vector { .. }
            | Type::TypedArray { .. } => Self::Opaque,
        }
    }

    /// Returns the kind for a target table whose layout differs from the source's. Several source tables may
    /// be written to this target table, so a hash must not depend on the source's type. Only integers of the
    /// target's own width and ASCII text meet this condition.
    fn of_other_shape(source: ColumnType, base: &str, target: &TargetColumn) -> Self {
        use ColumnType as Type;
        match (source, base) {
            (Type::Tiny, "tinyint")
            | (Type::Short, "smallint")
            | (Type::Int24, "mediumint")
            | (Type::Long, "int")
            | (Type::LongLong, "bigint") => Self::Integer,
            (Type::Char { .. } | Type::VarChar { .. } | Type::Blob { .. }, _) => {
                match Self::of_string(base, target) {
                    // The bytes of characters other than ASCII depend on the source's character set.
                    Self::Folded | Self::Ascii => Self::Ascii,
                    _ => Self::Opaque,
                }
            }
            _ => Self::Opaque,
        }
    }

    fn of_string(base: &str, target: &TargetColumn) -> Self {
        match target.collation.as_deref() {
            None | Some("binary") => match base {
                "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "inet4"
                | "inet6" | "uuid" => Self::Trimmed,
                _ => Self::Opaque,
            },
            Some(collation) if collation.ends_with("_bin") && is_over_ascii(collation) => Self::Folded,
            Some(collation) if collation.ends_with("_bin") => Self::Trimmed,
            Some(collation) if compares_ascii(collation) => Self::Ascii,
            Some(_) => Self::Opaque,
        }
    }
}

/// Returns whether the character set of a collation has the ASCII characters as single bytes. `collation` may
/// also be the name of a character set.
fn is_over_ascii(collation: &str) -> bool {
    let charset = collation.split('_').next().unwrap_or_default();
    !NOT_OVER_ASCII.contains(&charset) && charset != "binary"
}

/// Returns whether strings of printable ASCII that are equal in the collation have equal [`ValueKind::Ascii`]
/// hashes.
pub fn compares_ascii(collation: &str) -> bool {
    if ASCII_COLLATIONS_OF_CHARSETS.contains(&collation) {
        return true;
    }
    let Some((charset, rest)) = collation.split_once('_') else { return false };
    if !is_over_ascii(charset) || UNLIKE_ASCII.contains(&charset) {
        return false;
    }
    ASCII_COLLATIONS.contains(&rest)
        // MariaDB's Unicode 14 collations that are for no particular language, such as `uca1400_ai_ci` and
        // `uca1400_nopad_as_cs`.
        || rest.strip_prefix("uca1400_").is_some_and(|rest| {
            ["ai_ci", "ai_cs", "as_ci", "as_cs"].contains(&rest.strip_prefix("nopad_").unwrap_or(rest))
        })
}

/// Where a column's value is in a row image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValuePlace {
    /// The image does not contain the value.
    Missing,
    Null,
    /// The value is at this offset, without its length prefix.
    At {
        start: u32,
        end: u32,
    },
}

/// Creates the hashes of keys.
#[derive(Debug)]
pub(super) struct Hashes(FixedState);

/// Computes the hash of one key; values are added one after another.
pub(super) struct KeyHash<'a>(FoldHasher<'a>);

impl Hashes {
    pub(super) fn new(seed: u64) -> Self {
        Self(FixedState::with_seed(seed))
    }

    pub(super) fn begin(&self) -> KeyHash<'_> {
        KeyHash(self.0.build_hasher())
    }
}

impl KeyHash<'_> {
    /// Adds a value. Returns `false` if the value cannot be hashed in such a way that values which are equal
    /// in the index have equal hashes.
    pub(super) fn add(&mut self, kind: ValueKind, prefix: Option<u32>, value: &[u8]) -> bool {
        // An index prefix of n characters has at least n bytes, and in ASCII exactly n. If fewer bytes are
        // hashed than the index compares, the only effect is additional conflicts in the scheduler.
        let value = prefix.and_then(|prefix| value.get(..prefix as usize)).unwrap_or(value);
        match kind {
            ValueKind::Integer => match little_endian(value) {
                Some(number) => self.0.write_u64(number),
                None => return false,
            },
            ValueKind::Float => match <[u8; 4]>::try_from(value) {
                // Adding zero turns a negative zero into a positive zero.
                Ok(bytes) => self.0.write_u32((f32::from_le_bytes(bytes) + 0.0).to_bits()),
                Err(_) => return false,
            },
            ValueKind::Double => match <[u8; 8]>::try_from(value) {
                Ok(bytes) => self.0.write_u64((f64::from_le_bytes(bytes) + 0.0).to_bits()),
                Err(_) => return false,
            },
            ValueKind::Bytes => self.bytes(value),
            ValueKind::Trimmed => self.bytes(trim(value, |byte| matches!(byte, 0 | b' '))),
            ValueKind::Folded => self.folded(trim(value, |byte| matches!(byte, 0 | b' '))),
            ValueKind::Ascii => return self.ascii(trim(value, |byte| byte == b' ')),
            ValueKind::Opaque => return false,
        }
        true
    }

    fn bytes(&mut self, value: &[u8]) {
        self.0.write_usize(value.len());
        self.0.write(value);
    }

    /// Adds text. Returns `false` for text that is not printable ASCII: other letters may be equal to ASCII
    /// letters, and some collations ignore control characters.
    fn ascii(&mut self, value: &[u8]) -> bool {
        if !value.iter().all(|byte| matches!(byte, 0x20..=0x7e)) {
            return false;
        }
        self.folded(value);
        true
    }

    fn folded(&mut self, value: &[u8]) {
        self.0.write_usize(value.len());
        let mut folded = [0; 64];
        for chunk in value.chunks(folded.len()) {
            let folded = &mut folded[..chunk.len()];
            folded.copy_from_slice(chunk);
            folded.make_ascii_lowercase();
            self.0.write(folded);
        }
    }

    pub(super) fn finish(self) -> u64 {
        match self.0.finish() {
            WritesetKey::ANY => WritesetKey::ANY + 1,
            hash => hash,
        }
    }
}

fn little_endian(value: &[u8]) -> Option<u64> {
    let mut wide = [0; 8];
    wide.get_mut(..value.len())?.copy_from_slice(value);
    Some(u64::from_le_bytes(wide))
}

fn trim(value: &[u8], is_padding: impl Fn(u8) -> bool) -> &[u8] {
    let length = value.iter().rposition(|byte| !is_padding(*byte)).map_or(0, |last| last + 1);
    &value[..length]
}
