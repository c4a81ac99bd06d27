//! Syncs that last longer than the disk needs, for servers and other programs started here.
//!
//! What a commit costs on a disk without a write cache, or in a cloud, cannot be seen on a fast one. A small library of
//! ours, compiled when it is wanted, is preloaded into the program and sleeps after each `fsync` and `fdatasync`. Servers
//! whose `innodb_flush_method` is any but `O_DSYNC` sync with nothing else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::{FileContext, SandboxError};
use crate::process::on_path;

const SOURCE: &str = include_str!("slow_sync.c");

/// The library, compiled for one delay.
#[derive(Debug, Clone)]
pub struct SlowSync {
    library: PathBuf,
}

impl SlowSync {
    /// Whether a C compiler is there to compile it.
    pub fn is_possible() -> bool {
        on_path("cc".as_ref()).is_some()
    }

    /// Compiles the library into `folder`, which must outlive the programs that are started with it.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] without a C compiler, [`SandboxError::Client`] with its message if it fails.
    pub fn compile(folder: &Path, delay: Duration) -> Result<Self, SandboxError> {
        let source = folder.join("slow_sync.c");
        std::fs::write(&source, SOURCE).on_path("write", &source)?;
        let library = folder.join(format!("slow_sync_{}_us.so", delay.as_micros()));
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror"])
            .arg(format!("-DDELAY_NS={}L", delay.as_nanos()))
            .arg("-o")
            .args([&library, &source])
            .stdin(Stdio::null())
            .output()
            .map_err(|source| SandboxError::Spawn {
                program: "cc (packages gcc, libc6-dev)".into(),
                source,
            })?;
        if !output.status.success() {
            return Err(SandboxError::Client {
                program: "cc".into(),
                status: output.status.to_string(),
                message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(Self { library })
    }

    /// What the environment of a program must say for its syncs to be slow.
    pub fn environment(&self) -> (OsString, OsString) {
        ("LD_PRELOAD".into(), self.library.clone().into_os_string())
    }
}
