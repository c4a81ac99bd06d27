//! The contents of a dump, in a form that does not depend on the tool that wrote it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tailwater_wire::Flavour;

use tailwater_files::file_store::FileStore;
use tailwater_tables::schema::TableName;
use tailwater_tables::snapshot::SnapshotPoint;

/// A dump to load.
#[derive(Debug, Clone)]
pub struct DumpContents {
    /// Identifies the dump. It is the same each time the dump is read, and has at most 64 ASCII characters.
    pub id: String,
    /// The store of the dump's files.
    pub files: Arc<dyn FileStore>,
    /// The flavour of the dumped server, if the dump records it.
    pub flavour: Option<Flavour>,
    /// The definitions of databases.
    pub schemas: Vec<DefinitionScript>,
    /// The sequences, which are created before the tables.
    pub sequences: Vec<DefinitionScript>,
    /// The tables with their rows.
    pub tables: Vec<TableFiles>,
    /// Objects that are created after all rows are loaded, in this order.
    pub objects: Vec<DefinitionScript>,
    /// The accounts.
    pub accounts: Vec<AccountScripts>,
    /// The position of the data in the history of the dumped server; absent if the dump has no position.
    pub point: Option<SnapshotPoint>,
}

/// A script with the definition of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionScript {
    /// The kind and name of the object, for messages.
    pub what: String,
    /// The path of the script.
    pub path: PathBuf,
    /// How the script is written.
    pub dialect: ScriptDialect,
}

/// The scripts of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountScripts {
    /// The name of the user or role.
    pub user: String,
    /// The host part of the account; empty for a role of MariaDB.
    pub host: String,
    /// The script that creates the account.
    pub create: DefinitionScript,
    /// The script that grants the account's privileges. It runs after all accounts exist.
    pub grants: DefinitionScript,
}

/// How a script is written, which depends on the tool that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptDialect {
    /// A script of Tailwater. Each script sets everything that it depends on.
    Own,
    /// A script of mydumper. Names are not qualified by a database, and routine bodies have no delimiter of
    /// their own.
    Mydumper {
        /// The database of the script's names.
        schema: Option<String>,
        /// Whether the script has bodies of routines, events or triggers.
        is_program: bool,
    },
    /// A script of MySQL Shell. Names are not qualified by a database.
    MysqlShell {
        /// The database of the script's names.
        schema: Option<String>,
    },
}

/// A table and its data files.
#[derive(Debug, Clone)]
pub struct TableFiles {
    /// The name of the table.
    pub name: TableName,
    /// The script that creates the table.
    pub definition: DefinitionScript,
    /// The columns of the rows, in the order of the fields; `None` if the files themselves name the columns.
    pub columns: Option<Vec<String>>,
    /// How the fields are encoded; `None` if they are the bytes that the server stores.
    pub text: Option<TextFields>,
    /// The data files, ordered by number.
    pub chunks: Vec<LoadChunk>,
}

/// How the fields of a table are encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFields {
    /// The character set of the fields.
    pub character_set: String,
    /// The columns whose fields are encoded as ASCII text.
    pub decoded: BTreeMap<String, Decoding>,
}

/// How binary values are encoded as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoding {
    /// Base64.
    Base64,
    /// Hexadecimal digits.
    Hex,
}

/// A data file of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadChunk {
    /// The number of the file within its table.
    pub number: u32,
    /// The path of the file.
    pub path: PathBuf,
    /// How the file is compressed.
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
    /// No compression.
    None,
    /// Zstandard.
    Zstd,
    /// gzip.
    Gzip,
}

/// Returns the name of a file within its dump.
pub(super) fn file_name(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default()
}

impl DumpContents {
    /// Returns the number of rows in all tables, as far as it is known.
    pub fn rows(&self) -> u64 {
        self.chunks().filter_map(|chunk| chunk.rows).sum()
    }

    /// Returns the total size of all data files, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.chunks().map(|chunk| chunk.file_bytes).sum()
    }

    fn chunks(&self) -> impl Iterator<Item = &LoadChunk> {
        self.tables.iter().flat_map(|table| &table.chunks)
    }
}
