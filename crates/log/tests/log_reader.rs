//! Readers see only whole and durable transactions, in the writer's process and in other processes.

use std::collections::VecDeque;

use bytes::Bytes;
use tailwater_log::{EntryKind, LogDir, LogError, LogPosition, LogState, LogWriter};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{ChecksumAlgorithm, EventType};

use crate::support::binlog_generator::{Source, header};
use crate::support::synthetic_capture::{append, begin_file, identity, open, read_all, rotate, transact};

#[test]
fn segments_equal_the_files_of_the_source() {
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let directory = tempfile::tempdir().unwrap();
        let mut source = Source::new(flavour);
        let mut writer = open(directory.path());
        begin_file(&mut writer, &mut source).unwrap();
        let mut expected = Vec::new();
        for size in [1, 100, 5_000, 3_000_000] {
            expected.push(transact(&mut writer, &mut source, &[size, size]).unwrap().bytes());
        }
        let rotate_event = source.rotate();
        append(&mut writer, &rotate_event).unwrap();
        let first_file = source.file.clone();
        begin_file(&mut writer, &mut source).unwrap();
        expected.push(transact(&mut writer, &mut source, &[10]).unwrap().bytes());
        writer.close().unwrap();

        let segments = LogDir::open_read_only(directory.path()).unwrap().segments().unwrap();
        assert_eq!(segments.len(), 2);
        assert!(segments[0].sealed && !segments[1].sealed);
        assert_eq!(segments[0].source_file, "binlog.000001");
        assert!(std::fs::read(&segments[0].path).unwrap() == first_file);
        // After a clean close, the newest segment has no reserved space, so it equals the source's binlog
        // file.
        assert!(std::fs::read(&segments[1].path).unwrap() == source.file);
        assert_eq!(segments[1].bytes, source.file.len() as u64);
        assert!(read_all(directory.path()) == expected);
    }
}

#[test]
fn entries_that_the_caller_keeps_do_not_change() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MariaDb);
    let mut writer = open(directory.path());
    begin_file(&mut writer, &mut source).unwrap();
    // Some entries fit into one read of the file, some span two reads, and some are longer than a read.
    let sizes = [1, 70_000, 100_000, 90_000, 200_000, 255_000, 700_000, 20];
    let wanted: Vec<_> = (0..12)
        .flat_map(|_| sizes)
        .map(|size| transact(&mut writer, &mut source, &[size]).unwrap().bytes())
        .collect();
    writer.close().unwrap();
    // Three cases: the caller keeps all entries and they share the read buffer; all entries are copied; a
    // mixture in which the caller drops some entries.
    for (shared_bytes_max, kept_max) in [(usize::MAX, usize::MAX), (0, usize::MAX), (1 << 20, 5)] {
        let mut reader = LogDir::open_read_only(directory.path()).unwrap().reader(LogPosition::ZERO).unwrap();
        let (mut kept, mut wanted) = (VecDeque::new(), wanted.iter());
        let check = |(bytes, wanted): (Bytes, &Vec<u8>)| assert!(bytes == *wanted);
        while let Some(entry) = reader.try_next().unwrap() {
            if entry.is_transaction() {
                kept.push_back((reader.read_entry(shared_bytes_max).unwrap(), wanted.next().unwrap()));
                assert!(reader.read_chunk(1).unwrap().is_empty());
            }
            if kept.len() > kept_max {
                kept.pop_front().map(check);
            }
        }
        kept.into_iter().for_each(check);
        assert!(wanted.next().is_none());
    }
}

