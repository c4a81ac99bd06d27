//! How a value is rendered on either side so that equal values are equal bytes, and others are not.
//!
//! What the two families print alike is taken as it is printed. What they print otherwise, or not exactly, or what depends
//! on a character set, gets an expression here, and nowhere else; docs/how-to/check.md says the same for people.

use tailwater_wire::Flavour;

use crate::chunker::table_info::ColumnInfo;
use crate::enum_members;
use crate::sql::quoted;

/// Values of long types are taken by their digest when they are longer, so that a row's rendering stays short.
const LONG_BYTES: u32 = 65_535;

/// A column's values on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendering {
    /// The column, as the source calls it.
    pub name: String,
    /// The expression on the source.
    pub source: RenderedColumn,
    /// The expression on the target.
    pub target: RenderedColumn,
    /// Whether the values are JSON, which the families render otherwise: texts that differ may be the same document.
    pub documents: bool,
    /// What kind of literal the source's values are on the target.
    pub literal: LiteralKind,
    /// How a server reads it that adds up rows by itself; absent if it is rather sent.
    pub read: Option<ReadAs>,
}

/// How a server reads a value without making a text of it, where it need not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAs {
    /// As an integer of at most 32 bits.
    Narrow,
    /// As seconds, of which there are at most 32 bits, too.
    Seconds,
    /// As an integer of at most 64 bits.
    Wide,
    /// As a floating-point number.
    Real,
    /// As bytes.
    Bytes,
}

/// How a value of the source's expression is written as a literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiteralKind {
    /// As it is.
    Number,
    /// As a floating-point number.
    Real,
    /// As the number of a member, but for index 0 of an ENUM, which is written as this text.
    Member {
        /// See [`enum_members::index_zero`].
        zero: String,
    },
    /// In quotes.
    Moment,
    /// Text of this character set.
    Text(String),
    /// Bytes.
    Bytes,
}

/// An expression of a column's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedColumn {
    /// The column.
    pub column: String,
    /// The expression.
    pub expression: String,
    /// One of the same value, where nothing else is to be made of it: the bytes of texts need no conversion, which
    /// others than the client would make of them.
    pub alone: String,
    /// Its length, or what is about as much and costs less.
    pub length: String,
    /// Whether its text tells where it ends, as that of JSON does: its length need not stand before it.
    pub ends_itself: bool,
    /// Whether it is short and never holds a `#`: a number or a time.
    pub is_plain: bool,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// Whether it may be long.
    pub is_long: bool,
}

/// What kinds of values can be compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Number,
    Real,
    Moment,
    Member,
    Text,
    Bytes,
    Document,
}

