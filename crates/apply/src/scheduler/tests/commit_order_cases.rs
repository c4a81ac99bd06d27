//! Tests the scheduler in single situations.

use super::*;

fn offer_one(
    scheduler: &mut Scheduler<NumberedTransaction>,
    writeset: Writeset,
    weight: TransactionWeight,
    name: usize,
) {
    scheduler.offer(NumberedTransaction { name, writeset, weight });
}

fn offer(scheduler: &mut Scheduler<NumberedTransaction>, transactions: &[(usize, &[u64])]) {
    for (name, keys) in transactions {
        offer_one(scheduler, writes(keys), WEIGHT, *name);
    }
}

fn batch(scheduler: &mut Scheduler<NumberedTransaction>) -> TransactionBatch<usize> {
    named(scheduler.next().expect("the scheduler must have a batch"))
}

/// Takes all batches that may run now, in order.
fn batches(scheduler: &mut Scheduler<NumberedTransaction>) -> Vec<TransactionBatch<usize>> {
    std::iter::from_fn(|| scheduler.next().map(named)).collect()
}

#[test]
fn in_source_order_a_run_executes_during_the_previous_run_and_commits_after_it() {
    let mut scheduler = Scheduler::new(options(CommitOrder::Source));
    offer(&mut scheduler, &[(1, &[1]), (2, &[2])]);
    let one = batch(&mut scheduler);
    assert_eq!((&one.first, &one.rest, one.commit_after), (&vec![1, 2], &vec![], None));
    // Transaction 4 conflicts with the running batch, and 5 conflicts with 4. Transactions 3 and 6 conflict
    // only with each other.
    offer(&mut scheduler, &[(3, &[3]), (4, &[2, 4]), (5, &[4]), (6, &[3])]);
    let two = batch(&mut scheduler);
    assert_eq!((&two.first, &two.rest, two.commit_after), (&vec![3, 6], &vec![4, 5], Some(one.id)));
    scheduler.done(one.id, TIMING);
    offer(&mut scheduler, &[(7, &[1])]);
    let three = batch(&mut scheduler);
    assert_eq!((&three.first, &three.rest, three.commit_after), (&vec![7], &vec![], Some(two.id)));
    // Commits may be reported out of order.
    scheduler.done(three.id, TIMING);
    scheduler.done(two.id, TIMING);
    assert!(scheduler.is_idle() && scheduler.is_clean());
}

#[test]
fn in_source_order_a_finished_run_causes_no_conflict() {
    let mut scheduler =
        Scheduler::new(SchedulerOptions { batch_transactions_max: 2, ..options(CommitOrder::Source) });
    offer(&mut scheduler, &[(1, &[1]), (2, &[2]), (3, &[2]), (4, &[3])]);
    let one = batch(&mut scheduler);
    scheduler.done(one.id, TIMING);
    let two = batch(&mut scheduler);
    assert_eq!((two.first, two.rest, two.commit_after), (vec![3, 4], vec![], None));
}

#[test]
fn in_source_order_a_run_that_cannot_start_grows() {
    let mut scheduler = Scheduler::new(options(CommitOrder::Source));
    offer(&mut scheduler, &[(1, &[1])]);
    let one = batch(&mut scheduler);
    offer(&mut scheduler, &[(2, &[1])]);
    assert!(scheduler.next().is_none());
    offer(&mut scheduler, &[(3, &[1])]);
    scheduler.done(one.id, TIMING);
    assert_eq!(batch(&mut scheduler).first, vec![2, 3]);
}

/// Returns limits so small that each transaction needs a separate batch.
fn apart() -> SchedulerOptions {
    SchedulerOptions { batch_transactions_max: 4, ..options(CommitOrder::Independent) }
}