#[test]
fn entries_are_invisible_before_they_are_complete_and_synced() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MySql);
    let mut writer = open(directory.path());
    let handle = writer.handle();
    begin_file(&mut writer, &mut source).unwrap();
    writer.sync().unwrap();
    let mut reader = handle.reader(LogPosition::ZERO).unwrap();
    let kinds: Vec<EntryKind> =
        std::iter::from_fn(|| reader.try_next().unwrap()).map(|entry| entry.kind).collect();
    assert_eq!(kinds, [EntryKind::Event, EntryKind::Event]);

    transact(&mut writer, &mut source, &[10]).unwrap();
    assert!(writer.unsynced_bytes() > 0);
    assert_eq!(reader.try_next().unwrap(), None);
    writer.flush().unwrap();
    assert_eq!(reader.try_next().unwrap(), None);
    // The transaction is bigger than the buffer, so half of it is already in the file. It is neither visible
    // nor durable.
    let transaction = source.transaction(&[2_000_000, 2_000_000], || 1);
    let (end, begin) = transaction.events.split_last().unwrap();
    begin.iter().for_each(|event| append(&mut writer, event).unwrap());
    writer.sync().unwrap();
    assert!(writer.in_transaction());
    assert_eq!(read_all(directory.path()).len(), 1);
    assert!(reader.try_next().unwrap().unwrap().is_transaction());
    assert_eq!(reader.try_next().unwrap(), None);
    assert_eq!(handle.durable().position, reader.position());

    append(&mut writer, end).unwrap();
    assert_eq!(reader.try_next().unwrap(), None);
    writer.sync().unwrap();
    let entry = reader.try_next().unwrap().unwrap();
    assert_eq!(entry.gtid.as_ref(), Some(&transaction.gtid));
    assert_eq!(entry.source_end, source.file.len() as u64);
    assert_eq!(entry.end(), handle.durable().position);
    assert_eq!(entry.commit_time_us, 1_700_000_002_000_000);
    assert_eq!(handle.last_transaction().as_ref(), Some(&entry));
    assert!(handle.gtid_set().unwrap().contains(&transaction.gtid));
}

#[tokio::test]
async fn a_reader_at_the_end_waits_follows_segments_and_ends_with_the_writer() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MariaDb);
    let mut writer = open(directory.path());
    let mut reader = writer.handle().reader(LogPosition::ZERO).unwrap();
    let reading = tokio::spawn(async move {
        let mut gtids = Vec::new();
        while let Some(entry) = reader.next().await.unwrap() {
            gtids.extend(entry.gtid);
        }
        gtids
    });
    let mut expected = Vec::new();
    begin_file(&mut writer, &mut source).unwrap();
    for round in 0..50 {
        expected.push(transact(&mut writer, &mut source, &[round]).unwrap().gtid);
        if round % 3 == 0 {
            writer.sync().unwrap();
            tokio::task::yield_now().await;
        }
        if round % 10 == 9 {
            rotate(&mut writer, &mut source).unwrap();
        }
    }
    let handle = writer.handle();
    writer.close().unwrap();
    assert_eq!(reading.await.unwrap(), expected);
    assert_eq!(handle.durable().state, LogState::Closed);
}

#[test]
fn a_reader_of_written_entries_returns_each_entry_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MariaDb);
    let mut writer = open(directory.path());
    let handle = writer.handle();
    // The reader starts before there is a segment.
    let mut ahead = handle.reader_up_to_written(LogPosition::ZERO).unwrap();
    assert_eq!(ahead.try_next().unwrap(), None);
    begin_file(&mut writer, &mut source).unwrap();
    let mut next = || std::iter::from_fn(|| ahead.try_next().unwrap()).find_map(|entry| entry.gtid);
    for round in 0..6 {
        let transaction = transact(&mut writer, &mut source, &[20]).unwrap();
        assert_eq!(next(), None, "an entry that is only in memory must not be returned");
        writer.flush().unwrap();
        let durable = handle.durable().position;
        assert_eq!(next(), Some(transaction.gtid));
        assert_eq!(handle.durable().position, durable, "a read must not make anything durable");
        match round {
            1 => drop(writer.sync().unwrap()),
            3 => rotate(&mut writer, &mut source).unwrap(),
            _ => {}
        }
        assert_eq!(next(), None);
    }
    writer.sync().unwrap();
    assert_eq!(next(), None);
}

#[tokio::test]
async fn a_reader_of_written_entries_is_woken_by_a_write_and_by_the_close() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MySql);
    let mut writer = open(directory.path());
    let mut ahead = writer.handle().reader_up_to_written(LogPosition::ZERO).unwrap();
    let (sender, mut gtids) = tokio::sync::mpsc::channel(1);
    let reading = tokio::spawn(async move {
        while let Some(entry) = ahead.next().await.unwrap() {
            if let Some(gtid) = entry.gtid {
                sender.send(gtid).await.unwrap();
            }
        }
    });
    begin_file(&mut writer, &mut source).unwrap();
    for _ in 0..20 {
        let transaction = transact(&mut writer, &mut source, &[20]).unwrap();
        writer.flush().unwrap();
        assert_eq!(gtids.recv().await, Some(transaction.gtid));
    }
    writer.close().unwrap();
    reading.await.unwrap();
}

