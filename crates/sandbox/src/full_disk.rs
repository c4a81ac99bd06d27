//! A disk that becomes full and gets free space again while a server runs on it.
//!
//! Limits on a process count for as long as it lives ([`crate::ServerSpec::file_kib_max`]), and a server that
//! meets one may take it for something else than a full disk. A small library of ours, compiled when it is
//! wanted, is preloaded into the server: whatever would make a file grow fails with `ENOSPC` as long as the
//! disk is [filled](FullDisk::fill).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::{FileContext, SandboxError};
use crate::preload;

const SOURCE: &str = include_str!("full_disk.c");

/// The library, and the file that makes it simulate a full disk.
#[derive(Debug, Clone)]
pub struct FullDisk {
    library: PathBuf,
    marker: PathBuf,
}

impl FullDisk {
    /// Whether a C compiler is available.
    pub fn is_possible() -> bool {
        preload::is_possible()
    }

    /// Compiles the library into `folder`, which must outlive the programs that are started with it. The disk
    /// has room.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] without a C compiler, [`SandboxError::Client`] with its message if it fails.
    pub fn compile(folder: &Path) -> Result<Self, SandboxError> {
        let marker = folder.join("disk_is_full");
        let define = format!("-DMARKER={:?}", marker.to_string_lossy());
        Ok(Self { library: preload::compile(folder, "full_disk", SOURCE, &[define])?, marker })
    }

    /// Environment variables with which a program uses the library.
    pub fn environment(&self) -> (OsString, OsString) {
        preload::environment(&self.library)
    }

    /// Makes the disk full.
    ///
    /// # Errors
    /// [`SandboxError`] if that file cannot be written.
    pub fn fill(&self) -> Result<(), SandboxError> {
        std::fs::write(&self.marker, "").on_path("write", &self.marker)
    }

    /// Makes free space.
    ///
    /// # Errors
    /// [`SandboxError`] if that file cannot be removed.
    pub fn make_room(&self) -> Result<(), SandboxError> {
        std::fs::remove_file(&self.marker).on_path("remove", &self.marker)
    }
}
