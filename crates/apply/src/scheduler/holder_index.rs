//! Which batches hold a key: what the independent order needs to know of conflicts.

use rustc_hash::FxHashMap;

use crate::writeset::{Access, IndexId, Key};

/// A batch, by its place in the scheduler's table of them.
pub(super) type Slot = u32;

/// See the module. Of batches that wait for each other on account of a key only the last are kept: who waits for them
/// waits for all.
#[derive(Debug, Default)]
pub(super) struct HolderIndex {
    keys: FxHashMap<Key, Holders>,
    indexes: FxHashMap<IndexId, IndexHolders>,
}

/// What a batch holds. Some may be in it more than once.
#[derive(Debug, Default)]
pub(super) struct Held {
    accesses: Vec<Access>,
    indexes: Vec<IndexId>,
}

#[derive(Debug, Default)]
struct Holders {
    exclusive: Option<Slot>,
    /// Since then.
    shared: Vec<Slot>,
}

/// An index as a whole.
#[derive(Debug, Default)]
struct IndexHolders {
    /// Who holds [`Key::ANY`].
    any: Holders,
    /// Who holds some key since [`Key::ANY`] was held exclusively.
    some_exclusive: Vec<Slot>,
    some_shared: Vec<Slot>,
}

/// Capacity that a list keeps when it is emptied for another use.
const KEPT: usize = 1024;

impl Held {
    pub fn clear(&mut self) {
        self.accesses.clear();
        self.accesses.shrink_to(KEPT);
        self.indexes.clear();
    }

    pub fn len(&self) -> usize {
        self.accesses.len()
    }
}

impl Holders {
    fn is_empty(&self) -> bool {
        self.exclusive.is_none() && self.shared.is_empty()
    }

    fn conflicts(&self, shared: bool, mut found: impl FnMut(Slot)) {
        if let Some(slot) = self.exclusive {
            found(slot);
        }
        if !shared {
            self.shared.iter().for_each(|slot| found(*slot));
        }
    }

    /// Returns whether `slot` did not hold it so before.
    fn add(&mut self, slot: Slot, shared: bool) -> bool {
        if shared {
            return self.exclusive != Some(slot) && add_once(&mut self.shared, slot);
        }
        self.shared.clear();
        self.exclusive.replace(slot) != Some(slot)
    }

    fn remove(&mut self, slot: Slot) {
        self.exclusive.take_if(|own| *own == slot);
        remove_one(&mut self.shared, slot);
    }

    fn replace(&mut self, from: Slot, to: Slot) {
        if self.exclusive == Some(from) {
            self.exclusive = Some(to);
        }
        if remove_one(&mut self.shared, from) {
            add_once(&mut self.shared, to);
        }
    }
}

impl IndexHolders {
    fn is_empty(&self) -> bool {
        self.any.is_empty() && self.some_exclusive.is_empty() && self.some_shared.is_empty()
    }

    fn conflicts(&self, Access { key, shared }: Access, mut found: impl FnMut(Slot)) {
        self.any.conflicts(shared, &mut found);
        if key.is_any() {
            self.some_exclusive.iter().for_each(|slot| found(*slot));
            if !shared {
                self.some_shared.iter().for_each(|slot| found(*slot));
            }
        }
    }
}

/// What was pushed last is looked at first, and what came first is removed first.
fn add_once(list: &mut Vec<Slot>, slot: Slot) -> bool {
    if list.last() == Some(&slot) || list.contains(&slot) {
        return false;
    }
    list.push(slot);
    true
}

fn remove_one(list: &mut Vec<Slot>, slot: Slot) -> bool {
    let place = list.iter().position(|own| *own == slot);
    if let Some(place) = place {
        list.remove(place);
    }
    place.is_some()
}

impl HolderIndex {
    /// Names all that hold something which conflicts with `access`, or that others which do wait for. Some more than
    /// once.
    pub fn conflicts(&self, access: Access, mut found: impl FnMut(Slot)) {
        let Some(index) = self.indexes.get(&access.key.index) else { return };
        index.conflicts(access, &mut found);
        if !access.key.is_any()
            && let Some(holders) = self.keys.get(&access.key)
        {
            holders.conflicts(access.shared, found);
        }
    }

    /// Adds what the batch `slot` holds; it waits for all that conflict, or is the only one that does.
    pub fn add(&mut self, access: Access, slot: Slot, held: &mut Held) {
        let Access { key, shared } = access;
        let index = self.indexes.entry(key.index).or_default();
        if key.is_any() {
            if !shared {
                index.some_exclusive.clear();
                index.some_shared.clear();
            }
            if index.any.add(slot, shared) {
                held.accesses.push(access);
                held.note_index(key.index);
            }
            return;
        }
        let some = if shared { &mut index.some_shared } else { &mut index.some_exclusive };
        if add_once(some, slot) {
            held.note_index(key.index);
        }
        if self.keys.entry(key).or_default().add(slot, shared) {
            held.accesses.push(access);
        }
    }

    /// Removes all that a batch holds.
    pub fn remove(&mut self, held: &Held, slot: Slot) {
        for Access { key, .. } in &held.accesses {
            if let Some(holders) = self.keys.get_mut(key) {
                holders.remove(slot);
                if holders.is_empty() {
                    self.keys.remove(key);
                }
            }
        }
        for index in &held.indexes {
            if let Some(holders) = self.indexes.get_mut(index) {
                holders.any.remove(slot);
                remove_one(&mut holders.some_exclusive, slot);
                remove_one(&mut holders.some_shared, slot);
                if holders.is_empty() {
                    self.indexes.remove(index);
                }
            }
        }
    }

    /// Gives all that the batch `from` holds to the batch `to`.
    pub fn replace(&mut self, held: &mut Held, from: Slot, to: Slot, into: &mut Held) {
        for access in &held.accesses {
            if let Some(holders) = self.keys.get_mut(&access.key) {
                holders.replace(from, to);
            }
        }
        for index in &held.indexes {
            if let Some(holders) = self.indexes.get_mut(index) {
                holders.any.replace(from, to);
                for list in [&mut holders.some_exclusive, &mut holders.some_shared] {
                    if remove_one(list, from) {
                        add_once(list, to);
                    }
                }
                into.note_index(*index);
            }
        }
        into.accesses.append(&mut held.accesses);
    }

    /// Enters again, in an index that was made anew, what a batch holds.
    pub fn restore(&mut self, held: &mut Held, slot: Slot) {
        let mut again = Held::default();
        for access in &held.accesses {
            self.add(*access, slot, &mut again);
        }
        *held = again;
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.indexes.is_empty()
    }
}

impl Held {
    fn note_index(&mut self, index: IndexId) {
        if !self.indexes.contains(&index) {
            self.indexes.push(index);
        }
    }
}
