//! Opens a log again after its writer was killed, with torn writes, and with lost or damaged indexes.

use std::fs;

use tailwater_log::{LogDir, LogError, LogWriter, RecoveryReport};
use tailwater_wire::Flavour;

use crate::support::binlog_generator::Source;
use crate::support::synthetic_capture::{
    append, begin_file, open, options, read_all, read_log, rotate, transact,
};

/// Creates a log of three files with five durable transactions each. The newest file still has its reserved
/// space.
fn three_files(directory: &std::path::Path, flavour: Flavour) -> (Source, Vec<Vec<u8>>) {
    let mut source = Source::new(flavour);
    let mut writer = open(directory);
    let mut transactions = Vec::new();
    begin_file(&mut writer, &mut source).unwrap();
    for file in 0..3 {
        if file > 0 {
            rotate(&mut writer, &mut source).unwrap();
        }
        for size in 1..=5 {
            transactions.push(transact(&mut writer, &mut source, &[size * 100]).unwrap().bytes());
        }
    }
    writer.sync().unwrap();
    (source, transactions)
}

#[test]
fn a_log_continues_where_its_writer_was_dropped() {
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let directory = tempfile::tempdir().unwrap();
        let (mut source, mut transactions) = three_files(directory.path(), flavour);
        let newest = directory.path().join("0000000003.binlog");
        assert!(fs::metadata(&newest).unwrap().len() > source.file.len() as u64);
        let mut writer = open(directory.path());
        let recovery = writer.recovery().clone();
        assert_eq!((recovery.segments, recovery.cut, recovery.entries_recovered), (3, None, 0));
        assert_eq!(recovery.end.unwrap().offset, source.file.len() as u64);
        let tail = writer.source_tail().unwrap();
        assert_eq!((tail.file.as_str(), tail.end), ("binlog.000003", source.file.len() as u64));
        assert_eq!(tail.last_transaction.unwrap().source_end, tail.end);
        transactions.push(transact(&mut writer, &mut source, &[7]).unwrap().bytes());
        rotate(&mut writer, &mut source).unwrap();
        transactions.push(transact(&mut writer, &mut source, &[7]).unwrap().bytes());
        writer.close().unwrap();
        assert!(read_all(directory.path()) == transactions);
        assert_eq!(LogDir::open_read_only(directory.path()).unwrap().verify(|_| ()).unwrap().problems, []);
    }
}

#[test]
fn a_partial_transaction_is_removed_and_can_be_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MySql);
    let mut writer = open(directory.path());
    begin_file(&mut writer, &mut source).unwrap();
    let mut expected = vec![transact(&mut writer, &mut source, &[10]).unwrap().bytes()];
    writer.sync().unwrap();
    let (bytes, number) = (source.file.len(), source.number());
    let big = source.transaction(&[3_000_000, 3_000_000], || 0xffff);
    big.events[..3].iter().for_each(|event| append(&mut writer, event).unwrap());
    drop(writer);
    let mut writer = open(directory.path());
    let cut = writer.recovery().cut.clone().unwrap();
    assert_eq!(cut.position.offset, bytes as u64);
    assert!(cut.bytes > 1_000_000, "recovery removed too few bytes: {cut:?}");
    // The connection breaks inside the transaction a second time, without a restart.
    big.events[..3].iter().for_each(|event| append(&mut writer, event).unwrap());
    assert!(writer.in_transaction());
    writer.rollback_partial().unwrap();
    assert!(!writer.in_transaction());
    assert_eq!(writer.source_tail().unwrap().end, bytes as u64);
    source.rewind(bytes, number);
    expected.push(transact(&mut writer, &mut source, &[200]).unwrap().bytes());
    writer.close().unwrap();
    assert!(read_all(directory.path()) == expected);
    assert!(fs::read(directory.path().join("0000000001.binlog")).unwrap() == source.file);
}

#[test]
fn lost_and_damaged_indexes_are_rebuilt() {
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let directory = tempfile::tempdir().unwrap();
        let (_, transactions) = three_files(directory.path(), flavour);
        let index = |number: u64| directory.path().join(format!("{number:010}.index"));
        let before: Vec<Vec<u8>> = (1..=3).map(|number| fs::read(index(number)).unwrap()).collect();
        // The first index loses its last byte, the second is lost, and a bit at the start of the third
        // changes.
        fs::write(index(1), &before[0][..before[0].len() - 1]).unwrap();
        fs::remove_file(index(2)).unwrap();
        let mut rotten = before[2].clone();
        rotten[20] ^= 1;
        fs::write(index(3), rotten).unwrap();

        let writer = open(directory.path());
        assert_eq!(writer.recovery().indexes_rebuilt, [1, 2, 3]);
        drop(writer);
        for (number, before) in (1..=3).zip(&before) {
            // The header of the second index is lost, so recovery derives the header from the end of the
            // first segment. The header then also names the right server. The server has no UUID here.
            assert!(&fs::read(index(number)).unwrap() == before, "the rebuilt index {number} differs");
        }
        assert!(read_all(directory.path()) == transactions);
        assert_eq!(LogDir::open_read_only(directory.path()).unwrap().verify(|_| ()).unwrap().problems, []);
        let writer = open(directory.path());
        let again = RecoveryReport { segments: 3, end: writer.recovery().end, ..RecoveryReport::default() };
        assert_eq!(writer.recovery(), &again);
    }
}