#[test]
fn events_are_read_whole_or_in_chunks_or_are_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MySql);
    let mut writer = open(directory.path());
    begin_file(&mut writer, &mut source).unwrap();
    let transaction = transact(&mut writer, &mut source, &[700_000, 20]).unwrap();
    writer.close().unwrap();

    let mut reader = LogDir::open_read_only(directory.path()).unwrap().reader(LogPosition::ZERO).unwrap();
    assert_eq!(reader.next_event().unwrap(), None);
    while !reader.try_next().unwrap().unwrap().is_transaction() {}
    let mut buffer = Vec::new();
    let mut types = Vec::new();
    for (index, event) in transaction.events.iter().enumerate() {
        let position = reader.position();
        assert_eq!(reader.next_event().unwrap(), Some(header(event)));
        types.push(header(event).event_type);
        match index % 3 {
            0 => {
                reader.read_event(&mut buffer).unwrap();
                assert!(&buffer == event);
            }
            1 => assert!(reader.read_event_chunk(10).unwrap() == &event[..10]),
            _ => {
                let mut offset = 0;
                loop {
                    let chunk = reader.read_event_chunk(99_999).unwrap();
                    if chunk.is_empty() {
                        break;
                    }
                    assert!(chunk == &event[offset..offset + chunk.len()]);
                    offset += chunk.len();
                }
                assert_eq!(offset, event.len());
            }
        }
        assert_eq!(reader.position(), position);
    }
    assert_eq!(types.first(), Some(&EventType::GTID));
    assert_eq!(reader.next_event().unwrap(), None);
}

#[test]
fn a_reader_starts_only_between_entries() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MySql);
    let mut writer = open(directory.path());
    begin_file(&mut writer, &mut source).unwrap();
    let first = transact(&mut writer, &mut source, &[10]).unwrap();
    let boundary = writer.sync().unwrap();
    let second = transact(&mut writer, &mut source, &[10]).unwrap();
    writer.sync().unwrap();
    let handle = writer.handle();
    let log = LogDir::open_read_only(directory.path()).unwrap();
    assert_ne!(first.gtid, second.gtid);
    for mut reader in [handle.reader(boundary).unwrap(), log.reader(boundary).unwrap()] {
        assert_eq!(reader.next_event().unwrap(), None);
        assert_eq!(reader.try_next().unwrap().unwrap().gtid, Some(second.gtid.clone()));
        assert_eq!(reader.try_next().unwrap(), None);
    }
    for wrong in [
        LogPosition { segment: 1, offset: boundary.offset - 1 },
        LogPosition { segment: 1, offset: boundary.offset + 1_000_000 },
        LogPosition { segment: 7, offset: 4 },
    ] {
        for result in [handle.reader(wrong), log.reader(wrong)] {
            assert!(
                matches!(result, Err(LogError::NoSuchPosition { .. })),
                "the position {wrong} was accepted"
            );
        }
    }
}

#[test]
fn a_segment_that_begins_in_mid_file_has_both_positions() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MySql);
    let description = source.begin_file(tailwater_wire::binlog_event::ChecksumAlgorithm::Crc32).remove(0);
    let unseen = source.transaction(&[5_000], || 7);
    let start = source.file.len() as u64;
    let mut writer = open(directory.path());
    writer.start_segment(&source.file_name(), start, &identity(Flavour::MySql)).unwrap();
    append(&mut writer, &description).unwrap();
    let transaction = transact(&mut writer, &mut source, &[10]).unwrap();
    writer.sync().unwrap();
    let tail = writer.source_tail().unwrap();
    assert_eq!((tail.file.as_str(), tail.end), ("binlog.000001", source.file.len() as u64));
    let last = tail.last_transaction.unwrap();
    assert_eq!((last.source_start, last.source_end), (start, tail.end));
    assert_eq!(writer.last_transaction().unwrap().position.offset, 4 + description.len() as u64);
    assert!(!writer.gtid_set().unwrap().contains(&unseen.gtid));
    let mut bytes = vec![0; transaction.events[0].len()];
    writer.read_last_transaction(0, &mut bytes).unwrap();
    assert!(bytes == transaction.events[0]);
    // The next binlog file starts with the GTIDs of all earlier transactions, including those that were not
    // captured.
    rotate(&mut writer, &mut source).unwrap();
    assert!(writer.gtid_set().unwrap().contains(&unseen.gtid));
    writer.sync().unwrap();
    drop(writer);
    let writer = open(directory.path());
    assert!(writer.gtid_set().unwrap().contains(&unseen.gtid));
    writer.close().unwrap();
    assert_eq!(LogDir::open_read_only(directory.path()).unwrap().verify(|_| ()).unwrap().problems, []);
}

