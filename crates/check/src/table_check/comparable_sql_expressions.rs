//! SQL expressions that give equal values on both sides the same bytes, and different values different bytes.
//!
//! If both server families print a value in the same way, it is used as printed. This module has expressions
//! for values that they print differently or inexactly, or that depend on a character set.
//! docs/how-to/check.md documents the same rules for users.

use tailwater_wire::Flavour;

use tailwater_tables::chunker::table_info::ColumnInfo;
use tailwater_tables::enum_members;
use tailwater_wire::sql_quote::quote_identifier;

/// Values of long types that are longer than this, in bytes, are replaced by their digest, so that the text
/// of a row stays short.
const LONG_BYTES: u32 = 65_535;

/// How a column is compared on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendering {
    /// The name of the column on the source.
    pub name: String,
    /// The expression on the source.
    pub source: RenderedColumn,
    /// The expression on the target.
    pub target: RenderedColumn,
    /// Whether the values are JSON. The server families format JSON differently, so different texts may be
    /// the same document.
    pub documents: bool,
    /// The kind of literal with which a value of the source is written on the target.
    pub literal: LiteralKind,
    /// How a server reads the column when it computes the checksum of a chunk itself; absent if the value
    /// must be transferred.
    pub read: Option<ReadAs>,
}

/// How a server reads a value when it computes the checksum of a chunk. It avoids a conversion to text where
/// it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAs {
    /// The value is read as an integer of at most 32 bits.
    Narrow,
    /// The value is read as seconds since 1970, which have at most 32 bits.
    Seconds,
    /// The value is read as an integer of at most 64 bits.
    Wide,
    /// The value is read as a floating-point number.
    Real,
    /// The value is read as bytes.
    Bytes,
}

/// How a value of the source's expression is written as a literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiteralKind {
    /// The literal is the number that the server prints.
    Number,
    /// The literal is a floating-point number.
    Real,
    /// The literal is the number of an ENUM or SET member. Index 0 of an ENUM is written as the text `zero`.
    Member {
        /// The text for index 0: see [`enum_members::index_zero`].
        zero: String,
    },
    /// The literal is a date or time in quotes.
    Moment,
    /// The literal is a string of this character set.
    Text(String),
    /// The literal is a string of bytes.
    Bytes,
}

/// The SQL expressions for the value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedColumn {
    /// The quoted name of the column.
    pub column: String,
    /// The expression for the value.
    pub expression: String,
    /// An expression for the same value when it is not concatenated with other values. Then the server need
    /// not convert a text to a binary string.
    pub alone: String,
    /// The expression for the length of the value, or for an approximation that takes the server less time.
    pub length: String,
    /// Whether the value itself shows where it ends, as JSON does. In the text of a row, such a value needs
    /// no length before it.
    pub ends_itself: bool,
    /// Whether the value is short and never contains a `#`: a number or a time.
    pub is_plain: bool,
    /// Whether the value may be NULL.
    pub nullable: bool,
    /// Whether the value may be long.
    pub is_long: bool,
}

/// Classes of types. Values of the same class can be compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TypeClass {
    Number,
    Real,
    Moment,
    Member,
    Text,
    Bytes,
    Document,
}

impl TypeClass {
    fn of(column: &ColumnInfo) -> Self {
        match column.data_type.as_str() {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" | "year" | "bit" => {
                Self::Number
            }
            "float" | "double" => Self::Real,
            "date" | "time" | "datetime" | "timestamp" => Self::Moment,
            "enum" | "set" => Self::Member,
            "json" => Self::Document,
            "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "vector" => {
                Self::Bytes
            }
            "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
            | "multipolygon" | "geometrycollection" | "geomcollection" => Self::Bytes,
            _ => Self::Text,
        }
    }
}

