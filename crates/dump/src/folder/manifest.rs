//! The contents of a dump folder, as its manifest describes them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use tailwater_tables::chunker::ChunkRange;
use tailwater_tables::schema::{ObjectKind, Selection};
use tailwater_tables::snapshot::SnapshotPoint;

/// The format that is written, and the newest that can be read.
pub const FORMAT: u32 = 1;

/// Everything about a dump except its data: `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// The version that started the dump.
    pub tailwater: String,
    /// The dumped server.
    pub server: DumpedServer,
    /// Start time, RFC 3339 in UTC.
    pub started_at: String,
    /// Completion time; absent until the dump is complete.
    pub finished_at: Option<String>,
    /// Compression of the data files.
    pub compression: DumpCompression,
    /// Row format of the data files.
    #[serde(default, skip_serializing_if = "RowFormat::is_tsv")]
    pub rows: RowFormat,
    /// The request, so that a resumed dump has the same; absent if an older version started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<DumpSelection>,
    /// The points in time of the data: one, and another one for each time the dump resumed after an
    /// interruption. Chunks refer to theirs by its index here.
    pub snapshots: Vec<SnapshotPoint>,
    /// Databases.
    pub schemas: Vec<SchemaEntry>,
    /// Tables.
    pub tables: Vec<TableEntry>,
    /// Users and roles, if they were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<AccountEntry>,
    /// All other objects, in an order in which they can be created.
    pub objects: Vec<ObjectEntry>,
}

/// What to dump.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpSelection {
    /// Databases and tables.
    pub selection: Selection,
    /// Whether to dump users and roles.
    pub accounts: bool,
}

/// The server of a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpedServer {
    /// MySQL or MariaDB.
    pub flavour: DumpedFlavour,
    /// Its version in its own spelling.
    pub version: String,
    /// `server_uuid` (MySQL) or `server_uid` (MariaDB); absent if the server has none.
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

/// The compression of data files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DumpCompression {
    /// None.
    None,
    /// Zstandard.
    #[default]
    Zstd,
    /// gzip, which more programs can read.
    Gzip,
}

impl DumpCompression {
    /// The default level of the compression's own tool.
    pub fn level_usual(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Zstd => 3,
            Self::Gzip => 6,
        }
    }

    /// The highest level, which takes the most time.
    pub fn level_max(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Zstd => 19,
            Self::Gzip => 9,
        }
    }
}

/// The row format of data files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowFormat {
    /// Tab-separated text, as `LOAD DATA` reads it.
    #[default]
    Tsv,
    /// INSERT statements, for the stock clients.
    Sql,
    /// Comma-separated text with a header line, for other programs.
    Csv,
    /// Parquet, which has typed columns, for other programs.
    Parquet,
}

impl RowFormat {
    /// The name.
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

    /// The ending of data file names.
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
            // It is compressed internally.
            (Self::Parquet, _) => "parquet",
        }
    }
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
    /// The columns in the order of the data files' fields, without generated ones.
    pub columns: Vec<ColumnEntry>,
    /// Number of rows in the finished chunks.
    pub rows: u64,
    /// Chunks, finished or planned, by number.
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
                        "it is recorded as finished, but its chunk {} is not written",
                        chunk.file
                    ));
                }
                continue;
            };
            rows =
                rows.checked_add(written.rows).ok_or("the total number of rows of its chunks overflows")?;
            if written.snapshot >= snapshots {
                let (file, number) = (&chunk.file, written.snapshot);
                return Err(format!(
                    "the chunk {file} refers to snapshot {number}, but there are {snapshots}"
                ));
            }
            if let Some(nulled) = chunk.nulled.iter().find(|nulled| nulled.values > written.rows) {
                let (file, column) = (&chunk.file, &nulled.column);
                return Err(format!("the chunk {file} has more NULL values of {column} than rows"));
            }
            if !chunk.range.keys.is_sound() {
                return Err(format!("a key of the chunk {} is not a literal", chunk.file));
            }
        }
        match rows == self.rows {
            true => Ok(()),
            false => Err(format!("it says {} rows, but its chunks have {rows}", self.rows)),
        }
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnEntry {
    /// Its name.
    pub name: String,
    /// Its type without length and attributes, in lower case, as in `information_schema.columns.data_type`.
    /// Some types need an expression when they are loaded.
    #[serde(rename = "type")]
    pub data_type: String,
}

/// A part of a table's rows in a data file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ChunkFields")]
pub struct ChunkEntry {
    /// The file; it exists once the chunk is finished.
    pub file: String,
    /// Its rows.
    pub range: ChunkRange,
    /// The contents of the file; absent until the chunk is finished.
    #[serde(flatten)]
    pub written: Option<WrittenChunk>,
    /// Values that the file lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nulled: Vec<NulledValues>,
}

/// [`ChunkEntry`] as it is parsed. A flattened `Option` would take every error in a field of [`WrittenChunk`]
/// for an absent one, and so the chunk with its rows for an unfinished one.
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

/// The contents of a finished chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenChunk {
    /// Number of rows.
    pub rows: u64,
    /// Size before compression in bytes; for Parquet that of the values.
    pub bytes: u64,
    /// CRC32 (zlib's) of the uncompressed bytes; for Parquet, which is compressed internally, of the file.
    pub crc32: u32,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// The index in [`Manifest::snapshots`] of the snapshot that was read.
    pub snapshot: usize,
}

/// Values of a column that the format cannot represent and that are NULL in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NulledValues {
    /// The column.
    pub column: String,
    /// Number of values.
    pub values: u64,
}

/// An object that is not a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectEntry {
    /// Its kind.
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
    /// The host part; empty for a role of MariaDB.
    pub host: String,
    /// The file of its definition, with the hash of its password.
    pub file: String,
    /// The file of its privileges.
    pub grants_file: String,
}

impl Manifest {
    /// The entry of a table.
    pub fn table_mut(&mut self, schema: &str, table: &str) -> Option<&mut TableEntry> {
        self.tables.iter_mut().find(|entry| entry.schema == schema && entry.table == table)
    }

    /// The indexes of the snapshots that finished chunks refer to. With more than one, the dump has several
    /// points in time.
    pub fn snapshots_used(&self) -> BTreeSet<usize> {
        let written = self.tables.iter().flat_map(|table| &table.chunks).filter_map(|chunk| chunk.written);
        written.map(|written| written.snapshot).collect()
    }

    /// Number of values per database, table and column that the format cannot represent: they are NULL in the
    /// finished files.
    pub fn nulled(&self) -> BTreeMap<(&str, &str, &str), u64> {
        let mut sums = BTreeMap::new();
        for table in &self.tables {
            for nulled in table.chunks.iter().flat_map(|chunk| &chunk.nulled) {
                *sums.entry((&*table.schema, &*table.table, &*nulled.column)).or_default() += nulled.values;
            }
        }
        sums
    }

    /// The compression of whole files; none for Parquet.
    pub fn packing(&self) -> DumpCompression {
        if self.rows == RowFormat::Parquet { DumpCompression::None } else { self.compression }
    }

    /// The ending of data file names.
    pub fn ending(&self) -> &'static str {
        self.rows.ending(self.compression)
    }

    /// Checks the totals against the entries. A manifest without a checksum, which was removed or which an
    /// older version did not write, has no other protection.
    ///
    /// # Errors
    /// The contradiction.
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

    /// Whether all tables are finished.
    pub fn is_complete(&self) -> bool {
        self.tables.iter().all(|table| table.finished)
    }
}
