//! Tracks the last run that accessed each key, to find conflicts between runs (consecutive parts of the log).

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::writeset::{Access, IndexId, WritesetKey};

/// The last run that accessed each key or index. Runs finish in order. So a run that waits for the last run
/// that accessed a key waits for all runs that accessed the key.
#[derive(Debug, Default)]
pub(super) struct RunIndex {
    /// The last runs with exclusive access to a key. The map is separate from `shared`, so that the lookup
    /// for each row touches little memory.
    exclusive: FxHashMap<WritesetKey, Recent>,
    shared: FxHashMap<WritesetKey, Recent>,
    indexes: FxHashMap<IndexId, IndexRunKeys>,
}

/// The keys and indexes that a run of the log accessed. Each key and each index occurs once.
#[derive(Debug, Default)]
pub(super) struct ConflictingRuns {
    accesses: Vec<Access>,
    indexes: Vec<IndexId>,
}

impl ConflictingRuns {
    /// Returns the exclusive and shared accesses of the run to each key.
    pub fn accesses(&self) -> impl Iterator<Item = Access> + '_ {
        self.accesses.iter().copied()
    }
}

/// The last runs of the log with exclusive access, and with shared access, to a key.
#[derive(Debug, Clone, Copy, Default)]
struct RunKeys {
    exclusive: Recent,
    shared: Recent,
}

/// The last runs of the log that accessed an index: single keys of the index, or [`WritesetKey::ANY`].
#[derive(Debug, Clone, Copy, Default)]
struct IndexRunKeys {
    some: RunKeys,
    any: RunKeys,
}

/// The last two runs of the log that accessed a key. Run numbers start at 1; 0 means no run.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    last: u64,
    before: u64,
    /// The earlier run that must commit before the last run executes its transactions that access the key.
    last_after: u64,
}

impl Recent {
    fn note(&mut self, run: u64, after: u64) {
        if run > self.last {
            *self = Self { last: run, before: self.last, last_after: after };
        } else {
            self.last_after = self.last_after.max(after);
        }
    }

    /// Returns the number of the run for which a transaction must wait because of this access. The
    /// transaction is in run `run`. It waits for the last earlier run that accessed the key. If another
    /// transaction of run `run` has accessed the key and waits for a later run, it waits for that later run.
    fn after(self, run: u64) -> u64 {
        if self.last == run { self.last_after.max(self.before) } else { self.last }
    }
}

impl RunKeys {
    fn of(&mut self, shared: bool) -> &mut Recent {
        if shared { &mut self.shared } else { &mut self.exclusive }
    }

    fn after(&self, run: u64, shared: bool) -> u64 {
        let exclusive = self.exclusive.after(run);
        if shared { exclusive } else { exclusive.max(self.shared.after(run)) }
    }

    fn last(&self) -> u64 {
        self.exclusive.last.max(self.shared.last)
    }
}

impl RunIndex {
    /// Adds a transaction of `run`, the newest run. Returns the earlier run that must commit before the
    /// transaction is executed.
    pub fn add(&mut self, accesses: &[Access], run: u64, touched: &mut ConflictingRuns) -> u64 {
        let after = accesses.iter().map(|access| self.after(*access, run)).max().unwrap_or(0);
        for access in accesses {
            self.note(*access, run, after, touched);
        }
        after
    }

    fn after(&self, Access { key, shared }: Access, run: u64) -> u64 {
        let index = self.indexes.get(&key.index).map_or(0, |index| {
            let some = if key.is_any() { index.some.after(run, shared) } else { 0 };
            some.max(index.any.after(run, shared))
        });
        if key.is_any() {
            return index;
        }
        let of = |keys: &FxHashMap<WritesetKey, Recent>| keys.get(&key).map_or(0, |own| own.after(run));
        let exclusive = index.max(of(&self.exclusive));
        if shared { exclusive } else { exclusive.max(of(&self.shared)) }
    }

    fn note(&mut self, access: Access, run: u64, after: u64, touched: &mut ConflictingRuns) {
        let Access { key, shared } = access;
        let index = self.indexes.entry(key.index).or_default();
        if index.some.last().max(index.any.last()) < run {
            touched.indexes.push(key.index);
        }
        let touches = if key.is_any() { &mut index.any } else { &mut index.some };
        let any_is_new = key.is_any() && touches.of(shared).last < run;
        touches.of(shared).note(run, after);
        if key.is_any() {
            if any_is_new {
                touched.accesses.push(access);
            }
            return;
        }
        let keys = if shared { &mut self.shared } else { &mut self.exclusive };
        let recent = keys.entry(key).or_default();
        if recent.last < run {
            touched.accesses.push(access);
        }
        recent.note(run, after);
    }

    /// Removes the keys and indexes of a finished run of the log. Keeps those that a run after run `finished`
    /// has accessed too.
    pub fn forget(&mut self, touched: &ConflictingRuns, finished: u64) {
        for Access { key, shared } in &touched.accesses {
            let keys = if *shared { &mut self.shared } else { &mut self.exclusive };
            if let Entry::Occupied(recent) = keys.entry(*key)
                && recent.get().last <= finished
            {
                recent.remove();
            }
        }
        for index in &touched.indexes {
            let last = |touches: &IndexRunKeys| touches.some.last().max(touches.any.last());
            if self.indexes.get(index).is_some_and(|touches| last(touches) <= finished) {
                self.indexes.remove(index);
            }
        }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.exclusive.is_empty() && self.shared.is_empty() && self.indexes.is_empty()
    }
}
