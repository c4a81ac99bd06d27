//! Who takes a channel over waits for the statement that an earlier connection of it may still run: by a lock of the server
//! that such connections hold.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::quality::FixedState;
use tailwater_session::Connection;
use tracing::info;

use super::sql_literal::quote;
use super::worker::ChannelShared;
use crate::error::ApplyError;

/// It is waited for in steps of this many seconds: in between, `stop` is heard.
const STEP_SECONDS: u32 = 1;

/// The seed must not change: two versions of Tailwater must mean the same lock.
const SEED: u64 = 0x7461_696c_7761_7465;

/// Takes the channel's lock; false if it was told to stop before that was free.
///
/// # Errors
/// [`ApplyError::TakenOver`]; [`ApplyError::ProgressRecord`] if the target does not say who has it; [`ApplyError::Session`].
pub(super) async fn acquire(
    connection: &mut Connection,
    shared: &Arc<ChannelShared>,
) -> Result<bool, ApplyError> {
    let channel = &shared.options.name;
    let lock = lock_name(channel);
    let ask = format!("SELECT GET_LOCK({}, {STEP_SECONDS})", quote(&lock));
    let mut waited = false;
    loop {
        match connection.query(&ask).await?.scalar() {
            Some("1") => return Ok(true),
            Some("0") if shared.stop.is_cancelled() => return Ok(false),
            // A statement may take days.
            Some("0") => {
                // Or it is no predecessor, and keeps the lock.
                shared.claim.check(connection).await?;
                if !std::mem::replace(&mut waited, true) {
                    info!(channel, "waits for a statement that an earlier connection of the channel runs");
                }
            }
            _ => {
                let reason = format!("the target does not say who holds the lock {lock:?} (GET_LOCK)");
                return Err(ApplyError::ProgressRecord { channel: channel.clone(), reason });
            }
        }
    }
}

/// The name of the lock that a channel's statements run under; servers take 64 characters.
fn lock_name(channel: &str) -> String {
    const WHOLE_CHARACTERS_MAX: usize = 50;
    let head: String = channel.chars().take(WHOLE_CHARACTERS_MAX).collect();
    if head == channel {
        return format!("tailwater.{channel}");
    }
    let mut hasher = FixedState::with_seed(SEED).build_hasher();
    hasher.write(channel.as_bytes());
    let head: String = head.chars().take(WHOLE_CHARACTERS_MAX - 17).collect();
    format!("tailwater.{head}.{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_have_locks_of_their_own() {
        assert_eq!(lock_name("replica"), "tailwater.replica");
        let name = |last: char| format!("{}{last}", "n".repeat(63));
        let (one, other) = (lock_name(&name('1')), lock_name(&name('2')));
        assert_ne!(one, other);
        assert!(one.len() <= 60 && other.len() <= 60, "{one} {other}");
        assert!(lock_name(&"ü".repeat(64)).chars().count() <= 60);
    }
}