#[test]
fn the_last_transaction_can_be_read_whether_written_or_buffered() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MariaDb);
    let mut writer = open(directory.path());
    begin_file(&mut writer, &mut source).unwrap();
    for size in [100, 1_500_000] {
        let expected = transact(&mut writer, &mut source, &[size]).unwrap().bytes();
        for synced in [false, true] {
            if synced {
                writer.sync().unwrap();
            }
            let mut bytes = vec![0; expected.len()];
            writer.read_last_transaction(0, &mut bytes).unwrap();
            assert!(bytes == expected);
            let mut end = vec![0; 50];
            writer.read_last_transaction(expected.len() as u64 - 50, &mut end).unwrap();
            assert!(end == expected[expected.len() - 50..]);
            let error = writer.read_last_transaction(expected.len() as u64 - 49, &mut end).unwrap_err();
            assert!(matches!(error, LogError::Sequence { .. }), "unexpected error: {error}");
        }
    }
}

#[test]
fn inconsistent_chunks_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MySql);
    let mut writer = open(directory.path());
    let sequence = |result: Result<_, LogError>| matches!(result, Err(LogError::Sequence { .. }));
    let description = source.begin_file(tailwater_wire::binlog_event::ChecksumAlgorithm::Crc32).remove(0);
    assert!(sequence(writer.append(&header(&description), &description, true, true)));
    writer.start_segment("binlog.000001", 4, &identity(Flavour::MySql)).unwrap();
    let query = &source.transaction(&[10], || 1).events[1].clone();
    assert!(matches!(writer.append(&header(query), query, true, true), Err(LogError::Event { .. })));
    append(&mut writer, &description).unwrap();
    assert!(sequence(writer.append(&header(&description), &description[1..], true, true)));
    assert!(sequence(writer.append(&header(&description), &description, false, true)));
    fn outside(writer: &mut LogWriter, query: &[u8]) -> bool {
        matches!(writer.append(&header(query), query, true, true), Err(LogError::Event { .. }))
    }
    assert!(outside(&mut writer, query));
    // The refused chunks must not be in the log.
    transact(&mut writer, &mut source, &[10]).unwrap();
    writer.sync().unwrap();
    assert_eq!(read_all(directory.path()).len(), 1);
}

#[test]
fn a_capture_from_another_server_starts_a_new_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (identity(Flavour::MySql), identity(Flavour::MySql));
    first.server_version = "older".into();
    second.server_uuid = Some("22222222-2222-2222-2222-222222222222".into());
    let mut upgraded = first.clone();
    upgraded.server_version = "newer".into();
    let mut source = Source::new(Flavour::MySql);
    for server in [&first, &upgraded, &second, &second, &first] {
        // Open the log again each time, so that the writer reads the epoch from the files.
        let mut writer = open(directory.path());
        let events = source.begin_file(ChecksumAlgorithm::Crc32);
        writer.start_segment("binlog.000001", 4, server).unwrap();
        events.iter().try_for_each(|event| append(&mut writer, event)).unwrap();
        writer.close().unwrap();
    }
    let segments = LogDir::open_read_only(directory.path()).unwrap().segments().unwrap();
    assert_eq!(segments.iter().map(|segment| segment.epoch).collect::<Vec<_>>(), [1, 1, 2, 2, 3]);
}

/// A reader may have buffered bytes from after the end of the log. When the writer then appends other bytes
/// there, the reader must not return the old ones.
#[test]
fn a_reader_at_the_end_never_returns_stale_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MariaDb);
    let mut writer = open(directory.path());
    begin_file(&mut writer, &mut source).unwrap();
    writer.sync().unwrap();
    let other_process = LogDir::open_read_only(directory.path()).unwrap();
    let mut readers = [
        writer.handle().reader(LogPosition::ZERO).unwrap(),
        other_process.reader(LogPosition::ZERO).unwrap(),
    ];
    let mut seen = [Vec::new(), Vec::new()];
    let mut expected = Vec::new();
    for round in 0..20 {
        // Sometimes two segments start at once, so that a reader is in the first while the second already
        // exists.
        for _ in 0..=round % 2 {
            expected.extend(transact(&mut writer, &mut source, &[100 + round]).unwrap().bytes());
        }
        writer.sync().unwrap();
        for (reader, seen) in readers.iter_mut().zip(&mut seen) {
            while let Some(entry) = reader.try_next().unwrap() {
                if !entry.is_transaction() {
                    continue;
                }
                while reader.next_event().unwrap().is_some() {
                    let mut event = Vec::new();
                    reader.read_event(&mut event).unwrap();
                    seen.extend(event);
                }
            }
        }
        assert!(
            seen[0] == expected && seen[1] == expected,
            "round {round}: a reader returned bytes that the writer did not append"
        );
    }
}
