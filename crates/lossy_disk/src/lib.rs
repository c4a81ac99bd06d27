//! A disk for tests that is slow, fails, and loses at a power cut what was not synced.
//!
//! Server processes use it as a file system ([`LossyDisk`], mounted by FUSE). Tests in one process use the
//! pure core ([`DiskModel`]) directly.
//!
//! Modules:
//! - [`model`]: what is volatile, what is durable, and what a power cut leaves. It does no I/O.
//! - [`disk_latency`]: when an operation of a slow disk completes. [`injected_errors`]: which calls fail.
//! - `fuse_driver` maps the requests of the kernel to the model, and `delayed_work_thread` answers them
//!   later.
//! - [`mounted_disk`]: mounts the disk, cuts its power, and mounts it again.
//!
//! The contents are in memory, so nothing is left on the machine's own disk.

mod delayed_work_thread;
pub mod disk_latency;
mod fuse_driver;
pub mod injected_errors;
pub mod model;
pub mod mounted_disk;

pub use disk_latency::DiskSpeed;
pub use injected_errors::{DiskOperation, InjectedError};
pub use model::{CutReport, DiskModel, NameDurability, PowerCut, UnsyncedLoss};
pub use mounted_disk::LossyDisk;
