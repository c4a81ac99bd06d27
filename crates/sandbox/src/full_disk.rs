//! A disk that becomes full and gets free space again while a server runs on it.
//!
//! A resource limit of a process ([`crate::ServerSpec::file_kib_max`]) applies as long as the process lives,
//! and a server does not necessarily treat the limit as a full disk. So a small library is compiled on demand
//! and preloaded into the server. While the disk is [filled](FullDisk::fill), each call that would make a
//! file grow fails with `ENOSPC`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::{FileContext, SandboxError};
use crate::preload_library;

const SOURCE: &str = include_str!("full_disk.c");

/// The preloaded library, and the control file that makes it simulate a full disk.
#[derive(Debug, Clone)]
pub struct FullDisk {
    library: PathBuf,
    marker: PathBuf,
}

impl FullDisk {
    /// Whether a C compiler is available.
    pub fn is_possible() -> bool {
        preload_library::is_possible()
    }

    /// Compiles the library into `folder`. The folder must exist as long as programs run with the library. At
    /// the start, the disk has free space.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if there is no C compiler; [`SandboxError::Client`] with the compiler's
    /// message if it fails.
    pub fn compile(folder: &Path) -> Result<Self, SandboxError> {
        let marker = folder.join("disk_is_full");
        let define = format!("-DMARKER={:?}", marker.to_string_lossy());
        Ok(Self { library: preload_library::compile(folder, "full_disk", SOURCE, &[define])?, marker })
    }

    /// Returns the environment variable that makes a program use the library.
    pub fn environment(&self) -> (OsString, OsString) {
        preload_library::environment(&self.library)
    }

    /// Makes the disk full.
    ///
    /// # Errors
    /// [`SandboxError`] if the control file cannot be written.
    pub fn fill(&self) -> Result<(), SandboxError> {
        std::fs::write(&self.marker, "").on_path("write", &self.marker)
    }

    /// Ends the simulation: the disk has free space again.
    ///
    /// # Errors
    /// [`SandboxError`] if the control file cannot be removed.
    pub fn make_room(&self) -> Result<(), SandboxError> {
        std::fs::remove_file(&self.marker).on_path("remove", &self.marker)
    }
}
