//! Tests of the log with real files.

mod support {
    pub mod binlog_generator;
    pub mod in_memory_archive;
    pub mod synthetic_capture;
}

mod crash_recovery;
mod documented_error_codes;
mod full_disk;
mod fuzz_corpus_replay;
mod log_reader;
mod log_verification;
mod power_cuts;
mod real_binlog_files;
mod segment_archive;
mod segment_purge;
mod single_writer_lock;
mod sync_thread;
