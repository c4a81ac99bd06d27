//! Tests of the log with real files.

mod support {
    pub mod capture;
    pub mod events;
    pub mod store;
}

mod archive;
mod error_codes;
mod flusher;
mod full_disk;
mod fuzz_replay;
mod reader;
mod real_files;
mod recovery;
mod retention;
mod verification;
mod writer_lock;
