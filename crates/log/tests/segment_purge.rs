//! Tests which segments a purge removes and which it keeps.

use std::time::{Duration, SystemTime};

use tailwater_log::{
    LogDir, LogError, LogFigures, LogHandle, LogOptions, LogPosition, LogWriter, PurgeLimit, Retention,
};
use tailwater_wire::Flavour;

use crate::support::binlog_generator::Source;
use crate::support::synthetic_capture::{begin_file, open, options, rotate, transact};

/// Creates a log of five segments of about 100 kB each.
fn five_segments(directory: &std::path::Path, retention: Retention) -> (LogWriter, Source) {
    let mut source = Source::new(Flavour::MySql);
    let mut writer = LogWriter::open(directory, LogOptions { retention, ..options() }).unwrap();
    begin_file(&mut writer, &mut source).unwrap();
    for file in 0..5 {
        if file > 0 {
            rotate(&mut writer, &mut source).unwrap();
        }
        transact(&mut writer, &mut source, &[100_000]).unwrap();
        writer.sync().unwrap();
    }
    (writer, source)
}

fn numbers(handle: &LogHandle) -> Vec<u64> {
    handle.segments().iter().map(|segment| segment.number).collect()
}

#[test]
fn a_size_limit_purges_the_oldest_and_keeps_the_newest_segment() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, _) = five_segments(directory.path(), Retention { bytes_max: Some(250_000), time_max: None });
    let handle = writer.handle();
    let purge = handle.purge(SystemTime::now()).unwrap();
    assert_eq!(purge.segments, [1, 2, 3]);
    assert!(purge.bytes > 300_000, "the purge removed too few bytes: {purge:?}");
    assert_eq!(numbers(&handle), [4, 5]);
    assert!(handle.purge(SystemTime::now()).unwrap().segments.is_empty());
    let error = handle.reader(LogPosition { segment: 2, offset: 4 }).unwrap_err();
    assert!(matches!(error, LogError::Purged { segment: 2, first: 4, .. }), "unexpected error: {error}");
    assert_eq!(handle.reader(LogPosition::ZERO).unwrap().try_next().unwrap().unwrap().position.segment, 4);
    // Purged transactions still count as captured, now and after a restart.
    let gtids = writer.gtid_set().unwrap().to_string();
    assert!(gtids.ends_with(":1-5"), "the log has unexpected GTIDs: {gtids}");
    drop(writer);
    let writer = open(directory.path());
    assert_eq!(writer.gtid_set().unwrap().to_string(), gtids);
    assert_eq!(writer.recovery().leftovers_removed, [""; 0]);
    assert_eq!(LogDir::open_read_only(directory.path()).unwrap().verify(|_| ()).unwrap().problems, []);
}

#[test]
fn a_size_limit_of_zero_keeps_the_newest_segment() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, _) = five_segments(directory.path(), Retention { bytes_max: Some(0), time_max: None });
    assert_eq!(writer.handle().purge(SystemTime::now()).unwrap().segments, [1, 2, 3, 4]);
    assert_eq!(numbers(&writer.handle()), [5]);
}

#[test]
fn a_time_limit_purges_segments_sealed_long_ago() {
    let directory = tempfile::tempdir().unwrap();
    let time_max = Some(Duration::from_secs(3_600));
    let (writer, _) = five_segments(directory.path(), Retention { bytes_max: None, time_max });
    let handle = writer.handle();
    assert!(handle.purge(SystemTime::now()).unwrap().segments.is_empty());
    let later = SystemTime::now() + Duration::from_secs(3_700);
    assert_eq!(handle.purge(later).unwrap().segments, [1, 2, 3, 4]);
}

#[test]
fn pinned_segments_are_kept_until_the_reader_advances_or_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, _) = five_segments(directory.path(), Retention { bytes_max: Some(0), time_max: None });
    let handle = writer.handle();
    let watermark = handle.register_reader("replica db2", LogPosition { segment: 3, offset: 4 });
    let purge = handle.purge(SystemTime::now()).unwrap();
    assert_eq!(
        (purge.segments.as_slice(), purge.pinned_by.as_deref()),
        ([1, 2].as_slice(), Some("replica db2"))
    );
    watermark.advance(LogPosition { segment: 4, offset: 100 });
    watermark.advance(LogPosition { segment: 1, offset: 4 });
    assert_eq!(handle.purge(SystemTime::now()).unwrap().segments, [3]);
    drop(watermark);
    let purge = handle.purge(SystemTime::now()).unwrap();
    assert_eq!((purge.segments.as_slice(), purge.pinned_by), ([4].as_slice(), None));
}

