//! A disk that processes use as a file system.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption};
use nix::mount::{MntFlags, umount2};
use parking_lot::Mutex;

use crate::delayed_work_thread::DelayedReplies;
use crate::disk_latency::{DiskQueue, DiskSpeed};
use crate::fuse_driver::{FuseDriver, PoweredDisk};
use crate::injected_errors::{ErrorSchedule, InjectedError};
use crate::model::{CutReport, DiskModel, NameDurability, PowerCut};

/// In the list of mounts, the name of the file system is this prefix and the id of the process.
const SOURCE_PREFIX: &str = "tailwater-lossy-disk-";
/// Number of threads that answer requests.
const THREADS: usize = 4;

/// A mounted disk. Dropping this value unmounts the disk, even while processes use it. The calls of such
/// processes then fail, so that the processes can end.
pub struct LossyDisk {
    state: Arc<Mutex<PoweredDisk>>,
    replies: DelayedReplies,
    mount: Option<DiskMount>,
    path: PathBuf,
    /// The power cuts so far, for messages.
    cuts: Vec<PowerCut>,
}

struct DiskMount {
    path: PathBuf,
    session: Option<BackgroundSession>,
}

impl LossyDisk {
    /// Mounts an empty disk in a new folder. Its path is short, so that Unix sockets fit.
    ///
    /// # Errors
    /// If `/dev/fuse` is missing or the process may not mount file systems.
    pub fn mount(name_durability: NameDurability) -> io::Result<Self> {
        unmount_disks_of_ended_processes();
        let name = format!("tw-disk-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)?;
        let state = PoweredDisk {
            model: DiskModel::new(name_durability),
            speed: DiskSpeed::default(),
            queue: DiskQueue::default(),
            errors: ErrorSchedule::default(),
            power_cycle: 0,
            is_powered: true,
        };
        let state = Arc::new(Mutex::new(state));
        let replies = DelayedReplies::start()?;
        let mut disk = Self { state, replies, mount: None, path, cuts: Vec::new() };
        disk.mount_again()?;
        Ok(disk)
    }

    /// Mounts an empty disk for a test. If that is not possible, prints a line on standard error and returns
    /// `None`. The test must then end.
    ///
    /// # Panics
    /// If `/dev/fuse` exists, this process is root, and the disk still cannot be mounted.
    pub fn for_test(name_durability: NameDurability) -> Option<Self> {
        let reason = match (fs::metadata("/dev/fuse"), rustix::process::geteuid().is_root()) {
            (Err(error), _) => format!("/dev/fuse: {error}"),
            (_, false) => "mounting a file system needs root".to_owned(),
            (Ok(_), true) => match Self::mount(name_durability) {
                Ok(disk) => return Some(disk),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error.to_string(),
                Err(error) => panic!("cannot mount a disk: {error}"),
            },
        };
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a test");
        // The line is not printed with `eprintln!`, because the test harness hides that output if the test
        // passes.
        let _ = writeln!(io::stderr(), "SKIPPED {name}: needs a FUSE file system: {reason}");
        None
    }

    fn mount_again(&mut self) -> io::Result<()> {
        let mut config = Config::default();
        let driver = FuseDriver::new(Arc::clone(&self.state), self.replies.clone());
        config.mount_options = vec![
            MountOption::FSName(format!("{SOURCE_PREFIX}{}", std::process::id())),
            MountOption::Subtype("lossy".into()),
            MountOption::NoAtime,
        ];
        config.n_threads = Some(THREADS);
        let session = fuser::spawn_mount(driver, &self.path, &config)?;
        self.mount = Some(DiskMount { path: self.path.clone(), session: Some(session) });
        Ok(())
    }

    /// Returns the folder where the disk is mounted. It stays the same after a power cut.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the speed.
    pub fn set_speed(&self, speed: DiskSpeed) {
        let mut state = self.state.lock();
        state.speed = speed;
        state.queue = DiskQueue::default();
    }

    /// Replaces the errors to inject. Calls are counted from now on.
    pub fn set_errors(&self, errors: &[InjectedError]) {
        self.state.lock().errors.set(errors);
    }

    /// Makes everything durable, for example a data directory that was copied to the disk.
    pub fn sync_everything(&self) {
        self.state.lock().model.sync_everything();
    }

    /// Cuts the power. From now on all calls fail with EIO. Kill the processes that use the disk, and then
    /// call [`Self::restore_power`].
    ///
    /// The processes of the machine should be paused (SIGSTOP) before, so that all of them stop at the same
    /// moment as the disk.
    pub fn cut_power(&mut self, cut: PowerCut) -> CutReport {
        self.cuts.push(cut);
        let mut state = self.state.lock();
        state.is_powered = false;
        state.model.cut_power(&cut)
    }

    /// Mounts the disk again after a power cut. Files that are still open from before do not work any more.
    ///
    /// # Errors
    /// If the disk cannot be mounted.
    pub fn restore_power(&mut self) -> io::Result<()> {
        self.mount = None;
        {
            let mut state = self.state.lock();
            state.power_cycle += 1;
            state.is_powered = true;
            state.queue = DiskQueue::default();
        }
        self.mount_again()
    }

    /// Returns a copy of the disk's state.
    pub fn snapshot(&self) -> DiskModel {
        self.state.lock().model.clone()
    }

    /// Returns the power cuts so far.
    pub fn cuts(&self) -> &[PowerCut] {
        &self.cuts
    }
}

impl std::fmt::Debug for LossyDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LossyDisk")
            .field("path", &self.path)
            .field("cuts", &self.cuts)
            .finish_non_exhaustive()
    }
}

impl Drop for LossyDisk {
    fn drop(&mut self) {
        self.mount = None;
        // The folder is empty, because the file system is not mounted any more.
        let _ = fs::remove_dir(&self.path);
        if std::thread::panicking() {
            eprintln!("power cuts of the disk: {:?}", self.cuts);
        }
    }
}

impl Drop for DiskMount {
    fn drop(&mut self) {
        unmount(&self.path);
        if let Some(session) = self.session.take() {
            // The connection is aborted, so the threads of the session end.
            let _ = session.umount_and_join();
        }
    }
}

/// Unmounts a disk, also while it is in use. `MNT_FORCE` aborts the connection, as the control file
/// `/sys/fs/fuse/connections/N/abort` does: waiting and later calls fail, so that no process hangs.
fn unmount(path: &Path) {
    if umount2(path, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH).is_err() {
        let _ = umount2(path, MntFlags::MNT_DETACH);
    }
}

/// Unmounts the disks of test processes that were killed.
fn unmount_disks_of_ended_processes() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.lines() {
        let Some((mount, file_system)) = line.split_once(" - ") else { continue };
        let process = file_system.split(' ').nth(1).and_then(|source| source.strip_prefix(SOURCE_PREFIX));
        let (Some(process), Some(path)) = (process, mount.split(' ').nth(4)) else { continue };
        if !Path::new("/proc").join(process).exists() {
            unmount(Path::new(path));
            let _ = fs::remove_dir(path);
        }
    }
}
