//! A table on both sides: which columns are compared, by which key, and with which SQL statements.

use serde::{Deserialize, Serialize};
use tailwater_session::ServerInfo;
use tailwater_wire::Flavour;

use super::chunk_checksum::row_sum;
use super::comparable_sql_expressions::{LiteralKind, RenderedColumn, Rendering, rendering, row_hash};
use tailwater_tables::chunker::chunk_queries::{ChunkStatement, IndexHint, RangeScan, from_clause};
use tailwater_tables::chunker::key_range::{KeyLiteral, KeyRange};
use tailwater_tables::chunker::key_range_condition::condition;
use tailwater_tables::chunker::table_info::ColumnInfo;
use tailwater_tables::chunker::{ChunkKey, KeyColumn, KeyKind, TableInfo};
use tailwater_tables::schema::TableName;
use tailwater_wire::sql_quote::quote_identifier;

/// The greatest size of a JSON document that is compared as a document, in bytes. Longer documents are
/// compared as texts.
const DOCUMENT_BYTES_MAX: u32 = 1 << 20;

/// One of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PairSide {
    /// The server with the correct data.
    Source,
    /// The server that is compared with the source.
    Target,
}

/// A table that exists on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePair {
    /// The name of the table.
    pub name: TableName,
    /// The columns to compare.
    pub columns: Vec<Rendering>,
    /// The unique key that exists on both sides; absent if there is none.
    pub key: Option<PairKey>,
    /// The columns that exist on one side only, or that cannot be compared.
    pub mismatch: TableMismatch,
    /// Estimated number of rows.
    pub rows_estimate: u64,
    /// The descriptions of the table on both sides. A repair needs them to write rows.
    pub infos: Box<[TableInfo; 2]>,
}

/// A key that exists on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairKey {
    /// The key on the source.
    pub source: ChunkKey,
    /// The key on the target.
    pub target: ChunkKey,
    /// Whether text columns of the key have different collations on the two sides. The collation of one side
    /// may distinguish keys that are equal in the collation of the other side. So two rows are the same only
    /// if their keys have the same bytes.
    pub by_bytes: bool,
}

/// The columns in which two tables of the same name differ.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableMismatch {
    /// Columns that only the source has.
    pub only_source: Vec<String>,
    /// Columns that only the target has.
    pub only_target: Vec<String>,
    /// Columns whose types on the two sides are not comparable.
    pub incomparable: Vec<String>,
}

impl TableMismatch {
    /// Whether both tables have the same columns.
    pub fn is_empty(&self) -> bool {
        self.only_source.is_empty() && self.only_target.is_empty() && self.incomparable.is_empty()
    }
}

impl TablePair {
    /// Finds the columns and the key that the two tables have in common.
    pub fn new(name: TableName, source: TableInfo, target: TableInfo, flavours: [Flavour; 2]) -> Self {
        let mut columns = Vec::new();
        let mut mismatch = TableMismatch::default();
        let is_in = |info: &TableInfo, name: &str| {
            info.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
        };
        for column in &source.columns {
            let Some(other) = is_in(&target, &column.name).and_then(|index| target.columns.get(index)) else {
                mismatch.only_source.push(column.name.clone());
                continue;
            };
            match rendering(column, other, flavours) {
                Some(rendering) => columns.push(rendering),
                None => mismatch.incomparable.push(format!(
                    "{} ({} on the source, {} on the target)",
                    column.name, column.column_type, other.column_type
                )),
            }
        }
        let extra = target.columns.iter().filter(|column| is_in(&source, &column.name).is_none());
        mismatch.only_target.extend(extra.map(|column| column.name.clone()));
        let key = common_key(&source, &target);
        let rows_estimate = source.rows_estimate.max(target.rows_estimate);
        Self { name, columns, key, mismatch, rows_estimate, infos: Box::new([source, target]) }
    }

    fn rendered(&self, side: PairSide) -> impl Iterator<Item = &RenderedColumn> + Clone {
        self.columns.iter().map(move |column| match side {
            PairSide::Source => &column.source,
            PairSide::Target => &column.target,
        })
    }

    /// Returns the key on one side.
    pub fn key(&self, side: PairSide) -> Option<&ChunkKey> {
        self.key.as_ref().map(|key| match side {
            PairSide::Source => &key.source,
            PairSide::Target => &key.target,
        })
    }

    /// Returns the description of the table on one side.
    pub fn info(&self, side: PairSide) -> &TableInfo {
        match side {
            PairSide::Source => &self.infos[0],
            PairSide::Target => &self.infos[1],
        }
    }

    fn from(&self, side: PairSide) -> String {
        self.rows_by(side, IndexHint::Force)
    }

