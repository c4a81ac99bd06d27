//! Seeded random numbers that stay the same in all releases, so that a seed repeats a workload.

use super::workload_tables::mix;

/// The random number generator SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    /// Returns a generator with a separate sequence for each worker of a seed.
    pub(crate) fn new(seed: u64, worker: u32) -> Self {
        Self { state: mix(seed ^ mix(u64::from(worker))) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Returns a number from 0 to `bound` - 1; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The result has a bias of 1 in 2^64 / bound, which is negligible here.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Appends `length` characters that need no escaping in SQL. Some have two or three bytes.
    pub(crate) fn text(&mut self, out: &mut String, length: usize) {
        const ALPHABET: [char; 64] = [
            'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's',
            't', 'u', 'v', 'w', 'x', 'y', 'z', ' ', '.', ',', '-', '_', '0', '1', '2', '3', '4', '5', '6',
            '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M', 'N', 'O', 'P',
            'Q', 'R', 'S', 'T', 'ä', 'ß', '水',
        ];
        let mut left = length;
        while left > 0 {
            // Ten characters are made from one random number, because the workload spends most of its CPU
            // time on generating text.
            let mut bits = self.next();
            for _ in 0..left.min(10) {
                out.push(ALPHABET[(bits & 63) as usize]);
                bits >>= 6;
            }
            left -= left.min(10);
        }
    }

    /// Does the same as [`Self::text`], but each character has one byte.
    pub(crate) fn ascii(&mut self, out: &mut String, length: usize) {
        const ALPHABET: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
        let mut left = length;
        while left > 0 {
            let mut bits = self.next();
            for _ in 0..left.min(10) {
                out.push(char::from(ALPHABET[(bits & 63) as usize]));
                bits >>= 6;
            }
            left -= left.min(10);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_workers_differ() {
        let draw = |seed, worker| {
            let mut random = SeededRandom::new(seed, worker);
            let mut text = String::new();
            random.text(&mut text, 33);
            (text, random.below(1000))
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
        assert_eq!(draw(1, 2).0.chars().count(), 33);
    }

    #[test]
    fn numbers_cover_the_range_below_the_bound() {
        let mut random = SeededRandom::new(7, 0);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[random.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(random.below(0), 0);
    }
}
