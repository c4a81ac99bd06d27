//! Disks that a test can fill: small file systems in memory. They exist only if this process is allowed to
//! mount.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Size of each file system. A test never writes that much.
const FILE_SYSTEM_SIZE: &str = "2g";

/// Space that [`Disk::fill`] leaves free, in bytes. It is less than a server writes for a commit, and more
/// than a page.
const LEFT_BYTES: u64 = 16 << 10;

/// A small file system. It is unmounted when this value is dropped.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// Creates the folder and mounts a file system on it. Returns `None` if this process is not allowed to
    /// mount.
    pub fn mount(folder: &Path) -> Result<Option<Self>> {
        std::fs::create_dir_all(folder)?;
        let options = format!("size={FILE_SYSTEM_SIZE}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).output();
        Ok(mount.is_ok_and(|output| output.status.success()).then(|| Self(folder.to_owned())))
    }

    /// Fills the file system almost completely.
    pub fn fill(&self) -> Result<()> {
        let used = rustix::fs::statvfs(&self.0)?;
        let bytes = (used.f_blocks - used.f_bfree) * used.f_frsize + LEFT_BYTES;
        self.resize(&bytes.to_string())
    }

    /// Frees the space again.
    pub fn make_room(&self) -> Result<()> {
        self.resize(FILE_SYSTEM_SIZE)
    }

    fn resize(&self, size: &str) -> Result<()> {
        let mount = Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(&self.0).output();
        let output = mount.context("cannot run mount")?;
        ensure!(output.status.success(), "mount has failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The processes that write to the file system have been killed, but may still exist. The option -l
        // unmounts the file system anyway.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
