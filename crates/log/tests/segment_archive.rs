//! Archived and purged segments are read like local segments. Incomplete, changed or foreign segments never
//! count as archived.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tailwater_log::archive::{ArchiveOptions, ArchiveReport};
use tailwater_log::{
    Archive, LogDir, LogError, LogHandle, LogOptions, LogPosition, LogWriter, PurgeLimit, Retention,
};
use tailwater_wire::Flavour;

use crate::support::binlog_generator::Source;
use crate::support::in_memory_archive::{Fault, MemoryStore};
use crate::support::synthetic_capture::{begin_file, options, read_log, rotate, transact};

/// A log of five segments and its archive. The third segment has several frames.
struct World {
    folder: tempfile::TempDir,
    store: Arc<MemoryStore>,
    writer: LogWriter,
    source: Source,
}

impl World {
    fn new(flavour: Flavour) -> Self {
        Self::with(flavour, Retention { bytes_max: Some(0), time_max: None })
    }

    fn with(flavour: Flavour, retention: Retention) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        let archive = Some(Archive::new(store.clone(), "orders"));
        let mut source = Source::new(flavour);
        let options = LogOptions { retention, archive, ..options() };
        let mut writer = LogWriter::open(folder.path(), options).unwrap();
        begin_file(&mut writer, &mut source).unwrap();
        for file in 1..=5 {
            let size = if file == 3 { 1_500_000 } else { 20_000 };
            for _ in 0..3 {
                transact(&mut writer, &mut source, &[size, 10]).unwrap();
            }
            if file < 5 {
                rotate(&mut writer, &mut source).unwrap();
            }
        }
        writer.sync().unwrap();
        Self { folder, store, writer, source }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the archive as another process sees it.
    fn archive(&self) -> Archive {
        Archive::new(self.store.clone(), "orders")
    }

    fn upload(&self, retry_max: Duration) -> Result<ArchiveReport, LogError> {
        let options = ArchiveOptions { retry_max, ..ArchiveOptions::default() };
        LogDir::open_read_only(self.path()).unwrap().archive_sealed(&self.archive(), options, |_| ())
    }

    fn handle(&self) -> LogHandle {
        self.writer.handle()
    }

    fn open(&self) -> LogDir {
        LogDir::open_with_archive(self.path(), &self.archive()).unwrap()
    }
}

fn numbers(log: &LogDir) -> Vec<u64> {
    log.segments().unwrap().iter().map(|segment| segment.number).collect()
}

const NO_RETRY: Duration = Duration::ZERO;
const RETRY: Duration = Duration::from_secs(60);

#[test]
fn purged_segments_are_read_from_the_archive() {
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let world = World::new(flavour);
        let local = LogDir::open_read_only(world.path()).unwrap();
        let (before, gtids) = (read_log(&local), local.gtid_set().unwrap());
        let summaries = local.segments().unwrap();
        let verified = local.verify(|_| ()).unwrap();

        // This reader opened the log and listed the archive before the purge.
        let early = world.open();
        assert_eq!(numbers(&early), [1, 2, 3, 4, 5]);
        let mut early_reader = early.reader(LogPosition { segment: 2, offset: 4 }).unwrap();

        let archived = world.upload(NO_RETRY).unwrap();
        assert_eq!((archived.segments.as_slice(), archived.segments_before), ([1, 2, 3, 4].as_slice(), 0));
        assert!(archived.compressed_bytes < archived.bytes);
        assert_eq!(world.handle().purge(SystemTime::now()).unwrap().segments, [1, 2, 3, 4]);
        assert_eq!(numbers(&local), [5]);

        let mut last = None;
        while let Some(entry) = early_reader.try_next().unwrap() {
            last = entry.gtid.or(last);
        }
        assert_eq!(last.unwrap().to_string().rsplit([':', '-']).next(), Some("15"));
        assert_eq!(numbers(&early), [1, 2, 3, 4, 5]);
        let log = world.open();
        assert_eq!(numbers(&log), [1, 2, 3, 4, 5]);
        assert!(read_log(&log) == before);
        assert_eq!(log.gtid_set().unwrap(), gtids);
        assert_eq!(log.verify(|_| ()).unwrap(), verified);
        for (archived, summary) in log.segments().unwrap().iter().zip(&summaries) {
            let path = if summary.number < 5 {
                format!("memory://archive/orders/{:010}.binlog.zst", summary.number)
            } else {
                summary.path.display().to_string()
            };
            assert_eq!(archived.path.display().to_string(), path);
            assert_eq!((archived.bytes, archived.sealed), (summary.bytes, summary.sealed));
            assert_eq!(archived.gtids_before, summary.gtids_before);
        }
        let mut reader = log.reader(LogPosition::ZERO).unwrap();
        while let Some(entry) = reader.try_next().unwrap() {
            if let Some(gtid) = &entry.gtid {
                assert_eq!(log.find(gtid).unwrap(), Some(entry));
            }
        }
        // The local directory may be missing.
        let log = LogDir::open_archive(&world.archive()).unwrap();
        assert_eq!(numbers(&log), [1, 2, 3, 4]);
        assert!(before.starts_with(&read_log(&log)));
        assert_eq!(log.verify(|_| ()).unwrap().problems, []);
        let gone = world.path().join("gone");
        assert_eq!(numbers(&LogDir::open_with_archive(&gone, &world.archive()).unwrap()), [1, 2, 3, 4]);
    }
}