/// Returns how two columns are compared; `None` if their types are not comparable.
pub fn rendering(source: &ColumnInfo, target: &ColumnInfo, flavours: [Flavour; 2]) -> Option<Rendering> {
    use TypeClass::{Document, Member, Moment, Number};
    let classes = [TypeClass::of(source), TypeClass::of(target)];
    let sides = [source, target];
    let (literal, [on_source, on_target]) = literal_and_expressions(source, target, classes)?;
    let documents = flavours[0] != flavours[1] && is_document_comparison(classes);
    let is_ordinal = classes == [Member, Member] && source.column_type == target.column_type;
    let is_plain = is_ordinal || matches!(classes[0], Number | TypeClass::Real | Moment);
    let read = read(sides, classes);
    let rendered = |expression: String, column: &ColumnInfo| RenderedColumn {
        column: quote_identifier(&column.name),
        alone: if expression == in_binary(column) {
            quote_identifier(&column.name)
        } else {
            expression.clone()
        },
        length: match (expression == in_binary(column), classes == [Document, Document]) {
            (true, _) => format!("LENGTH({})", quote_identifier(&column.name)),
            // Computing the length of a JSON document's text takes the server as much time as the text
            // itself. So the stored size is used.
            (_, true) => format!("JSON_STORAGE_SIZE({})", quote_identifier(&column.name)),
            (false, false) => format!("LENGTH({expression})"),
        },
        ends_itself: classes == [Document, Document],
        expression,
        is_plain,
        nullable: source.nullable || target.nullable,
        is_long: !is_plain && is_long(column),
    };
    Some(Rendering {
        name: source.name.clone(),
        source: rendered(on_source, source),
        target: rendered(on_target, target),
        documents,
        literal,
        read,
    })
}

/// Returns the kind of literal, and the expressions that give equal values of both sides equal bytes; `None`
/// if the types are not comparable.
fn literal_and_expressions(
    source: &ColumnInfo,
    target: &ColumnInfo,
    classes: [TypeClass; 2],
) -> Option<(LiteralKind, [String; 2])> {
    use TypeClass::{Document, Member, Moment, Number, Text};
    let utf8 = || LiteralKind::Text("utf8mb4".to_owned());
    let mut literal = match classes[0] {
        Number => LiteralKind::Number,
        TypeClass::Real => LiteralKind::Real,
        Moment => LiteralKind::Moment,
        TypeClass::Bytes => LiteralKind::Bytes,
        Member | Text | Document => utf8(),
    };
    let sides = [source, target];
    let expressions = match classes {
        [Member, Member] if source.column_type == target.column_type => {
            literal = match enum_members::index_zero(&target.data_type, &target.column_type) {
                Some(zero) => LiteralKind::Member { zero },
                None => LiteralKind::Number,
            };
            // MySQL would convert `+ 0` to a floating-point number, which cannot represent the 64 members of
            // a SET.
            sides.map(|column| format!("CAST({} AS UNSIGNED)", quote_identifier(&column.name)))
        }
        [Member | Text, Member | Text] => {
            let is_same_kind = is_same_text(source, target);
            if let Some(charset) = source.charset.clone().filter(|_| is_same_kind) {
                literal = LiteralKind::Text(charset);
            }
            let text = |column: &ColumnInfo| if is_same_kind { bytes(column) } else { as_utf8(column) };
            sides.map(|column| match classes {
                [Member, Member] => enum_members::compared(column, text(column)),
                _ => text(column),
            })
        }
        [Document | Text, Document | Text] => sides.map(|column| match TypeClass::of(column) {
            Document => format!("CAST({} AS CHAR CHARACTER SET utf8mb4)", quote_identifier(&column.name)),
            _ => as_utf8(column),
        }),
        [Number, Number] => {
            // Both sides print the number with the same number of decimals, the larger of the two. Otherwise
            // equal numbers would have different texts.
            let is_same_kind = is_same_number(source, target);
            sides.map(|column| number(column, is_same_kind))
        }
        [Moment, Moment] if source.data_type != target.data_type && !are_date_times([source, target]) => {
            return None;
        }
        [one, other] if one == other => sides.map(|column| match one {
            // As a text, a FLOAT has only six digits and a DOUBLE(7,3) only three decimals. This expression
            // has all digits.
            TypeClass::Real => format!("({} * 1.0e0)", quote_identifier(&column.name)),
            TypeClass::Bytes if !is_binary_string(column) => {
                format!("CAST({} AS BINARY)", quote_identifier(&column.name))
            }
            _ => quote_identifier(&column.name),
        }),
        _ => return None,
    };
    Some((literal, expressions))
}

