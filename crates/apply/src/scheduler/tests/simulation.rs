//! Runs random loads, limits, numbers of workers and rollbacks, and compares the result with serial
//! execution.
//!
//! `TAILWATER_CASES=100` runs a hundred times as many cases as CI does.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const INDEXES: u32 = 3;
const KEYS: u64 = 6;

/// For each key, the number (from 1) of the transaction that wrote it last.
type SimulatedStore = BTreeMap<WritesetKey, usize>;

/// Returns the keys that an access may touch.
fn keys(access: Access) -> impl Iterator<Item = WritesetKey> {
    let hashes = if access.key.is_any() { 1..=KEYS } else { access.key.hash..=access.key.hash };
    hashes.map(move |hash| WritesetKey { hash, ..access.key })
}

/// Executes a transaction. Returns the previous values of all keys that it accesses.
fn execute(store: &mut SimulatedStore, number: usize, writeset: &Writeset) -> Vec<(WritesetKey, usize)> {
    let everything: Vec<Access> = (0..INDEXES).map(|index| access(index, WritesetKey::ANY, false)).collect();
    let accesses = if writeset.barrier { &everything } else { &writeset.accesses };
    let touched: Vec<_> =
        accesses.iter().flat_map(|access| keys(*access).map(|key| (key, *access))).collect();
    let seen = touched.iter().map(|(key, _)| (*key, store.get(key).copied().unwrap_or(0))).collect();
    for (key, _) in touched.into_iter().filter(|(_, access)| !access.shared) {
        store.insert(key, number);
    }
    seen
}

#[derive(Debug, Clone)]
struct SimulatedLoad {
    transactions: Vec<(Writeset, TransactionWeight)>,
    /// For each transaction, the values that it reads in serial execution.
    seen: Vec<Vec<(WritesetKey, usize)>>,
}

fn any_access() -> impl Strategy<Value = Access> {
    // Generate few ANY keys, because otherwise each transaction would wait for the previous one. Prefer small
    // keys, so that transactions conflict.
    let hash = prop_oneof![1 => Just(WritesetKey::ANY), 30 => 1..=KEYS, 10 => 1..=2u64];
    (0..INDEXES, hash, prop::bool::weighted(0.3))
        .prop_map(|(index, hash, shared)| access(index, hash, shared))
}

fn any_writeset() -> impl Strategy<Value = Writeset> {
    let accesses = prop::collection::vec(any_access(), 0..4);
    (accesses, prop::bool::weighted(0.03)).prop_map(|(mut accesses, barrier)| {
        // Keep one access for each key. The access is exclusive if any access to the key is exclusive.
        accesses.sort_by_key(|access| (access.key, access.shared));
        accesses.dedup_by_key(|access| access.key);
        Writeset { accesses, barrier }
    })
}

fn any_load() -> impl Strategy<Value = SimulatedLoad> {
    let weight = (0..300usize, 0..5usize).prop_map(|(bytes, rows)| TransactionWeight { bytes, rows });
    prop::collection::vec((any_writeset(), weight), 1..160).prop_map(|transactions| {
        let mut store = SimulatedStore::new();
        let seen =
            (1..).zip(&transactions).map(|(number, (writeset, _))| execute(&mut store, number, writeset));
        let seen = seen.collect();
        SimulatedLoad { transactions, seen }
    })
}

fn any_options() -> impl Strategy<Value = SchedulerOptions> {
    let order = prop_oneof![Just(CommitOrder::Source), Just(CommitOrder::Independent)];
    let transactions = prop_oneof![2 => 1..20usize, 1 => 20..64usize, 3 => 64..100usize];
    (order, 1..6usize, transactions, 1..6000usize, 1..160usize, 1..24_000usize).prop_map(
        |(commit_order, workers, batch_transactions_max, batch_bytes_max, window_transactions_max, bytes)| {
            SchedulerOptions {
                commit_order,
                workers,
                batch_transactions_max,
                batch_bytes_max,
                window_transactions_max,
                window_bytes_max: bytes,
            }
        },
    )
}

/// Generates the probability that a batch is rolled back, in 1/256.
fn any_rollbacks() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), 0..40u8]
}

/// A running batch.
struct RunningBatch {
    batch: TransactionBatch<usize>,
    /// The executed transactions of `first` and `rest`, with the values that they overwrote.
    executed: Vec<(usize, Vec<(WritesetKey, usize)>)>,
}

impl RunningBatch {
    fn next(&self) -> Option<usize> {
        let all = self.batch.first.iter().chain(&self.batch.rest);
        all.copied().nth(self.executed.len())
    }

    fn next_is_deferred(&self) -> bool {
        self.executed.len() >= self.batch.first.len()
    }
}

/// A model of the channel and its target.
struct Simulation<'a> {
    load: &'a SimulatedLoad,
    options: SchedulerOptions,
    scheduler: Scheduler<NumberedTransaction>,
    waiting: VecDeque<usize>,
    running: Vec<RunningBatch>,
    /// Committed batches that were not reported to the scheduler yet, each with the transactions that it
    /// gives back.
    unreported: Vec<(BatchId, Vec<usize>)>,
    committed: Vec<BatchId>,
    turn: BatchId,
    store: SimulatedStore,
    applied: Vec<bool>,
    /// The counters `given_back` and `in_turn` show whether the test cases contain batches that give back
    /// transactions, and batches that commit in turn.
    given_back: usize,
    in_turn: usize,
}

