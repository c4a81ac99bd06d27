//! Hashes values so that values which are equal in the index have equal hashes, whatever their bytes.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::{FixedState, FoldHasher};
use tailwater_wire::rows::ColumnType;

use crate::target::TargetColumn;
use crate::writeset::WritesetKey;

/// How values of a column are compared, for hashing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// Little-endian numbers: integers, YEAR, ENUM, SET.
    Integer,
    /// FLOAT.
    Float,
    /// DOUBLE.
    Double,
    /// Compared by bytes: DECIMAL, DATE, BIT.
    Bytes,
    /// By their bytes, where the log, or a column of another length, may lack zeros or spaces at the end: binary strings,
    /// times, text whose collation compares codes and whose character set is not over ASCII.
    Trimmed,
    /// Text whose collation compares codes: as [`Trimmed`](Self::Trimmed), but letters of ASCII in either case the same, as in
    /// [`Ascii`](Self::Ascii), which it is for a table of another shape that a foreign key ties to this one.
    Folded,
    /// Text that is hashed only if it is ASCII: case-insensitive, without trailing spaces.
    Ascii,
    /// Not comparable here.
    Opaque,
}

/// Collations, by what follows their character set, that take two strings of printable ASCII for equal only if they are
/// so in lower case and without spaces at the end. Collations of languages are not among them: to Hungarian `ccs` is
/// `cscs`, to Lithuanian `y` is `i`, to Latin `v` is `u`.
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

/// As [`ASCII_COLLATIONS`], of single character sets.
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

/// Character sets whose `general_ci` takes different letters or signs of ASCII for equal; as does `big5_chinese_ci`, to
/// which a backquote is an E. Found by asking servers about every pair.
const UNLIKE_ASCII: [&str; 3] = ["geostd8", "koi8u", "macce"];

/// The character sets that have more than ASCII's meaning in the first 128 bytes, or more bytes than one to a character.
const NOT_OVER_ASCII: [&str; 6] = ["ucs2", "utf16", "utf16le", "utf32", "swe7", "filename"];

impl ValueKind {
    /// How values that the log has as `source` compare in the target's column.
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

    /// Rows of several tables of the source may come together in one of the target. So only what is the same whatever the
    /// source's type: whole numbers of the target's own width, and text as far as it is ASCII.
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
                    // Codes are those of the source's character set, but for ASCII.
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

/// Whether a collation (or character set) by that name has ASCII in its first 128 bytes, a byte each.
fn is_over_ascii(collation: &str) -> bool {
    let charset = collation.split('_').next().unwrap_or_default();
    !NOT_OVER_ASCII.contains(&charset) && charset != "binary"
}

/// Whether strings of printable ASCII are equal under the collation only if they are under [`ValueKind::Ascii`].
pub fn compares_ascii(collation: &str) -> bool {
    if ASCII_COLLATIONS_OF_CHARSETS.contains(&collation) {
        return true;
    }
    let Some((charset, rest)) = collation.split_once('_') else { return false };
    if !is_over_ascii(charset) || UNLIKE_ASCII.contains(&charset) {
        return false;
    }
    ASCII_COLLATIONS.contains(&rest)
        // MariaDB's root collations of Unicode 14: `uca1400_ai_ci`, `uca1400_nopad_as_cs` and so on.
        || rest.strip_prefix("uca1400_").is_some_and(|rest| {
            ["ai_ci", "ai_cs", "as_ci", "as_cs"].contains(&rest.strip_prefix("nopad_").unwrap_or(rest))
        })
}

/// Position of a value in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValuePlace {
    /// The image does not contain it.
    Missing,
    Null,
    /// Without its length prefix.
    At {
        start: u32,
        end: u32,
    },
}

/// Creates hashes.
#[derive(Debug)]
pub(super) struct Hashes(FixedState);

/// The hash of one key.
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
    /// Adds a value; `false` if it cannot be hashed as its index compares it.
    pub(super) fn add(&mut self, kind: ValueKind, prefix: Option<u32>, value: &[u8]) -> bool {
        // A prefix of n characters is n bytes at least: where more bytes than that count, fewer are only coarser. Of ASCII
        // it is n bytes exactly.
        let value = prefix.and_then(|prefix| value.get(..prefix as usize)).unwrap_or(value);
        match kind {
            ValueKind::Integer => match little_endian(value) {
                Some(number) => self.0.write_u64(number),
                None => return false,
            },
            ValueKind::Float => match <[u8; 4]>::try_from(value) {
                // Both zeros become one.
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

    /// `false` for text that is not printable ASCII: other letters may be equal to ASCII letters, and some
    /// collations ignore control characters.
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
