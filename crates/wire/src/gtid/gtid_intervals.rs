//! Sorted, disjoint intervals of transaction numbers.

/// An interval of transaction numbers, `first..=last`. It is never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interval {
    /// The lowest number.
    pub first: u64,
    /// The highest number; at least `first`.
    pub last: u64,
}

impl Interval {
    /// Returns how many numbers the interval holds.
    fn count(self) -> u128 {
        u128::from(self.last - self.first) + 1
    }

    /// Returns whether `later` overlaps or directly follows this interval. `later` must not begin before this
    /// interval.
    fn reaches(self, later: Interval) -> bool {
        later.first <= self.last.saturating_add(1)
    }
}

/// A set of numbers as sorted intervals. Between two intervals at least one number is absent. So two equal
/// sets always have the same intervals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct IntervalSet {
    intervals: Vec<Interval>,
}

impl IntervalSet {
    pub fn one(interval: Interval) -> Self {
        Self { intervals: vec![interval] }
    }

    /// Builds a set from intervals in any order. The intervals may overlap. The cost is `O(n log n)` for
    /// every order.
    pub fn from_unsorted(mut intervals: Vec<Interval>) -> Self {
        intervals.sort_unstable();
        Self::from_sorted(intervals.into_iter())
    }

    /// Builds a set from intervals that are sorted by their first number.
    fn from_sorted(sorted: impl Iterator<Item = Interval>) -> Self {
        let mut intervals: Vec<Interval> = Vec::new();
        for interval in sorted {
            match intervals.last_mut() {
                Some(previous) if previous.reaches(interval) => {
                    previous.last = previous.last.max(interval.last)
                }
                _ => intervals.push(interval),
            }
        }
        Self { intervals }
    }

    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    pub fn as_slice(&self) -> &[Interval] {
        &self.intervals
    }

    pub fn count(&self) -> u128 {
        self.intervals.iter().map(|interval| interval.count()).sum()
    }

    pub fn last_number(&self) -> Option<u64> {
        self.intervals.last().map(|interval| interval.last)
    }

    pub fn contains(&self, number: u64) -> bool {
        let after = self.intervals.partition_point(|interval| interval.first <= number);
        after > 0 && number <= self.intervals[after - 1].last
    }

    /// Returns whether the set holds a number of `interval`.
    pub fn overlaps(&self, interval: Interval) -> bool {
        let after = self.intervals.partition_point(|present| present.first <= interval.last);
        after > 0 && interval.first <= self.intervals[after - 1].last
    }

    /// Adds a number, and returns whether it was absent. In a stream, the new number usually follows the last
    /// number. In this case no other interval is moved.
    pub fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        self.insert_interval(Interval { first: number, last: number });
        true
    }

    pub fn insert_interval(&mut self, added: Interval) {
        // The interval `added` replaces all intervals that it overlaps or touches.
        let from = self.intervals.partition_point(|present| present.last.saturating_add(1) < added.first);
        let to = self.intervals.partition_point(|present| present.first <= added.last.saturating_add(1));
        if from == to {
            self.intervals.insert(from, added);
            return;
        }
        let merged = Interval {
            first: added.first.min(self.intervals[from].first),
            last: added.last.max(self.intervals[to - 1].last),
        };
        self.intervals[from] = merged;
        self.intervals.drain(from + 1..to);
    }

    pub fn union(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.intervals.iter().peekable(), other.intervals.iter().peekable());
        Self::from_sorted(std::iter::from_fn(|| match (left.peek(), right.peek()) {
            (Some(a), Some(b)) if a <= b => left.next().copied(),
            (Some(_), None) => left.next().copied(),
            _ => right.next().copied(),
        }))
    }

    pub fn intersect(&self, other: &Self) -> Self {
        let mut intervals = Vec::new();
        let (mut left, mut right) = (&self.intervals[..], &other.intervals[..]);
        while let (Some(a), Some(b)) = (left.first(), right.first()) {
            let common = (a.first.max(b.first), a.last.min(b.last));
            if common.0 <= common.1 {
                intervals.push(Interval { first: common.0, last: common.1 });
            }
            if a.last <= b.last {
                left = &left[1..];
            } else {
                right = &right[1..];
            }
        }
        Self { intervals }
    }

    pub fn subtract(&self, other: &Self) -> Self {
        let mut intervals = Vec::new();
        let mut removed = &other.intervals[..];
        for interval in &self.intervals {
            let mut first = interval.first;
            // Skip the intervals of `removed` that end before this interval, because they also end before all
            // later intervals.
            while removed.first().is_some_and(|cut| cut.last < first) {
                removed = &removed[1..];
            }
            let mut rest = Some(first);
            for cut in removed.iter().take_while(|cut| cut.first <= interval.last) {
                if first < cut.first {
                    intervals.push(Interval { first, last: cut.first - 1 });
                }
                if cut.last >= interval.last {
                    rest = None;
                    break;
                }
                first = cut.last + 1;
                rest = Some(first);
            }
            if let Some(first) = rest {
                intervals.push(Interval { first, last: interval.last });
            }
        }
        Self { intervals }
    }

    pub fn is_superset_of(&self, other: &Self) -> bool {
        let mut covering = self.intervals.iter().peekable();
        other.intervals.iter().all(|wanted| {
            while covering.next_if(|cover| cover.last < wanted.first).is_some() {}
            covering.peek().is_some_and(|cover| cover.first <= wanted.first && wanted.last <= cover.last)
        })
    }
}
