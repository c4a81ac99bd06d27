//! How far rows may move: each has a level, and rows that share a key have levels in the order of the log.
//!
//! A row's class is the group that it would like to join (table, kind of change and all else that an event has once). Two
//! rows that share a key may have the same level only if they have the same class: then they stand in one group, in order.

use rustc_hash::FxHashMap;

use crate::writeset::{Access, IndexId, WritesetKey};

/// The class of rows of several classes.
const MIXED: u32 = u32::MAX;

/// Rows at the highest level of all that touched something.
#[derive(Debug, Clone, Copy, Default)]
struct KeyTouch {
    /// The level behind theirs; 0 if there are none.
    behind: u32,
    /// Their class.
    class: u32,
}

impl KeyTouch {
    fn lowest_for(self, class: u32) -> u32 {
        if self.class == class { self.behind.saturating_sub(1) } else { self.behind }
    }

    fn join(&mut self, other: Self) {
        if other.behind > self.behind {
            *self = other;
        } else if other.behind == self.behind && other.class != self.class {
            self.class = MIXED;
        }
    }
}

/// Who touched something, relying on it or changing it.
#[derive(Debug, Clone, Copy, Default)]
struct LastTouches {
    exclusive: KeyTouch,
    shared: KeyTouch,
    /// The number of the last row that did; 0 for none.
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

    /// The lowest level behind those that conflict.
    fn lowest_for(&self, shared: bool, class: u32) -> u32 {
        let exclusive = self.exclusive.lowest_for(class);
        if shared { exclusive } else { exclusive.max(self.shared.lowest_for(class)) }
    }

    /// The last of those that conflict.
    fn last(&self, shared: bool) -> u32 {
        if shared { self.exclusive_last } else { self.exclusive_last.max(self.shared_last) }
    }
}

/// Those who touched keys of an index.
#[derive(Debug, Default)]
struct Index {
    /// Of them, those who may have touched any.
    any: LastTouches,
    all: LastTouches,
}

/// Gives levels to rows.
#[derive(Debug, Default)]
pub(super) struct ConflictLevels {
    keys: FxHashMap<WritesetKey, LastTouches>,
    indexes: FxHashMap<IndexId, Index>,
    /// The level behind all rows.
    behind: u32,
    /// No row goes below this level: the one behind the last row of which nobody knows what it touches.
    fence: u32,
    /// The number of that row.
    fence_last: u32,
}

impl ConflictLevels {
    /// For about so many rows.
    pub fn of_rows(rows: usize) -> Self {
        let mut order = Self::default();
        order.keys.reserve(rows);
        order
    }

    /// The level of row `number` (counted from 1 in the order of the log).
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
            level = self.behind;
            self.fence = level + 1;
            self.fence_last = number;
        }
        let touch = KeyTouch { behind: level + 1, class };
        for access in accesses {
            let index = self.indexes.entry(access.key.index).or_default();
            index.all.add(access.shared, touch, number);
            match access.key.is_any() {
                true => index.any.add(access.shared, touch, number),
                false => self.keys.entry(access.key).or_default().add(access.shared, touch, number),
            }
        }
        self.behind = self.behind.max(level + 1);
        level
    }

    /// Of a row that touches one key, as most do: each map is asked once.
    fn place_one(&mut self, number: u32, class: u32, Access { key, shared }: Access) -> u32 {
        let index = self.indexes.entry(key.index).or_default();
        let (lowest, touches) = if key.is_any() {
            (index.all.lowest_for(shared, class), &mut index.any)
        } else {
            let touches = self.keys.entry(key).or_default();
            (touches.lowest_for(shared, class).max(index.any.lowest_for(shared, class)), touches)
        };
        let level = self.fence.max(lowest);
        let touch = KeyTouch { behind: level + 1, class };
        touches.add(shared, touch, number);
        index.all.add(shared, touch, number);
        self.behind = self.behind.max(level + 1);
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

    /// Whether no row behind row `number` conflicts with it, given what it touches: then it might as well stand last.
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
        fn what_conflicts_keeps_its_order(
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
                    prop_assert!(kept || !conflict, "rows {earlier} and {later} of {rows:?}");
                }
                levels.push(level);
            }
            for (number, (_, accesses)) in rows.iter().enumerate() {
                let behind = rows.iter().skip(number + 1).any(|(_, others)| {
                    others.is_empty()
                        || accesses.iter().any(|access| others.iter().any(|other| access.conflicts(*other)))
                });
                let last = order.is_last(number as u32 + 1, accesses.iter());
                prop_assert!(!(last && behind), "row {number} of {rows:?}");
            }
        }
    }
}
