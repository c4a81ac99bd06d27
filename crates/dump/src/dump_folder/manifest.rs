//! The contents of a dump folder, as `manifest.json` describes them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use tailwater_tables::chunker::ChunkRange;
use tailwater_tables::schema::{ObjectKind, Selection};
use tailwater_tables::snapshot::SnapshotPoint;

/// The version of the manifest format that this program writes, and the newest that it can read.
pub const FORMAT: u32 = 1;

/// Everything about a dump except its data: `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format, [`FORMAT`].
    pub format: u32,
    /// The version of Tailwater that started the dump.
    pub tailwater: String,
    /// The dumped server.
    pub server: DumpedServer,
    /// Start time, in RFC 3339 format and UTC.
    pub started_at: String,
    /// Time when the dump was completed; absent until then.
    pub finished_at: Option<String>,
    /// Compression of the data files.
    pub compression: DumpCompression,
    /// Row format of the data files.
    #[serde(default, skip_serializing_if = "RowFormat::is_tsv")]
    pub rows: RowFormat,
    /// What the user asked to dump. A resumed dump uses the same selection. Absent if an older version
    /// started the dump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<DumpSelection>,
    /// The points in time of the data. The list begins with one point in time, and has another one for each
    /// time the dump resumed after an interruption. A chunk refers to its snapshot by the index in this list.
    pub snapshots: Vec<SnapshotPoint>,
    /// The dumped databases.
    pub schemas: Vec<SchemaEntry>,
    /// The dumped tables.
    pub tables: Vec<TableEntry>,
    /// The dumped users and roles, if the user requested accounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<AccountEntry>,
    /// All other objects, in an order in which they can be created.
    pub objects: Vec<ObjectEntry>,
}

/// What a user asked to dump.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpSelection {
    /// The selected databases and tables.
    pub selection: Selection,
    /// Whether to dump users and roles.
    pub accounts: bool,
}

/// Identity and version of the dumped server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpedServer {
    /// MySQL or MariaDB.
    pub flavour: DumpedFlavour,
    /// The version as the server prints it.
    pub version: String,
    /// `server_uuid` (MySQL) or `server_uid` (MariaDB); absent if the server has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// `server_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<u32>,
}

/// The flavour of the dumped server.
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
    /// No compression.
    None,
    /// Zstandard.
    #[default]
    Zstd,
    /// gzip, which more programs can read than Zstandard.
    Gzip,
}

impl DumpCompression {
    /// Returns the level that the command-line tool of this compression (such as `gzip`) uses by default.
    pub fn level_usual(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Zstd => 3,
            Self::Gzip => 6,
        }
    }

    /// Returns the highest level, which takes the most time.
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
    /// INSERT statements, for the `mysql` and `mariadb` clients.
    Sql,
    /// Comma-separated text with a header line, for other programs.
    Csv,
    /// Parquet, which has typed columns, for other programs.
    Parquet,
}

impl RowFormat {
    /// Returns the name of the format.
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

    /// Returns the extension of data file names.
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
            // Parquet files are compressed internally.
            (Self::Parquet, _) => "parquet",
        }
    }
}

/// A database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaEntry {
    /// The name of the database.
    pub name: String,
    /// The name of the file with its definition.
    pub file: String,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableEntry {
    /// The name of the database.
    pub schema: String,
    /// The name of the table.
    pub table: String,
    /// The name of the file with its definition.
    pub file: String,
    /// The columns, in the order of the fields in the data files. Generated columns are not included.
    pub columns: Vec<ColumnEntry>,
    /// Number of rows in the finished chunks.
    pub rows: u64,
    /// The chunks, finished or planned, ordered by number.
    pub chunks: Vec<ChunkEntry>,
    /// Whether all chunks of the table are planned and finished.
    pub finished: bool,
}