impl<'a> Simulation<'a> {
    fn new(load: &'a SimulatedLoad, options: SchedulerOptions) -> Self {
        Self {
            load,
            options,
            scheduler: Scheduler::new(options),
            waiting: (1..=load.transactions.len()).collect(),
            running: Vec::new(),
            unreported: Vec::new(),
            committed: Vec::new(),
            turn: BatchId(0),
            store: SimulatedStore::new(),
            applied: vec![false; load.transactions.len() + 1],
            given_back: 0,
            in_turn: 0,
        }
    }

    fn writeset(&self, number: usize) -> &'a Writeset {
        &self.load.transactions[number - 1].0
    }

    fn weight(&self, number: usize) -> TransactionWeight {
        self.load.transactions[number - 1].1
    }

    fn named(&self, name: usize) -> NumberedTransaction {
        NumberedTransaction { name, writeset: self.writeset(name).clone(), weight: self.weight(name) }
    }

    fn offer(&mut self) -> bool {
        let Some(number) = self.waiting.front().copied().filter(|_| self.scheduler.has_room()) else {
            return false;
        };
        let before = self.scheduler.outstanding();
        assert!(before.transactions < self.options.window_transactions_max);
        assert!(before.weight.bytes < self.options.window_bytes_max);
        self.waiting.pop_front();
        self.scheduler.offer(self.named(number));
        true
    }

    fn take(&mut self) -> bool {
        if self.running.len() >= self.options.workers {
            return false;
        }
        let Some(batch) = self.scheduler.next().map(named) else { return false };
        let all: Vec<usize> = batch.first.iter().chain(&batch.rest).copied().collect();
        assert!(!all.is_empty());
        assert!(
            batch.first.is_sorted() && batch.rest.is_sorted(),
            "{batch:?} is not in the order of the log"
        );
        if all.len() > 1 {
            assert!(all.len() <= self.options.batch_transactions_max);
            let bytes: usize = all.iter().map(|number| self.weight(*number).bytes).sum();
            assert!(bytes <= self.options.batch_bytes_max);
        }
        let barriers = all.iter().filter(|number| self.writeset(**number).barrier).count();
        assert_eq!((barriers, batch.alone), if batch.alone { (all.len(), true) } else { (0, false) });
        if batch.alone {
            assert!(all.len() == 1 && self.running.is_empty());
        }
        assert!(!self.running.iter().any(|running| running.batch.alone));
        self.in_turn += usize::from(batch.in_turn);
        self.running.push(RunningBatch { batch, executed: Vec::new() });
        true
    }

    /// Returns whether it is the batch's turn. As in the workers, the newest committed batch decides.
    fn has_turn(&self, running: &RunningBatch) -> bool {
        running.batch.commit_after.is_none_or(|id| {
            assert!(
                self.turn < id || self.committed.contains(&id),
                "`commit_after` names batch {id:?}, which has not committed"
            );
            self.turn >= id
        })
    }

    /// Executes the next transaction of a batch, or commits it.
    fn step(&mut self, at: usize) -> bool {
        let running = &self.running[at];
        let has_turn = self.has_turn(running);
        let Some(number) = running.next() else {
            if has_turn {
                self.commit(at);
            }
            return has_turn;
        };
        if running.next_is_deferred() && !has_turn {
            return false;
        }
        self.check_alone(at, number);
        let writeset = self.writeset(number);
        let seen = execute(&mut self.store, number, writeset);
        assert_eq!(
            seen,
            self.load.seen[number - 1],
            "transaction {number} read values that differ from serial execution"
        );
        self.running[at].executed.push((number, seen));
        true
    }

    fn check_alone(&self, at: usize, number: usize) {
        let others = self.running.iter().enumerate().filter(|(other, _)| *other != at);
        for (other, _) in others.flat_map(|(_, running)| &running.executed) {
            let conflicts = self.writeset(number).conflicts(self.writeset(*other));
            assert!(
                !conflicts,
                "transaction {number} is executed before the conflicting transaction {other} has committed"
            );
        }
    }

    fn commit(&mut self, at: usize) {
        let running = self.running.swap_remove(at);
        for (number, _) in &running.executed {
            assert!(
                !std::mem::replace(&mut self.applied[*number], true),
                "transaction {number} is applied twice"
            );
        }
        if self.options.commit_order == CommitOrder::Source {
            let last = running.executed.iter().map(|(number, _)| *number).max().unwrap_or(0);
            let is_applied = |(number, applied): (usize, &bool)| *applied == (number <= last);
            assert!(
                self.applied.iter().enumerate().skip(1).all(is_applied),
                "transaction {last} commits out of order"
            );
        }
        self.committed.push(running.batch.id);
        if running.batch.in_turn {
            self.turn = running.batch.id;
        }
        self.unreported.push((running.batch.id, Vec::new()));
    }

    /// Makes a batch that waits for its turn commit its executed part and give back the rest. A batch may
    /// do this because of an earlier signal from the scheduler.
    fn yield_one(&mut self, rng: &mut StdRng) -> bool {
        let is_independent = self.options.commit_order == CommitOrder::Independent;
        let is_requested = self.scheduler.can_yield() || rng.random_range(0..16) == 0;
        let waits = |running: &RunningBatch| {
            running.executed.len() == running.batch.first.len() && !self.has_turn(running)
        };
        let Some(at) = self.running.iter().position(waits).filter(|_| is_independent && is_requested) else {
            return false;
        };
        let running = self.running.swap_remove(at);
        for (number, _) in &running.executed {
            assert!(
                !std::mem::replace(&mut self.applied[*number], true),
                "transaction {number} is applied twice"
            );
        }
        self.unreported.push((running.batch.id, running.batch.rest));
        true
    }

    fn report(&mut self, at: usize, rng: &mut StdRng) {
        let (id, rest) = self.unreported.swap_remove(at);
        let timing =
            BatchTiming { execute_us: rng.random_range(0..100_000), commit_us: rng.random_range(0..20_000) };
        if self.committed.contains(&id) {
            self.scheduler.done(id, timing);
        } else {
            self.given_back += rest.len();
            let rest = rest.into_iter().map(|number| self.named(number)).collect();
            self.scheduler.give_back(id, timing, rest);
        }
    }

    /// Rolls a batch back. Its worker starts it again, and batches that wait for its commit keep waiting.
    fn roll_back(&mut self, at: usize) {
        let executed = std::mem::take(&mut self.running[at].executed);
        for (number, seen) in executed.iter().rev() {
            let writeset = self.writeset(*number);
            for (key, before) in seen {
                let wrote = |access: &Access| !access.shared && keys(*access).any(|own| own == *key);
                if writeset.barrier || writeset.accesses.iter().any(wrote) {
                    self.store.insert(*key, *before);
                }
            }
        }
    }

    /// Makes one of the possible steps, chosen at random. Returns false if no step is possible.
    fn act(&mut self, rng: &mut StdRng) -> bool {
        let start = rng.random_range(0..5);
        (0..5).any(|turn| match (start + turn) % 5 {
            0 => self.offer(),
            3 => self.yield_one(rng),
            1 => {
                self.scheduler.set_held_up(rng.random_range(0..8) == 0);
                self.take()
            }
            2 => {
                let count = self.running.len();
                let first = rng.random_range(0..count.max(1));
                (0..count).any(|turn| self.step((first + turn) % count))
            }
            _ if self.unreported.is_empty() => false,
            _ => {
                self.report(rng.random_range(0..self.unreported.len()), rng);
                true
            }
        })
    }

    fn run(mut self, rollbacks: u8, rng: &mut StdRng) -> Self {
        while !self.waiting.is_empty() || !self.scheduler.is_idle() {
            if !self.running.is_empty() && rng.random_range(0..256) < u16::from(rollbacks) {
                self.roll_back(rng.random_range(0..self.running.len()));
            } else {
                assert!(self.act(rng), "no step is possible, and not all transactions are applied");
            }
        }
        assert!(self.running.is_empty() && self.unreported.is_empty() && self.scheduler.is_clean());
        assert!(self.applied[1..].iter().all(|applied| *applied), "a transaction was not applied");
        self
    }
}

