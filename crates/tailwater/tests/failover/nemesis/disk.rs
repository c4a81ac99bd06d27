//! Disks that can be full: small file systems in memory, where this process may mount them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// More than a test writes.
const ROOMY: &str = "2g";

/// What is left on a full one: less than a server writes at a commit, and more than a page.
const LEFT_BYTES: u64 = 16 << 10;

/// A small file system, for as long as this lives.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts one on a folder, which is made; `None` where that is not allowed.
    pub fn mount(folder: &Path) -> Result<Option<Self>> {
        std::fs::create_dir_all(folder)?;
        let options = format!("size={ROOMY}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).output();
        Ok(mount.is_ok_and(|output| output.status.success()).then(|| Self(folder.to_owned())))
    }

    /// Leaves no more room than what is used.
    pub fn fill(&self) -> Result<()> {
        let used = rustix::fs::statvfs(&self.0)?;
        let bytes = (used.f_blocks - used.f_bfree) * used.f_frsize + LEFT_BYTES;
        self.resize(&bytes.to_string())
    }

    /// There is room again.
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
        // Whoever still writes there has been killed, and may not be gone yet.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
