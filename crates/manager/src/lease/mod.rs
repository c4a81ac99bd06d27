//! The lease, which lets only one manager act at a time. A manager that cannot be sure of its lease stops
//! acting before another manager can begin to act.
//!
//! - [`lease_validity`]: determines when to request, renew and give up the lease. Pure.
//! - [`lease_renewal`]: the task that does this, and the handle for lease checks.
//! - [`lock_file_lease`]: the lease as a file lock, for managers on one machine.
//! - [`etcd_lease`]: the lease in etcd, for managers on several machines.
//! - [`etcd_client`]: client of etcd's HTTP/JSON gateway.
//! - [`etcd_shared_value`]: values in etcd that managers share.
//!
//! Each lease term has a [`LeaseToken`] that is higher than all earlier tokens. The token is passed with
//! every order to a relay. A relay refuses an order if it has already seen a higher token.

pub mod etcd_client;
pub mod etcd_lease;
pub mod etcd_shared_value;
pub mod lease_renewal;
pub mod lease_validity;
pub mod lock_file_lease;

use std::future::Future;

pub use etcd_client::{EtcdOptions, EtcdUser};
pub use etcd_lease::{EtcdLease, TERM_FLOOR_KEY};
pub use etcd_shared_value::{EtcdStored, EtcdValue};
pub use lease_renewal::{LeaseHandle, LeaseStatus, LeaseTask};
pub use lease_validity::{BootTime, LeaseAnswer, LeaseChange, LeaseHolder, LeaseRequest, LeaseTimes};
pub use lock_file_lease::FileLease;

use crate::model::LeaseToken;

/// The store that grants the lease. Every uncertain answer is [`LeaseAnswer::Failed`].
pub trait LeaseStore: Send {
    /// Requests the lease from the store.
    fn acquire(&mut self) -> impl Future<Output = LeaseAnswer> + Send;

    /// Extends the present lease term.
    fn renew(&mut self, token: LeaseToken) -> impl Future<Output = LeaseAnswer> + Send;

    /// Releases the lease if this manager may hold it. A failure does no harm, because the lease expires.
    fn release(&mut self) -> impl Future<Output = ()> + Send;
}
