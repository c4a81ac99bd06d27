//! The key by which a table is cut into chunks, and how its values are read and compared. Only the server
//! compares key values. The chunker receives the values as text, and returns them as literals that the server
//! reads as the same values.

use super::key_range::KeyLiteral;
use tailwater_wire::sql_quote::{hex_literal, quote_identifier};

/// A column of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    /// The name of the column.
    pub name: String,
    /// How values of the column are read and written.
    pub kind: KeyKind,
    /// Whether the column may be NULL.
    pub nullable: bool,
    /// Whether the index sorts this column in the opposite direction of the key's first column. This is true
    /// for `b` in `(a, b DESC)` and in `(a DESC, b)`.
    pub descending: bool,
}

/// How values of a key column are read and written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyKind {
    /// TINYINT to BIGINT.
    Integer,
    /// DECIMAL, YEAR: the text of the value is the literal.
    Number,
    /// FLOAT, DOUBLE: a value is selected as a DOUBLE, whose text is exact.
    Float,
    /// ENUM, SET, BIT: a value is selected as a number, because the server sorts their indexes by number.
    Ordinal,
    /// DATE, TIME, DATETIME, TIMESTAMP, UUID, INET4, INET6: the literal is the text in quotes.
    Quoted,
    /// CHAR, VARCHAR, TEXT with a character set: the literal is hexadecimal.
    Text {
        /// The character set.
        charset: String,
    },
    /// BINARY, VARBINARY, BLOB: the literal is hexadecimal.
    Bytes,
}

impl KeyKind {
    /// Returns the kind of a column, from its type and character set as in `information_schema.columns`.
    /// `None` if no table can be cut into chunks by such a column.
    pub fn of(data_type: &str, charset: Option<&str>) -> Option<Self> {
        Some(match data_type {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Self::Integer,
            "decimal" | "year" => Self::Number,
            "float" | "double" => Self::Float,
            "enum" | "set" | "bit" => Self::Ordinal,
            "date" | "time" | "datetime" | "timestamp" | "uuid" | "inet4" | "inet6" => Self::Quoted,
            "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => match charset? {
                "binary" => Self::Bytes,
                charset if charset.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                    Self::Text { charset: charset.to_owned() }
                }
                _ => return None,
            },
            "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Self::Bytes,
            _ => return None,
        })
    }
}

impl KeyColumn {
    /// Returns the SQL expression that selects a value of the column.
    pub fn expression(&self) -> String {
        let name = quote_identifier(&self.name);
        match self.kind {
            KeyKind::Integer | KeyKind::Number | KeyKind::Quoted => name,
            KeyKind::Float => format!("CAST({name} AS DOUBLE)"),
            // This is a CAST and not `+0`: a SET has 64 bits, and MySQL would compute `+0` as a
            // floating-point number, which is not exact.
            KeyKind::Ordinal => format!("CAST({name} AS UNSIGNED)"),
            KeyKind::Text { .. } | KeyKind::Bytes => format!("HEX({name})"),
        }
    }