/// Whether the columns are compared as JSON documents.
fn is_document_comparison(classes: [TypeClass; 2]) -> bool {
    use TypeClass::{Document, Text};
    matches!(classes, [Document, Document | Text] | [Text, Document])
}

/// Returns how both servers read the column for the checksum of a chunk, so that equal values give equal
/// sums. JSON is not read, because the server families format it differently.
fn read(sides: [&ColumnInfo; 2], classes: [TypeClass; 2]) -> Option<ReadAs> {
    let is_one_of = |types: &[&str]| sides.iter().any(|side| types.contains(&side.data_type.as_str()));
    let is_integer = match classes {
        [TypeClass::Number, TypeClass::Number] => !is_one_of(&["decimal"]),
        [TypeClass::Member, TypeClass::Member] => sides[0].column_type == sides[1].column_type,
        _ => false,
    };
    match classes {
        // As integers, -1 and the largest unsigned number would have the same bits, so the values are read as
        // bytes.
        _ if is_integer && is_unsigned(sides[0]) != is_unsigned(sides[1]) => Some(ReadAs::Bytes),
        _ if is_integer && sides.iter().any(|side| is_wide(side)) => Some(ReadAs::Wide),
        _ if is_integer => Some(ReadAs::Narrow),
        [TypeClass::Real, TypeClass::Real] => Some(ReadAs::Real),
        [TypeClass::Document, _] | [_, TypeClass::Document] => None,
        // A TIMESTAMP is stored as seconds. Its text would need a conversion to the time zone.
        _ if sides.iter().all(|side| side.column_type == "timestamp") => Some(ReadAs::Seconds),
        _ => Some(ReadAs::Bytes),
    }
}

fn is_wide(column: &ColumnInfo) -> bool {
    match column.data_type.as_str() {
        "bit" => !(1..=32).any(|bits| column.column_type == format!("bit({bits})")),
        data_type => ["bigint", "set"].contains(&data_type),
    }
}

fn is_unsigned(column: &ColumnInfo) -> bool {
    let declared = |word: &str| column.column_type.contains(word);
    declared("unsigned") || declared("zerofill") || !column.data_type.ends_with("int")
}

/// Returns the expression for the bytes of a text. It is used if both sides have the same character set, or
/// if one character set includes the other.
fn bytes(column: &ColumnInfo) -> String {
    let name = quote_identifier(&column.name);
    match column.charset {
        Some(_) => in_binary(column),
        // A type of MariaDB without a character set, such as INET6 or UUID.
        None => format!("CONVERT({name} USING utf8mb4)"),
    }
}

fn in_binary(column: &ColumnInfo) -> String {
    format!("CONVERT({} USING binary)", quote_identifier(&column.name))
}

fn as_utf8(column: &ColumnInfo) -> String {
    format!("CONVERT(CONVERT({} USING utf8mb4) USING binary)", quote_identifier(&column.name))
}

fn is_same_text(source: &ColumnInfo, target: &ColumnInfo) -> bool {
    let family = |column: &ColumnInfo| {
        let charset = column.charset.clone().unwrap_or_else(|| "utf8mb4".to_owned());
        if ["ascii", "utf8", "utf8mb3"].contains(&charset.as_str()) { "utf8mb4".to_owned() } else { charset }
    };
    family(source) == family(target)
}

fn is_same_number(source: &ColumnInfo, target: &ColumnInfo) -> bool {
    let decimal = |column: &ColumnInfo| column.data_type == "decimal";
    let scale = |column: &ColumnInfo| {
        let (_, scale) = column.column_type.split_once(',')?;
        scale.split(')').next()?.trim().parse::<u32>().ok()
    };
    !(decimal(source) || decimal(target))
        || (decimal(source) && decimal(target) && scale(source) == scale(target))
}

fn number(column: &ColumnInfo, is_same_kind: bool) -> String {
    let name = quote_identifier(&column.name);
    // A BIT value, or a number that the server prints with leading zeros, becomes a plain number with `+0`.
    let needs_number = column.data_type == "bit" || column.column_type.contains("zerofill");
    match (is_same_kind, needs_number) {
        (false, _) => format!("CAST({name}+0 AS DECIMAL(65,30))"),
        (true, true) => format!("({name}+0)"),
        (true, false) => name,
    }
}

