//! The format of a dump folder: definitions as SQL, rows as tab-separated text for `LOAD DATA`, and a
//! manifest that describes both.
//!
//! - [`manifest`]: the contents of the folder.
//! - `document`: the manifest as a file, with its checksum.
//! - [`journal`]: what was finished since the manifest was written.
//! - [`names`]: the names of files.
//! - [`files`]: reads small files completely. [`memory`]: a folder that is never written to disk.
//! - `progress_journal`: writes the journal. [`dump_folder`]: a dump that is written or read.

mod document;
pub mod dump_folder;
pub mod files;
pub mod journal;
pub mod manifest;
pub mod memory;
pub mod names;
mod progress_journal;

pub use dump_folder::DumpFolder;
pub use journal::JournalEntry;
pub use manifest::{
    AccountEntry, ChunkEntry, ColumnEntry, DumpCompression, DumpSelection, DumpedFlavour, DumpedServer,
    FORMAT, Manifest, NulledValues, ObjectEntry, RowFormat, SchemaEntry, TableEntry, WrittenChunk,
};
pub use memory::MemoryFiles;