#[test]
fn figures_count_the_bytes_that_a_reader_has_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, _) = five_segments(directory.path(), Retention { bytes_max: Some(0), time_max: None });
    let handle = writer.handle();
    let lengths: Vec<u64> = handle.segments().iter().map(|segment| segment.bytes).collect();
    let end = handle.durable().position;
    for (name, position) in [
        ("old", LogPosition { segment: 1, offset: 4 }),
        ("channel a", LogPosition { segment: 4, offset: 1_000 }),
        ("channel b", end),
    ] {
        drop(handle.register_persistent_reader(name, position));
    }
    let figures = handle.figures();
    assert_eq!((figures.segments, figures.bytes), (5, lengths.iter().sum()));
    let behind = |figures: &LogFigures| -> Vec<(String, u64)> {
        figures.readers.iter().map(|reader| (reader.name.clone(), reader.bytes)).collect()
    };
    let a = lengths[3] - 1_000 + lengths[4];
    let all = lengths.iter().sum::<u64>() - 4;
    assert_eq!(behind(&figures), [("channel a".into(), a), ("channel b".into(), 0), ("old".into(), all)]);
    assert!(figures.syncs.counts.iter().sum::<u64>() >= 5 && figures.syncs.sum_seconds > 0.0, "{figures:?}");
    // What was purged does not count.
    assert!(handle.forget_reader("old").unwrap());
    drop(handle.register_persistent_reader("channel a", end));
    handle.purge_to(3).unwrap();
    drop(handle.register_persistent_reader("old", LogPosition { segment: 1, offset: 4 }));
    let figures = handle.figures();
    assert_eq!((figures.segments, figures.bytes), (3, lengths[2..].iter().sum()));
    assert_eq!(behind(&figures)[2], ("old".into(), lengths[2..].iter().sum()));
}

#[test]
fn opening_a_log_finishes_an_interrupted_purge() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, _) = five_segments(directory.path(), Retention { bytes_max: Some(250_000), time_max: None });
    let kept: Vec<(String, Vec<u8>)> = ["0000000002.binlog", "0000000003.index"]
        .map(|name| (name.to_owned(), std::fs::read(directory.path().join(name)).unwrap()))
        .into();
    writer.handle().purge(SystemTime::now()).unwrap();
    drop(writer);
    for (name, bytes) in &kept {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    let writer = open(directory.path());
    let mut removed = writer.recovery().leftovers_removed.clone();
    removed.sort();
    assert_eq!(removed, ["0000000002.binlog", "0000000003.index"]);
    assert_eq!(numbers(&writer.handle()), [4, 5]);
}

#[test]
fn an_operator_purge_removes_all_or_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, _) = five_segments(directory.path(), Retention::default());
    let handle = writer.handle();
    let watermark = handle.register_reader("replica db2", LogPosition { segment: 3, offset: 4 });
    let error = handle.purge_to(4).unwrap_err();
    assert_eq!(error.code(), "TW-LOG-0016");
    assert!(
        error.to_string().contains("replica db2") && error.to_string().contains("3:4"),
        "unexpected error: {error}"
    );
    assert_eq!(numbers(&handle), [1, 2, 3, 4, 5]);
    assert_eq!(handle.purge_to(3).unwrap().segments, [1, 2]);
    drop(watermark);
    assert_eq!(handle.purge_by(PurgeLimit::Bytes(150_000)).unwrap().segments, [3, 4]);
    assert_eq!(handle.purge_by(PurgeLimit::Bytes(0)).unwrap().segments, [0; 0]);
    assert_eq!(handle.purge_to(6).unwrap_err().code(), "TW-LOG-0012");
    assert_eq!(handle.purge_by(PurgeLimit::Before(SystemTime::now())).unwrap().segments, [0; 0]);
    assert_eq!(numbers(&handle), [5]);
}

#[test]
fn a_persistent_reader_keeps_segments_while_disconnected_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, _) = five_segments(directory.path(), Retention { bytes_max: Some(0), time_max: None });
    let handle = writer.handle();
    let watermark = handle.register_persistent_reader("replica db2", LogPosition { segment: 2, offset: 4 });
    watermark.advance(LogPosition { segment: 3, offset: 77 });
    drop(watermark);
    let log = LogDir::open_read_only(directory.path()).unwrap();
    let remembered = log.persistent_readers().unwrap();
    assert_eq!(remembered.len(), handle.persistent_readers().len());
    assert_eq!(
        (remembered[0].name.as_str(), remembered[0].position),
        ("replica db2", LogPosition { segment: 3, offset: 77 })
    );
    // The reader's position is still stored while no process has the log open, and after the log is opened
    // again.
    drop(writer);
    assert_eq!(log.plan_purge(PurgeLimit::To(3), None).unwrap().segments, [1, 2]);
    assert!(log.plan_purge(PurgeLimit::To(4), None).unwrap_err().to_string().contains("replica db2"));
    let retention = Retention { bytes_max: Some(0), time_max: None };
    let writer = LogWriter::open(directory.path(), LogOptions { retention, ..options() }).unwrap();
    let handle = writer.handle();
    assert!(handle.purge_to(4).unwrap_err().to_string().contains("replica db2"));
    let purge = handle.purge(SystemTime::now()).unwrap();
    assert_eq!(
        (purge.segments.as_slice(), purge.pinned_by.as_deref()),
        ([1, 2].as_slice(), Some("replica db2"))
    );
    // The configured retention for a disconnected reader keeps the segments for a week. The log refuses an
    // operator's purge until it has forgotten the reader.
    let later = SystemTime::now() + Duration::from_secs(8 * 24 * 3_600);
    assert!(handle.purge_to(4).is_err());
    assert_eq!(handle.purge(later).unwrap().segments, [3, 4]);
    assert!(handle.forget_reader("replica db2").unwrap());
    assert!(!handle.forget_reader("replica db2").unwrap());
    assert_eq!(log.persistent_readers().unwrap(), []);
}