fn are_date_times(columns: [&ColumnInfo; 2]) -> bool {
    columns.iter().all(|column| ["datetime", "timestamp"].contains(&column.data_type.as_str()))
}

fn is_binary_string(column: &ColumnInfo) -> bool {
    column.data_type.ends_with("binary") || column.data_type.ends_with("blob")
}

fn is_long(column: &ColumnInfo) -> bool {
    ["mediumtext", "longtext", "mediumblob", "longblob", "json"].contains(&column.data_type.as_str())
        || (TypeClass::of(column) == TypeClass::Bytes && !is_binary_string(column))
}

impl RenderedColumn {
    /// Returns the expression for this column in the text of a row. Its value has at most [`LONG_BYTES`]
    /// bytes.
    fn bounded(&self) -> String {
        let Self { expression, length, .. } = self;
        match self.is_long {
            true => format!("IF({length} > {LONG_BYTES}, SHA2({expression}, 256), {expression})"),
            false => expression.clone(),
        }
    }

    /// Returns the expressions whose values are transferred for digests. If a long value is replaced by its
    /// digest, its length is transferred too.
    pub fn sent(&self) -> String {
        match (self.is_long, self.ends_itself) {
            (false, _) => self.alone.clone(),
            (true, false) => format!("{}, {}", self.length, self.bounded()),
            (true, true) => self.bounded(),
        }
    }

    /// Returns the expression for comparing and showing versions of a row. Its value is a digest if the
    /// column's value is longer than `bytes_max`.
    pub fn shown(&self, bytes_max: u32) -> String {
        let Self { expression, is_plain, .. } = self;
        match is_plain {
            true => expression.clone(),
            false => format!(
                "IF(LENGTH({expression}) > {bytes_max}, CONCAT(LENGTH({expression}), ' bytes, SHA-256 ', \
                 SHA2({expression}, 256)), {expression})"
            ),
        }
    }
}

