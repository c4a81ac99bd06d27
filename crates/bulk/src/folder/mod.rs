//! A dump on disk: one folder with definitions as SQL, rows as tab-separated text that `LOAD DATA` takes, and what there is
//! of both.
//!
//! - [`manifest`]: what the folder holds.
//! - `document`: the manifest as a file, with its checksum.
//! - [`journal`]: what became finished since the manifest was written.
//! - [`names`]: how files are called.
//! - [`files`]: what a dump needs of whatever keeps its files. `local`: a folder of this machine, `direct_io`: how its files are written.
//! - `journal_writer`: how the journal is kept there. [`dump_folder`]: a dump that is written or read.

mod direct_io;
mod document;
pub mod dump_folder;
pub mod files;
pub mod journal;
mod journal_writer;
mod local;
pub mod manifest;
pub mod memory;
pub mod names;

pub use dump_folder::DumpFolder;
pub use files::{DumpFiles, NewFile};
pub use journal::JournalEntry;
pub use local::LocalFiles;
pub use manifest::{
    AccountEntry, ChunkEntry, ColumnEntry, DumpCompression, DumpRequest, DumpedFlavour, DumpedServer, FORMAT,
    Manifest, NulledValues, ObjectEntry, ObjectKind, RowFormat, SchemaEntry, SnapshotPoint, TableEntry,
    WrittenChunk,
};
pub use memory::MemoryFiles;
