//! Tells the target which GTIDs are applied, as far as it cares.

use tailwater_session::SessionError;
use tailwater_wire::gtid::GtidSet;
use tracing::warn;

use super::options::{ChannelOptions, GtidMode};
use super::store::{ChannelStore, Claim};
use super::target_gtids;
use crate::error::ApplyError;

/// What the target was told last, and the connection on which it was.
pub(super) struct GtidPublisher {
    store: ChannelStore,
    published: Option<GtidSet>,
    /// Why the target does not know it.
    unpublished_reason: Option<String>,
    /// Somebody was told so.
    warned: bool,
}

impl GtidPublisher {
    /// Nothing was told yet.
    pub(super) fn new(store: ChannelStore) -> Self {
        Self { store, published: None, unpublished_reason: None, warned: false }
    }

    /// Keeps what is applied on the target, beside what workers keep.
    ///
    /// # Errors
    /// [`ApplyError::TakenOver`]; [`ApplyError::Session`].
    pub(super) async fn save_skipped(&mut self, claim: &Claim, applied: &[u8]) -> Result<(), ApplyError> {
        self.store.save_skipped(claim, applied).await
    }

    /// Tells the target what was applied, if it does not know. Under the source's GTIDs it knows that already, but for what
    /// was left out. A target that does not take it is no error: its data is not in danger.
    ///
    /// # Errors
    /// [`ApplyError::Session`] for anything that breaks the connection.
    pub(super) async fn publish(
        &mut self,
        options: &ChannelOptions,
        applied: &GtidSet,
    ) -> Result<(), ApplyError> {
        if options.gtid == GtidMode::Own {
            self.unpublished_reason = Some("with gtid = \"own\" the target is not told".to_owned());
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
                    "the target is not told the applied GTIDs, because channel {other} applies the same source to it; if \
                     that is no more, delete its row in tailwater.apply_channel"
                );
            }
        } else {
            match target_gtids::publish(self.store.connection(), applied).await {
                Ok(()) => {
                    self.published = Some(applied.clone());
                    (self.unpublished_reason, self.warned) = (None, false);
                    return Ok(());
                }
                Err(SessionError::Server { error, .. }) => {
                    self.unpublished_reason = Some(format!("the target does not take them: {error}"));
                    if is_first {
                        warn!(channel = options.name, "the target does not take the applied GTIDs: {error}");
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.warned = true;
        Ok(())
    }

    /// Why the target does not know the GTIDs of what was applied, if it does not.
    pub(super) fn unpublished_reason(&self) -> Option<&str> {
        self.unpublished_reason.as_deref()
    }
}
