//! Disks that can be filled: small file systems in memory, if this process may mount them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// More than a test writes.
const ROOMY: &str = "2g";

/// Free space of a full disk: less than a server writes at a commit, and more than a page.
const LEFT_BYTES: u64 = 16 << 10;

/// A small file system, mounted as long as this value lives.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts one on a folder, which is created; `None` if mounting is not allowed.
    pub fn mount(folder: &Path) -> Result<Option<Self>> {
        std::fs::create_dir_all(folder)?;
        let options = format!("size={ROOMY}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).output();
        Ok(mount.is_ok_and(|output| output.status.success()).then(|| Self(folder.to_owned())))
    }

    /// Leaves almost no free space.
    pub fn fill(&self) -> Result<()> {
        let used = rustix::fs::statvfs(&self.0)?;
        let bytes = (used.f_blocks - used.f_bfree) * used.f_frsize + LEFT_BYTES;
        self.resize(&bytes.to_string())
    }

    /// Makes space available again.
    pub fn make_room(&self) -> Result<()> {
        self.resize(ROOMY)
    }

    fn resize(&self, size: &str) -> Result<()> {
        let mount = Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(&self.0).output();
        let output = mount.context("mount")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Processes that write there have been killed, and may not have ended yet.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
