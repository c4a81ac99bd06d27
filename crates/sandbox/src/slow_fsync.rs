//! Syncs that last longer than the disk needs, for servers and other programs started here.
//!
//! What a commit costs on a disk without a write cache, or in a cloud, cannot be seen on a fast one. A small
//! library of ours, compiled when it is wanted, is preloaded into the program and sleeps after each `fsync`
//! and `fdatasync`. Servers whose `innodb_flush_method` is any but `O_DSYNC` sync with nothing else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::SandboxError;
use crate::preload;

const SOURCE: &str = include_str!("slow_fsync.c");

/// The library, compiled for one delay.
#[derive(Debug, Clone)]
pub struct SlowSync {
    library: PathBuf,
}

impl SlowSync {
    /// Whether a C compiler is available.
    pub fn is_possible() -> bool {
        preload::is_possible()
    }

    /// Compiles the library into `folder`, which must outlive the programs that are started with it.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] without a C compiler, [`SandboxError::Client`] with its message if it fails.
    pub fn compile(folder: &Path, delay: Duration) -> Result<Self, SandboxError> {
        let name = format!("slow_fsync_{}_us", delay.as_micros());
        let define = format!("-DDELAY_NS={}L", delay.as_nanos());
        Ok(Self { library: preload::compile(folder, &name, SOURCE, &[define])? })
    }

    /// Environment variables with which a program uses the library.
    pub fn environment(&self) -> (OsString, OsString) {
        preload::environment(&self.library)
    }
}