impl TableEntry {
    fn check(&self, snapshots: usize) -> Result<(), String> {
        let mut rows = 0u64;
        for chunk in &self.chunks {
            let Some(written) = chunk.written else {
                if self.finished {
                    return Err(format!(
                        "the table is recorded as finished, but the chunk {} is not written",
                        chunk.file
                    ));
                }
                continue;
            };
            rows =
                rows.checked_add(written.rows).ok_or("the total number of rows of the chunks overflows")?;
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
            false => Err(format!("the table entry records {} rows, but the chunks have {rows}", self.rows)),
        }
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnEntry {
    /// The name of the column.
    pub name: String,
    /// The type of the column without length and attributes, in lower case, as in
    /// `information_schema.columns.data_type`. A load needs it because values of some types are loaded
    /// through an expression.
    #[serde(rename = "type")]
    pub data_type: String,
}

/// A chunk: a part of a table's rows in one data file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ChunkFields")]
pub struct ChunkEntry {
    /// The name of the data file, which exists once the chunk is finished.
    pub file: String,
    /// The key range of the rows.
    pub range: ChunkRange,
    /// Size and checksum of the file; absent until the chunk is finished.
    #[serde(flatten)]
    pub written: Option<WrittenChunk>,
    /// For each column, the number of values that are NULL in the file because the format cannot represent
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nulled: Vec<NulledValues>,
}

/// The fields of a [`ChunkEntry`] as they are parsed. They are not a flattened `Option<WrittenChunk>`,
/// because serde would take an error in one field for an absent chunk. The dump would then treat a finished
/// chunk as unfinished.
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

/// Size and checksum of the file of a finished chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenChunk {
    /// Number of rows in the file.
    pub rows: u64,
    /// Size before compression in bytes; for Parquet the size of the values.
    pub bytes: u64,
    /// CRC32 (zlib's) of the uncompressed bytes. For Parquet, which is compressed internally, it is the CRC32
    /// of the file.
    pub crc32: u32,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// The index in [`Manifest::snapshots`] of the snapshot that the rows were read from.
    pub snapshot: usize,
}

/// How many values of a column are NULL in the file, because the format cannot represent them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NulledValues {
    /// The name of the column.
    pub column: String,
    /// Number of values of the column that are NULL because the format cannot represent them.
    pub values: u64,
}

/// An object that is not a table, such as a view or a routine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectEntry {
    /// The kind of the object.
    pub kind: ObjectKind,
    /// The database of the object.
    pub schema: String,
    /// The name of the object.
    pub name: String,
    /// The name of the file with its definition.
    pub file: String,
}

/// A user or role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountEntry {
    /// The name of the user or role.
    pub user: String,
    /// The host part of the account; empty for a role of MariaDB.
    pub host: String,
    /// The name of the file that creates the account, with the hash of its password.
    pub file: String,
    /// The name of the file with the account's privileges.
    pub grants_file: String,
}

impl Manifest {
    /// Returns the entry of a table.
    pub fn table_mut(&mut self, schema: &str, table: &str) -> Option<&mut TableEntry> {
        self.tables.iter_mut().find(|entry| entry.schema == schema && entry.table == table)
    }

    /// Returns the indexes of the snapshots that finished chunks refer to. If there are several, the tables
    /// of the dump have different points in time.
    pub fn snapshots_used(&self) -> BTreeSet<usize> {
        let written = self.tables.iter().flat_map(|table| &table.chunks).filter_map(|chunk| chunk.written);
        written.map(|written| written.snapshot).collect()
    }

    /// Returns for each database, table and column the number of values that the format cannot represent.
    /// These values are NULL in the finished files.
    pub fn nulled(&self) -> BTreeMap<(&str, &str, &str), u64> {
        let mut sums = BTreeMap::new();
        for table in &self.tables {
            for nulled in table.chunks.iter().flat_map(|chunk| &chunk.nulled) {
                *sums.entry((&*table.schema, &*table.table, &*nulled.column)).or_default() += nulled.values;
            }
        }
        sums
    }

    /// Returns the compression of whole data files. It is [`DumpCompression::None`] for Parquet, which
    /// compresses inside the file.
    pub fn packing(&self) -> DumpCompression {
        if self.rows == RowFormat::Parquet { DumpCompression::None } else { self.compression }
    }

    /// Returns the extension of data file names.
    pub fn ending(&self) -> &'static str {
        self.rows.ending(self.compression)
    }

    /// Checks the totals against the entries. If the manifest has no checksum, this check is its only
    /// protection. Older versions wrote no checksum, and an edited manifest may have lost its checksum.
    ///
    /// # Errors
    /// A description of the contradiction.
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
                return Err(format!("the table {name} is listed twice"));
            }
        }
        Ok(())
    }

    /// Returns whether all tables are finished.
    pub fn is_complete(&self) -> bool {
        self.tables.iter().all(|table| table.finished)
    }
}
