//! A disk that is in use when its test ends: no process may hang, and no mount is left.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tailwater_lossy_disk::{DiskSpeed, LossyDisk, NameDurability, PowerCut};

fn wait_for_end(child: &mut Child) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while child.try_wait()?.is_none() {
        ensure!(Instant::now() < deadline, "the process hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn processes_on_an_unmounted_disk_end() -> Result<()> {
    for with_cut in [false, true] {
        let Some(mut disk) = LossyDisk::for_test(NameDurability::Journal) else { return Ok(()) };
        // The process waits in fsync, which cannot be interrupted by a signal other than SIGKILL.
        disk.set_speed(DiskSpeed { sync: Duration::from_secs(3600), ..DiskSpeed::default() });
        let path = disk.path().to_owned();
        let mut child = Command::new("dd")
            .args(["if=/dev/zero", "of=file", "bs=4k", "count=1", "conv=fsync"])
            .current_dir(&path)
            .stderr(Stdio::null())
            .spawn()?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::fs::metadata(path.join("file")).map_or(0, |found| found.len()) == 0 {
            ensure!(Instant::now() < deadline, "dd does not write");
            std::thread::sleep(Duration::from_millis(5));
        }
        if with_cut {
            disk.cut_power(PowerCut::of_everything());
            disk.restore_power()?;
            ensure!(!path.join("file").exists(), "unsynced bytes have survived");
        }
        drop(disk);
        ensure!(!path.exists(), "the mount is left");
        wait_for_end(&mut child)?;
    }
    Ok(())
}
