//! Computes how far rows may move within a batch. Each row gets a level, and the target applies lower levels
//! first. Rows that share a key have levels in log order.
//!
//! The class of a row is the group that it can join (table, kind of change and all other properties of an
//! event). Two rows that share a key may have the same level only if they have the same class: then one group
//! contains both, in order.

use rustc_hash::FxHashMap;

use crate::writeset::{Access, IndexId, WritesetKey};

/// Represents a set of rows that belong to several classes.
const MIXED: u32 = u32::MAX;

/// The highest level of the rows that access a key, and the class of the rows with that level.
#[derive(Debug, Clone, Copy, Default)]
struct KeyTouch {
    /// The highest level of the rows that access the key, plus 1; 0 if no row accesses the key.
    next_level: u32,
    /// The class of the rows with the highest level.
    class: u32,
}

impl KeyTouch {
    fn lowest_for(self, class: u32) -> u32 {
        if self.class == class { self.next_level.saturating_sub(1) } else { self.next_level }
    }

    fn join(&mut self, other: Self) {
        if other.next_level > self.next_level {
            *self = other;
        } else if other.next_level == self.next_level && other.class != self.class {
            self.class = MIXED;
        }
    }
}

/// The latest shared and exclusive accesses of a key.
#[derive(Debug, Clone, Copy, Default)]
struct LastTouches {
    exclusive: KeyTouch,
    shared: KeyTouch,
    /// Number of the last row with an exclusive access; 0 if there is none.
    exclusive_last: u32,
    shared_last: u32,
}

impl LastTouches {
    fn add(&mut self, shared: bool, touch: KeyTouch, number: u32) {
        let (touches, last) = match shared {
            true => (&mut self.shared, &mut self.shared_last),
            false => (&mut self.exclusive, &mut self.exclusive_last),
        };
        touches.join(touch);
        *last = number;
    }

    /// Returns the lowest level at which a row of this class comes after the rows that it conflicts with.
    fn lowest_for(&self, shared: bool, class: u32) -> u32 {
        let exclusive = self.exclusive.lowest_for(class);
        if shared { exclusive } else { exclusive.max(self.shared.lowest_for(class)) }
    }

    /// Returns the number of the last row that conflicts with a shared or exclusive access.
    fn last(&self, shared: bool) -> u32 {
        if shared { self.exclusive_last } else { self.exclusive_last.max(self.shared_last) }
    }
}

/// The last accesses to the keys of one index.
#[derive(Debug, Default)]
struct Index {
    /// The accesses with an unknown key, which may be equal to any key.
    any: LastTouches,
    all: LastTouches,
}

/// Assigns a level to each row of a batch. Rows that share a key have levels in log order.
#[derive(Debug, Default)]
pub(super) struct ConflictLevels {
    keys: FxHashMap<WritesetKey, LastTouches>,
    indexes: FxHashMap<IndexId, Index>,
    /// The highest level of all rows plus 1.
    next_level: u32,
    /// The lowest level that a row may have: the level after the last row with unknown keys.
    fence: u32,
    /// The number of the last row with unknown keys.
    fence_last: u32,
}

impl ConflictLevels {
    /// Returns a value that has assigned no level yet, with capacity for `rows` rows.
    pub fn of_rows(rows: usize) -> Self {
        let mut order = Self::default();
        order.keys.reserve(rows);
        order
    }

