//! The feedback with simulated replicas whose pages are cold, cached, or as slow with prefetch as without.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::gain_feedback::{FeedbackChange, FeedbackLimits, GainFeedback, StopReason, TurnSample};

/// A replica: how many rows it applies in a second, and how many pages it reads for each, without prefetch.
#[derive(Debug, Clone, Copy)]
struct SimulatedReplica {
    rate: f64,
    reads_per_row: f64,
    /// By which factor the prefetch makes it faster.
    gain: f64,
    is_lagging: bool,
}

/// Runs turns for `seconds` and returns the changes, with their times.
fn run(
    feedback: &mut GainFeedback,
    replica: SimulatedReplica,
    from: f64,
    seconds: f64,
    random: &mut StdRng,
) -> Vec<(f64, FeedbackChange)> {
    let (mut now, mut turn_began, mut changes) = (from, from, Vec::new());
    while now < from + seconds {
        now += 0.5;
        if !feedback.is_turn_over(now) {
            continue;
        }
        let length = now - turn_began;
        let noise = random.random_range(0.99..1.01);
        let rate = if feedback.is_on() { replica.rate * replica.gain } else { replica.rate };
        let rows = (rate * length * noise) as u64;
        let sample = TurnSample {
            rows,
            pool_reads: (rows as f64 * replica.reads_per_row) as u64,
            seconds: length,
            is_lagging: replica.is_lagging,
        };
        changes.extend(feedback.end_turn(sample, now).map(|change| (now, change)));
        turn_began = now;
    }
    changes
}

const COLD: SimulatedReplica =
    SimulatedReplica { rate: 500.0, reads_per_row: 2.5, gain: 3.0, is_lagging: true };
const CACHED: SimulatedReplica =
    SimulatedReplica { rate: 5_000.0, reads_per_row: 0.001, gain: 0.98, is_lagging: true };
const GAINLESS: SimulatedReplica =
    SimulatedReplica { rate: 500.0, reads_per_row: 2.5, gain: 0.95, is_lagging: true };

#[test]
fn a_prefetch_that_pays_stays_on() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut feedback = GainFeedback::new(FeedbackLimits::default(), 0.0);
        assert_eq!(run(&mut feedback, COLD, 0.0, 3_600.0, &mut random), [], "seed {seed}");
        let gain = feedback.gain().unwrap();
        assert!((2.8..3.2).contains(&gain), "seed {seed}: gain {gain}");
        assert!(feedback.reads_per_row().is_some_and(|reads| (2.3..2.7).contains(&reads)), "seed {seed}");
    }
}

#[test]
fn a_prefetch_that_does_not_pay_stops_and_is_tried_again() {
    for (replica, reason) in [(CACHED, StopReason::Cached), (GAINLESS, StopReason::NoGain)] {
        for seed in 0..100 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut feedback = GainFeedback::new(FeedbackLimits::default(), 0.0);
            let changes = run(&mut feedback, replica, 0.0, 1_200.0, &mut random);
            assert_eq!(changes[0].1, FeedbackChange::Stopped(reason), "seed {seed}: {changes:?}");
            assert!(changes[0].0 <= 150.0, "seed {seed}: three turns of each kind are enough: {changes:?}");
            assert_eq!(changes[1].1, FeedbackChange::Retry, "seed {seed}: {changes:?}");
            let pause = changes[1].0 - changes[0].0;
            assert!((600.0..610.0).contains(&pause), "seed {seed}: retried after {pause} s");
        }
    }
}

#[test]
fn another_working_set_starts_it_again() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut feedback = GainFeedback::new(FeedbackLimits::default(), 0.0);
        run(&mut feedback, CACHED, 0.0, 200.0, &mut random);
        assert_eq!(feedback.stopped(), Some(StopReason::Cached), "seed {seed}");
        let changes = run(&mut feedback, COLD, 200.0, 60.0, &mut random);
        assert!(
            matches!(changes[..], [(_, FeedbackChange::WorkingSetChanged(from, to))] if from < 0.01 && to > 2.0),
            "seed {seed}: {changes:?}"
        );
        assert!(feedback.stopped().is_none(), "seed {seed}");
    }
}

#[test]
fn a_replica_without_lag_shows_no_gain_but_cached_pages() {
    let mut random = StdRng::seed_from_u64(1);
    let no_lag = SimulatedReplica { gain: 1.0, is_lagging: false, ..COLD };
    let mut feedback = GainFeedback::new(FeedbackLimits::default(), 0.0);
    assert_eq!(run(&mut feedback, no_lag, 0.0, 3_600.0, &mut random), []);
    assert_eq!(feedback.gain(), None, "the source determines the rate, so it shows no gain");
    let idle = SimulatedReplica { rate: 0.0, ..CACHED };
    let mut feedback = GainFeedback::new(FeedbackLimits::default(), 0.0);
    assert_eq!(run(&mut feedback, idle, 0.0, 3_600.0, &mut random), [], "an idle replica shows nothing");
}