    fn rows_by(&self, side: PairSide, hint: IndexHint) -> String {
        from_clause(&self.name.schema, &self.name.name, None, self.key(side).map(|key| (key, hint)))
    }

    fn within(&self, side: PairSide, range: &KeyRange) -> String {
        condition(self.key(side), range).map(|condition| format!(" WHERE {condition}")).unwrap_or_default()
    }

    fn hash(&self, side: PairSide) -> String {
        row_hash(self.rendered(side))
    }

    /// Returns the statement for the number of rows in a chunk and the sum of their hashes. The sum is an
    /// exact number, so that differences of rows do not cancel each other. It does not depend on the order of
    /// the rows. Rows that cannot be hashed are missing from the sum, and the server warns about them.
    pub fn aggregate(&self, side: PairSide, range: &KeyRange) -> String {
        let (hash, from, within) = (self.hash(side), self.from(side), self.within(side, range));
        format!("SELECT COUNT(*), SUM({hash}) {from}{within}")
    }

    /// Returns the statement for the number of rows in a chunk and the checksum that the server computes
    /// itself; `None` if the rows must be transferred. The checksum requires a unique key, because equal rows
    /// would cancel each other. It also requires servers whose `CRC32` accepts a CRC as a start value.
    pub fn sum(&self, side: PairSide, range: &KeyRange, seed: u64) -> Option<String> {
        let is_compared = |column: &KeyColumn| {
            self.columns.iter().any(|compared| compared.name.eq_ignore_ascii_case(&column.name))
        };
        let are_distinct = self.key.as_ref().is_some_and(|key| key.source.columns.iter().all(is_compared));
        if !are_distinct || *range == KeyRange::Nulls {
            return None;
        }
        let reads = self.columns.iter().map(|column| column.read);
        let sum = row_sum(self.rendered(side).zip(reads), seed)?;
        Some(format!("SELECT COUNT(*), BIT_XOR({sum}) {}{}", self.from(side), self.within(side, range)))
    }

    /// Returns the statement for the values of the rows in a chunk, in any order. Equal rows have the same
    /// bytes on both sides.
    pub fn values(&self, side: PairSide, range: &KeyRange, server: &ServerInfo) -> ChunkStatement {
        let values: Vec<_> = self.rendered(side).map(RenderedColumn::sent).collect();
        // The two tables may have no column in common. Then the check compares only the numbers of their
        // rows.
        let values = if values.is_empty() { "1".to_owned() } else { values.join(", ") };
        let scan = RangeScan::new(server, range, self.rows_estimate);
        let from = self.rows_by(side, scan.hint);
        let sql = format!("{} {values} {from}{}", scan.select, self.within(side, range));
        // A floating-point column is only compared with a floating-point column, so it is enough to test one
        // side.
        let as_values = self.columns.iter().any(|column| column.literal == LiteralKind::Real);
        ChunkStatement { sql, as_values }
    }

    /// Returns the statement that counts the rows of a chunk that cannot be hashed.
    pub fn unhashed(&self, side: PairSide, range: &KeyRange) -> String {
        let (hash, from, within) = (self.hash(side), self.from(side), self.within(side, range));
        format!("SELECT COUNT(*) FROM (SELECT {hash} AS h {from}{within}) AS hashed WHERE h IS NULL")
    }

    /// Returns the statement for the key and hash of each row, in key order.
    pub fn hashes(&self, side: PairSide, range: &KeyRange) -> Option<String> {
        let key = self.key(side)?;
        let names: Vec<_> = key.columns.iter().map(|column| quote_identifier(&column.name)).collect();
        Some(format!(
            "SELECT {}, {} AS h {}{} ORDER BY {}",
            key_expressions(key),
            self.hash(side),
            self.from(side),
            self.within(side, range),
            names.join(", ")
        ))
    }

    /// Returns the statement for each hash and the number of rows with it, in hash order. It is for rows
    /// without a unique key.
    pub fn hash_counts(&self, side: PairSide, range: &KeyRange) -> String {
        format!(
            "SELECT {} AS h, COUNT(*) {}{} GROUP BY h ORDER BY h",
            self.hash(side),
            self.from(side),
            self.within(side, range)
        )
    }