/// Returns the expression for a 64-bit digest of a row. The digest separates all values, and distinguishes
/// NULL from an empty value. It is NULL if the row is too long for the server to concatenate.
///
/// Plain values come first, together with the lengths of the values that do not show where they end. Then the
/// values with these lengths follow. So different rows never have the same text. SHA-2 is used because it is
/// the only cryptographic digest that all versions of both server families have.
pub fn row_hash<'a>(columns: impl Iterator<Item = &'a RenderedColumn> + Clone) -> String {
    let or_empty = |expression: String, nullable: bool| match nullable {
        true => format!("IFNULL({expression}, '')"),
        false => expression,
    };
    let heads = columns.clone().map(|column| {
        let head = match (column.is_plain, column.ends_itself) {
            (true, _) => column.expression.clone(),
            (_, true) => column.bounded(),
            (false, false) => column.length.clone(),
        };
        or_empty(head, column.nullable)
    });
    let bodies =
        columns.filter(|column| !column.is_plain && !column.ends_itself).map(RenderedColumn::bounded);
    let parts: Vec<_> = heads.chain(bodies).collect();
    format!("CAST(CONV(LEFT(SHA2(CONCAT_WS('#', {}), 256), 16), 16, 10) AS UNSIGNED)", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(data_type: &str, column_type: &str, charset: Option<&str>) -> ColumnInfo {
        ColumnInfo {
            name: "c".into(),
            data_type: data_type.into(),
            column_type: column_type.into(),
            charset: charset.map(str::to_owned),
            collation: None,
            nullable: true,
        }
    }

    fn both(source: &ColumnInfo, target: &ColumnInfo) -> Option<(String, String)> {
        let rendering = rendering(source, target, [Flavour::MySql, Flavour::MariaDb])?;
        Some((rendering.source.expression, rendering.target.expression))
    }

    fn same(column: &ColumnInfo) -> String {
        let (source, target) = both(column, column).expect("columns of the same type are comparable");
        assert_eq!(source, target);
        source
    }

    #[test]
    fn every_type_has_an_exact_expression() {
        assert_eq!(same(&column("int", "int", None)), "`c`");
        assert_eq!(same(&column("int", "int(10) unsigned zerofill", None)), "(`c`+0)");
        assert_eq!(same(&column("bit", "bit(64)", None)), "(`c`+0)");
        assert_eq!(same(&column("decimal", "decimal(10,2)", None)), "`c`");
        assert_eq!(same(&column("float", "float(7,3)", None)), "(`c` * 1.0e0)");
        assert_eq!(same(&column("enum", "enum('a')", Some("latin1"))), "CAST(`c` AS UNSIGNED)");
        assert_eq!(same(&column("text", "text", Some("latin1"))), "CONVERT(`c` USING binary)");
        assert_eq!(same(&column("uuid", "uuid", None)), "CONVERT(`c` USING utf8mb4)");
        assert_eq!(same(&column("blob", "blob", None)), "`c`");
        assert_eq!(same(&column("point", "point", None)), "CAST(`c` AS BINARY)");
        assert_eq!(same(&column("datetime", "datetime(6)", None)), "`c`");
    }

    #[test]
    fn columns_of_different_types_are_converted_or_refused() {
        let (source, target) =
            both(&column("decimal", "decimal(10,2)", None), &column("decimal", "decimal(12,4)", None))
                .unwrap();
        assert_eq!((source.as_str(), source.as_str()), (target.as_str(), "CAST(`c`+0 AS DECIMAL(65,30))"));
        assert!(
            both(&column("text", "text", Some("latin1")), &column("text", "text", Some("utf8mb4")))
                .is_some_and(|(source, _)| source == "CONVERT(CONVERT(`c` USING utf8mb4) USING binary)")
        );
        assert!(
            both(
                &column("varchar", "varchar(9)", Some("utf8mb3")),
                &column("varchar", "varchar(9)", Some("utf8mb4"))
            )
            .is_some_and(|(source, _)| source == "CONVERT(`c` USING binary)")
        );
        assert!(
            both(
                &column("enum", "enum('a')", Some("utf8mb4")),
                &column("enum", "enum('b')", Some("utf8mb4"))
            )
            .is_some_and(
                |(source, _)| source.starts_with("IF(") && source.contains("CONVERT(`c` USING binary)")
            )
        );
        assert_eq!(both(&column("text", "text", Some("utf8mb4")), &column("blob", "blob", None)), None);
        assert_eq!(both(&column("date", "date", None), &column("time", "time", None)), None);
        assert!(
            both(&column("timestamp", "timestamp", None), &column("datetime", "datetime", None)).is_some()
        );
        let json = rendering(
            &column("json", "json", None),
            &column("longtext", "longtext", Some("utf8mb4")),
            [Flavour::MySql, Flavour::MariaDb],
        );
        assert!(json.unwrap().documents);
    }

    #[test]
    fn different_rows_have_different_texts() {
        let rendered = |expression: &str, is_plain, nullable, is_long| RenderedColumn {
            column: String::new(),
            expression: expression.into(),
            alone: format!("{expression}{expression}"),
            length: format!("LENGTH({})", expression.to_uppercase()),
            ends_itself: expression == "e",
            is_plain,
            nullable,
            is_long,
        };
        let columns = [
            rendered("a", true, false, false),
            rendered("b", false, true, false),
            rendered("c", true, true, false),
            rendered("d", false, false, true),
            rendered("e", false, true, false),
        ];
        assert_eq!(
            row_hash(columns.iter()),
            "CAST(CONV(LEFT(SHA2(CONCAT_WS('#', a, IFNULL(LENGTH(B), ''), IFNULL(c, ''), LENGTH(D), IFNULL(e, ''), b, \
             IF(LENGTH(D) > 65535, SHA2(d, 256), d)), 256), 16), 16, 10) AS UNSIGNED)"
        );
        let sent: Vec<_> = columns.iter().map(RenderedColumn::sent).collect();
        assert_eq!(sent.join(" "), "aa bb cc LENGTH(D), IF(LENGTH(D) > 65535, SHA2(d, 256), d) ee");
    }
}