    /// Assigns a level to row `number` (from 1, in log order).
    pub fn place<'b>(
        &mut self,
        number: u32,
        class: u32,
        accesses: impl Iterator<Item = &'b Access> + Clone,
    ) -> u32 {
        let mut all = accesses.clone();
        if let (Some(access), None) = (all.next(), all.next()) {
            return self.place_one(number, class, *access);
        }
        let mut level = self.fence;
        let mut known = false;
        for access in accesses.clone() {
            known = true;
            level = level.max(self.lowest(access, class));
        }
        if !known {
            level = self.next_level;
            self.fence = level + 1;
            self.fence_last = number;
        }
        let touch = KeyTouch { next_level: level + 1, class };
        for access in accesses {
            let index = self.indexes.entry(access.key.index).or_default();
            index.all.add(access.shared, touch, number);
            match access.key.is_any() {
                true => index.any.add(access.shared, touch, number),
                false => self.keys.entry(access.key).or_default().add(access.shared, touch, number),
            }
        }
        self.next_level = self.next_level.max(level + 1);
        level
    }

    /// Assigns a level to a row with one key access. This usual case needs only one lookup in each hash map.
    fn place_one(&mut self, number: u32, class: u32, Access { key, shared }: Access) -> u32 {
        let index = self.indexes.entry(key.index).or_default();
        let (lowest, touches) = if key.is_any() {
            (index.all.lowest_for(shared, class), &mut index.any)
        } else {
            let touches = self.keys.entry(key).or_default();
            (touches.lowest_for(shared, class).max(index.any.lowest_for(shared, class)), touches)
        };
        let level = self.fence.max(lowest);
        let touch = KeyTouch { next_level: level + 1, class };
        touches.add(shared, touch, number);
        index.all.add(shared, touch, number);
        self.next_level = self.next_level.max(level + 1);
        level
    }

    fn lowest(&self, access: &Access, class: u32) -> u32 {
        let Some(index) = self.indexes.get(&access.key.index) else { return 0 };
        if access.key.is_any() {
            return index.all.lowest_for(access.shared, class);
        }
        let key = self.keys.get(&access.key).map_or(0, |key| key.lowest_for(access.shared, class));
        key.max(index.any.lowest_for(access.shared, class))
    }

    /// Returns whether row `number` could move to the end of the batch. This is so if no later row conflicts
    /// with the accesses of row `number`.
    pub fn is_last<'b>(&self, number: u32, mut accesses: impl Iterator<Item = &'b Access>) -> bool {
        self.fence_last <= number
            && accesses.all(|access| {
                let Some(index) = self.indexes.get(&access.key.index) else { return true };
                let last = match access.key.is_any() {
                    true => index.all.last(access.shared),
                    false => {
                        let key = self.keys.get(&access.key).map_or(0, |key| key.last(access.shared));
                        key.max(index.any.last(access.shared))
                    }
                };
                last <= number
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn conflicting_rows_keep_their_order(
            rows in proptest::collection::vec(
                (0u32..3, proptest::collection::vec((0u32..2, 0u64..4, any::<bool>()), 0..4)),
                1..40,
            ),
        ) {
            let access = |(index, hash, shared): &(u32, u64, bool)| Access {
                key: WritesetKey { index: IndexId(*index), hash: *hash },
                shared: *shared,
            };
            let rows: Vec<(u32, Vec<Access>)> =
                rows.iter().map(|(class, accesses)| (*class, accesses.iter().map(access).collect())).collect();
            let mut order = ConflictLevels::default();
            let mut levels = Vec::new();
            for (later, (class, accesses)) in rows.iter().enumerate() {
                let level = order.place(later as u32 + 1, *class, accesses.iter());
                for (earlier, (other_class, others)) in rows.iter().enumerate().take(later) {
                    let conflict = accesses.is_empty()
                        || others.is_empty()
                        || accesses.iter().any(|access| others.iter().any(|other| access.conflicts(*other)));
                    let kept = levels[earlier] < level || levels[earlier] == level && class == other_class;
                    prop_assert!(kept || !conflict, "conflicting rows {earlier} and {later} have wrong levels in {rows:?}");
                }
                levels.push(level);
            }
            for (number, (_, accesses)) in rows.iter().enumerate() {
                let has_later_conflict = rows.iter().skip(number + 1).any(|(_, others)| {
                    others.is_empty()
                        || accesses.iter().any(|access| others.iter().any(|other| access.conflicts(*other)))
                });
                let last = order.is_last(number as u32 + 1, accesses.iter());
                prop_assert!(!(last && has_later_conflict), "row {number} counts as the last conflicting row although a later row of {rows:?} conflicts with it");
            }
        }
    }
}
