//! Character sets and collations by their numbers. Also decodes the bytes of character sets that need no
//! large table.

use std::sync::OnceLock;

use crate::Flavour;

/// How to decode the bytes of a collation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Binary,
    Utf8,
    Latin1,
    /// UTF-16: big-endian if `true`, little-endian if `false`. UCS-2 is UTF-16 without surrogates.
    Utf16 {
        big_endian: bool,
    },
    Utf32,
    /// A character set that has no variant of its own here, and whose first 128 characters are ASCII.
    OverAscii,
}

/// The characters 0x80..=0x9f of the character set latin1 of MySQL and MariaDB. They are the characters of
/// Windows-1252, with control characters in its five gaps.
const LATIN1_HIGH_CONTROLS: [u16; 32] = [
    0x20ac, 0x81, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160, 0x2039, 0x0152,
    0x8d, 0x017d, 0x8f, 0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x02dc, 0x2122, 0x0161,
    0x203a, 0x0153, 0x9d, 0x017e, 0x0178,
];

fn encoding(collation: u32) -> Encoding {
    // MariaDB numbers a NO PAD collation 1024 higher than the PAD SPACE collation of the same name.
    let number = if (1024..2048).contains(&collation) { collation - 1024 } else { collation };
    match number {
        63 => Encoding::Binary,
        33 | 45 | 46 | 76 | 83 | 192..=215 | 223..=247 | 255..=323 | 576..=578 | 608..=610 | 2048..=2559 => {
            Encoding::Utf8
        }
        5 | 8 | 15 | 31 | 47 | 48 | 49 | 94 => Encoding::Latin1,
        35 | 54 | 55 | 90 | 101..=124 | 128..=151 | 159 | 640..=642 | 672..=674 | 2560..=3071 => {
            Encoding::Utf16 { big_endian: true }
        }
        56 | 62 => Encoding::Utf16 { big_endian: false },
        60 | 61 | 160..=183 | 736..=738 | 3072..=3327 => Encoding::Utf32,
        _ => Encoding::OverAscii,
    }
}

/// Decodes the bytes of a column. Returns `None` if the bytes are binary or invalid, or if this module does
/// not support the character set. Without a collation, the bytes are taken as UTF-8.
pub(super) fn to_text(bytes: &[u8], collation: Option<u32>) -> Option<String> {
    match collation.map_or(Encoding::Utf8, encoding) {
        Encoding::Binary => None,
        Encoding::Utf8 => std::str::from_utf8(bytes).ok().map(str::to_owned),
        Encoding::OverAscii => {
            std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii()).map(str::to_owned)
        }
        Encoding::Latin1 => Some(bytes.iter().map(|byte| latin1(*byte)).collect()),
        Encoding::Utf16 { big_endian } => {
            let (units, rest) = bytes.as_chunks::<2>();
            let units = units.iter().map(|unit| match big_endian {
                true => u16::from_be_bytes(*unit),
                false => u16::from_le_bytes(*unit),
            });
            rest.is_empty().then(|| char::decode_utf16(units).collect::<Result<_, _>>().ok())?
        }
        Encoding::Utf32 => {
            let (units, rest) = bytes.as_chunks::<4>();
            let characters = units.iter().map(|unit| char::from_u32(u32::from_be_bytes(*unit)));
            rest.is_empty().then(|| characters.collect())?
        }
    }
}

/// Returns whether the first 128 characters of a collation's character set are single ASCII bytes.
pub(super) fn is_over_ascii(collation: u32) -> bool {
    matches!(encoding(collation), Encoding::Utf8 | Encoding::Latin1)
}

/// One line per collation, sorted by number: number, character set, name on MariaDB, name on MySQL. If both
/// names are equal, the last is `=`. If a flavour does not have the collation, its name is `-`. The data
/// comes from the servers' `information_schema` (MariaDB 10.11 and 11.8, MySQL 9.7).
const COLLATIONS: &str = include_str!("collations.tsv");

struct CollationNames {
    number: u32,
    character_set: &'static str,
    mariadb: Option<&'static str>,
    mysql: Option<&'static str>,
}

