//! The lease: one manager acts at a time. A manager that cannot be sure stops before another one may begin.
//!
//! - [`lease_holder`]: when to request, renew and give up. Pure.
//! - [`lease_task`]: the task that does so, and the handle for checks.
//! - [`file`]: managers on one machine, by a file lock.
//! - [`etcd`]: several machines, by a lease of etcd.
//! - [`etcd_client`]: client of etcd's HTTP/JSON gateway.
//! - [`etcd_value`]: values shared by managers.
//!
//! Each term has a [`LeaseToken`] higher than all earlier ones. It is passed with every order, and a relay
//! refuses a token below the highest it has seen.

pub mod etcd;
pub mod etcd_client;
pub mod etcd_value;
pub mod file;
pub mod lease_holder;
pub mod lease_task;

use std::future::Future;

pub use etcd::{EtcdLease, TERM_FLOOR_KEY};
pub use etcd_client::{EtcdOptions, EtcdUser};
pub use etcd_value::{EtcdStored, EtcdValue};
pub use file::FileLease;
pub use lease_holder::{BootTime, LeaseAnswer, LeaseChange, LeaseHolder, LeaseRequest, LeaseTimes};
pub use lease_task::{LeaseHandle, LeaseStatus, LeaseTask};

use crate::model::LeaseToken;

/// Storage of the lease. Every uncertain answer is [`LeaseAnswer::Failed`].
pub trait LeaseStore: Send {
    /// Requests the lease.
    fn acquire(&mut self) -> impl Future<Output = LeaseAnswer> + Send;

    /// Extends the term.
    fn renew(&mut self, token: LeaseToken) -> impl Future<Output = LeaseAnswer> + Send;

    /// Releases whatever this manager may hold. A failure is harmless, because the lease expires.
    fn release(&mut self) -> impl Future<Output = ()> + Send;
}