#[test]
fn consecutive_transactions_stay_together_for_a_quarter_of_a_batch() {
    // In the second case, the limit of 256 transactions applies.
    for (transactions_max, together) in [(128, 32), (4000, 256)] {
        let mut scheduler = Scheduler::new(SchedulerOptions {
            batch_transactions_max: transactions_max,
            ..options(CommitOrder::Independent)
        });
        for name in 0..3 * together {
            offer(&mut scheduler, &[(name, &[name as u64 + 1])]);
        }
        let all: Vec<_> = batches(&mut scheduler).into_iter().map(|batch| batch.first).collect();
        let one = (0..together).chain(2 * together..3 * together).collect::<Vec<_>>();
        assert_eq!(all, vec![one, (together..2 * together).collect()]);
    }
}

#[test]
fn independent_transactions_are_in_separate_batches_and_dependent_ones_in_one() {
    let mut scheduler = Scheduler::new(apart());
    offer(&mut scheduler, &[(1, &[1]), (2, &[2]), (3, &[1]), (4, &[2]), (5, &[1]), (6, &[2])]);
    let all: Vec<_> = batches(&mut scheduler).into_iter().map(|batch| batch.first).collect();
    assert_eq!(all, vec![vec![1, 3, 5], vec![2, 4, 6]]);
}

#[test]
fn a_transaction_that_conflicts_with_two_open_batches_merges_them() {
    let mut scheduler = Scheduler::new(apart());
    offer(&mut scheduler, &[(1, &[1]), (2, &[2]), (3, &[3]), (4, &[1, 3]), (5, &[2])]);
    let all: Vec<_> = batches(&mut scheduler).into_iter().map(|batch| batch.first).collect();
    assert_eq!(all, vec![vec![1, 3, 4], vec![2, 5]]);
}

#[test]
fn a_transaction_between_large_batches_waits_for_both() {
    let limits = SchedulerOptions { batch_transactions_max: 3, ..options(CommitOrder::Independent) };
    let mut scheduler = Scheduler::new(limits);
    offer(&mut scheduler, &[(1, &[1]), (2, &[2]), (3, &[1]), (4, &[2]), (5, &[1, 2])]);
    let now = batches(&mut scheduler);
    let names: Vec<_> = now.iter().map(|batch| batch.first.clone()).collect();
    assert_eq!(names, vec![vec![1, 3], vec![2, 4]]);
    scheduler.done(now[0].id, TIMING);
    assert!(scheduler.next().is_none());
    scheduler.done(now[1].id, TIMING);
    assert_eq!(batch(&mut scheduler).first, vec![5]);
}

#[test]
fn only_transactions_that_conflict_with_a_running_batch_wait() {
    let mut scheduler =
        Scheduler::new(SchedulerOptions { batch_transactions_max: 4, ..options(CommitOrder::Independent) });
    offer(&mut scheduler, &[(1, &[1])]);
    let one = batch(&mut scheduler);
    offer(&mut scheduler, &[(2, &[1]), (3, &[2]), (4, &[2])]);
    assert_eq!(batch(&mut scheduler).first, vec![3, 4]);
    assert!(scheduler.next().is_none());
    scheduler.done(one.id, TIMING);
    assert_eq!(batch(&mut scheduler).first, vec![2]);
}

#[test]
fn a_small_batch_merges_with_waiting_batches() {
    let mut scheduler = Scheduler::new(options(CommitOrder::Independent));
    offer(&mut scheduler, &[(1, &[1])]);
    let one = batch(&mut scheduler);
    offer(&mut scheduler, &[(2, &[1]), (3, &[2])]);
    assert!(scheduler.next().is_none());
    scheduler.done(one.id, TIMING);
    assert_eq!(batch(&mut scheduler).first, vec![2, 3]);
    assert!(scheduler.next().is_none());
}

