//! The lock on the target that a channel holds while it runs a statement. A process that takes the channel
//! over waits for this lock, because an earlier connection of the channel may still run a statement.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::quality::FixedState;
use tailwater_session::Connection;
use tracing::info;

use super::shared_channel_state::ChannelShared;
use crate::error::ApplyError;
use tailwater_wire::sql_quote::portable_literal;

/// The timeout of one attempt to get the lock, in seconds. Between two attempts, the channel checks whether
/// it must stop.
const STEP_SECONDS: u32 = 1;

/// The seed of the hash in the lock name. It must not change: all versions of Tailwater must use the same
/// lock name.
const SEED: u64 = 0x7461_696c_7761_7465;

/// Acquires the channel's lock. Returns false if the channel was stopped first.
///
/// # Errors
/// [`ApplyError::TakenOver`]; [`ApplyError::ProgressRecord`] if `GET_LOCK` returns neither 0 nor 1;
/// [`ApplyError::Session`].
pub(super) async fn acquire(
    connection: &mut Connection,
    shared: &Arc<ChannelShared>,
) -> Result<bool, ApplyError> {
    let channel = &shared.options.name;
    let lock = lock_name(channel);
    let ask = format!("SELECT GET_LOCK({}, {STEP_SECONDS})", portable_literal(&lock));
    let mut waited = false;
    loop {
        match connection.query(&ask).await?.scalar() {
            Some("1") => return Ok(true),
            Some("0") if shared.stop.is_cancelled() => return Ok(false),
            // Another connection holds the lock. Its statement may run for days.
            Some("0") => {
                // If the lock is held by another process that has taken this channel over, stop with an
                // error.
                shared.claim.check(connection).await?;
                if !std::mem::replace(&mut waited, true) {
                    info!(
                        channel,
                        "the channel waits for a statement that one of its earlier connections still runs"
                    );
                }
            }
            _ => {
                let reason = format!("GET_LOCK on the target returned neither 0 nor 1 for the lock {lock:?}");
                return Err(ApplyError::ProgressRecord { channel: channel.clone(), reason });
            }
        }
    }
}

/// Returns the name of the lock for a channel's statements. Servers accept names of up to 64 characters.
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
    fn channels_with_long_names_have_different_locks() {
        assert_eq!(lock_name("replica"), "tailwater.replica");
        let name = |last: char| format!("{}{last}", "n".repeat(63));
        let (one, other) = (lock_name(&name('1')), lock_name(&name('2')));
        assert_ne!(one, other);
        assert!(one.len() <= 60 && other.len() <= 60, "a lock name is too long: {one} {other}");
        assert!(lock_name(&"ü".repeat(64)).chars().count() <= 60);
    }
}
