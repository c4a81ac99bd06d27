//! The contents of a dump, independent of the tool that wrote it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tailwater_wire::Flavour;

use tailwater_files::store::FileStore;
use tailwater_tables::schema::TableName;
use tailwater_tables::snapshot::SnapshotPoint;

/// A dump to load.
#[derive(Debug, Clone)]
pub struct DumpContents {
    /// Identifies the dump; the same each time it is read. At most 64 ASCII letters.
    pub id: String,
    /// Its files.
    pub files: Arc<dyn FileStore>,
    /// The family of the dumped server, if the dump records it.
    pub flavour: Option<Flavour>,
    /// The definitions of databases.
    pub schemas: Vec<DefinitionScript>,
    /// Objects that are created before tables: sequences.
    pub sequences: Vec<DefinitionScript>,
    /// Tables with their rows.
    pub tables: Vec<TableFiles>,
    /// Objects that are created once all rows are loaded, in this order.
    pub objects: Vec<DefinitionScript>,
    /// Accounts.
    pub accounts: Vec<AccountScripts>,
    /// The position of the data in the history of the dumped server; absent if the dump has none.
    pub point: Option<SnapshotPoint>,
}

/// A script with the definition of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionScript {
    /// The object, for messages.
    pub what: String,
    /// The file of the script.
    pub path: PathBuf,
    /// The format of the script.
    pub dialect: ScriptDialect,
}

/// The scripts of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountScripts {
    /// The user's or role's name.
    pub user: String,
    /// The host part; empty for a role of MariaDB.
    pub host: String,
    /// The script that creates it.
    pub create: DefinitionScript,
    /// The script that grants its privileges, once all accounts exist.
    pub grants: DefinitionScript,
}

/// The format of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptDialect {
    /// Tailwater's own: each script sets everything that it depends on.
    Own,
    /// mydumper's: names are not qualified, and bodies have no other delimiter.
    Mydumper {
        /// The database.
        schema: Option<String>,
        /// Whether it has bodies of routines, events or triggers.
        is_program: bool,
    },
    /// MySQL Shell's: names are not qualified.
    MysqlShell {
        /// The database.
        schema: Option<String>,
    },
}

/// A table and the files of its rows.
#[derive(Debug, Clone)]
pub struct TableFiles {
    /// The table.
    pub name: TableName,
    /// The script that creates it.
    pub definition: DefinitionScript,
    /// The columns of its rows, in the order of the fields; `None` for files that name the columns
    /// themselves.
    pub columns: Option<Vec<String>>,
    /// The encoding of fields, if they are not in the bytes that the server stores.
    pub text: Option<TextFields>,
    /// The data files, by number.
    pub chunks: Vec<LoadChunk>,
}

/// The encoding of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFields {
    /// Their character set.
    pub character_set: String,
    /// Columns whose fields are encoded.
    pub decoded: BTreeMap<String, Decoding>,
}

/// The encoding of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoding {
    /// Base64.
    Base64,
    /// Hexadecimal digits.
    Hex,
}

/// A data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadChunk {
    /// Its number within the table.
    pub number: u32,
    /// The file.
    pub path: PathBuf,
    /// How it is compressed.
    pub packing: FileCompression,
    /// Number of rows, if known.
    pub rows: Option<u64>,
    /// Size before compression in bytes, if known.
    pub bytes: Option<u64>,
    /// The CRC32 (zlib's) of the uncompressed bytes, if known.
    pub crc32: Option<u32>,
    /// Size of the file in bytes, for the progress.
    pub file_bytes: u64,
}

/// The compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCompression {
    /// None.
    None,
    /// Zstandard.
    Zstd,
    /// gzip.
    Gzip,
}

/// The name of a file within its dump.
pub(super) fn file_name(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default()
}

impl DumpContents {
    /// Number of rows, as far as it is known.
    pub fn rows(&self) -> u64 {
        self.chunks().filter_map(|chunk| chunk.rows).sum()
    }

    /// Total size of all data files, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.chunks().map(|chunk| chunk.file_bytes).sum()
    }

    fn chunks(&self) -> impl Iterator<Item = &LoadChunk> {
        self.tables.iter().flat_map(|table| &table.chunks)
    }
}
