//! What a dump folder holds, as its manifest says.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use crate::chunker::ChunkRange;
use crate::schema::Selection;

/// The format that is written, and the newest that is read.
pub const FORMAT: u32 = 1;

/// All of a dump but its data: `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// The version that began the dump.
    pub tailwater: String,
    /// Where it comes from.
    pub server: DumpedServer,
    /// When it began, RFC 3339 in UTC.
    pub started_at: String,
    /// When it was complete; absent until it is.
    pub finished_at: Option<String>,
    /// How data files are compressed.
    pub compression: DumpCompression,
    /// How they hold rows.
    #[serde(default, skip_serializing_if = "RowFormat::is_tsv")]
    pub rows: RowFormat,
    /// What was asked for, so that a dump that goes on asks for the same; absent if an older version began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<DumpRequest>,
    /// The points in time that the data stands at: one, and one more for each time that the dump went on after it was
    /// interrupted. Chunks name theirs by its number here.
    pub snapshots: Vec<SnapshotPoint>,
    /// Databases.
    pub schemas: Vec<SchemaEntry>,
    /// Tables.
    pub tables: Vec<TableEntry>,
    /// Users and roles, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<AccountEntry>,
    /// Whatever else has a definition, in an order in which it can be created.
    pub objects: Vec<ObjectEntry>,
}

/// What a dump was to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpRequest {
    /// Databases and tables.
    pub selection: Selection,
    /// Whether users and roles, too.
    pub accounts: bool,
}

/// The server of a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpedServer {
    /// Its family.
    pub flavour: DumpedFlavour,
    /// Its version as it spells it.
    pub version: String,
    /// `server_uuid` (MySQL) or `server_uid` (MariaDB); absent where the server has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// `server_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<u32>,
}

/// The family of a dump's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DumpedFlavour {
    /// MySQL.
    MySql,
    /// MariaDB.
    MariaDb,
}

/// How data files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DumpCompression {
    /// Not at all.
    None,
    /// Zstandard.
    #[default]
    Zstd,
    /// gzip, which more programs read.
    Gzip,
}

impl DumpCompression {
    /// The level that its own tool takes if none is named.
    pub fn level_usual(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Zstd => 3,
            Self::Gzip => 6,
        }
    }

    /// Its highest level, which takes the most time.
    pub fn level_max(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Zstd => 19,
            Self::Gzip => 9,
        }
    }
}

/// How data files hold rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowFormat {
    /// Tab-separated text, as `LOAD DATA` takes it.
    #[default]
    Tsv,
    /// INSERT statements, for the stock clients.
    Sql,
    /// Comma-separated text with a line of names, for other programs.
    Csv,
    /// Parquet, columns with types, for other programs.
    Parquet,
}

impl RowFormat {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tsv => "tsv",
            Self::Sql => "sql",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }

    fn is_tsv(&self) -> bool {
        *self == Self::Tsv
    }

    /// What the name of a data file ends with.
    pub fn ending(self, compression: DumpCompression) -> &'static str {
        match (self, compression) {
            (Self::Tsv, DumpCompression::None) => "tsv",
            (Self::Tsv, DumpCompression::Zstd) => "tsv.zst",
            (Self::Tsv, DumpCompression::Gzip) => "tsv.gz",
            (Self::Sql, DumpCompression::None) => "sql",
            (Self::Sql, DumpCompression::Zstd) => "sql.zst",
            (Self::Sql, DumpCompression::Gzip) => "sql.gz",
            (Self::Csv, DumpCompression::None) => "csv",
            (Self::Csv, DumpCompression::Zstd) => "csv.zst",
            (Self::Csv, DumpCompression::Gzip) => "csv.gz",
            // It is compressed within.
            (Self::Parquet, _) => "parquet",
        }
    }
}

/// A point in the source's history.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotPoint {
    /// Everything up to here is in the data, in the flavour's notation; absent if the server keeps no GTIDs.
    pub gtid_set: Option<String>,
    /// The binlog file; absent if the server writes none.
    pub binlog_file: Option<String>,
    /// The place in it.
    pub binlog_position: Option<u64>,
    /// When it was taken, RFC 3339 in UTC.
    pub taken_at: String,
}