#[test]
fn a_small_batch_does_not_wait_for_a_batch_that_is_held_up() {
    let mut scheduler = Scheduler::new(options(CommitOrder::Independent));
    offer(&mut scheduler, &[(1, &[1])]);
    let one = batch(&mut scheduler);
    offer(&mut scheduler, &[(2, &[1]), (3, &[2])]);
    assert!(scheduler.next().is_none());
    scheduler.set_held_up(true);
    assert_eq!(batch(&mut scheduler).first, vec![3]);
    assert!(scheduler.next().is_none());
    scheduler.done(one.id, TIMING);
    assert_eq!(batch(&mut scheduler).first, vec![2]);
}

#[test]
fn a_small_batch_runs_at_once_without_a_backlog() {
    let mut scheduler = Scheduler::new(options(CommitOrder::Independent));
    offer(&mut scheduler, &[(1, &[1])]);
    batch(&mut scheduler);
    offer(&mut scheduler, &[(2, &[2])]);
    assert_eq!(batch(&mut scheduler).first, vec![2]);
}

#[test]
fn independent_order_limits_the_backlog() {
    let mut scheduler =
        Scheduler::new(SchedulerOptions { batch_transactions_max: 4, ..options(CommitOrder::Independent) });
    offer(&mut scheduler, &[(1, &[1]), (2, &[1])]);
    assert!(
        !scheduler.has_room(),
        "the scheduler must have no room after half of the workers have a next batch"
    );
    let one = batch(&mut scheduler);
    assert!(scheduler.has_room());
    // Transactions that must wait give an idle worker nothing to do, so there is still room for others.
    offer(&mut scheduler, &[(3, &[1]), (4, &[1]), (5, &[1]), (6, &[1])]);
    assert!(scheduler.has_room());
    scheduler.done(one.id, TIMING);
    assert!(!scheduler.has_room());
}

#[test]
fn shared_accesses_of_a_key_run_in_parallel_and_an_exclusive_one_after_them() {
    let reads = |key| Writeset { accesses: vec![access(0, key, true)], barrier: false };
    let mut scheduler = Scheduler::new(options(CommitOrder::Independent));
    offer_one(&mut scheduler, reads(1), WEIGHT, 1);
    let one = batch(&mut scheduler);
    offer_one(&mut scheduler, reads(1), WEIGHT, 2);
    let two = batch(&mut scheduler);
    offer(&mut scheduler, &[(3, &[1])]);
    scheduler.done(two.id, TIMING);
    assert!(scheduler.next().is_none());
    scheduler.done(one.id, TIMING);
    assert_eq!(batch(&mut scheduler).first, vec![3]);
}

#[test]
fn a_barrier_runs_alone() {
    for order in [CommitOrder::Source, CommitOrder::Independent] {
        let mut scheduler = Scheduler::new(options(order));
        offer(&mut scheduler, &[(1, &[1])]);
        offer_one(&mut scheduler, barrier(), WEIGHT, 2);
        offer_one(&mut scheduler, barrier(), WEIGHT, 3);
        offer(&mut scheduler, &[(4, &[2])]);
        for name in 1..=4 {
            let one = batch(&mut scheduler);
            assert_eq!((&one.first, one.alone), (&vec![name], name == 2 || name == 3));
            assert!(one.rest.is_empty() && one.commit_after.is_none());
            assert!(
                scheduler.next().is_none(),
                "in commit order {order:?}, no other batch may run at the same time as transaction {name}"
            );
            scheduler.done(one.id, TIMING);
        }
        assert!(scheduler.is_idle() && scheduler.is_clean());
    }
}

#[test]
fn the_window_is_limited_but_accepts_one_large_transaction() {
    let limits = SchedulerOptions { window_bytes_max: 250, ..options(CommitOrder::Source) };
    let mut scheduler = Scheduler::new(limits);
    offer(&mut scheduler, &[(1, &[1]), (2, &[2])]);
    assert!(scheduler.has_room());
    offer_one(&mut scheduler, writes(&[3]), TransactionWeight { bytes: 1 << 40, rows: 1 }, 3);
    assert!(!scheduler.has_room());
    assert_eq!(scheduler.outstanding().transactions, 3);
}

