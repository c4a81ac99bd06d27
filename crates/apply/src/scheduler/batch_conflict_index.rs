//! Tracks which batches access each key. The independent commit order uses this index to find conflicts.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::writeset::{Access, IndexId, WritesetKey};

/// Index of a batch in the scheduler's table of batches.
pub(super) type BatchSlot = u32;

/// The batches that access each key or index. If several batches access a key one after another, each batch
/// waits for the previous batch or commits after it. Then the index keeps only the last batch, because a
/// batch that waits for the last batch waits for all of these batches.
#[derive(Debug, Default)]
pub(super) struct ConflictIndex {
    /// The last batch with exclusive access to a key. The map is separate from `shared`, so that the lookup
    /// for each row touches little memory.
    exclusive: FxHashMap<WritesetKey, BatchSlot>,
    /// Batches with shared access to a key since the last exclusive access to it.
    shared: FxHashMap<WritesetKey, BatchSlots>,
    indexes: FxHashMap<IndexId, KeyHolders>,
}

/// The keys that a batch accesses. A key may occur twice.
#[derive(Debug, Default)]
pub(super) struct BatchKeys {
    accesses: Vec<Access>,
    indexes: Vec<IndexId>,
}

/// The batches that access any key of an index.
#[derive(Debug, Default)]
struct KeyHolders {
    /// The batch with exclusive access to [`WritesetKey::ANY`].
    any_exclusive: Option<BatchSlot>,
    /// Batches with shared access to [`WritesetKey::ANY`] since the last exclusive access to it.
    any_shared: BatchSlots,
    /// Batches with exclusive access to a single key since the last exclusive access to [`WritesetKey::ANY`].
    some_exclusive: BatchSlots,
    some_shared: BatchSlots,
}

/// Batches, approximately in the order in which they finish. Removing the oldest batch does not move the
/// other batches in memory.
#[derive(Debug, Default)]
pub(super) struct BatchSlots(VecDeque<BatchSlot>);

/// The keys and indexes that transactions access; `true` means exclusive access.
#[derive(Debug, Default)]
pub(super) struct KeyUsers {
    keys: FxHashMap<WritesetKey, bool>,
    indexes: FxHashMap<IndexId, bool>,
}

impl KeyUsers {
    pub fn of<'a>(accesses: impl Iterator<Item = &'a Access>) -> Self {
        let mut touched = Self::default();
        for Access { key, shared } in accesses {
            *touched.keys.entry(*key).or_default() |= !shared;
            *touched.indexes.entry(key.index).or_default() |= !shared;
        }
        touched
    }

    /// Returns whether the transactions must keep their order relative to a batch.
    pub fn conflicts(&self, held: &BatchKeys) -> bool {
        let conflicts = |Access { key, shared }: &Access| {
            let clashes = |exclusive: Option<&bool>| exclusive.is_some_and(|exclusive| *exclusive || !shared);
            clashes(self.keys.get(key))
                || clashes(self.keys.get(&WritesetKey { hash: WritesetKey::ANY, ..*key }))
                || key.is_any() && clashes(self.indexes.get(&key.index))
        };
        held.accesses.iter().any(conflicts)
    }
}

/// Capacity that a list keeps when it is cleared for reuse.
const KEPT: usize = 1024;

impl BatchKeys {
    pub fn clear(&mut self) {
        self.accesses.clear();
        self.accesses.shrink_to(KEPT);
        self.indexes.clear();
    }

    pub fn len(&self) -> usize {
        self.accesses.len()
    }

    fn note_index(&mut self, index: IndexId) {
        if !self.indexes.contains(&index) {
            self.indexes.push(index);
        }
    }
}

impl BatchSlots {
    /// Adds a batch that is certainly not in the list yet.
    pub fn push(&mut self, slot: BatchSlot) {
        self.0.push_back(slot);
    }

    /// Adds a batch if it is not in the list. Returns whether the batch was added. If `new` is true, the
    /// batch can be in the list only as the last element.
    fn add(&mut self, slot: BatchSlot, new: bool) -> bool {
        let is_in_it = self.0.back() == Some(&slot) || (!new && self.0.contains(&slot));
        if !is_in_it {
            self.0.push_back(slot);
        }
        !is_in_it
    }

    pub fn remove(&mut self, slot: BatchSlot) -> bool {
        let place = self.0.iter().position(|own| *own == slot);
        place.and_then(|place| self.0.remove(place)).is_some()
    }

    fn replace(&mut self, from: BatchSlot, to: BatchSlot) {
        if self.remove(from) {
            self.add(to, false);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn iter(&self) -> impl Iterator<Item = BatchSlot> + '_ {
        self.0.iter().copied()
    }
}

impl KeyHolders {
    fn is_empty(&self) -> bool {
        self.any_exclusive.is_none()
            && self.any_shared.is_empty()
            && self.some_exclusive.is_empty()
            && self.some_shared.is_empty()
    }

    fn conflicts(&self, Access { key, shared }: Access, mut found: impl FnMut(BatchSlot)) {
        self.any_exclusive.iter().for_each(|slot| found(*slot));
        if !shared {
            self.any_shared.iter().for_each(&mut found);
        }
        if key.is_any() {
            self.some_exclusive.iter().for_each(&mut found);
            if !shared {
                self.some_shared.iter().for_each(&mut found);
            }
        }
    }