/// A database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaEntry {
    /// Its name.
    pub name: String,
    /// The file of its definition.
    pub file: String,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableEntry {
    /// Its database.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// The file of its definition.
    pub file: String,
    /// The columns in the order of the data files' fields; generated ones are not among them.
    pub columns: Vec<ColumnEntry>,
    /// How many rows the finished chunks hold.
    pub rows: u64,
    /// Chunks, finished or planned, by their numbers.
    pub chunks: Vec<ChunkEntry>,
    /// Whether all chunks are planned and finished.
    pub finished: bool,
}

impl TableEntry {
    fn check(&self, snapshots: usize) -> Result<(), String> {
        let mut rows = 0u64;
        for chunk in &self.chunks {
            let Some(written) = chunk.written else {
                if self.finished {
                    return Err(format!(
                        "it is called finished, and its chunk {} is not written",
                        chunk.file
                    ));
                }
                continue;
            };
            rows = rows.checked_add(written.rows).ok_or("its chunks have more rows than can be counted")?;
            if written.snapshot >= snapshots {
                let (file, number) = (&chunk.file, written.snapshot);
                return Err(format!("the chunk {file} is of snapshot {number}, and there are {snapshots}"));
            }
            if let Some(nulled) = chunk.nulled.iter().find(|nulled| nulled.values > written.rows) {
                let (file, column) = (&chunk.file, &nulled.column);
                return Err(format!("the chunk {file} has more NULL values of {column} than rows"));
            }
            if !chunk.range.keys.is_sound() {
                return Err(format!("a key of the chunk {} is no literal", chunk.file));
            }
        }
        match rows == self.rows {
            true => Ok(()),
            false => Err(format!("it says {} rows, and its chunks hold {rows}", self.rows)),
        }
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnEntry {
    /// Its name.
    pub name: String,
    /// Its type without length and attributes, in small letters, as `information_schema.columns.data_type` has it. Some
    /// types need an expression to be loaded.
    #[serde(rename = "type")]
    pub data_type: String,
}

/// A part of a table's rows in a file of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ChunkFields")]
pub struct ChunkEntry {
    /// The file; it is there when the chunk is finished.
    pub file: String,
    /// Which rows.
    pub range: ChunkRange,
    /// What is in the file; absent until the chunk is finished.
    #[serde(flatten)]
    pub written: Option<WrittenChunk>,
    /// What the file lacks of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nulled: Vec<NulledValues>,
}

/// [`ChunkEntry`] as it is read. A flattened `Option` takes every error in the fields of [`WrittenChunk`] for an absent one, and the
/// chunk, with its rows, for one that is not finished.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChunkFields {
    file: String,
    range: ChunkRange,
    rows: Option<u64>,
    bytes: Option<u64>,
    crc32: Option<u32>,
    file_bytes: Option<u64>,
    snapshot: Option<usize>,
    #[serde(default)]
    nulled: Vec<NulledValues>,
}

impl TryFrom<ChunkFields> for ChunkEntry {
    type Error = String;

    fn try_from(fields: ChunkFields) -> Result<Self, String> {
        let ChunkFields { file, range, rows, bytes, crc32, file_bytes, snapshot, nulled } = fields;
        let written = match (rows, bytes, crc32, file_bytes, snapshot) {
            (None, None, None, None, None) => None,
            (Some(rows), Some(bytes), Some(crc32), Some(file_bytes), Some(snapshot)) => {
                Some(WrittenChunk { rows, bytes, crc32, file_bytes, snapshot })
            }
            _ => {
                let names = [
                    ("rows", rows.is_none()),
                    ("bytes", bytes.is_none()),
                    ("crc32", crc32.is_none()),
                    ("file_bytes", file_bytes.is_none()),
                    ("snapshot", snapshot.is_none()),
                ];
                let missing: Vec<_> =
                    names.iter().filter(|(_, is_missing)| *is_missing).map(|(name, _)| *name).collect();
                return Err(format!("the chunk {file} has no {}", missing.join(", no ")));
            }
        };
        Ok(Self { file, range, written, nulled })
    }
}

/// What a finished chunk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenChunk {
    /// Rows.
    pub rows: u64,
    /// Bytes before compression; of Parquet those of the values.
    pub bytes: u64,
    /// CRC32 (zlib's) of the bytes before compression; of Parquet, which is compressed within, those of the file.
    pub crc32: u32,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The number of the snapshot, in [`Manifest::snapshots`], that it was read at.
    pub snapshot: usize,
}

