//! What a dump holds, whoever wrote it, as a load needs to know it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tailwater_wire::Flavour;

use crate::folder::{DumpFiles, SnapshotPoint};
use crate::schema::TableName;

/// A dump to be loaded.
#[derive(Debug, Clone)]
pub struct DumpContents {
    /// Tells this dump from others, the same each time that it is read: at most 64 letters of ASCII.
    pub id: String,
    /// Its files.
    pub files: Arc<dyn DumpFiles>,
    /// The family of the server that it comes from, if it says so.
    pub flavour: Option<Flavour>,
    /// The definitions of databases.
    pub schemas: Vec<DefinitionScript>,
    /// What is made before tables: sequences.
    pub sequences: Vec<DefinitionScript>,
    /// Tables with their rows.
    pub tables: Vec<TableFiles>,
    /// What is made when all rows are there, in this order.
    pub objects: Vec<DefinitionScript>,
    /// Accounts.
    pub accounts: Vec<AccountScripts>,
    /// Where the data stands in the history of its server; absent if it does not say so.
    pub point: Option<SnapshotPoint>,
}

/// A script that makes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionScript {
    /// What it makes, for messages.
    pub what: String,
    /// The script.
    pub path: PathBuf,
    /// How it is written.
    pub dialect: ScriptDialect,
}

/// What makes an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountScripts {
    /// The user's or role's name.
    pub user: String,
    /// Where it comes from; empty for a role of MariaDB.
    pub host: String,
    /// What makes it.
    pub create: DefinitionScript,
    /// What gives it what it may do, when all accounts are there.
    pub grants: DefinitionScript,
}

/// How a script is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptDialect {
    /// By us: each script sets all that it depends on.
    Own,
    /// By mydumper: names come without their database, and bodies without another delimiter.
    Mydumper {
        /// The database.
        schema: Option<String>,
        /// Whether it has bodies.
        is_program: bool,
    },
    /// By MySQL Shell: names come without their database.
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
    /// What makes it.
    pub definition: DefinitionScript,
    /// Which columns the fields of its rows are for, in their order; `None` for files that say it themselves.
    pub columns: Option<Vec<String>>,
    /// How fields are written, if not as the bytes that a server keeps.
    pub text: Option<TextFields>,
    /// Files, by their numbers.
    pub chunks: Vec<LoadChunk>,
}

/// Fields in a character set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFields {
    /// Which.
    pub character_set: String,
    /// Columns whose fields are encoded.
    pub decoded: BTreeMap<String, Decoding>,
}

/// How a field is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoding {
    /// Base64.
    Base64,
    /// Hexadecimal digits.
    Hex,
}

/// A file of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadChunk {
    /// Its number within the table.
    pub number: u32,
    /// The file.
    pub path: PathBuf,
    /// How it is compressed.
    pub packing: FileCompression,
    /// How many rows it holds, if that is known.
    pub rows: Option<u64>,
    /// How many bytes it holds before compression, if that is known.
    pub bytes: Option<u64>,
    /// The CRC32 (zlib's) of these, if it is known.
    pub crc32: Option<u32>,
    /// Bytes of the file, for progress.
    pub file_bytes: u64,
}

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCompression {
    /// Not at all.
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
    /// How many rows there are, as far as it is known.
    pub fn rows(&self) -> u64 {
        self.chunks().filter_map(|chunk| chunk.rows).sum()
    }

    /// Bytes of all files of rows.
    pub fn file_bytes(&self) -> u64 {
        self.chunks().map(|chunk| chunk.file_bytes).sum()
    }

    fn chunks(&self) -> impl Iterator<Item = &LoadChunk> {
        self.tables.iter().flat_map(|table| &table.chunks)
    }
}
