//! The clock of the source. Transactions have timestamps of this clock, which may differ from this machine's
//! clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Reads the source's clock. Cheap to clone.
#[derive(Clone)]
pub struct SourceTime(Arc<dyn Fn() -> u64 + Send + Sync>);

impl SourceTime {
    /// Returns a clock whose time comes from the function `now_us`, in microseconds since 1970.
    pub fn new(now_us: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_us))
    }

    /// Returns the source's current time, in microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        (self.0)()
    }

    /// Returns the duration since `time_us`, which is in microseconds since 1970. Returns 0 if `time_us` is
    /// in the future.
    pub(super) fn since(&self, time_us: u64) -> Duration {
        Duration::from_micros(self.now_us().saturating_sub(time_us))
    }

    /// Returns the duration until `time_us`, which is in microseconds since 1970. Returns 0 if `time_us` has
    /// passed.
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
    fn a_future_time_gives_no_time_since_it() {
        let noon = SourceTime::new(|| 12_000_000);
        for (time_us, since, until) in
            [(0, 12, 0), (11_000_000, 1, 0), (12_000_000, 0, 0), (15_000_000, 0, 3)]
        {
            let (since, until) = (Duration::from_secs(since), Duration::from_secs(until));
            assert_eq!((noon.since(time_us), noon.until(time_us)), (since, until), "{time_us}");
        }
    }
}
