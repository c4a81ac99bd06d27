//! What time it is by the source's clock, which stamps what is applied; this machine's may be beside it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Tells the time by the source's clock. Cheap to clone.
#[derive(Clone)]
pub struct SourceTime(Arc<dyn Fn() -> u64 + Send + Sync>);

impl SourceTime {
    /// As `now_us` tells it, in microseconds since 1970.
    pub fn new(now_us: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_us))
    }

    /// What time it is, in microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        (self.0)()
    }

    /// How long ago a moment was, in microseconds since 1970; 0 if it is to come.
    pub(super) fn since(&self, time_us: u64) -> Duration {
        Duration::from_micros(self.now_us().saturating_sub(time_us))
    }

    /// How long it is until a moment, in microseconds since 1970; 0 if it has passed.
    pub(super) fn until(&self, time_us: u64) -> Duration {
        Duration::from_micros(time_us.saturating_sub(self.now_us()))
    }
}

impl fmt::Debug for SourceTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SourceTime").field(&self.now_us()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_come_is_not_past() {
        let noon = SourceTime::new(|| 12_000_000);
        for (time_us, since, until) in
            [(0, 12, 0), (11_000_000, 1, 0), (12_000_000, 0, 0), (15_000_000, 0, 3)]
        {
            let (since, until) = (Duration::from_secs(since), Duration::from_secs(until));
            assert_eq!((noon.since(time_us), noon.until(time_us)), (since, until), "{time_us}");
        }
    }
}