#[test]
fn a_damaged_segment_is_refused_with_its_offset_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let (source, _) = three_files(directory.path(), Flavour::MySql);
    let path = directory.path().join("0000000003.binlog");
    let mut bytes = fs::read(&path).unwrap();
    bytes[source.file.len() - 700] ^= 0x20;
    fs::write(&path, &bytes).unwrap();
    let error = LogWriter::open(directory.path(), options()).unwrap_err();
    let LogError::Corrupt { path: damaged, offset, reason } = &error else {
        panic!("unexpected error: {error}")
    };
    assert_eq!(damaged, &path);
    assert!(
        (*offset as usize) < source.file.len() - 700 && *offset as usize > source.file.len() - 1_500,
        "the damage was reported at the wrong offset {offset}"
    );
    assert!(reason.contains("checksum"), "the damage was reported with another reason: {reason}");
    assert_eq!(error.code(), "TW-LOG-0003");
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn a_missing_segment_is_reported() {
    for missing in 1..=3 {
        let directory = tempfile::tempdir().unwrap();
        three_files(directory.path(), Flavour::MySql);
        let path = directory.path().join(format!("{missing:010}.binlog"));
        fs::remove_file(&path).unwrap();
        let error = LogWriter::open(directory.path(), options()).unwrap_err();
        assert!(
            matches!(&error, LogError::Corrupt { path: named, .. } if named == &path),
            "unexpected error: {error}"
        );
    }
}

#[test]
fn a_lost_control_file_stops_writers_and_a_damaged_one_stops_all() {
    let directory = tempfile::tempdir().unwrap();
    let (_, transactions) = three_files(directory.path(), Flavour::MySql);
    let path = directory.path().join("control.json");
    let whole = fs::read(&path).unwrap();
    for left in [None, Some(&whole[..whole.len() / 2]), Some(&[])] {
        match left {
            None => fs::remove_file(&path).unwrap(),
            Some(left) => fs::write(&path, left).unwrap(),
        }
        let (writing, reading) =
            (LogWriter::open(directory.path(), options()), LogDir::open_read_only(directory.path()));
        let is_named = |error: Option<LogError>| matches!(&error, Some(LogError::Corrupt { path: named, .. }) if *named == path);
        assert!(
            is_named(writing.err()),
            "opening the log did not report a control file with the content {left:?}"
        );
        match (left, reading) {
            // Without the control file, readers can still read the rescued segments.
            (None, reading) => {
                let log = reading.unwrap();
                assert!(read_log(&log) == transactions);
                let problems = log.verify(|_| ()).unwrap().problems;
                assert!(
                    problems.len() == 1 && problems[0].path == path,
                    "`verify` reports unexpected problems: {problems:?}"
                );
                assert!(!path.exists());
            }
            (Some(_), reading) => assert!(
                is_named(reading.err()),
                "opening the log did not report a control file with the content {left:?}"
            ),
        }
    }
    // Opening the log without its control file changed nothing. After the test restores the control file, the
    // log opens as before.
    fs::write(&path, &whole).unwrap();
    open(directory.path()).close().unwrap();
    assert!(read_all(directory.path()) == transactions);
}

#[test]
fn a_source_crash_inside_a_transaction_leaves_no_part_of_it_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MySql);
    let mut writer = open(directory.path());
    begin_file(&mut writer, &mut source).unwrap();
    let mut expected = vec![transact(&mut writer, &mut source, &[10]).unwrap().bytes()];
    let whole = source.file.len() as u64;
    let number = source.number();
    let half = source.transaction(&[10, 10], || 5);
    half.events[..2].iter().for_each(|event| append(&mut writer, event).unwrap());
    // After the crash, the source starts its next binlog file without writing a rotate event to the previous
    // file.
    source.rewind(whole as usize, number);
    begin_file(&mut writer, &mut source).unwrap();
    expected.push(transact(&mut writer, &mut source, &[10]).unwrap().bytes());
    writer.close().unwrap();
    assert_eq!(fs::metadata(directory.path().join("0000000001.binlog")).unwrap().len(), whole);
    assert!(read_all(directory.path()) == expected);
}