#[test]
fn repeated_and_unknown_reports_are_ignored() {
    for order in [CommitOrder::Source, CommitOrder::Independent] {
        let mut scheduler = Scheduler::new(options(order));
        offer(&mut scheduler, &[(1, &[1])]);
        let one = batch(&mut scheduler);
        scheduler.done(BatchId(0), TIMING);
        scheduler.done(BatchId(7), TIMING);
        scheduler.done(one.id, TIMING);
        scheduler.done(one.id, TIMING);
        assert!(scheduler.is_idle());
    }
}

#[test]
fn slow_rows_make_small_batches() {
    for order in [CommitOrder::Source, CommitOrder::Independent] {
        let mut scheduler = Scheduler::new(SchedulerOptions { workers: 1, ..options(order) });
        offer(&mut scheduler, &[(0, &[1])]);
        let one = batch(&mut scheduler);
        // A row takes 2 ms, and the limit is 0.2 s.
        scheduler.done(one.id, BatchTiming { execute_us: 2000, commit_us: 100 });
        for name in 0..200 {
            offer_one(&mut scheduler, writes(&[1]), WEIGHT, name);
        }
        let first = batch(&mut scheduler);
        assert_eq!(first.first.len(), 100, "{order:?}");
    }
}

/// Returns a scheduler in independent order with a backlog. One batch has run, and two runs of the log are
/// dispatched. The second run has deferred transactions.
fn two_runs() -> (Scheduler<NumberedTransaction>, [TransactionBatch<usize>; 2]) {
    let limits = SchedulerOptions { batch_transactions_max: 64, ..options(CommitOrder::Independent) };
    let mut scheduler = Scheduler::new(limits);
    for name in 1..=16 {
        offer(&mut scheduler, &[(name, &[name as u64])]);
    }
    assert!(!scheduler.has_room());
    let grouped = batch(&mut scheduler);
    assert_eq!((grouped.first, grouped.in_turn), ((1..=16).collect(), false));
    assert!(
        scheduler.has_room(),
        "the scheduler must have room, because runs need more transactions than groups"
    );
    for name in 17..=80 {
        offer(&mut scheduler, &[(name, &[name as u64])]);
    }
    assert!(scheduler.next().is_none(), "no run may start before the groups are done");
    scheduler.done(grouped.id, TIMING);
    let one = batch(&mut scheduler);
    assert_eq!((&one.first, one.in_turn, one.commit_after), (&(17..=80).collect(), true, None));
    // Every fourth transaction conflicts with the first run.
    for name in 81..=144 {
        let key = if name % 4 == 0 { name - 64 } else { name };
        offer(&mut scheduler, &[(name, &[key as u64])]);
    }
    let two = batch(&mut scheduler);
    assert_eq!((two.first.len(), two.rest.len(), two.commit_after), (48, 16, Some(one.id)));
    (scheduler, [one, two])
}

fn rest_of(batch: &TransactionBatch<usize>) -> Vec<NumberedTransaction> {
    let named = |name: &usize| NumberedTransaction {
        name: *name,
        writeset: writes(&[*name as u64 - 64]),
        weight: WEIGHT,
    };
    batch.rest.iter().map(named).collect()
}

#[test]
fn in_independent_order_a_backlog_uses_runs_and_light_load_uses_groups() {
    let (mut scheduler, [one, two]) = two_runs();
    scheduler.done(one.id, TIMING);
    offer(&mut scheduler, &[(145, &[145])]);
    // This batch shares no key with the running batches, so it does not wait for a turn.
    let three = batch(&mut scheduler);
    assert_eq!((&three.first, three.commit_after, three.in_turn), (&vec![145], None, false));
    assert!(three.id > two.id);
    offer(&mut scheduler, &[(146, &[85])]);
    assert!(scheduler.next().is_none(), "a transaction that shares a key with a running run must wait");
    scheduler.done(two.id, TIMING);
    assert_eq!(batch(&mut scheduler).first, vec![146]);
}

