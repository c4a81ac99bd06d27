//! Tests [`AppliedSet`] by comparing it with plain sets of transaction numbers.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Generates the transactions of a log: consecutive spans, sometimes with a change to the next segment.
fn any_log() -> impl Strategy<Value = Vec<LogSpan>> {
    prop::collection::vec((1..5000u64, prop::bool::weighted(0.1)), 1..60).prop_map(|steps| {
        let mut end = LogPosition { segment: 1, offset: 4 };
        let mut spans = Vec::new();
        for (bytes, rotates) in steps {
            let start = end;
            end = if rotates {
                LogPosition { segment: end.segment + 1, offset: 4 + bytes }
            } else {
                LogPosition { offset: end.offset + bytes, ..end }
            };
            spans.push(LogSpan { start, end });
        }
        spans
    })
}

fn begin(log: &[LogSpan]) -> AppliedSet {
    AppliedSet::new(log[0].start)
}

fn check(applied: &AppliedSet, log: &[LogSpan], expected: &BTreeSet<usize>) {
    for (number, span) in log.iter().enumerate() {
        assert_eq!(
            applied.contains(span),
            expected.contains(&number),
            "contains() is wrong for {span:?} in {applied:?}"
        );
    }
    let missing = (0..).find(|number| !expected.contains(number)).unwrap_or(0);
    assert_eq!(applied.low(), log.get(missing).map_or(log[log.len() - 1].end, |span| span.start));
    let last = expected.last().map_or(log[0].start, |last| log[*last].end);
    assert_eq!(applied.high(), last);
    let gaps: Vec<LogSpan> = applied.gaps().collect();
    for (number, span) in log.iter().enumerate() {
        let in_gap = gaps.iter().any(|gap| gap.start <= span.start && span.end <= gap.end);
        assert_eq!(
            in_gap,
            !expected.contains(&number) && span.end <= last,
            "gaps() is wrong for {span:?}: {gaps:?}"
        );
    }
    assert!(gaps.iter().all(|gap| gap.start < gap.end));
}

#[test]
fn adjacent_spans_join_across_the_end_of_a_segment() {
    let at = |segment, offset| LogPosition { segment, offset };
    let mut applied = AppliedSet::new(at(1, 4));
    applied.add(LogSpan { start: at(1, 100), end: at(2, 4) });
    applied.add(LogSpan { start: at(2, 4), end: at(2, 80) });
    assert_eq!(applied.gaps().collect::<Vec<_>>(), vec![LogSpan { start: at(1, 4), end: at(1, 100) }]);
    applied.add(LogSpan { start: at(1, 4), end: at(1, 100) });
    assert_eq!(applied, AppliedSet::new(at(2, 80)));
}

#[test]
fn the_encoding_has_the_documented_format() {
    let mut applied = AppliedSet::new(LogPosition { segment: 2, offset: 300 });
    let at = |segment, offset| LogPosition { segment, offset };
    applied.add(LogSpan { start: at(2, 310), end: at(3, 4) });
    assert_eq!(applied.encode(), [1, 2, 0xac, 0x02, 1, 0, 10, 1, 4]);
}

