//! The names of files and folders, and the changes of names that are not durable.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

/// A place for a name: the folder and the name in it.
pub(crate) type NameSlot = (u64, OsString);

/// All names of the disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameTable {
    current: BTreeMap<NameSlot, u64>,
    durable: BTreeMap<NameSlot, u64>,
    unsynced: Vec<NameChange>,
}

/// A change of one name or, for a rename, of two names at once.
#[derive(Debug, Clone)]
struct NameChange {
    sequence: u64,
    /// The new file or folder of each name; `None` if the name is removed.
    slots: Vec<(NameSlot, Option<u64>)>,
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<NameSlot, u64>) {
        for (slot, inode) in &self.slots {
            match inode {
                Some(inode) => names.insert(slot.clone(), *inode),
                None => names.remove(slot),
            };
        }
    }
}

impl NameTable {
    pub(crate) fn get(&self, folder: u64, name: &OsStr) -> Option<u64> {
        self.current.get(&(folder, name.to_owned())).copied()
    }

    /// Returns the names in a folder.
    pub(crate) fn entries(&self, folder: u64) -> impl Iterator<Item = (&OsStr, u64)> {
        self.current
            .range((folder, OsString::new())..)
            .take_while(move |((parent, _), _)| *parent == folder)
            .map(|((_, name), inode)| (name.as_os_str(), *inode))
    }

    /// Returns the number of names of a file.
    pub(crate) fn count(&self, inode: u64) -> u32 {
        self.current.values().filter(|other| **other == inode).count() as u32
    }

    /// Whether a file has a name, or may get one back at a power cut.
    pub(crate) fn refers_to(&self, inode: u64) -> bool {
        let is_this = |other: &u64| *other == inode;
        self.current.values().any(is_this)
            || self.durable.values().any(is_this)
            || self.unsynced.iter().any(|change| change.slots.iter().any(|(_, to)| *to == Some(inode)))
    }

    pub(crate) fn change(&mut self, sequence: u64, slots: Vec<(NameSlot, Option<u64>)>) {
        let change = NameChange { sequence, slots };
        change.apply(&mut self.current);
        self.unsynced.push(change);
    }

    pub(crate) fn unsynced_count(&self) -> usize {
        self.unsynced.len()
    }

    pub(crate) fn oldest_change(&self) -> Option<u64> {
        self.unsynced.first().map(|change| change.sequence)
    }

    pub(crate) fn newest_change(&self) -> Option<u64> {
        self.unsynced.last().map(|change| change.sequence)
    }

    /// Makes the changes of names in a folder durable. A rename between two folders is durable after the sync
    /// of either, because it is never half done. Earlier changes of the same names are durable too.
    pub(crate) fn sync_folder(&mut self, folder: u64) {
        let mut names: BTreeSet<NameSlot> = BTreeSet::new();
        let mut is_durable = vec![false; self.unsynced.len()];
        for (change, is_durable) in self.unsynced.iter().zip(&mut is_durable).rev() {
            let concerns = |(slot, _): &(NameSlot, Option<u64>)| slot.0 == folder || names.contains(slot);
            *is_durable = change.slots.iter().any(concerns);
            if *is_durable {
                names.extend(change.slots.iter().map(|(slot, _)| slot.clone()));
            }
        }
        let mut is_durable = is_durable.into_iter();
        let durable = &mut self.durable;
        self.unsynced.retain(|change| {
            let keep = !is_durable.next().unwrap_or_default();
            if !keep {
                change.apply(durable);
            }
            keep
        });
    }

    /// Makes all changes durable.
    pub(crate) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Leaves the durable names, and the unsynced changes up to number `limit`. Returns the number of lost
    /// changes.
    pub(crate) fn cut_power(&mut self, limit: u64) -> usize {
        let mut lost = 0;
        for change in std::mem::take(&mut self.unsynced) {
            if change.sequence <= limit {
                change.apply(&mut self.durable);
            } else {
                lost += 1;
            }
        }
        self.current.clone_from(&self.durable);
        lost
    }

    /// Removes the names in folders that do not exist.
    pub(crate) fn retain_folders(&mut self, exists: impl Fn(u64) -> bool) {
        self.current.retain(|(folder, _), _| exists(*folder));
        self.durable.clone_from(&self.current);
    }
}