#[test]
fn in_independent_order_only_conflicts_wait_for_a_run_that_is_held_up() {
    let (mut scheduler, [one, two]) = two_runs();
    scheduler.set_held_up(true);
    assert!(scheduler.can_yield() && scheduler.next().is_none());
    let outstanding = scheduler.outstanding();
    scheduler.give_back(two.id, TIMING, rest_of(&two));
    assert_eq!(scheduler.outstanding().transactions, outstanding.transactions - 48);
    assert_eq!(scheduler.outstanding().running, 1);
    // Transaction 145 shares a key with a committed transaction, 146 with a returned transaction, and 147
    // with no transaction.
    offer(&mut scheduler, &[(145, &[81]), (146, &[20]), (147, &[147])]);
    assert_eq!(batch(&mut scheduler).first, vec![145, 147]);
    assert!(scheduler.next().is_none());
    scheduler.done(one.id, TIMING);
    assert!(!scheduler.can_yield());
    let given_back = batch(&mut scheduler);
    let all: Vec<_> = two.rest.iter().copied().chain([146]).collect();
    assert_eq!((given_back.first, given_back.commit_after), (all, None));
    assert!(given_back.id > two.id, "batch IDs must not be reused");
}

#[test]
fn in_independent_order_conflicts_wait_for_a_run_that_does_not_yield() {
    let (mut scheduler, [one, two]) = two_runs();
    for _ in 0..10 {
        scheduler.set_held_up(true);
    }
    // Transaction 145 shares a key with the first transaction of the second run, and 146 with the first run.
    offer(&mut scheduler, &[(145, &[81]), (146, &[18]), (147, &[147])]);
    let other = batch(&mut scheduler);
    assert_eq!(other.first, vec![147]);
    scheduler.give_back(two.id, TIMING, rest_of(&two));
    scheduler.done(other.id, TIMING);
    assert!(scheduler.next().is_none(), "transaction 145 must wait for the whole run");
    scheduler.done(one.id, TIMING);
    let now: Vec<_> = batches(&mut scheduler).into_iter().flat_map(|batch| batch.first).collect();
    assert_eq!(now.len(), 17, "{now:?}");
    assert!(scheduler.next().is_none());
}

#[test]
fn in_independent_order_returned_transactions_wait_only_for_conflicting_runs() {
    let (mut scheduler, [one, _two]) = two_runs();
    // The third run defers a transaction because of the first run.
    for name in 145..=208 {
        let key = if name == 145 { 17 } else { name };
        offer(&mut scheduler, &[(name, &[key as u64])]);
    }
    let three = batch(&mut scheduler);
    assert_eq!((three.first.len(), &three.rest), (63, &vec![145]));
    for name in 209..=272 {
        offer(&mut scheduler, &[(name, &[name as u64])]);
    }
    let four = batch(&mut scheduler);
    assert_eq!(four.first.len(), 64);
    scheduler.done(one.id, TIMING);
    // The second run of the log is held up. The third run commits in part and gives back the rest. The fourth
    // run does this later.
    scheduler.set_held_up(true);
    scheduler.give_back(
        three.id,
        TIMING,
        vec![NumberedTransaction { name: 145, writeset: writes(&[17]), weight: WEIGHT }],
    );
    assert!(scheduler.next().is_none());
    for _ in 0..10 {
        scheduler.set_held_up(true);
    }
    assert_eq!(batch(&mut scheduler).first, vec![145]);
    // The transaction that the fourth run gives back does not wait for any run.
    scheduler.give_back(
        four.id,
        TIMING,
        vec![NumberedTransaction { name: 272, writeset: writes(&[272]), weight: WEIGHT }],
    );
    assert_eq!(batch(&mut scheduler).first, vec![272]);
}
