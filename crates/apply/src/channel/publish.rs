//! Tells the target which GTIDs are applied, as far as it cares.

use tailwater_session::SessionError;
use tailwater_wire::gtid::GtidSet;
use tracing::warn;

use super::gtids;
use super::options::{ChannelOptions, GtidMode};
use super::store::{Claim, Store};
use crate::error::ApplyError;

/// What the target was told last, and the connection on which it was.
pub(super) struct Publisher {
    store: Store,
    published: Option<GtidSet>,
    /// Why the target does not know it.
    untold: Option<String>,
    /// Somebody was told so.
    warned: bool,
}

impl Publisher {
    /// Nothing was told yet.
    pub(super) fn new(store: Store) -> Self {
        Self { store, published: None, untold: None, warned: false }
    }

    /// Keeps what is applied on the target, beside what workers keep.
    ///
    /// # Errors
    /// [`ApplyError::TakenOver`]; [`ApplyError::Session`].
    pub(super) async fn keep(&mut self, claim: &Claim, applied: &[u8]) -> Result<(), ApplyError> {
        self.store.keep_passed(claim, applied).await
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
            self.untold = Some("with gtid = \"own\" the target is not told".to_owned());
            return Ok(());
        }
        if self.published.as_ref() == Some(applied) {
            return Ok(());
        }
        let is_first = !self.warned;
        if let Some(other) = self.store.shared_with().await? {
            self.untold = Some(format!("channel {other} applies the same source to the target"));
            if is_first {
                warn!(
                    channel = options.name,
                    "the target is not told the applied GTIDs, because channel {other} applies the same source to it; if \
                     that is no more, delete its row in tailwater.apply_channel"
                );
            }
        } else {
            match gtids::publish(self.store.connection(), applied).await {
                Ok(()) => {
                    self.published = Some(applied.clone());
                    (self.untold, self.warned) = (None, false);
                    return Ok(());
                }
                Err(SessionError::Server { error, .. }) => {
                    self.untold = Some(format!("the target does not take them: {error}"));
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
    pub(super) fn untold(&self) -> Option<&str> {
        self.untold.as_deref()
    }
}
