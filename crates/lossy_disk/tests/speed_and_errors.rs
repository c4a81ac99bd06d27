//! Slow disks, and calls that fail.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tailwater_lossy_disk::{DiskOperation, DiskSpeed, InjectedError, LossyDisk, NameDurability};

/// Checks that `work` takes at least this time. There is no upper limit, because the machine may be busy.
fn takes(least: Duration, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    work()?;
    ensure!(begin.elapsed() >= least, "took only {:?} instead of {least:?}", begin.elapsed());
    Ok(())
}

#[test]
fn operations_take_the_time_of_a_slow_disk() -> Result<()> {
    let Some(disk) = LossyDisk::for_test(NameDurability::Journal) else { return Ok(()) };
    let path = disk.path().join("file");
    fs::write(&path, vec![1; 64 << 10])?;
    let direct = OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().read(true).write(true).custom_flags(direct).open(&path)?;
    let latency = Duration::from_millis(40);
    let mut bytes = [0; 4096];

    disk.set_speed(DiskSpeed { read: latency, ..DiskSpeed::default() });
    takes(latency, || Ok(file.read_exact_at(&mut bytes, 0)?))?;
    disk.set_speed(DiskSpeed { write: latency, ..DiskSpeed::default() });
    takes(latency, || Ok(file.write_all_at(&bytes, 0)?))?;
    disk.set_speed(DiskSpeed { sync: latency, ..DiskSpeed::default() });
    takes(latency, || Ok(file.sync_data()?))?;
    disk.set_speed(DiskSpeed { bytes_per_second: Some(1 << 20), ..DiskSpeed::default() });
    takes(latency, || Ok(file.write_all_at(&[2; 64 << 10], 0)?))?;
    disk.set_speed(DiskSpeed { operations_per_second: Some(50), ..DiskSpeed::default() });
    takes(latency, || (0..3).try_for_each(|at| Ok(file.write_all_at(&bytes, at * 4096)?)))?;

    // Latencies of calls at the same time overlap, as on a disk with a queue.
    disk.set_speed(DiskSpeed { read: Duration::from_millis(500), ..DiskSpeed::default() });
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let read = |at: u64| file.read_exact_at(&mut [0; 4096], at * 4096);
        let threads: Vec<_> = (0..16).map(|at| scope.spawn(move || read(at))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    ensure!(begin.elapsed() < Duration::from_secs(8), "16 reads were not concurrent");
    Ok(())
}

#[test]
fn the_given_call_fails_with_the_given_error() -> Result<()> {
    let Some(disk) = LossyDisk::for_test(NameDurability::Journal) else { return Ok(()) };
    let mut file = File::create(disk.path().join("file"))?;
    let full = InjectedError { operation: DiskOperation::Write, call: 3, repeats: true, error: Errno::NOSPC };
    let broken = InjectedError { operation: DiskOperation::Sync, call: 2, repeats: false, error: Errno::IO };
    disk.set_errors(&[full, broken]);
    file.write_all(b"one")?;
    file.write_all(b"two")?;
    for _ in 0..2 {
        let error = file.write_all(b"three").expect_err("the disk is full");
        ensure!(error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()), "{error}");
    }
    file.sync_data()?;
    let error = file.sync_data().expect_err("the sync fails");
    ensure!(error.raw_os_error() == Some(Errno::IO.raw_os_error()), "{error}");
    file.sync_data()?;
    disk.set_errors(&[]);
    file.write_all(b"four")?;
    ensure!(fs::read(disk.path().join("file"))? == b"onetwofour");
    Ok(())
}
