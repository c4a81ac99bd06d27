//! The window, simulated with random binlogs and replicas: it never drops what is not applied, it forgets
//! what is applied, and it pauses within its limits without a deadlock.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tailwater_wire::gtid::{Gtid, MysqlGtid, MysqlGtidSet};

use crate::read_window::{
    AppliedPosition, FilePlace, ReadWindow, WindowLimits, WindowState, WindowTransaction,
};

const UUID: &str = "00000000-0000-0000-0000-000000000001";

fn gtid(number: u64) -> Gtid {
    Gtid::MySql(MysqlGtid::parse(&format!("{UUID}:{number}")).unwrap())
}

fn transaction(number: u64, end_bytes: u64, commit_seconds: u64) -> WindowTransaction {
    let end = FilePlace { file: "binlog.000001".into(), offset: end_bytes };
    WindowTransaction { gtid: Some(gtid(number)), end, end_bytes, commit_seconds, rows: 1 }
}

#[test]
fn the_window_follows_any_replica() {
    for seed in 0..200 {
        simulate(seed);
    }
}

fn simulate(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let limits = WindowLimits {
        seconds_min: random.random_range(0..3),
        bytes_min: random.random_range(0..500),
        seconds_max: random.random_range(1..60),
        bytes_max: random.random_range(500..5_000),
    };
    let total = 300;
    let mut window = ReadWindow::new(limits);
    let mut applied: BTreeSet<u64> = BTreeSet::new();
    let mut set = MysqlGtidSet::new();
    let (mut read, mut bytes, mut seconds, mut rows_gone) = (0u64, 0u64, 1_000_000u64, 0u64);
    let mut idle = 0;
    while (applied.len() as u64) < total {
        let mut moved = false;
        if read < total && window.state() != WindowState::TooFar {
            read += 1;
            seconds += random.random_range(0..3);
            let size = random.random_range(10..200);
            window.begin(seconds, bytes);
            bytes += size;
            window.push(transaction(read, bytes, seconds));
            moved = true;
            let ahead = window.bytes_ahead();
            assert!(ahead < limits.bytes_max + 200, "seed {seed}: {ahead} bytes ahead of {limits:?}");
        }
        // A parallel applier commits any of the next four; it may be ahead of the prefetch.
        for _ in 0..random.random_range(0..3) {
            let first = (1..=total).find(|number| !applied.contains(number));
            if let Some(first) = first {
                let next = (first + random.random_range(0..4)).min(total);
                if applied.insert(next)
                    && let Gtid::MySql(gtid) = gtid(next)
                {
                    set.insert(&gtid).unwrap();
                }
                moved = true;
            }
        }
        let before = window.applied_bytes();
        rows_gone += window.applied(&AppliedPosition::Mysql(set.clone())).rows;
        assert!(window.applied_bytes() >= before, "seed {seed}: the applied position goes back");
        let contiguous = (1..=read).take_while(|number| applied.contains(number)).count() as u64;
        assert_eq!(rows_gone, contiguous, "seed {seed}: {contiguous} transactions are applied without a gap");
        assert_eq!(window.len() as u64, read - contiguous, "seed {seed}");
        idle = if moved { 0 } else { idle + 1 };
        assert!(idle < 100, "seed {seed}: neither the prefetch nor the replica moves: {window:?}");
    }
}

#[test]
fn positions_in_files_are_compared_by_number() {
    let place = |file: &str, offset| FilePlace { file: file.into(), offset };
    let position = AppliedPosition::File(place("binlog.1000000", 100));
    assert!(position.has(None, &place("binlog.999999", 5_000)));
    assert!(position.has(None, &place("binlog.1000000", 100)));
    assert!(!position.has(None, &place("binlog.1000000", 101)));
    assert!(!position.has_gtid(Some(&gtid(1))), "a file position says nothing about a GTID");
}

#[test]
fn a_transaction_larger_than_the_window_does_not_block_it() {
    let mut window = ReadWindow::new(WindowLimits { bytes_max: 1_000, ..WindowLimits::default() });
    window.begin(10, 0);
    window.read_to(2_000);
    assert_eq!(window.state(), WindowState::TooFar);
    window.open_transaction_applied();
    assert_eq!((window.state(), window.bytes_ahead()), (WindowState::TooNear, 0));
}

#[test]
fn a_pause_of_the_source_does_not_count_as_seconds_ahead() {
    let mut window = ReadWindow::new(WindowLimits::default());
    window.begin(1_000, 0);
    window.push(transaction(1, 100, 1_000));
    let mut set = MysqlGtidSet::new();
    if let Gtid::MySql(gtid) = gtid(1) {
        set.insert(&gtid).unwrap();
    }
    window.applied(&AppliedPosition::Mysql(set));
    window.begin(5_000, 100);
    assert_eq!(window.seconds_ahead(), 0);
}