    /// Adds an access to [`WritesetKey::ANY`]. Returns whether the access is new for the batch.
    fn add_any(&mut self, slot: BatchSlot, shared: bool, new: bool) -> bool {
        if shared {
            return self.any_exclusive != Some(slot) && self.any_shared.add(slot, new);
        }
        self.any_shared.clear();
        self.some_exclusive.clear();
        self.some_shared.clear();
        self.any_exclusive.replace(slot) != Some(slot)
    }

    fn remove(&mut self, slot: BatchSlot) {
        self.any_exclusive.take_if(|own| *own == slot);
        self.any_shared.remove(slot);
        self.some_exclusive.remove(slot);
        self.some_shared.remove(slot);
    }

    fn replace(&mut self, from: BatchSlot, to: BatchSlot) {
        if self.any_exclusive == Some(from) {
            self.any_exclusive = Some(to);
        }
        self.any_shared.replace(from, to);
        self.some_exclusive.replace(from, to);
        self.some_shared.replace(from, to);
    }
}

impl ConflictIndex {
    /// Calls `found` with the batches that conflict with `access`, possibly more than once with the same
    /// batch. Leaves out a batch if another conflicting batch already waits for it.
    pub fn conflicts(&self, access: Access, mut found: impl FnMut(BatchSlot)) {
        let Some(index) = self.indexes.get(&access.key.index) else { return };
        index.conflicts(access, &mut found);
        if access.key.is_any() {
            return;
        }
        if let Some(slot) = self.exclusive.get(&access.key) {
            found(*slot);
        }
        if !access.shared
            && let Some(slots) = self.shared.get(&access.key)
        {
            slots.iter().for_each(found);
        }
    }

    /// Adds an access of the batch `slot`. The caller guarantees that this batch waits for all conflicting
    /// batches, commits after them, or is the only batch. `new` means that the access belongs to the first
    /// transaction of the batch.
    pub fn add(&mut self, access: Access, slot: BatchSlot, new: bool, held: &mut BatchKeys) {
        let Access { key, shared } = access;
        let index = self.indexes.entry(key.index).or_default();
        if key.is_any() {
            if index.add_any(slot, shared, new) {
                held.accesses.push(access);
                held.note_index(key.index);
            }
            return;
        }
        let some = if shared { &mut index.some_shared } else { &mut index.some_exclusive };
        if some.add(slot, new) {
            held.note_index(key.index);
        }
        let added = if shared {
            self.exclusive.get(&key) != Some(&slot) && self.shared.entry(key).or_default().add(slot, new)
        } else {
            self.shared.remove(&key);
            self.exclusive.insert(key, slot) != Some(slot)
        };
        if added {
            held.accesses.push(access);
        }
    }

    /// Removes all accesses of a batch.
    pub fn remove(&mut self, held: &BatchKeys, slot: BatchSlot) {
        for Access { key, shared } in &held.accesses {
            if *shared {
                if let Entry::Occupied(mut slots) = self.shared.entry(*key) {
                    slots.get_mut().remove(slot);
                    if slots.get().is_empty() {
                        slots.remove();
                    }
                }
            } else if let Entry::Occupied(own) = self.exclusive.entry(*key)
                && *own.get() == slot
            {
                own.remove();
            }
        }
        for index in &held.indexes {
            if let Entry::Occupied(mut holders) = self.indexes.entry(*index) {
                holders.get_mut().remove(slot);
                if holders.get().is_empty() {
                    holders.remove();
                }
            }
        }
    }

    /// Removes all accesses of a batch except the given ones.
    pub fn keep(&mut self, held: &mut BatchKeys, slot: BatchSlot, touched: &KeyUsers) {
        let is_touched = |access: &Access| touched.keys.contains_key(&access.key);
        let (kept, gone) = held.accesses.drain(..).partition(is_touched);
        let (kept_indexes, gone_indexes) =
            held.indexes.drain(..).partition(|index| touched.indexes.contains_key(index));
        self.remove(&BatchKeys { accesses: gone, indexes: gone_indexes }, slot);
        *held = BatchKeys { accesses: kept, indexes: kept_indexes };
    }

    /// Moves all accesses of the batch `from` to the batch `to`.
    pub fn replace(&mut self, held: &mut BatchKeys, from: BatchSlot, to: BatchSlot, into: &mut BatchKeys) {
        for Access { key, shared } in &held.accesses {
            if *shared {
                if let Some(slots) = self.shared.get_mut(key) {
                    slots.replace(from, to);
                }
            } else if let Some(slot) = self.exclusive.get_mut(key)
                && *slot == from
            {
                *slot = to;
            }
        }
        for index in &held.indexes {
            if let Some(holders) = self.indexes.get_mut(index) {
                holders.replace(from, to);
                into.note_index(*index);
            }
        }
        into.accesses.append(&mut held.accesses);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.exclusive.is_empty() && self.shared.is_empty() && self.indexes.is_empty()
    }
}
