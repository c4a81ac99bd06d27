//! The delays between the attempts to connect to a server.

use std::time::Duration;

/// Delays that double with each failed attempt, from `first` up to `longest`. Each delay is shortened by a
/// random part, at most half of it. So the clients of a server do not all reconnect at the same moment.
///
/// This type does no I/O and reads no clock. The seed determines the whole sequence.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    random: u64,
}

impl Backoff {
    /// Creates a sequence that starts with the delay `first`. No delay is longer than `longest`.
    pub fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        let first = first.min(longest);
        Self { first, longest, next: first, random: seed }
    }

    /// The delay before the next attempt: between half of the current delay and all of it.
    pub fn next_delay(&mut self) -> Duration {
        let due = self.next;
        self.next = due.saturating_mul(2).min(self.longest);
        let half = due / 2;
        let spread_ns = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX - 1);
        half + (due - half * 2) + Duration::from_nanos(self.random() % (spread_ns + 1))
    }

    /// Resets the delay to the first one. Call this after a successful attempt.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// Returns a random number from splitmix64. This generator is good enough to spread the clients.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_spread_below() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut delays_of_seeds = std::collections::HashSet::new();
        for seed in 0..200 {
            let mut backoff = Backoff::new(first, longest, seed);
            for due_ms in [100, 200, 400, 800, 1000, 1000] {
                let (due, delay) = (Duration::from_millis(due_ms), backoff.next_delay());
                assert!(
                    delay >= due / 2 && delay <= due,
                    "seed {seed}: the delay is {delay:?}, but it must be between half of {due:?} and all of it"
                );
            }
            backoff.reset();
            let delay = backoff.next_delay();
            assert!(delay <= first, "seed {seed}: the delay after a reset is too long: {delay:?}");
            delays_of_seeds.insert(delay);
        }
        assert!(delays_of_seeds.len() > 190, "200 seeds gave only {} distinct delays", delays_of_seeds.len());
    }

    #[test]
    fn the_same_seed_gives_the_same_delays() {
        let make = || Backoff::new(Duration::from_millis(50), Duration::from_secs(60), 42);
        let (mut left, mut right) = (make(), make());
        for _ in 0..100 {
            assert_eq!(left.next_delay(), right.next_delay());
        }
    }

    #[test]
    fn the_longest_and_shortest_delays_do_not_overflow() {
        let mut backoff = Backoff::new(Duration::MAX, Duration::MAX, 1);
        backoff.next_delay();
        assert_eq!(Backoff::new(Duration::ZERO, Duration::ZERO, 1).next_delay(), Duration::ZERO);
    }
}
