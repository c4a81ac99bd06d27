//! Measures how many transactions a second a log takes on this machine's disk: `cargo run --release -p
//! tailwater-log --example append_rate [DIRECTORY]`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tailwater_log::{AckMode, LogOptions, LogWriter, SourceIdentity};
use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, EventBuilder, EventHeader, FormatDescription, GtidEvent, QueryEvent,
};
use tailwater_wire::gtid::{MysqlGtid, MysqlGtidSet};
use tailwater_wire::{Flavour, ServerId, WireError};

/// When the log writes or syncs the appended transactions.
#[derive(Clone, Copy)]
enum Sync {
    /// The appending thread syncs after this many transactions.
    Every(usize),
    /// The flusher thread syncs in steps of 8 MiB, as it does while the relay catches up.
    Background,
    /// The log flushes after this many transactions, with `ack = received`.
    Received(usize),
}

fn main() -> anyhow::Result<()> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.unwrap_or_else(|| std::env::temp_dir().join("tailwater-append-rate"));
    println!("in {}", directory.display());
    bare(&directory)?;
    for (what, sync, statement_bytes, count) in [
        ("one fdatasync per transaction", Sync::Every(1), 200, 10_000),
        ("one fdatasync per 16 transactions", Sync::Every(16), 200, 100_000),
        ("one fdatasync per 64 transactions", Sync::Every(64), 200, 200_000),
        ("ack = received, one write per 16 transactions", Sync::Received(16), 200, 200_000),
        ("catching up, small transactions", Sync::Background, 200, 1_000_000),
        ("catching up, 20 kB transactions", Sync::Background, 20_000, 50_000),
        ("catching up, 8 MB transactions", Sync::Background, 8_000_000, 250),
    ] {
        measure(&directory, what, sync, statement_bytes, count)?;
    }
    Ok(())
}

/// Measures the disk without a log. No log can append durably at a higher rate.
fn bare(directory: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::FileExt;
    std::fs::create_dir_all(directory)?;
    let path = directory.join("bare");
    let file = std::fs::File::create(&path)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 16 << 20)?;
    let (count, bytes) = (10_000, [0x5a; 400]);
    let started = Instant::now();
    for index in 0..count {
        file.write_all_at(&bytes, index * 400)?;
        file.sync_data()?;
    }
    let rate = count as f64 / started.elapsed().as_secs_f64();
    println!("{:40} {rate:>10.0} /s", "bare write and fdatasync of 400 bytes");
    Ok(std::fs::remove_file(path)?)
}

fn measure(
    directory: &Path,
    what: &str,
    sync: Sync,
    statement_bytes: usize,
    count: usize,
) -> anyhow::Result<()> {
    let _ = std::fs::remove_dir_all(directory);
    let ack = if matches!(sync, Sync::Received(_)) { AckMode::Received } else { AckMode::Durable };
    let mut writer = LogWriter::open(directory, LogOptions { ack, ..LogOptions::default() })?;
    let mut source = EventBuilder::new(ServerId(1), ChecksumAlgorithm::Crc32);
    let identity = SourceIdentity {
        flavour: Flavour::MySql,
        server_uuid: None,
        server_id: 1,
        server_version: "example".into(),
    };
    writer.start_segment("binlog.000001", 4, &identity)?;
    let format = FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Crc32);
    let before = MysqlGtidSet::parse("")?;
    for event in [source.format_description(&format, 0)?, source.previous_gtids(&before)?] {
        writer.append(&EventHeader::parse(&event)?, &event, true, true)?;
    }
    // The transactions are generated before the measurement, so that only the log is measured. A few
    // different transactions are enough.
    let numbers = 1..=16.min(count) as u64;
    let transactions = numbers.map(|number| transaction(&mut source, number, statement_bytes));
    let transactions = transactions.collect::<Result<Vec<_>, _>>()?;
    let started = Instant::now();
    let mut bytes = 0;
    for index in 0..count {
        for event in &transactions[index % transactions.len()] {
            let header = EventHeader::parse(event)?;
            let mut chunks = event.chunks(1 << 20).peekable();
            let mut first = true;
            while let Some(chunk) = chunks.next() {
                writer.append(&header, chunk, first, chunks.peek().is_none())?;
                first = false;
            }
            bytes += event.len();
        }
        match sync {
            Sync::Every(group) if (index + 1) % group == 0 => {
                writer.sync()?;
            }
            Sync::Received(group) if (index + 1) % group == 0 => {
                writer.flush()?;
            }
            Sync::Background if writer.unsynced_bytes() >= 8 << 20 => {
                writer.sync_in_background()?;
            }
            _ => {}
        }
    }
    writer.sync()?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{what:40} {:>10.0} transactions/s {:>8.0} MB/s",
        count as f64 / seconds,
        bytes as f64 / seconds / 1e6
    );
    drop(writer);
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

/// Returns the events of a transaction with one statement of this length.
fn transaction(
    source: &mut EventBuilder,
    number: u64,
    statement_bytes: usize,
) -> Result<[Vec<u8>; 4], WireError> {
    let gtid = GtidEvent {
        gtid: Some(MysqlGtid { uuid: [0x11; 16], tag: String::new(), number }),
        flags: 1,
        logical_clock: None,
        immediate_commit_time_us: None,
        original_commit_time_us: None,
        transaction_bytes: None,
        immediate_server_version: None,
        original_server_version: None,
        commit_group_ticket: None,
    };
    let query = |query| QueryEvent {
        thread_id: 1,
        execution_seconds: 0,
        error_code: 0,
        status_vars_bytes: b"",
        database: b"test",
        query,
        compressed: false,
    };
    let mut statement = b"INSERT INTO t VALUES ".to_vec();
    statement.resize(statement.len() + statement_bytes, 0x5a);
    Ok([
        source.gtid(&gtid)?,
        source.query(&query(b"BEGIN"))?,
        source.query(&query(&statement))?,
        source.xid(number)?,
    ])
}
