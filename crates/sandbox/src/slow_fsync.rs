//! Disk syncs that take longer than the disk needs, for servers and other programs of the sandbox.
//!
//! On a fast disk, a test cannot see what a commit costs on a disk without a write cache or in a cloud. A
//! small library is compiled on demand and preloaded into the program. It sleeps after each `fsync` and
//! `fdatasync`. Servers sync only with these calls, except with `innodb_flush_method=O_DSYNC`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::SandboxError;
use crate::preload_library;

const SOURCE: &str = include_str!("slow_fsync.c");

/// The preloaded library, compiled for one delay.
#[derive(Debug, Clone)]
pub struct SlowSync {
    library: PathBuf,
}

impl SlowSync {
    /// Whether a C compiler is available.
    pub fn is_possible() -> bool {
        preload_library::is_possible()
    }

    /// Compiles the library into `folder`. The folder must exist as long as programs run with the library.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if there is no C compiler; [`SandboxError::Client`] with the compiler's
    /// message if it fails.
    pub fn compile(folder: &Path, delay: Duration) -> Result<Self, SandboxError> {
        let name = format!("slow_fsync_{}_us", delay.as_micros());
        let define = format!("-DDELAY_NS={}L", delay.as_nanos());
        Ok(Self { library: preload_library::compile(folder, &name, SOURCE, &[define])? })
    }

    /// Returns the environment variable that makes a program use the library.
    pub fn environment(&self) -> (OsString, OsString) {
        preload_library::environment(&self.library)
    }
}