    /// Returns the statement that reads some rows by their keys: the stored key and all values, shortened to
    /// `bytes_max`. If the literals of a key may differ between the two sides, each row starts with the index
    /// of its key in `keys`.
    pub fn rows(&self, side: PairSide, keys: &[&[KeyLiteral]], bytes_max: u32) -> Option<String> {
        let key = self.key(side)?;
        let values = self.columns.iter().zip(self.rendered(side)).map(|(column, rendered)| {
            // Documents are compared as documents, so they must not be shortened.
            rendered.shown(if column.documents { DOCUMENT_BYTES_MAX } else { bytes_max })
        });
        let values: Vec<_> = values.collect();
        let values = values.join(", ");
        let (from, expressions) = (self.from(side), key_expressions(key));
        if self.key_is_exact() {
            let terms: Vec<_> =
                keys.iter().map(|literals| format!("({})", self.equals(side, literals))).collect();
            return Some(format!("SELECT {expressions}, {values} {from} WHERE {}", terms.join(" OR ")));
        }
        let selects = keys.iter().enumerate().map(|(number, literals)| {
            format!("SELECT {number}, {expressions}, {values} {from} WHERE {}", self.equals(side, literals))
        });
        Some(selects.collect::<Vec<_>>().join(" UNION ALL "))
    }

    /// Returns the condition for the row with this key. If the table has no key, the condition is never true.
    pub fn equals(&self, side: PairSide, literals: &[KeyLiteral]) -> String {
        let (Some(key), Some(of_both)) = (self.key(side), &self.key) else { return "FALSE".to_owned() };
        let terms = key.columns.iter().zip(literals).map(|(column, literal)| {
            let name = quote_identifier(&column.name);
            match (&column.kind, literal.0.split_once(' ')) {
                (KeyKind::Text { .. }, Some((_, bytes))) if of_both.by_bytes => {
                    format!("{name} = {} AND CONVERT({name} USING binary) = {bytes}", literal.0)
                }
                _ => format!("{name} = {}", literal.0),
            }
        });
        terms.collect::<Vec<_>>().join(" AND ")
    }

    /// Whether the key of a row has the same literals on both sides, and the servers consider no other
    /// literals equal to them.
    pub fn key_is_exact(&self) -> bool {
        let is_exact =
            |column: &KeyColumn| matches!(column.kind, KeyKind::Integer | KeyKind::Ordinal | KeyKind::Bytes);
        self.key.as_ref().is_some_and(|key| key.source.columns.iter().all(is_exact))
    }

    /// Returns how many rows one statement of [`TablePair::rows`] may read, so that neither the statement nor
    /// the result becomes too long.
    pub fn rows_at_once(&self) -> usize {
        const STATEMENT_BYTES_MAX: usize = 400_000;
        let values = self.rendered(PairSide::Source).map(|column| column.shown(0).len());
        let bytes = values.sum::<usize>() + self.from(PairSide::Source).len() + 200;
        if self.columns.iter().any(|column| column.documents) {
            return 10;
        }
        if self.key_is_exact() { 200 } else { (STATEMENT_BYTES_MAX / bytes).clamp(1, 50) }
    }
}

fn key_expressions(key: &ChunkKey) -> String {
    let expressions: Vec<_> = key.columns.iter().map(|column| column.expression()).collect();
    expressions.join(", ")
}

/// Returns the best key that both tables have: the primary key, or else a unique key. The key has the same
/// columns on both sides, and the values of their types have the same text form on both sides.
fn common_key(source: &TableInfo, target: &TableInfo) -> Option<PairKey> {
    let same = |one: &ChunkKey, other: &ChunkKey| {
        one.columns.len() == other.columns.len()
            && one.columns.iter().zip(&other.columns).all(|(one, other)| {
                one.name.eq_ignore_ascii_case(&other.name)
                    && one.kind == other.kind
                    && one.nullable == other.nullable
                    && (one.kind != KeyKind::Ordinal || is_numbered_alike(&one.name, [source, target]))
            })
    };
    let find = |key: &ChunkKey| target.keys.iter().find(|other| same(key, other)).cloned();
    let common: Vec<_> = source.keys.iter().filter(|key| find(key).is_some()).cloned().collect();
    let source_shape = source;
    let source = ChunkKey::choose(&common)?.clone();
    let on_target = find(&source)?;
    let by_bytes = source.columns.iter().any(|column| {
        matches!(column.kind, KeyKind::Text { .. })
            && !is_collated_alike(&column.name, [source_shape, target])
    });
    Some(PairKey { source, target: on_target, by_bytes })
}

/// Returns the declarations of a column on both sides; `None` if the column is generated on one side.
fn declared<'s>(name: &str, infos: [&'s TableInfo; 2]) -> Option<[&'s ColumnInfo; 2]> {
    let find =
        |info: &'s TableInfo| info.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name));
    Some([find(infos[0])?, find(infos[1])?])
}

/// Whether a number represents the same value of this column on both sides. For ENUM and SET this requires
/// that both sides declare the same members.
fn is_numbered_alike(name: &str, infos: [&TableInfo; 2]) -> bool {
    declared(name, infos).is_some_and(|[one, other]| {
        let are_bits = [one, other].iter().all(|column| column.data_type == "bit");
        are_bits || one.column_type == other.column_type
    })
}

