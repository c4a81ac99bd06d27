//! Whether this manager may act, and when it no longer may.

use std::future::Future;

use crate::ManagerError;
use crate::lease::{LeaseHandle, LeaseStatus, LeaseToken};

/// The lease, as whoever acts under it sees it.
pub trait LeaseCheck: Send + Sync {
    /// The term in which this manager may act now, or why it may not.
    ///
    /// # Errors
    /// Why not, in words.
    fn check(&self) -> Result<LeaseToken, String>;

    /// Is back when the lease is not held, with why.
    fn ended(&self) -> impl Future<Output = String> + Send;
}

impl LeaseCheck for LeaseHandle {
    fn check(&self) -> Result<LeaseToken, String> {
        Self::check(self).map_err(|error| match error {
            ManagerError::Refused(refusal) => refusal.to_string(),
            other => other.to_string(),
        })
    }

    async fn ended(&self) -> String {
        let mut standing = self.standing();
        loop {
            let waits = match &*standing.borrow_and_update() {
                LeaseStatus::Waiting(reason) => Some(reason.clone()),
                LeaseStatus::Active(_) => None,
            };
            // The term begins a moment before it is told of.
            if let Some(reason) = waits.filter(|_| Self::check(self).is_err()) {
                return reason;
            }
            if standing.changed().await.is_err() {
                return "the lease is not kept any more".to_owned();
            }
        }
    }
}