#[test]
fn malformed_progress_is_rejected_with_a_reason() {
    let refused: &[(&[u8], usize, &str)] = &[
        (&[], 0, "the bytes end too early"),
        (&[9, 0, 0, 0], 0, "unknown format version"),
        (&[1, 1, 4, 0, 0], 4, "more bytes follow the last interval"),
        (&[1, 1, 4, 1], 4, "the declared number of intervals is too large for the bytes that follow"),
        (
            &[1, 1, 4, 0xff, 0xff, 0xff, 0xff, 0x0f],
            8,
            "the declared number of intervals is too large for the bytes that follow",
        ),
        (&[1, 1, 4, 1, 0, 0, 0, 4], 6, "the intervals are out of order"),
        (&[1, 1, 0x84, 0x00, 0], 4, "a number is longer than necessary"),
        (
            &[1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0],
            12,
            "a number has more than 64 bits",
        ),
    ];
    for (bytes, offset, reason) in refused {
        assert_eq!(AppliedSet::decode(bytes), Err(ProgressError { offset: *offset, reason }), "{bytes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_applied_set_behaves_like_a_plain_set(log in any_log(), adds in prop::collection::vec((any::<prop::sample::Index>(), 1..4usize), 0..60)) {
        let (mut applied, mut expected) = (begin(&log), BTreeSet::new());
        for (first, count) in adds {
            let first = first.index(log.len());
            let last = (first + count - 1).min(log.len() - 1);
            applied.add(LogSpan { start: log[first].start, end: log[last].end });
            expected.extend(first..=last);
            check(&applied, &log, &expected);
        }
        prop_assert_eq!(AppliedSet::decode(&applied.encode()), Ok(applied));
    }

    #[test]
    fn merging_is_a_union(
        log in any_log(),
        one in prop::collection::btree_set(0..60usize, 0..60),
        other in prop::collection::btree_set(0..60usize, 0..60),
    ) {
        let set = |numbers: &BTreeSet<usize>| {
            let mut applied = begin(&log);
            let numbers: BTreeSet<usize> = numbers.iter().copied().filter(|number| *number < log.len()).collect();
            numbers.iter().for_each(|number| applied.add(log[*number]));
            (applied, numbers)
        };
        let ((mut one, mut numbers), (other, more)) = (set(&one), set(&other));
        one.merge(&other);
        numbers.extend(more);
        check(&one, &log, &numbers);
    }

    /// Decoding any bytes gives either an error, or a set whose encoding is exactly these bytes.
    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            prop::collection::vec(prop_oneof![0..4u8, Just(0x80), Just(0xff)], 0..24)
                .prop_map(|mut bytes| { bytes.insert(0, VERSION); bytes }),
        ],
    ) {
        if let Ok(applied) = AppliedSet::decode(&bytes) {
            prop_assert_eq!(applied.encode(), bytes);
        }
    }

    /// After one bit is flipped, decoding gives an error or another set, but never the original set.
    #[test]
    fn a_flipped_bit_is_never_read_as_the_original(
        log in any_log(),
        numbers in prop::collection::btree_set(0..60usize, 0..30),
        at in any::<prop::sample::Index>(),
        bit in 0..8u32,
    ) {
        let mut applied = begin(&log);
        numbers.iter().filter_map(|number| log.get(*number)).for_each(|span| applied.add(*span));
        let mut bytes = applied.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert_ne!(AppliedSet::decode(&bytes), Ok(applied));
    }

    /// Workers commit batches in any order. Each commit writes a progress row with the worker's own batch and
    /// all known batches. A crash keeps only the first commits. The remaining rows then contain exactly the
    /// transactions that were kept, also after several restarts with other numbers of workers.
    #[test]
    fn after_a_crash_the_rows_match_the_commits(
        log in any_log(),
        lives in prop::collection::vec(
            (1..6usize, prop::collection::vec((0..6usize, any::<prop::sample::Index>(), 1..5usize), 1..30),
             any::<prop::sample::Index>(), any::<bool>()),
            1..4,
        ),
    ) {
        // One progress row for each worker. The rows of former workers stay in the list.
        let mut rows: Vec<Option<Vec<u8>>> = vec![None; 6];
        let mut there: BTreeSet<usize> = BTreeSet::new();
        for (workers, batches, kept, hears_late) in lives {
            let mut commits = Vec::new();
            let mut known = union(&log, &rows);
            // A worker knows its own commits at once. It knows the commits of the other workers at the latest
            // after its own next commit.
            let mut own = vec![known.clone(); workers];
            let mut delayed_row: Option<AppliedSet> = None;
            let mut left: Vec<usize> = (0..log.len()).filter(|number| !there.contains(number)).collect();
            for (worker, pick, count) in batches {
                if left.is_empty() {
                    break;
                }
                let first = pick.index(left.len());
                let batch: Vec<usize> = left.drain(first..(first + count).min(left.len())).collect();
                let row = &mut own[worker % workers];
                row.merge(&known);
                batch.iter().for_each(|number| row.add(log[*number]));
                let row = row.clone();
                commits.push((worker % workers, row.encode(), batch));
                let received = if hears_late { delayed_row.replace(row) } else { Some(row) };
                if let Some(received) = received {
                    known.merge(&received);
                }
            }
            for (worker, row, batch) in commits.into_iter().take(kept.index(31)) {
                rows[worker] = Some(row);
                there.extend(batch);
            }
            check(&union(&log, &rows), &log, &there);
        }
    }
}

/// Returns the set that a restart reads.
fn union(log: &[LogSpan], rows: &[Option<Vec<u8>>]) -> AppliedSet {
    let mut applied = begin(log);
    for row in rows.iter().flatten() {
        applied.merge(&AppliedSet::decode(row).expect("every stored row must be decodable"));
    }
    applied
}