fn is_collated_alike(name: &str, infos: [&TableInfo; 2]) -> bool {
    declared(name, infos)
        .is_some_and(|[one, other]| one.collation.is_some() && one.collation == other.collation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(columns: &[(&str, &str)], keys: &[(&str, &[&str])]) -> TableInfo {
        let column = |name: &str, data_type: &str| ColumnInfo {
            name: name.into(),
            data_type: data_type.into(),
            column_type: data_type.into(),
            charset: None,
            collation: None,
            nullable: false,
        };
        let key = |name: &str, columns: &[&str]| ChunkKey {
            name: name.into(),
            columns: columns
                .iter()
                .map(|name| KeyColumn {
                    name: (*name).into(),
                    kind: KeyKind::Integer,
                    nullable: false,
                    descending: false,
                })
                .collect(),
        };
        TableInfo {
            versioned: false,
            schema: "s".into(),
            table: "t".into(),
            engine: "InnoDB".into(),
            columns: columns.iter().map(|(name, data_type)| column(name, data_type)).collect(),
            keys: keys.iter().map(|(name, columns)| key(name, columns)).collect(),
            partitions: Vec::new(),
            rows_estimate: 1,
            bytes_estimate: 1,
        }
    }

    fn pair(source: TableInfo, target: TableInfo) -> TablePair {
        TablePair::new(TableName::new("s", "t"), source, target, [Flavour::MySql, Flavour::MySql])
    }

    #[test]
    fn common_columns_are_compared_and_the_rest_is_reported() {
        let source = info(&[("id", "int"), ("a", "date"), ("b", "int")], &[("PRIMARY", &["id"])]);
        let target = info(&[("ID", "bigint"), ("c", "int"), ("a", "int")], &[("PRIMARY", &["ID"])]);
        let pair = pair(source, target);
        assert_eq!(pair.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["id"]);
        let TableMismatch { only_source, only_target, incomparable } = &pair.mismatch;
        assert_eq!(
            (only_source.as_slice(), only_target.as_slice()),
            (&["b".to_owned()][..], &["c".to_owned()][..])
        );
        assert_eq!(incomparable, &["a (date on the source, int on the target)"]);
        assert_eq!(
            pair.hashes(PairSide::Target, &KeyRange::Integers { from: Some(1), to: None }).unwrap(),
            "SELECT `ID`, CAST(CONV(LEFT(SHA2(CONCAT_WS('#', `ID`), 256), 16), 16, 10) AS UNSIGNED) AS h \
             FROM `s`.`t` FORCE INDEX (`PRIMARY`) WHERE `ID` >= 1 ORDER BY `ID`"
        );
    }

    #[test]
    fn the_key_that_both_tables_have_is_used() {
        let columns = [("a", "int"), ("b", "int")];
        let source = info(&columns, &[("PRIMARY", &["a"]), ("other", &["b"]), ("both", &["a", "b"])]);
        let name = |target: TableInfo| {
            pair(source.clone(), target).key.map(|key| (key.source.name, key.target.name))
        };
        let found = name(info(&columns, &[("x", &["a", "b"]), ("y", &["b"])]));
        assert_eq!(found, Some(("other".into(), "y".into())));
        assert_eq!(name(info(&columns, &[("x", &["b", "a"])])), None);
    }

    #[test]
    fn rows_are_read_by_key_or_by_number() {
        let columns = [("a", "int"), ("b", "int")];
        let mut both = info(&columns, &[("PRIMARY", &["a"])]);
        let of = |info: &TableInfo| pair(info.clone(), info.clone());
        let literal = |text: &str| vec![KeyLiteral(text.into())];
        let (one, two) = (literal("1"), literal("2"));
        let sql = of(&both).rows(PairSide::Source, &[&one, &two], 64).unwrap();
        assert_eq!(
            sql,
            "SELECT `a`, `a`, `b` FROM `s`.`t` FORCE INDEX (`PRIMARY`) WHERE (`a` = 1) OR (`a` = 2)"
        );
        both.keys[0].columns[0].kind = KeyKind::Number;
        assert_eq!(
            of(&both).rows(PairSide::Source, &[&one, &two], 64).unwrap(),
            "SELECT 0, `a`, `a`, `b` FROM `s`.`t` FORCE INDEX (`PRIMARY`) WHERE `a` = 1 UNION ALL \
             SELECT 1, `a`, `a`, `b` FROM `s`.`t` FORCE INDEX (`PRIMARY`) WHERE `a` = 2"
        );
    }
}
