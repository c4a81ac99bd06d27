//! A dump on disk: one folder with definitions as SQL, rows as tab-separated text that `LOAD DATA` takes, and what there is
//! of both.
//!
//! - [`manifest`]: what the folder holds.
//! - [`journal`]: what became finished since the manifest was written.
//! - [`names`]: how files are called.
//! - [`store`]: the files themselves.

pub mod journal;
pub mod manifest;
pub mod names;
pub mod store;

pub use journal::JournalEntry;
pub use manifest::{
    ChunkEntry, ColumnEntry, Compression, DumpedFlavour, DumpedServer, FORMAT, Manifest, ObjectEntry,
    ObjectKind, SchemaEntry, SnapshotPoint, TableEntry, WrittenChunk,
};
pub use store::DumpFolder;