fn cases(count: u32) -> ProptestConfig {
    let factor = std::env::var("TAILWATER_CASES").ok().and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(count.saturating_mul(factor)) }
}

proptest! {
    #![proptest_config(cases(1500))]

    /// At any time the target has the state of a serial execution in which each transaction is executed
    /// exactly once. A next step is always possible.
    #[test]
    fn the_result_equals_serial_execution(
        load in any_load(),
        options in any_options(),
        rollbacks in any_rollbacks(),
        seed in any::<u64>(),
    ) {
        Simulation::new(&load, options).run(rollbacks, &mut StdRng::seed_from_u64(seed));
    }
}

/// Checks that the simulations contain runs of the log, and batches that give back transactions. Without
/// them, the comparison with serial execution would prove little.
#[test]
fn simulations_cover_runs_and_yields_in_independent_order() {
    let mut runner = TestRunner::deterministic();
    let (mut in_turn, mut given_back, mut cases) = (0, 0, 0);
    for seed in 0..400 {
        let tree = (any_load(), any_options(), any_rollbacks())
            .new_tree(&mut runner)
            .expect("a test case must be generated");
        let (load, options, rollbacks) = tree.current();
        let options = SchedulerOptions { commit_order: CommitOrder::Independent, ..options };
        let ended = Simulation::new(&load, options).run(rollbacks, &mut StdRng::seed_from_u64(seed));
        in_turn += ended.in_turn;
        given_back += ended.given_back;
        cases += usize::from(ended.given_back > 0);
    }
    assert!(
        in_turn > 300 && given_back > 100 && cases > 20,
        "the simulations have too few batches that commit in turn ({in_turn}), too few returned transactions ({given_back}), or too few cases with returned transactions ({cases})"
    );
}
