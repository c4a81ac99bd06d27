//! Collects transactions that share keys into batches. A batch waits only for batches with which it
//! conflicts.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::batch_conflict_index::{BatchKeys, BatchSlot, BatchSlots, ConflictIndex, KeyUsers};
use super::batch_size_tuner::BatchLimits;
use super::source_order_batches::ConflictingRuns;
use super::transaction_batch::{BatchId, BatchTotals, Scheduled, TransactionBatch, TransactionWeight};
use crate::writeset::Writeset;

/// The maximum number of open batches per worker. With more open batches, the only effect would be that each
/// batch is smaller.
const OPEN_PER_WORKER_MAX: usize = 4;
/// The scheduler accepts no more transactions while there are enough batches that could run next: at least
/// this percentage of the number of workers. The more transactions are accepted, the more of them wait for
/// other transactions, until hardly any batch can run in parallel.
const AHEAD_PERCENT: usize = 50;
/// The batches of the independent order.
///
/// A batch is first open (it accepts transactions), then sealed, then running. Batches wait only for sealed
/// and running batches, and a sealed batch never starts to wait for another batch. So batches never wait for
/// each other in a cycle. This module can take over (adopt) runs, which are consecutive parts of the log,
/// while workers execute them. If a worker gives back a part of an adopted run, that part becomes a sealed
/// batch, which waits only for runs that were adopted earlier.
#[derive(Debug)]
pub(super) struct KeyedBatches<T> {
    groups: Vec<KeyedBatch<T>>,
    free: Vec<BatchSlot>,
    index: ConflictIndex,
    open: Vec<BatchSlot>,
    /// The batch of the last transaction, and the number of consecutive transactions that went to it.
    streak: (BatchSlot, usize),
    /// Sealed batches that wait for no batch, by the number of their first transaction.
    ready: BTreeMap<u64, BatchSlot>,
    running: FxHashMap<BatchId, BatchSlot>,
    /// The adopted runs, in the order of the log.
    adopted: Vec<BatchSlot>,
    /// The last barrier (a transaction that runs alone) that is not finished. All later batches wait for this
    /// barrier.
    barrier: Option<BatchSlot>,
    /// The batches since the last barrier. The next barrier waits for these batches.
    since_barrier: BatchSlots,
    /// Number of transactions that were offered to the scheduler. Transactions are numbered from 1.
    offered: u64,
    next_id: u64,
    conflicts: Conflicts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchState {
    Free,
    Open,
    Sealed,
    Running,
}

/// A batch of transactions that share keys.
#[derive(Debug)]
struct KeyedBatch<T> {
    state: BatchState,
    /// The transactions, each with its number. The list is sorted only when the batch is dispatched.
    transactions: Vec<(u64, T)>,
    totals: BatchTotals,
    /// Number of the batch's first transaction.
    first: u64,
    held: BatchKeys,
    /// The batches that this batch waits for, sorted.
    waits: Vec<BatchSlot>,
    waiters: Vec<BatchSlot>,
    alone: bool,
    /// The number of the last search for conflicts that found this batch.
    found: u64,
}

/// The batches with which a transaction conflicts, and for which it would have to wait.
#[derive(Debug, Default)]
struct Conflicts {
    open: Vec<BatchSlot>,
    /// Sealed or running batches for which the transaction must wait.
    closed: Vec<BatchSlot>,
    searches: u64,
}

impl<T> KeyedBatch<T> {
    fn new() -> Self {
        Self {
            state: BatchState::Free,
            transactions: Vec::new(),
            totals: BatchTotals { transactions: 0, weight: TransactionWeight::default() },
            first: u64::MAX,
            held: BatchKeys::default(),
            waits: Vec::new(),
            waiters: Vec::new(),
            alone: false,
            found: 0,
        }
    }

    fn push(&mut self, number: u64, weight: TransactionWeight, payload: T) {
        self.transactions.push((number, payload));
        self.totals.transactions += 1;
        self.totals.weight.add(weight);
        self.first = self.first.min(number);
    }

