//! Tests that `verify` finds every fault in a log, and reports only faults.

use std::fs;
use std::path::Path;

use tailwater_log::{LogDir, Verification};
use tailwater_wire::Flavour;

use crate::support::binlog_generator::Source;
use crate::support::synthetic_capture::{begin_file, open, rotate, transact};

fn log(directory: &Path, flavour: Flavour) -> Source {
    let mut source = Source::new(flavour);
    let mut writer = open(directory);
    begin_file(&mut writer, &mut source).unwrap();
    for file in 0..3 {
        if file > 0 {
            rotate(&mut writer, &mut source).unwrap();
        }
        for size in 0..10 {
            transact(&mut writer, &mut source, &[size * 50, 10]).unwrap();
        }
    }
    writer.close().unwrap();
    source
}

fn verify(directory: &Path) -> Verification {
    LogDir::open_read_only(directory).unwrap().verify(|_| ()).unwrap()
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset] ^= 0x08;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_healthy_log_has_no_problems_and_every_byte_is_read() {
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let directory = tempfile::tempdir().unwrap();
        log(directory.path(), flavour);
        let log = LogDir::open_read_only(directory.path()).unwrap();
        let mut reports = Vec::new();
        let found = log.verify(|progress| reports.push(progress)).unwrap();
        assert_eq!(found.problems, []);
        assert_eq!((found.segments, found.transactions), (3, 30));
        let bytes: u64 = log.segments().unwrap().iter().map(|segment| segment.bytes).sum();
        assert_eq!(found.bytes, bytes);
        let last = reports.last().unwrap();
        assert_eq!((last.bytes, last.bytes_total, last.segment), (bytes, bytes, 3));
    }
}

#[test]
fn each_flipped_bit_is_reported_at_its_offset() {
    let directory = tempfile::tempdir().unwrap();
    log(directory.path(), Flavour::MySql);
    for segment in 1..=3 {
        let path = directory.path().join(format!("{segment:010}.binlog"));
        let length = fs::metadata(&path).unwrap().len() as usize;
        for offset in (0..length).step_by(97) {
            flip(&path, offset);
            let found = verify(directory.path());
            let first = found.problems.first().unwrap_or_else(|| {
                panic!("`verify` did not find the flipped bit at offset {offset} of {segment}")
            });
            assert_eq!(first.path, path);
            assert!(
                first.offset as usize <= offset,
                "`verify` reported the flipped bit at offset {offset} as {first:?}"
            );
            flip(&path, offset);
        }
    }
    assert!(verify(directory.path()).is_ok());
}

#[test]
fn a_damaged_index_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    log(directory.path(), Flavour::MariaDb);
    let path = directory.path().join("0000000002.index");
    let length = fs::metadata(&path).unwrap().len() as usize;
    for offset in (0..length).step_by(13) {
        flip(&path, offset);
        let found = verify(directory.path());
        assert!(
            !found.problems.is_empty(),
            "`verify` did not find the damage at offset {offset} of the index"
        );
        assert_eq!(found.problems[0].path, path);
        assert!(found.problems.len() <= 2, "too many problems were reported: {:#?}", found.problems);
        flip(&path, offset);
    }
}

#[test]
fn a_missing_or_foreign_segment_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    log(directory.path(), Flavour::MySql);
    let path = |number: u64, kind: &str| directory.path().join(format!("{number:010}.{kind}"));
    let other = tempfile::tempdir().unwrap();
    for kind in ["binlog", "index"] {
        fs::rename(path(2, kind), other.path().join(kind)).unwrap();
    }
    let reasons: Vec<String> =
        verify(directory.path()).problems.into_iter().map(|problem| problem.reason).collect();
    assert!(
        reasons.iter().any(|reason| reason.contains("missing")),
        "`verify` reports unexpected reasons: {reasons:#?}"
    );
    assert!(
        reasons.iter().any(|reason| reason.contains("GTIDs")),
        "`verify` reports unexpected reasons: {reasons:#?}"
    );
}
