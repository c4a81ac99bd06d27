//! Forecasts when a disk will be full, from the free space of the last hour.

use std::collections::VecDeque;
use std::time::Duration;

/// The time between two kept samples.
const STEP: Duration = Duration::from_secs(60);

/// How many samples are kept besides the newest sample. These samples cover an hour.
const SAMPLES_MAX: usize = 60;

/// Samples of the free space.
#[derive(Debug, Default)]
pub(super) struct FreeSpaceForecast {
    /// The time and the free bytes of each sample; oldest first.
    kept: VecDeque<(Duration, u64)>,
    newest: Option<(Duration, u64)>,
}

impl FreeSpaceForecast {
    /// Adds a sample that was taken at the time `at` of a monotonic clock.
    pub fn add(&mut self, at: Duration, free_bytes: u64) {
        self.newest = Some((at, free_bytes));
        if self.kept.back().is_none_or(|(last, _)| at.saturating_sub(*last) >= STEP) {
            self.kept.push_back((at, free_bytes));
            if self.kept.len() > SAMPLES_MAX {
                self.kept.pop_front();
            }
        }
    }

    /// Returns the time until the disk is full, if its free space shrinks as it did on average since the
    /// oldest sample. `None` if the free space does not shrink, or if the samples cover less than a minute.
    pub fn full_in(&self) -> Option<Duration> {
        let ((begin, before), (end, now)) = (self.kept.front()?, self.newest?);
        let time = end.checked_sub(*begin).filter(|time| *time >= STEP)?;
        let used = before.checked_sub(now).filter(|used| *used > 0)?;
        Duration::try_from_secs_f64(now as f64 / used as f64 * time.as_secs_f64()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(samples: impl IntoIterator<Item = (u64, u64)>) -> Option<u64> {
        let mut forecast = FreeSpaceForecast::default();
        for (seconds, free) in samples {
            forecast.add(Duration::from_secs(seconds), free);
        }
        forecast.full_in().map(|time| time.as_secs())
    }

    #[test]
    fn the_average_of_the_last_hour_counts() {
        assert_eq!(forecast([]), None);
        assert_eq!(forecast([(0, 1_000), (59, 900)]), None, "samples of less than a minute gave a forecast");
        assert_eq!(forecast([(0, 1_000), (5, 990), (100, 800)]), Some(400));
        assert_eq!(forecast([(0, 1_000), (100, 1_000)]), None);
        assert_eq!(forecast([(0, 1_000), (100, 2_000)]), None, "growing free space gave a forecast");
        assert_eq!(forecast([(0, 1_000), (100, 0)]), Some(0));
        // The free space shrank fast at first, but that was more than an hour ago.
        let samples = (0..=120).map(|minute| (minute * 60, 1_000_000 - minute.min(60) * 10_000 - minute));
        let seconds = forecast(samples).expect("the free space shrinks");
        assert!(seconds > 60 * 390_000, "the forecast is too early: {seconds}");
    }
}