    fn fits(&self, limits: &BatchLimits, weight: TransactionWeight) -> bool {
        limits.fits(self.totals.transactions, self.totals.weight, 1, weight)
    }

    /// Returns whether the batch could run now, and is large enough to be worth a commit.
    fn is_worth_running(&self, limits: &BatchLimits) -> bool {
        self.waits.is_empty() && limits.is_worth_a_commit(self.totals.transactions, self.totals.weight)
    }
}

impl<T: Scheduled> KeyedBatches<T> {
    /// Returns an empty set of batches. The first batch gets ID 1.
    pub fn new() -> Self {
        Self {
            groups: Vec::new(),
            free: Vec::new(),
            index: ConflictIndex::default(),
            open: Vec::new(),
            streak: (0, 0),
            ready: BTreeMap::new(),
            running: FxHashMap::default(),
            adopted: Vec::new(),
            barrier: None,
            since_barrier: BatchSlots::default(),
            offered: 0,
            next_id: 1,
            conflicts: Conflicts::default(),
        }
    }

    fn group(&mut self, slot: BatchSlot) -> &mut KeyedBatch<T> {
        &mut self.groups[slot as usize]
    }

    fn at(&self, slot: BatchSlot) -> &KeyedBatch<T> {
        &self.groups[slot as usize]
    }

    pub fn offer(&mut self, limits: BatchLimits, payload: T) {
        self.offered += 1;
        let (number, weight) = (self.offered, payload.weight());
        if payload.writeset().barrier {
            self.add_barrier(number, weight, payload);
            return;
        }
        let mut conflicts = self.find_conflicts(payload.writeset());
        let slot = self.place(&limits, weight, &mut conflicts);
        self.streak = (slot, if self.streak.0 == slot { self.streak.1 + 1 } else { 1 });
        self.wait_for(slot, &conflicts.closed);
        self.conflicts = conflicts;
        let group = &mut self.groups[slot as usize];
        let new = group.transactions.is_empty();
        for access in &payload.writeset().accesses {
            self.index.add(*access, slot, new, &mut group.held);
        }
        group.push(number, weight, payload);
        if limits.is_full(group.totals.transactions, group.totals.weight) {
            self.seal(slot);
        }
    }

    fn add_barrier(&mut self, number: u64, weight: TransactionWeight, payload: T) {
        while let Some(slot) = self.open.last() {
            self.seal(*slot);
        }
        let before: Vec<BatchSlot> = self.since_barrier.iter().chain(self.barrier).collect();
        let slot = self.create();
        self.since_barrier.clear();
        self.barrier = Some(slot);
        self.wait_for(slot, &before);
        let group = self.group(slot);
        group.alone = true;
        group.push(number, weight, payload);
        self.seal(slot);
    }

    /// Finds the batches with which a transaction conflicts. The result contains the reusable lists of
    /// `self`, and the caller must put these lists back.
    fn find_conflicts(&mut self, writeset: &Writeset) -> Conflicts {
        let mut found = std::mem::take(&mut self.conflicts);
        found.open.clear();
        found.closed.clear();
        found.searches += 1;
        let groups = &mut self.groups;
        let mut note = |slot: BatchSlot| {
            let group = &mut groups[slot as usize];
            if std::mem::replace(&mut group.found, found.searches) == found.searches {
                return;
            }
            match group.state {
                BatchState::Open => found.open.push(slot),
                BatchState::Sealed | BatchState::Running => found.closed.push(slot),
                BatchState::Free => unreachable!("a finished batch has no keys"),
            }
        };
        if let Some(barrier) = self.barrier {
            note(barrier);
        }
        for access in &writeset.accesses {
            self.index.conflicts(*access, &mut note);
        }
        found
    }

