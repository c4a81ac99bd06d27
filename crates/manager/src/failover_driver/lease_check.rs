//! Checks whether this manager holds the lease.

use std::future::Future;

use crate::ManagerError;
use crate::lease::LeaseHandle;
use crate::model::LeaseToken;

/// The lease, as the driver of a failover or switchover sees it.
pub trait LeaseCheck: Send + Sync {
    /// Returns the present lease term of this manager.
    ///
    /// # Errors
    /// Why the manager does not hold the lease.
    fn check(&self) -> Result<LeaseToken, String>;

    /// Waits until this manager does not hold the lease, and returns the reason.
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
        let mut status = self.standing();
        loop {
            let waits = status.borrow_and_update().waits_because();
            // The lease status is updated a moment after the lease term begins, so the lease itself is
            // checked too.
            if let Some(reason) = waits.filter(|_| Self::check(self).is_err()) {
                return reason;
            }
            if status.changed().await.is_err() {
                return "the task that renews the lease has stopped".to_owned();
            }
        }
    }
}
