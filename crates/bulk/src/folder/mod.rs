//! A dump on disk: one folder with definitions as SQL, rows as tab-separated text that `LOAD DATA` takes, and what there is
//! of both.
//!
//! - [`manifest`]: what the folder holds.
//! - [`journal`]: what became finished since the manifest was written.
//! - [`names`]: how files are called.
//! - [`files`]: the files themselves, and what a dump needs of whatever keeps them.
//! - `recorder`: how the journal is kept there. [`store`]: a dump that is written or read.

pub mod files;
pub mod journal;
pub mod manifest;
pub mod memory;
pub mod names;
mod recorder;
pub mod store;

pub use files::{DumpFiles, LocalFiles, NewFile};
pub use journal::JournalEntry;
pub use manifest::{
    AccountEntry, ChunkEntry, ColumnEntry, Compression, DumpedFlavour, DumpedServer, FORMAT, Manifest,
    NulledValues, ObjectEntry, ObjectKind, RowFormat, SchemaEntry, SnapshotPoint, TableEntry, WrittenChunk,
};
pub use memory::MemoryFiles;
pub use store::DumpFolder;
