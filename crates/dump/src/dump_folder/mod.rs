//! The format of a dump folder: definitions as SQL, rows as tab-separated text for `LOAD DATA`, and a
//! manifest that describes both.
//!
//! - [`manifest`]: the contents of the folder.
//! - `manifest_file`: the manifest as a file, with its checksum.
//! - [`journal_entries`]: what was finished since the manifest was written.
//! - [`dump_file_names`]: the names of files. `finished_dump`: the newest finished dump of a folder.
//! - [`small_file_reader`]: reads small files completely. [`in_memory_files`]: a folder that is never written
//!   to disk.
//! - `journal_writer`: writes the journal. [`resumable_dump_folder`]: a dump that is written or read.

pub mod dump_file_names;
mod finished_dump;
pub mod in_memory_files;
pub mod journal_entries;
mod journal_writer;
pub mod manifest;
mod manifest_file;
pub mod resumable_dump_folder;
pub mod small_file_reader;

pub use finished_dump::{DumpFinder, FinishedDumps};
pub use in_memory_files::MemoryFiles;
pub use journal_entries::JournalEntry;
pub use manifest::{
    AccountEntry, ChunkEntry, ColumnEntry, DumpCompression, DumpSelection, DumpedFlavour, DumpedServer,
    FORMAT, Manifest, NulledValues, ObjectEntry, RowFormat, SchemaEntry, TableEntry, WrittenChunk,
};
pub use resumable_dump_folder::DumpFolder;