    /// Chooses the open batch for a transaction. Seals open batches that conflict with the transaction but
    /// have no room for it, and adds them to `closed`.
    fn place(
        &mut self,
        limits: &BatchLimits,
        weight: TransactionWeight,
        conflicts: &mut Conflicts,
    ) -> BatchSlot {
        let Conflicts { open, closed, .. } = conflicts;
        if let Some(first) = open.first().copied() {
            let (mut held, mut transactions) = (TransactionWeight::default(), 0);
            for slot in open.iter() {
                held.add(self.at(*slot).totals.weight);
                transactions += self.at(*slot).totals.transactions;
            }
            let waits = !closed.is_empty() || open.iter().any(|slot| !self.at(*slot).waits.is_empty());
            let holds_up = waits && open.iter().any(|slot| self.at(*slot).is_worth_running(limits));
            if limits.fits(transactions, held, 1, weight) && !holds_up {
                return open[1..].iter().fold(first, |into, slot| self.merge(into, *slot));
            }
            for slot in open.drain(..) {
                self.seal(slot);
                closed.push(slot);
            }
        }
        closed.sort_unstable();
        self.choose(limits, weight, closed)
    }

    /// Chooses an open batch for a transaction that conflicts with no open batch and waits for `closed`
    /// (sorted). The first choice is the batch of the previous transaction, for a limited number of
    /// transactions. Otherwise a new batch is created. If there are already enough open batches, the smallest
    /// batch that waits for the same batches is chosen.
    fn choose(&mut self, limits: &BatchLimits, weight: TransactionWeight, closed: &[BatchSlot]) -> BatchSlot {
        let (last, streak) = self.streak;
        if streak < limits.worth_transactions()
            && self.groups.get(last as usize).is_some_and(|group| {
                group.state == BatchState::Open && group.waits == closed && group.fits(limits, weight)
            })
        {
            return last;
        }
        let size = |group: &KeyedBatch<T>| (group.totals.weight.bytes, group.totals.transactions);
        let same = self.open.iter().filter(|slot| self.at(**slot).waits == closed);
        let (same, lightest) = same.fold((0, None::<BatchSlot>), |(count, best), slot| {
            let better = best.is_none_or(|best| size(self.at(*slot)) < size(self.at(best)));
            (count + 1, if better { Some(*slot) } else { best })
        });
        let most = limits.workers.saturating_mul(OPEN_PER_WORKER_MAX);
        if same < limits.workers && (closed.is_empty() || self.open.len() < most) {
            return self.create();
        }
        // Choose a batch that already waits for other batches, rather than a batch that could run now.
        let chosen = lightest.or_else(|| {
            let waits_more = |group: &KeyedBatch<T>| closed.iter().any(|slot| !group.waits.contains(slot));
            let cost = |group: &KeyedBatch<T>| (waits_more(group), group.waits.is_empty(), size(group));
            self.open.iter().copied().min_by_key(|slot| cost(self.at(*slot)))
        });
        match chosen {
            Some(slot) if self.at(slot).fits(limits, weight) => slot,
            Some(slot) => {
                self.seal(slot);
                self.create()
            }
            None => self.create(),
        }
    }

