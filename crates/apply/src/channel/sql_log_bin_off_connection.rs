//! Opens a separate connection without binary logging, for corrections of privileges and grantors that change
//! only the target.

use std::sync::Arc;

use tailwater_session::{Connection, SessionError};
use tracing::debug;

use super::channel_options::{ChannelOptions, GtidMode};
use super::row_writer::connect;
use super::shared_channel_state::ChannelShared;
use crate::error::ApplyError;

/// Connects to the target, without the source's settings and without binary logging.
///
/// # Errors
/// [`ApplyError::Session`].
pub(super) async fn unlogged_connection(shared: &Arc<ChannelShared>) -> Result<Connection, ApplyError> {
    connect(&ChannelOptions { gtid: GtidMode::Log, ..shared.options.clone() }).await
}

/// Ignores an error that the target reported, because the channel's account may lack privileges.
///
/// # Errors
/// [`ApplyError::Session`] if the connection failed.
pub(super) fn ignore_refusal(error: SessionError) -> Result<(), ApplyError> {
    match error {
        SessionError::Server { error, .. } => {
            debug!("the target refused a correction after a statement about accounts; skipping it: {error}");
            Ok(())
        }
        error => Err(error.into()),
    }
}