impl Class {
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

/// How two columns are compared; `None` if their types have no values in common that could be.
pub fn rendering(source: &ColumnInfo, target: &ColumnInfo, flavours: [Flavour; 2]) -> Option<Rendering> {
    use Class::{Document, Member, Moment, Number, Text};
    let classes = [Class::of(source), Class::of(target)];
    let sides = [source, target];
    let mut documents = false;
    let utf8 = || LiteralKind::Text("utf8mb4".to_owned());
    let mut literal = match classes[0] {
        Number => LiteralKind::Number,
        Class::Real => LiteralKind::Real,
        Moment => LiteralKind::Moment,
        Class::Bytes => LiteralKind::Bytes,
        Member | Text | Document => utf8(),
    };
    let expressions = match classes {
        [Member, Member] if source.column_type == target.column_type => {
            literal = match enum_members::index_zero(&target.data_type, &target.column_type) {
                Some(zero) => LiteralKind::Member { zero },
                None => LiteralKind::Number,
            };
            // MySQL makes a floating-point number of `+ 0`, and 64 members of a SET do not fit.
            sides.map(|column| format!("CAST({} AS UNSIGNED)", quoted(&column.name)))
        }
        [Member | Text, Member | Text] => {
            let alike = is_same_text(source, target);
            if let Some(charset) = source.charset.clone().filter(|_| alike) {
                literal = LiteralKind::Text(charset);
            }
            let text = |column: &ColumnInfo| if alike { bytes(column) } else { as_utf8(column) };
            sides.map(|column| match classes {
                [Member, Member] => enum_members::compared(column, text(column)),
                _ => text(column),
            })
        }
        [Document | Text, Document | Text] => {
            documents = flavours[0] != flavours[1];
            sides.map(|column| match Class::of(column) {
                Document => format!("CAST({} AS CHAR CHARACTER SET utf8mb4)", quoted(&column.name)),
                _ => as_utf8(column),
            })
        }
        [Number, Number] => {
            // As many digits behind the point as either has, or equal numbers are other texts.
            let alike = is_same_number(source, target);
            sides.map(|column| number(column, alike))
        }
        [Moment, Moment] if source.data_type != target.data_type && !are_date_times([source, target]) => {
            return None;
        }
        [one, other] if one == other => sides.map(|column| match one {
            // Text of a FLOAT has six digits, and that of a DOUBLE(7,3) three behind the point: this has them all.
            Class::Real => format!("({} * 1.0e0)", quoted(&column.name)),
            Class::Bytes if !is_binary_string(column) => format!("CAST({} AS BINARY)", quoted(&column.name)),
            _ => quoted(&column.name),
        }),
        _ => return None,
    };
    let is_ordinal = classes == [Member, Member] && source.column_type == target.column_type;
    let is_plain = is_ordinal || matches!(classes[0], Number | Class::Real | Moment);
    let read = read(sides, classes);
    let [on_source, on_target] = expressions;
    let rendered = |expression: String, column: &ColumnInfo| RenderedColumn {
        column: quoted(&column.name),
        alone: if expression == in_binary(column) { quoted(&column.name) } else { expression.clone() },
        length: match (expression == in_binary(column), classes == [Document, Document]) {
            (true, _) => format!("LENGTH({})", quoted(&column.name)),
            // To make its text only for its length takes as long as to make it.
            (_, true) => format!("JSON_STORAGE_SIZE({})", quoted(&column.name)),
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

/// How both sides read it, so that what is equal is read alike. Nobody reads JSON, which the families print otherwise.
fn read(sides: [&ColumnInfo; 2], classes: [Class; 2]) -> Option<ReadAs> {
    let is_one_of = |types: &[&str]| sides.iter().any(|side| types.contains(&side.data_type.as_str()));
    let is_integer = match classes {
        [Class::Number, Class::Number] => !is_one_of(&["decimal"]),
        [Class::Member, Class::Member] => sides[0].column_type == sides[1].column_type,
        _ => false,
    };
    match classes {
        // -1 and the largest number of the same bits.
        _ if is_integer && is_unsigned(sides[0]) != is_unsigned(sides[1]) => Some(ReadAs::Bytes),
        _ if is_integer && sides.iter().any(|side| is_wide(side)) => Some(ReadAs::Wide),
        _ if is_integer => Some(ReadAs::Narrow),
        [Class::Real, Class::Real] => Some(ReadAs::Real),
        [Class::Document, _] | [_, Class::Document] => None,
        // A TIMESTAMP is kept as seconds; its text has to be made, by the time zone.
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

/// The bytes of texts that are in the same character set on both sides, or in sets of which one holds the other.
fn bytes(column: &ColumnInfo) -> String {
    let name = quoted(&column.name);
    match column.charset {
        Some(_) => in_binary(column),
        // An address or UUID of MariaDB, whose text is not bytes yet.
        None => format!("CONVERT({name} USING utf8mb4)"),
    }
}

fn in_binary(column: &ColumnInfo) -> String {
    format!("CONVERT({} USING binary)", quoted(&column.name))
}

fn as_utf8(column: &ColumnInfo) -> String {
    format!("CONVERT(CONVERT({} USING utf8mb4) USING binary)", quoted(&column.name))
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

fn number(column: &ColumnInfo, alike: bool) -> String {
    let name = quoted(&column.name);
    // A display width shows in texts only with zeros before the number.
    let needs_number = column.data_type == "bit" || column.column_type.contains("zerofill");
    match (alike, needs_number) {
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
        || (Class::of(column) == Class::Bytes && !is_binary_string(column))
}

impl RenderedColumn {
    /// The expression in a row's rendering: at most [`LONG_BYTES`] long.
    fn bounded(&self) -> String {
        let Self { expression, length, .. } = self;
        match self.is_long {
            true => format!("IF({length} > {LONG_BYTES}, SHA2({expression}, 256), {expression})"),
            false => expression.clone(),
        }
    }

    /// The values to be sent for digesting: where a long one is replaced by its digest, its length, too.
    pub fn sent(&self) -> String {
        match (self.is_long, self.ends_itself) {
            (false, _) => self.alone.clone(),
            (true, false) => format!("{}, {}", self.length, self.bounded()),
            (true, true) => self.bounded(),
        }
    }

    /// The value for comparing versions of a row, and for showing them: its digest if it is longer than `bytes_max`.
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

/// The expression of 64 bits of a digest of a row: of all its values, each told from the next, NULL from empty. It is NULL if
/// the server cannot make it because the row is too long.
///
/// Plain values come first, with the lengths of those that do not tell where they end, and then these: so no two rows are
/// rendered alike. SHA-2 is
/// the only cryptographic digest that both families have in all versions.
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
        let (source, target) = both(column, column).expect("the same type can be compared");
        assert_eq!(source, target);
        source
    }

    #[test]
    fn each_type_is_rendered_exactly() {
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
    fn what_is_declared_otherwise_is_brought_together_or_refused() {
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
    fn rows_are_rendered_so_that_no_two_are_alike() {
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
