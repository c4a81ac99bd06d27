//! The lease: one manager acts, and one that cannot be sure any more stops before another may begin.
//!
//! - [`keeper`]: when to ask, to renew and to give up. Pure.
//! - [`holding`]: the task that does so, and the handle that is asked before each act.
//! - [`file`]: one process on one machine, by a lock on a file.
//! - [`etcd`]: several managers, by etcd's own leases.
//! - [`etcd_client`]: how etcd is asked: its HTTP/JSON gateway.
//! - [`etcd_value`]: what several managers have to know beside it.
//!
//! Each term of a lease has a [`LeaseToken`] that is higher than any before it. It goes along with what the manager orders, so
//! that whoever has seen a higher one refuses.

pub mod etcd;
pub mod etcd_client;
pub mod etcd_value;
pub mod file;
pub mod lease_holder;
pub mod lease_task;

use std::fmt;
use std::future::Future;

use serde::{Deserialize, Serialize};

pub use etcd::{EtcdLease, TERM_FLOOR_KEY};
pub use etcd_client::{EtcdOptions, EtcdUser};
pub use etcd_value::{EtcdStored, EtcdValue};
pub use file::FileLease;
pub use lease_holder::{BootTime, LeaseAnswer, LeaseChange, LeaseHolder, LeaseRequest, LeaseTimes};
pub use lease_task::{LeaseHandle, LeaseStatus, LeaseTask};

/// Names one term of the lease; higher than that of every term before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseToken(pub u64);

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where the lease lies. Every answer that is not certain is [`LeaseAnswer::Failed`].
pub trait LeaseStore: Send {
    /// Asks for the lease.
    fn acquire(&mut self) -> impl Future<Output = LeaseAnswer> + Send;

    /// Asks for more time.
    fn renew(&mut self, token: LeaseToken) -> impl Future<Output = LeaseAnswer> + Send;

    /// Gives back whatever this manager may hold. A failure does not matter: the lease ends by itself.
    fn release(&mut self) -> impl Future<Output = ()> + Send;
}
