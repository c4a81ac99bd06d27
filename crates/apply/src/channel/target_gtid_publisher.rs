//! Sets the applied GTIDs on the target, if the channel's GTID mode requires it.

use tailwater_session::SessionError;
use tailwater_wire::gtid::GtidSet;
use tracing::warn;

use super::channel_options::{ChannelOptions, GtidMode};
use super::progress_store::{ChannelStore, Claim};
use super::target_gtid_queries;
use crate::error::ApplyError;

/// A connection to the target, and the GTIDs that were last set on the target.
pub(super) struct GtidPublisher {
    store: ChannelStore,
    published: Option<GtidSet>,
    /// Why the applied GTIDs are not set on the target.
    unpublished_reason: Option<String>,
    /// Whether the warning that the applied GTIDs are not set was already logged.
    warned: bool,
}

impl GtidPublisher {
    /// Returns a publisher that has not set any GTIDs yet.
    pub(super) fn new(store: ChannelStore) -> Self {
        Self { store, published: None, unpublished_reason: None, warned: false }
    }

    /// Saves skipped transactions on the target, in addition to the progress rows of the workers.
    ///
    /// # Errors
    /// [`ApplyError::TakenOver`]; [`ApplyError::Session`].
    pub(super) async fn save_skipped(&mut self, claim: &Claim, applied: &[u8]) -> Result<(), ApplyError> {
        self.store.save_skipped(claim, applied).await
    }

    /// Sets the applied GTIDs on the target if they have changed. With `gtid = preserve` the target already
    /// has them, except the GTIDs of skipped transactions. It is not an error if the target rejects the
    /// GTIDs, because its data stay correct.
    ///
    /// # Errors
    /// [`ApplyError::Session`] if the connection fails.
    pub(super) async fn publish(
        &mut self,
        options: &ChannelOptions,
        applied: &GtidSet,
    ) -> Result<(), ApplyError> {
        if options.gtid == GtidMode::Own {
            self.unpublished_reason =
                Some("with gtid = \"own\" the GTIDs are not set on the target".to_owned());
            return Ok(());
        }
        if self.published.as_ref() == Some(applied) {
            return Ok(());
        }
        let is_first = !self.warned;
        if let Some(other) = self.store.channel_with_same_source().await? {
            self.unpublished_reason = Some(format!("channel {other} applies the same source to the target"));
            if is_first {
                warn!(
                    channel = options.name,
                    "the applied GTIDs are not set on the target, because channel {other} applies the same source to it; if \
                     that channel no longer exists, delete its row in tailwater.apply_channel"
                );
            }
        } else {
            match target_gtid_queries::publish(self.store.connection(), applied).await {
                Ok(()) => {
                    self.published = Some(applied.clone());
                    (self.unpublished_reason, self.warned) = (None, false);
                    return Ok(());
                }
                Err(SessionError::Server { error, .. }) => {
                    self.unpublished_reason = Some(format!("the target rejected the GTIDs: {error}"));
                    if is_first {
                        warn!(channel = options.name, "the target rejected the applied GTIDs: {error}");
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.warned = true;
        Ok(())
    }

    /// Returns why the applied GTIDs are not set on the target; `None` if they are.
    pub(super) fn unpublished_reason(&self) -> Option<&str> {
        self.unpublished_reason.as_deref()
    }
}