    /// Returns the literal of a value that [`KeyColumn::expression`] selected; `None` if columns of this kind
    /// cannot have the value.
    pub fn literal(&self, value: &[u8]) -> Option<KeyLiteral> {
        let text = str::from_utf8(value).ok()?;
        let of = |allowed: fn(u8) -> bool| (!text.is_empty() && text.bytes().all(allowed)).then_some(text);
        let literal = match &self.kind {
            KeyKind::Integer => text.parse::<i128>().ok()?.to_string(),
            KeyKind::Ordinal => text.parse::<u64>().ok()?.to_string(),
            KeyKind::Number => of(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-'))?.to_owned(),
            KeyKind::Float => {
                let text = of(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e'))?;
                if text.contains('e') { text.to_owned() } else { format!("{text}e0") }
            }
            KeyKind::Quoted => {
                let text = of(|byte| byte.is_ascii_alphanumeric() || b"-:. ".contains(&byte))?;
                format!("'{text}'")
            }
            KeyKind::Text { charset } => hex_literal(Some(charset), &unhex(text)?),
            KeyKind::Bytes => hex_literal(None, &unhex(text)?),
        };
        Some(KeyLiteral(literal))
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    rest.is_empty().then_some(())?;
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// A unique key of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkKey {
    /// The name of the key; `PRIMARY` for the primary key.
    pub name: String,
    /// The columns of the key in their order; at least one.
    pub columns: Vec<KeyColumn>,
}

impl ChunkKey {
    /// Returns whether the key is a single integer column. The chunker computes the ranges of such a key
    /// without reading key values.
    pub fn is_integer(&self) -> bool {
        matches!(self.columns.as_slice(), [column] if column.kind == KeyKind::Integer)
    }

    /// Returns an ORDER BY list for which the server reads the index, forwards or backwards, and does not
    /// sort.
    pub fn order(&self) -> String {
        let columns = self.columns.iter().map(|column| {
            let direction = if column.descending { " DESC" } else { "" };
            format!("{}{direction}", quote_identifier(&column.name))
        });
        columns.collect::<Vec<_>>().join(", ")
    }

    /// Returns whether rows may have NULL in the key. The key does not distinguish such rows.
    pub fn is_nullable(&self) -> bool {
        self.columns.iter().any(|column| column.nullable)
    }

    /// Ranks a key; lower is better. First comes the primary key, which is the physical row order; then keys
    /// without NULL; then a single integer column; then fewer columns.
    fn rank(&self) -> (bool, bool, bool, usize) {
        (self.name != "PRIMARY", self.is_nullable(), !self.is_integer(), self.columns.len())
    }

    /// Returns the best key of a table for cutting chunks. If several are equally good, returns the first of
    /// them.
    pub fn choose(keys: &[Self]) -> Option<&Self> {
        keys.iter().min_by_key(|key| key.rank())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(data_type: &str, charset: Option<&str>, nullable: bool) -> KeyColumn {
        let kind = KeyKind::of(data_type, charset).expect("a table can be cut by this type");
        KeyColumn { name: "c".into(), kind, nullable, descending: false }
    }

    fn key(name: &str, columns: &[(&str, bool)]) -> ChunkKey {
        let columns = columns
            .iter()
            .map(|(data_type, nullable)| column(data_type, Some("utf8mb4"), *nullable))
            .collect();
        ChunkKey { name: name.into(), columns }
    }

    #[test]
    fn literals_are_equal_to_their_values() {
        let literal = |data_type, charset, value: &str| {
            column(data_type, charset, false).literal(value.as_bytes()).map(|literal| literal.0)
        };
        assert_eq!(literal("bigint", None, "18446744073709551615").unwrap(), "18446744073709551615");
        assert_eq!(literal("decimal", None, "-1.50").unwrap(), "-1.50");
        assert_eq!(literal("float", None, "0.10000000149011612").unwrap(), "0.10000000149011612e0");
        assert_eq!(literal("double", None, "1e-300").unwrap(), "1e-300");
        assert_eq!(literal("enum", None, "0").unwrap(), "0");
        assert_eq!(literal("time", None, "-838:59:59.000000").unwrap(), "'-838:59:59.000000'");
        assert_eq!(literal("varchar", Some("latin1"), "E4").unwrap(), "_latin1 X'E4'");
        assert_eq!(literal("varbinary", None, "").unwrap(), "X''");
        for (data_type, value) in
            [("int", "1 or 1"), ("decimal", "1;"), ("datetime", "'"), ("blob", "1"), ("float", "")]
        {
            assert_eq!(literal(data_type, None, value), None, "{data_type} {value}");
        }
        assert_eq!(KeyKind::of("geometry", None), None);
        assert_eq!(KeyKind::of("varchar", Some("x' or")), None);
    }

    #[test]
    fn the_best_key_for_chunks_is_chosen() {
        let keys = [
            key("nullable", &[("int", true)]),
            key("text", &[("varchar", false)]),
            key("long", &[("int", false), ("int", false)]),
            key("number", &[("int", false)]),
            key("PRIMARY", &[("varchar", false), ("int", false)]),
        ];
        let chosen = |keys: &[ChunkKey]| ChunkKey::choose(keys).map(|key| key.name.clone());
        assert_eq!(chosen(&keys).as_deref(), Some("PRIMARY"));
        assert_eq!(chosen(&keys[..4]).as_deref(), Some("number"));
        assert_eq!(chosen(&keys[..3]).as_deref(), Some("text"));
        assert_eq!(chosen(&keys[..1]).as_deref(), Some("nullable"));
        assert_eq!(chosen(&[]), None);
    }
}