/// Values of a column that the format cannot hold, and that are NULL in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NulledValues {
    /// The column.
    pub column: String,
    /// How many values.
    pub values: u64,
}

/// Something that is not a table and has a definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectEntry {
    /// What it is.
    pub kind: ObjectKind,
    /// Its database.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The file of its definition.
    pub file: String,
}

/// A user or role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountEntry {
    /// Its name.
    pub user: String,
    /// Where it comes from; empty for a role of MariaDB.
    pub host: String,
    /// The file of its definition, with the hash of its password.
    pub file: String,
    /// The file of what it may do.
    pub grants_file: String,
}

/// What has a definition and is not a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// A sequence (MariaDB).
    Sequence,
    /// A view.
    View,
    /// A stored function.
    Function,
    /// A stored procedure.
    Procedure,
    /// A package of routines (MariaDB with `sql_mode=ORACLE`).
    Package,
    /// The body of a package.
    PackageBody,
    /// A trigger.
    Trigger,
    /// A scheduled event.
    Event,
}

impl ObjectKind {
    /// The kind as file names spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::View => "view",
            Self::Function => "function",
            Self::Procedure => "procedure",
            Self::Package => "package",
            Self::PackageBody => "package_body",
            Self::Trigger => "trigger",
            Self::Event => "event",
        }
    }
}

impl Manifest {
    /// The table of that name.
    pub fn table_mut(&mut self, schema: &str, table: &str) -> Option<&mut TableEntry> {
        self.tables.iter_mut().find(|entry| entry.schema == schema && entry.table == table)
    }

    /// The numbers of the snapshots that the finished chunks stand at. A dump with more than one is not of one point in time.
    pub fn snapshots_used(&self) -> BTreeSet<usize> {
        let written = self.tables.iter().flat_map(|table| &table.chunks).filter_map(|chunk| chunk.written);
        written.map(|written| written.snapshot).collect()
    }

    /// How many values of each column the format cannot hold: they are NULL in the finished files. By database, table and column.
    pub fn nulled(&self) -> BTreeMap<(&str, &str, &str), u64> {
        let mut sums = BTreeMap::new();
        for table in &self.tables {
            for nulled in table.chunks.iter().flat_map(|chunk| &chunk.nulled) {
                *sums.entry((&*table.schema, &*table.table, &*nulled.column)).or_default() += nulled.values;
            }
        }
        sums
    }

    /// How whole files are compressed: those of Parquet are not.
    pub fn packing(&self) -> DumpCompression {
        if self.rows == RowFormat::Parquet { DumpCompression::None } else { self.compression }
    }

    /// What names of data files end with.
    pub fn ending(&self) -> &'static str {
        self.rows.ending(self.compression)
    }

    /// Whether the totals agree with what they are of. A manifest whose checksum was taken out, or that an older version wrote,
    /// has nothing else that tells that it is as it was written.
    ///
    /// # Errors
    /// What contradicts what.
    pub fn check(&self) -> Result<(), String> {
        if self.format == 0 {
            return Err("there is no format 0".into());
        }
        let (mut names, mut files) = (HashSet::new(), HashSet::new());
        for table in &self.tables {
            let name = format!("{}.{}", table.schema, table.table);
            table.check(self.snapshots.len()).map_err(|reason| format!("table {name}: {reason}"))?;
            if let Some(file) = table.chunks.iter().find(|chunk| !files.insert(&*chunk.file)) {
                return Err(format!("table {name}: the file {} is named twice", file.file));
            }
            if !names.insert((&*table.schema, &*table.table)) {
                return Err(format!("the table {name} is there twice"));
            }
        }
        Ok(())
    }

    /// Whether every table is finished.
    pub fn is_complete(&self) -> bool {
        self.tables.iter().all(|table| table.finished)
    }
}