    fn create(&mut self) -> BatchSlot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.groups.push(KeyedBatch::new());
            (self.groups.len() - 1) as BatchSlot
        });
        self.group(slot).state = BatchState::Open;
        self.open.push(slot);
        self.since_barrier.push(slot);
        slot
    }

    fn wait_for(&mut self, slot: BatchSlot, others: &[BatchSlot]) {
        for other in others {
            let waits = &mut self.groups[slot as usize].waits;
            if let Err(place) = waits.binary_search(other) {
                waits.insert(place, *other);
                self.group(*other).waiters.push(slot);
            }
        }
    }

    /// Merges two open batches; returns the slot of the result.
    fn merge(&mut self, one: BatchSlot, other: BatchSlot) -> BatchSlot {
        let (into, from) =
            if self.at(one).held.len() < self.at(other).held.len() { (other, one) } else { (one, other) };
        let mut merged = std::mem::replace(self.group(from), KeyedBatch::new());
        self.open.retain(|slot| *slot != from);
        self.since_barrier.remove(from);
        self.free.push(from);
        for waited in &merged.waits {
            self.group(*waited).waiters.retain(|slot| *slot != from);
        }
        self.wait_for(into, &merged.waits);
        let group = &mut self.groups[into as usize];
        self.index.replace(&mut merged.held, from, into, &mut group.held);
        group.transactions.append(&mut merged.transactions);
        group.totals.transactions += merged.totals.transactions;
        group.totals.weight.add(merged.totals.weight);
        group.first = group.first.min(merged.first);
        into
    }

    fn seal(&mut self, slot: BatchSlot) {
        let open = |waited: &BatchSlot| self.at(*waited).state == BatchState::Open;
        assert!(!self.at(slot).waits.iter().any(open), "a sealed batch must not wait for an open batch");
        self.open.retain(|own| *own != slot);
        let group = self.group(slot);
        group.state = BatchState::Sealed;
        if group.waits.is_empty() {
            let first = group.first;
            self.ready.insert(first, slot);
        }
    }

    /// Returns whether enough workers have a next batch.
    pub fn has_enough(&self, limits: BatchLimits) -> bool {
        let open = self.open.iter().filter(|slot| self.at(**slot).is_worth_running(&limits)).count();
        (self.ready.len() + open) * 100 >= limits.workers * AHEAD_PERCENT
    }

    /// Returns the next batch that may run. `held_up` means that a running batch takes much longer than
    /// usual. In that case, a small batch runs at once instead of waiting for more transactions.
    pub fn next(&mut self, limits: BatchLimits, held_up: bool) -> Option<TransactionBatch<T>> {
        if self.ready.is_empty()
            && let Some(slot) = self.ripest(limits)
        {
            let slot = self.gather(slot, &limits);
            if !held_up && self.may_grow(slot, &limits) {
                return None;
            }
            self.seal(slot);
        }
        let (_, slot) = self.ready.pop_first()?;
        Some(self.hand_out(slot))
    }

    /// Merges other batches that could run now into a small batch. These batches were separate only because
    /// they waited for different batches. Returns the slot of the merged batch.
    fn gather(&mut self, slot: BatchSlot, limits: &BatchLimits) -> BatchSlot {
        let mut into = slot;
        while !self.at(into).is_worth_running(limits) {
            let BatchTotals { transactions, weight } = self.at(into).totals;
            let fits = |slot: &BatchSlot| {
                let group = self.at(*slot);
                let BatchTotals { transactions: more, weight: more_weight } = group.totals;
                group.waits.is_empty() && limits.fits(transactions, weight, more, more_weight)
            };
            let others = self.open.iter().copied().filter(|slot| *slot != into);
            let oldest = others.filter(fits).min_by_key(|slot| self.at(*slot).first);
            let Some(other) = oldest else { break };
            into = self.merge(into, other);
        }
        into
    }

    /// Returns whether a batch should wait to grow before it runs. It should wait if it is small, other
    /// batches are running, and further batches wait for the running ones: these further batches can join
    /// this batch later. If no other batch waits, there is no backlog, and waiting would only add delay.
    fn may_grow(&self, slot: BatchSlot, limits: &BatchLimits) -> bool {
        let others = self.groups.len() - self.free.len() - 1;
        !self.running.is_empty() && others > self.running.len() && !self.at(slot).is_worth_running(limits)
    }

    /// Returns the fullest open batch that could run. Returns the oldest open batch instead, if it is so old
    /// that it holds back the low watermark.
    fn ripest(&self, limits: BatchLimits) -> Option<BatchSlot> {
        let runnable = || self.open.iter().copied().filter(|slot| self.at(*slot).waits.is_empty());
        let oldest = runnable().min_by_key(|slot| self.at(*slot).first)?;
        let age = self.offered - self.at(oldest).first;
        if age > limits.window_transactions_max as u64 / 2 {
            return Some(oldest);
        }
        let rank = |slot: &BatchSlot| {
            let group = self.at(*slot);
            (group.totals.weight.bytes, group.totals.transactions, std::cmp::Reverse(group.first))
        };
        runnable().max_by_key(rank)
    }

    fn hand_out(&mut self, slot: BatchSlot) -> TransactionBatch<T> {
        let group = self.group(slot);
        assert!(group.waits.is_empty(), "a batch must not run while it waits for another batch");
        group.state = BatchState::Running;
        let mut transactions = std::mem::take(&mut group.transactions);
        transactions.sort_unstable_by_key(|(number, _)| *number);
        let alone = group.alone;
        let id = BatchId(self.next_id);
        self.next_id += 1;
        self.running.insert(id, slot);
        let first = transactions.into_iter().map(|(_, payload)| payload).collect();
        TransactionBatch { id, first, rest: Vec::new(), commit_after: None, in_turn: false, alone }
    }

    /// Takes over a run of the log that is already dispatched (an adopted run). The run comes after all
    /// earlier batches.
    pub fn adopt(&mut self, id: BatchId, totals: BatchTotals, touched: &ConflictingRuns) {
        let slot = self.create();
        self.open.retain(|open| *open != slot);
        let first = self.offered + 1;
        self.offered += totals.transactions as u64;
        let group = &mut self.groups[slot as usize];
        (group.state, group.totals, group.first) = (BatchState::Running, totals, first);
        for access in touched.accesses() {
            self.index.add(access, slot, group.held.len() == 0, &mut group.held);
        }
        self.running.insert(id, slot);
        self.adopted.push(slot);
    }

    /// Takes back the unfinished part of an [adopted](Self::adopt) run. This part is dispatched with another
    /// ID, once the earlier runs with which it shares keys are done. The finished part releases its keys.
    /// Returns the size of the finished part.
    pub fn give_back(&mut self, id: BatchId, rest: Vec<T>) -> Option<BatchTotals> {
        let slot = self.running.remove(&id)?;
        let touched = KeyUsers::of(rest.iter().flat_map(|payload| &payload.writeset().accesses));
        let before: Vec<_> = (self.adopted.iter().copied())
            .take_while(|adopted| *adopted != slot)
            .filter(|adopted| touched.conflicts(&self.at(*adopted).held))
            .collect();
        let group = &mut self.groups[slot as usize];
        self.index.keep(&mut group.held, slot, &touched);
        let left = BatchTotals::of(&rest);
        let done = std::mem::replace(&mut group.totals, left).without(left);
        group.state = BatchState::Sealed;
        group.transactions = (group.first..).zip(rest).collect();
        let first = group.first;
        self.wait_for(slot, &before);
        if before.is_empty() {
            self.ready.insert(first, slot);
        }
        Some(done)
    }

    /// Returns whether no transaction is outstanding.
    pub fn is_idle(&self) -> bool {
        self.groups.len() == self.free.len()
    }

    /// Returns whether adopted runs remain.
    pub fn has_adopted(&self) -> bool {
        !self.adopted.is_empty()
    }

    /// Returns the ID of the next batch.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Raises the ID of the next batch to at least `next_id`.
    pub fn skip_ids(&mut self, next_id: u64) {
        self.next_id = self.next_id.max(next_id);
    }

    pub fn done(&mut self, id: BatchId) -> Option<BatchTotals> {
        let slot = self.running.remove(&id)?;
        let group = &mut self.groups[slot as usize];
        let totals = group.totals;
        self.index.remove(&group.held, slot);
        let waiters = std::mem::take(&mut group.waiters);
        for waiter in waiters {
            let waiting = self.group(waiter);
            if let Ok(place) = waiting.waits.binary_search(&slot) {
                waiting.waits.remove(place);
            }
            if waiting.state == BatchState::Sealed && waiting.waits.is_empty() {
                let first = waiting.first;
                self.ready.insert(first, waiter);
            }
        }
        if self.barrier == Some(slot) {
            self.barrier = None;
        }
        self.since_barrier.remove(slot);
        self.adopted.retain(|adopted| *adopted != slot);
        self.release(slot);
        Some(totals)
    }

    fn release(&mut self, slot: BatchSlot) {
        let group = self.group(slot);
        let mut held = std::mem::take(&mut group.held);
        held.clear();
        *group = KeyedBatch { held, ..KeyedBatch::new() };
        self.free.push(slot);
    }

    #[cfg(test)]
    pub fn is_clean(&self) -> bool {
        self.index.is_empty()
            && self.since_barrier.is_empty()
            && self.barrier.is_none()
            && self.adopted.is_empty()
            && self.is_idle()
    }
}