fn collation(number: u32) -> Option<&'static CollationNames> {
    static TABLE: OnceLock<Vec<CollationNames>> = OnceLock::new();
    let table = TABLE.get_or_init(|| COLLATIONS.lines().filter_map(parse_collation).collect());
    let at = table.binary_search_by_key(&number, |collation| collation.number).ok()?;
    table.get(at)
}

fn parse_collation(line: &'static str) -> Option<CollationNames> {
    let mut fields = line.split('\t');
    let number = fields.next()?.parse().ok()?;
    let character_set = fields.next()?;
    let mariadb = Some(fields.next()?).filter(|name| *name != "-");
    let mysql = match fields.next()? {
        "=" => mariadb,
        "-" => None,
        name => Some(name),
    };
    Some(CollationNames { number, character_set, mariadb, mysql })
}

/// Returns the character set of a collation of either flavour, or `None` for an unknown number.
pub fn character_set(number: u32) -> Option<&'static str> {
    collation(number).map(|collation| collation.character_set)
}

/// Returns the name of a collation in a flavour, or `None` if the flavour does not have it.
pub fn collation_name(number: u32, flavour: Flavour) -> Option<&'static str> {
    let collation = collation(number)?;
    match flavour {
        Flavour::MariaDb => collation.mariadb,
        Flavour::MySql => collation.mysql,
    }
}

fn latin1(byte: u8) -> char {
    match byte {
        0x80..=0x9f => {
            let code = LATIN1_HIGH_CONTROLS[usize::from(byte - 0x80)];
            char::from_u32(u32::from(code)).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
        _ => char::from(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::{COLLATIONS, character_set, collation, collation_name, to_text};
    use crate::Flavour;

    #[test]
    fn text_of_each_character_set_is_decoded() {
        let check = |bytes: &[u8], collation, text: Option<&str>| {
            assert_eq!(
                to_text(bytes, collation).as_deref(),
                text,
                "the bytes {bytes:?} are decoded wrongly in the collation {collation:?}"
            );
        };
        check("ключ".as_bytes(), None, Some("ключ"));
        check(b"\xff", None, None);
        check(b"abc", Some(63), None);
        check("é".as_bytes(), Some(255), Some("é"));
        check("é".as_bytes(), Some(2304), Some("é"));
        check("é".as_bytes(), Some(1069), Some("é"));
        check(b"\xe9\x80", Some(8), Some("é€"));
        check(&[0x04, 0x3c, 0xd8, 0x3d, 0xde, 0x00], Some(54), Some("м😀"));
        check(&[0x3c, 0x04], Some(56), Some("м"));
        check(&[0xd8, 0x3d], Some(54), None);
        check(&[0x04], Some(54), None);
        check(&[0, 1, 0xf6, 0], Some(60), Some("😀"));
        check(&[0, 0x11, 0, 0], Some(60), None);
        check(b"plain", Some(51), Some("plain"));
        check(b"\xec", Some(51), None);
    }

    #[test]
    fn character_sets_and_collations_have_names() {
        for (collation, name) in
            [(45, "utf8mb4"), (1069, "utf8mb4"), (51, "cp1251"), (1024 + 51, "cp1251"), (56, "utf16le")]
        {
            assert_eq!(character_set(collation), Some(name));
        }
        assert_eq!(character_set(9999), None);
    }

    #[test]
    fn collations_are_in_order_and_have_names() {
        for line in COLLATIONS.lines() {
            let number = line.split('\t').next().and_then(|number| number.parse().ok()).unwrap();
            let found = collation(number).unwrap();
            assert!(
                found.number == number && (found.mariadb.is_some() || found.mysql.is_some()),
                "a collation has no name or is out of order: {line}"
            );
        }
        let names = [Flavour::MariaDb, Flavour::MySql].map(|flavour| collation_name(213, flavour));
        assert_eq!(names, [Some("utf8mb3_croatian_mysql561_ci"), Some("utf8mb3_croatian_ci")]);
        assert_eq!(collation_name(2304, Flavour::MySql), None);
        assert_eq!(collation_name(47, Flavour::MariaDb), Some("latin1_bin"));
    }
}
