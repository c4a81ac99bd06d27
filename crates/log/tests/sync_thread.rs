//! Tests of the flusher: syncs in the background, and `ack = received`.

use std::time::Duration;

use tailwater_log::{AckMode, LogOptions, LogPosition, LogWriter};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::ChecksumAlgorithm;

use crate::support::binlog_generator::Source;
use crate::support::synthetic_capture::{
    begin_file, begin_file_with, open, options, read_all, rotate, transact,
};

async fn wait_for(writer: &LogWriter, position: LogPosition) {
    let mut durable = writer.handle().subscribe();
    durable.wait_for(|durable| durable.position >= position).await.unwrap();
}

#[tokio::test]
async fn background_sync_publishes_appended_entries() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MySql);
    let mut writer = open(directory.path());
    begin_file(&mut writer, &mut source).unwrap();
    let mut expected = Vec::new();
    let mut position = LogPosition::ZERO;
    for round in 0..200 {
        expected.push(transact(&mut writer, &mut source, &[20_000]).unwrap().bytes());
        if round % 5 == 0 {
            position = writer.sync_in_background().unwrap();
        }
        if round % 60 == 59 {
            rotate(&mut writer, &mut source).unwrap();
        }
    }
    wait_for(&writer, position).await;
    let position = writer.sync_in_background().unwrap();
    wait_for(&writer, position).await;
    assert_eq!(writer.unsynced_bytes(), 0);
    assert!(read_all(directory.path()) == expected);
    writer.close().unwrap();
}

#[tokio::test]
async fn with_ack_received_bytes_are_written_at_once_and_durable_soon() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MariaDb);
    let options = LogOptions { ack: AckMode::Received, sync_interval: Duration::from_millis(5), ..options() };
    let mut writer = LogWriter::open(directory.path(), options).unwrap();
    begin_file(&mut writer, &mut source).unwrap();
    let transaction = transact(&mut writer, &mut source, &[100]).unwrap();
    assert!(writer.unrequested_bytes() > 0);
    let position = writer.flush().unwrap();
    assert_eq!(writer.unrequested_bytes(), 0);
    // The bytes must be in the file now, even if they are not durable yet.
    let bytes = std::fs::read(directory.path().join("0000000001.binlog")).unwrap();
    assert!(bytes[..source.file.len()] == source.file);
    wait_for(&writer, position).await;
    assert!(read_all(directory.path()) == [transaction.bytes()]);
}

#[tokio::test]
async fn with_ack_received_many_bytes_are_synced_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MySql);
    let never = Duration::from_secs(3600);
    let options = LogOptions {
        ack: AckMode::Received,
        sync_interval: never,
        background_sync_bytes: 50_000,
        ..options()
    };
    let mut writer = LogWriter::open(directory.path(), options).unwrap();
    begin_file(&mut writer, &mut source).unwrap();
    transact(&mut writer, &mut source, &[20_000]).unwrap();
    let little = writer.flush().unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(writer.handle().durable().position < little);
    for _ in 0..2 {
        transact(&mut writer, &mut source, &[20_000]).unwrap();
        writer.flush().unwrap();
    }
    wait_for(&writer, little).await;
}

#[tokio::test]
async fn with_ack_received_bytes_are_synced_at_once_for_a_waiting_caller() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MariaDb);
    let never = Duration::from_secs(3600);
    let options = LogOptions { ack: AckMode::Received, sync_interval: never, ..options() };
    let mut writer = LogWriter::open(directory.path(), options).unwrap();
    begin_file(&mut writer, &mut source).unwrap();
    transact(&mut writer, &mut source, &[100]).unwrap();
    let alone = writer.flush().unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(writer.handle().durable().position < alone);
    let handle = writer.handle();
    let prompt_sync = handle.prompt_sync();
    wait_for(&writer, alone).await;
    for _ in 0..3 {
        transact(&mut writer, &mut source, &[100]).unwrap();
        let followed = writer.flush().unwrap();
        wait_for(&writer, followed).await;
    }
    drop(prompt_sync);
    // The log also syncs at once if a caller waits for bytes that are already in the file.
    transact(&mut writer, &mut source, &[100]).unwrap();
    let awaited = writer.flush().unwrap();
    let until = tokio::time::timeout(Duration::from_secs(60), handle.wait_until_durable(awaited));
    assert!(until.await.expect("the log did not sync the bytes before the timeout").unwrap());
    transact(&mut writer, &mut source, &[100]).unwrap();
    let alone = writer.flush().unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(writer.handle().durable().position < alone);
}

#[tokio::test]
async fn events_without_checksums_are_acknowledged_only_when_durable() {
    let never = Duration::from_secs(3600);
    for checksum in [ChecksumAlgorithm::Crc32, ChecksumAlgorithm::Off] {
        let directory = tempfile::tempdir().unwrap();
        let mut source = Source::new(Flavour::MySql);
        let options = LogOptions { ack: AckMode::Received, sync_interval: never, ..options() };
        let mut writer = LogWriter::open(directory.path(), options).unwrap();
        begin_file_with(checksum, &mut writer, &mut source).unwrap();
        transact(&mut writer, &mut source, &[100]).unwrap();
        let written = writer.flush().unwrap();
        let handle = writer.handle();
        assert_eq!(handle.is_acknowledged(written), checksum == ChecksumAlgorithm::Crc32);
        assert!(handle.durable().position < written);
        let until = tokio::time::timeout(Duration::from_secs(60), handle.wait_until_acknowledged(written));
        assert!(until.await.expect("the log did not sync the bytes before the timeout").unwrap());
        assert_eq!(handle.durable().position == written, checksum == ChecksumAlgorithm::Off);
        transact(&mut writer, &mut source, &[100]).unwrap();
        let acknowledged = writer.sync_for_ack().unwrap();
        assert!(handle.is_acknowledged(acknowledged));
        assert_eq!(handle.durable().position == acknowledged, checksum == ChecksumAlgorithm::Off);
    }
}

#[test]
fn appending_waits_when_too_many_bytes_are_unsynced() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(Flavour::MySql);
    let options = LogOptions { unsynced_bytes_max: 100_000, ..options() };
    let mut writer = LogWriter::open(directory.path(), options).unwrap();
    begin_file(&mut writer, &mut source).unwrap();
    for _ in 0..50 {
        transact(&mut writer, &mut source, &[10_000]).unwrap();
        assert!(writer.unsynced_bytes() <= 100_000);
    }
    assert!(writer.handle().durable().position.offset > 300_000);
}