#[test]
fn plain_zstd_decompresses_the_segment() {
    let world = World::new(Flavour::MySql);
    let segments: Vec<Vec<u8>> = (1..=4)
        .map(|number| std::fs::read(world.path().join(format!("{number:010}.binlog"))).unwrap())
        .collect();
    world.upload(NO_RETRY).unwrap();
    for (number, segment) in (1..).zip(segments) {
        let object = world.store.object(&format!("orders/{number:010}.binlog.zst"));
        assert!(zstd::stream::decode_all(object.as_slice()).unwrap() == segment);
    }
}

#[test]
fn readers_in_the_writers_process_continue_across_a_purge() {
    let mut world = World::new(Flavour::MySql);
    let before = read_log(&LogDir::open_read_only(world.path()).unwrap());
    let handle = world.handle();
    let mut reader = handle.reader(LogPosition::ZERO).unwrap();
    let first = reader.try_next().unwrap().unwrap();
    world.upload(NO_RETRY).unwrap();
    // A purge removes a segment only after this process has found its archived copy. So this purge lists the
    // archive.
    assert_eq!(handle.purge(SystemTime::now()).unwrap().segments, [1, 2, 3, 4]);
    assert_eq!(handle.segments().iter().map(|segment| segment.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);

    let mut entries = vec![first];
    while let Some(entry) = reader.try_next().unwrap() {
        entries.push(entry);
    }
    let transactions = entries.iter().filter(|entry| entry.is_transaction()).count();
    assert_eq!(transactions, before.len());
    // A reader can start at any position in the purged segments.
    for entry in &entries {
        let mut reader = handle.reader(entry.position).unwrap();
        assert_eq!(reader.try_next().unwrap().as_ref(), Some(entry));
    }
    // The reader then continues with new entries.
    transact(&mut world.writer, &mut world.source, &[10]).unwrap();
    world.writer.sync().unwrap();
    assert!(reader.try_next().unwrap().is_some_and(|entry| entry.is_transaction()));

    // The log can also be opened after a restart, when the process has not listed the archive yet.
    drop(world.writer);
    let archive = Some(Archive::new(world.store.clone(), "orders"));
    let writer = LogWriter::open(world.folder.path(), LogOptions { archive, ..options() }).unwrap();
    let handle = writer.handle();
    assert_eq!(handle.segments().len(), 5);
    assert_eq!(handle.reader(LogPosition::ZERO).unwrap().try_next().unwrap().unwrap().position.segment, 1);
}

#[test]
fn an_unreachable_archive_does_not_stop_local_readers() {
    let world = World::new(Flavour::MySql);
    let handle = world.handle();
    world.store.fail(&[Fault::Forbidden]);
    let purge = handle.purge(SystemTime::now()).unwrap();
    assert_eq!((purge.segments.as_slice(), purge.not_archived), ([].as_slice(), Some(1)));
    assert_eq!(handle.segments().len(), 5);
    let from = LogPosition { segment: 2, offset: 4 };
    assert_eq!(handle.reader(from).unwrap().try_next().unwrap().unwrap().position, from);
    assert_eq!(handle.reader(LogPosition::ZERO).unwrap_err().code(), "TW-LOG-0014");
}

#[test]
fn unarchived_segments_are_not_purged() {
    let world = World::new(Flavour::MySql);
    let handle = world.handle();
    let purge = handle.purge(SystemTime::now()).unwrap();
    assert_eq!((purge.segments.as_slice(), purge.not_archived), ([].as_slice(), Some(1)));
    let error = handle.purge_to(3).unwrap_err();
    assert_eq!(error.code(), "TW-LOG-0016");
    assert!(error.to_string().contains("not archived"), "unexpected error: {error}");
    world.upload(NO_RETRY).unwrap();
    // This simulates that another process has removed the segment from the archive again.
    world.store.remove("orders/0000000003.index");
    let plan = world.open().plan_purge(PurgeLimit::To(3), Some(&world.archive())).unwrap();
    assert_eq!(plan.segments, [1, 2]);
    assert_eq!(
        world.open().plan_purge(PurgeLimit::To(5), Some(&world.archive())).unwrap_err().code(),
        "TW-LOG-0016"
    );
}

#[test]
fn a_failing_store_is_retried_and_a_partial_upload_does_not_count() {
    let world = World::new(Flavour::MySql);
    let failures = [Fault::Refused, Fault::BreaksAt(5_000), Fault::Truncates(100), Fault::Changes(50)];
    for fault in failures {
        world.store.fail(&[fault]);
        let error = world.upload(NO_RETRY).unwrap_err();
        let code = match fault {
            Fault::Truncates(_) | Fault::Changes(_) => "TW-LOG-0015",
            _ => "TW-LOG-0014",
        };
        assert_eq!(error.code(), code, "{fault:?}: {error}");
        assert!(error.to_string().contains("memory://archive/orders"), "unexpected error: {error}");
        assert!(
            !world.store.names().iter().any(|name| name.ends_with(".index")),
            "an index was archived after the fault {fault:?}"
        );
        assert_eq!(LogDir::open_archive(&world.archive()).unwrap_err().code(), "TW-LOG-0013");
        assert!(world.handle().purge(SystemTime::now()).unwrap().segments.is_empty());
    }
    world.store.fail(&failures[1..]);
    assert_eq!(world.upload(RETRY).unwrap().segments, [1, 2, 3, 4]);
    assert_eq!(world.open().verify(|_| ()).unwrap().problems, []);
    // No object is uploaded twice.
    world.store.calls();
    let again = world.upload(NO_RETRY).unwrap();
    assert_eq!((again.segments.len(), again.segments_before), (0, 4));
    assert!(world.store.calls().iter().all(|call| !call.starts_with("put")));
    // An error that a retry cannot fix is reported soon.
    world.store.fail(&[Fault::Forbidden]);
    assert_eq!(world.upload(RETRY).unwrap_err().code(), "TW-LOG-0014");
}

#[test]
fn wrong_bytes_in_the_archive_are_reported() {
    let world = World::new(Flavour::MariaDb);
    world.upload(NO_RETRY).unwrap();
    world.handle().purge(SystemTime::now()).unwrap();
    let problems = || world.open().verify(|_| ()).unwrap().problems;
    assert_eq!(problems(), []);
    let object = "orders/0000000003.binlog.zst";
    let length = world.store.object(object).len();
    for at in [0, 10, length / 2, length - 60, length - 1] {
        world.store.change(object, |bytes| bytes[at] ^= 0x10);
        let found = problems();
        assert!(
            found[0].path.ends_with("0000000003.binlog.zst"),
            "`verify` reports unexpected problems for the damage at offset {at}: {found:?}"
        );
        world.store.change(object, |bytes| bytes[at] ^= 0x10);
    }
    assert_eq!(problems(), []);
    // The object contains another segment. Its content is valid, but stored under the wrong name.
    let right = world.store.object(object);
    let other = world.store.object("orders/0000000002.binlog.zst");
    world.store.change(object, |bytes| *bytes = other);
    assert!(!problems().is_empty());
    world.store.change(object, |bytes| *bytes = right[..length / 2].to_vec());
    assert!(problems()[0].path.ends_with("0000000003.binlog.zst"));
    // A reader stops at the damage, and reports its position.
    let mut reader = world.open().reader(LogPosition::ZERO).unwrap();
    let error = loop {
        match reader.try_next() {
            Ok(entry) => assert!(entry.is_some()),
            Err(error) => break error,
        }
    };
    assert!(error.code() == "TW-LOG-0003" && error.to_string().contains(object), "unexpected error: {error}");
    world.store.change(object, |bytes| *bytes = right);

    world.store.remove(object);
    let found = problems();
    assert!(found[0].path.ends_with("0000000003.binlog"), "`verify` reports unexpected problems: {found:?}");
    assert!(
        found[0].reason.contains("neither local nor in the archive"),
        "`verify` reports unexpected problems: {found:?}"
    );
    assert_eq!(world.open().reader(LogPosition { segment: 2, offset: 4 }).unwrap_err().code(), "TW-LOG-0011");
    let archived = LogDir::open_archive(&world.archive()).unwrap();
    assert!(!archived.verify(|_| ()).unwrap().is_ok());
}

#[test]
fn the_archive_of_another_log_is_refused() {
    let world = World::new(Flavour::MySql);
    world.upload(NO_RETRY).unwrap();
    let mut other = World::new(Flavour::MariaDb);
    other.store = world.store.clone();
    let error = other.upload(RETRY).unwrap_err();
    assert_eq!(error.code(), "TW-LOG-0015");
    assert!(
        error.to_string().contains("configure another archive for this log"),
        "unexpected error: {error}"
    );
    let plan = other.open().plan_purge(PurgeLimit::To(2), Some(&other.archive()));
    assert_eq!(plan.unwrap_err().code(), "TW-LOG-0015");
    let archive = Some(other.archive());
    let path = other.folder.path().to_owned();
    drop(other.writer);
    let retention = Retention { bytes_max: Some(0), time_max: None };
    let writer = LogWriter::open(&path, LogOptions { archive, retention, ..options() }).unwrap();
    assert_eq!(writer.handle().purge(SystemTime::now()).unwrap_err().code(), "TW-LOG-0015");
    assert_eq!(writer.handle().segments().len(), 5);
}

#[test]
fn old_archived_segments_are_removed_unless_needed() {
    let world = World::new(Flavour::MySql);
    world.upload(NO_RETRY).unwrap();
    let hour = Duration::from_secs(3_600);
    let drop_old = || {
        let log = LogDir::open_read_only(world.path()).unwrap();
        log.expire_archive(&world.archive(), hour, SystemTime::now()).unwrap().segments
    };
    world.store.age(2 * hour);
    assert_eq!(drop_old(), [0; 0], "segments that the local directory still holds must not be removed");
    world.handle().purge(SystemTime::now()).unwrap();
    drop(world.handle().register_persistent_reader("db2", LogPosition { segment: 3, offset: 4 }));
    assert_eq!(drop_old(), [1, 2]);
    assert_eq!(numbers(&world.open()), [3, 4, 5]);
    world.handle().forget_reader("db2").unwrap();
    // An interrupted removal leaves an object without its index.
    world.store.remove("orders/0000000003.index");
    assert_eq!(drop_old(), [4]);
    assert_eq!(world.store.names(), [""; 0]);
    assert_eq!(world.open().reader(LogPosition { segment: 4, offset: 4 }).unwrap_err().code(), "TW-LOG-0011");
}

#[test]
fn sources_have_separate_archives() {
    let world = World::new(Flavour::MySql);
    world.upload(NO_RETRY).unwrap();
    let log = LogDir::open_read_only(world.path()).unwrap();
    log.archive_sealed(&Archive::new(world.store.clone(), "orders2"), ArchiveOptions::default(), |_| ())
        .unwrap();
    assert_eq!(Archive::sources(world.store.as_ref()).unwrap(), ["orders", "orders2"]);
    assert_eq!(
        LogDir::open_archive(&Archive::new(world.store.clone(), "order")).unwrap_err().code(),
        "TW-LOG-0013"
    );
}

#[test]
fn a_log_without_control_file_is_not_archived() {
    let world = World::new(Flavour::MySql);
    std::fs::remove_file(world.path().join("control.json")).unwrap();
    assert_eq!(world.upload(NO_RETRY).unwrap_err().code(), "TW-LOG-0003");
    assert_eq!(world.store.names(), [""; 0]);
}
