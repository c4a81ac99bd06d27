//! A capture without a server: it appends the events of a synthetic source to a log.

use std::path::Path;

use tailwater_log::{LogDir, LogError, LogOptions, LogPosition, LogWriter, SourceIdentity};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::ChecksumAlgorithm;

use super::binlog_generator::{Source, Transaction, header};

pub fn options() -> LogOptions {
    LogOptions { preallocate_bytes: 256 << 10, ..LogOptions::default() }
}

pub fn open(directory: &Path) -> LogWriter {
    LogWriter::open(directory, options()).expect("opening the log succeeds")
}

pub fn identity(flavour: Flavour) -> SourceIdentity {
    let server_uuid = (flavour == Flavour::MySql).then(|| "11111111-1111-1111-1111-111111111111".to_owned());
    SourceIdentity { flavour, server_uuid, server_id: 1, server_version: "test".into() }
}

pub fn append(writer: &mut LogWriter, event: &[u8]) -> Result<(), LogError> {
    let header = header(event);
    let mut chunks = event.chunks(1 << 20).peekable();
    let mut first = true;
    while let Some(chunk) = chunks.next() {
        writer.append(&header, chunk, first, chunks.peek().is_none())?;
        first = false;
    }
    Ok(())
}

pub fn begin_file(writer: &mut LogWriter, source: &mut Source) -> Result<(), LogError> {
    begin_file_with(ChecksumAlgorithm::Crc32, writer, source)
}

pub fn begin_file_with(
    checksum: ChecksumAlgorithm,
    writer: &mut LogWriter,
    source: &mut Source,
) -> Result<(), LogError> {
    let events = source.begin_file(checksum);
    writer.start_segment(&source.file_name(), 4, &identity(source.flavour))?;
    events.iter().try_for_each(|event| append(writer, event))
}

pub fn rotate(writer: &mut LogWriter, source: &mut Source) -> Result<(), LogError> {
    let event = source.rotate();
    append(writer, &event)?;
    begin_file(writer, source)
}

/// Appends a transaction with statements of the given lengths in bytes. Does not sync.
pub fn transact(
    writer: &mut LogWriter,
    source: &mut Source,
    statements: &[usize],
) -> Result<Transaction, LogError> {
    let mut random = source.number();
    let transaction = source.transaction(statements, || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        random >> 16
    });
    transaction.events.iter().try_for_each(|event| append(writer, event))?;
    Ok(transaction)
}

/// Returns the bytes of all transactions that a reader in another process sees.
pub fn read_all(directory: &Path) -> Vec<Vec<u8>> {
    read_log(&LogDir::open_read_only(directory).unwrap())
}

/// Returns the bytes of all transactions of a log.
pub fn read_log(log: &LogDir) -> Vec<Vec<u8>> {
    let mut reader = log.reader(LogPosition::ZERO).unwrap();
    let mut transactions = Vec::new();
    while let Some(entry) = reader.try_next().unwrap() {
        if !entry.is_transaction() {
            continue;
        }
        let mut bytes = Vec::new();
        loop {
            let chunk = reader.read_chunk(100_000).unwrap();
            if chunk.is_empty() {
                break;
            }
            bytes.extend_from_slice(chunk);
        }
        assert_eq!(bytes.len() as u64, entry.length);
        transactions.push(bytes);
    }
    transactions
}
