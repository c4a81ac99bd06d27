//! The ledger on disk: one line of text for each transaction.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::{CommitOutcome, LedgerEntry, TransactionId};

/// The first line of the file. The number changes with the format.
const HEADER: &str = "tailwater-ledger 1";

#[derive(Debug)]
pub(super) struct LedgerFile {
    writer: BufWriter<File>,
    /// The first error of a write to this file. Workers continue after it; `flush` returns the error.
    failed: Option<io::Error>,
}

impl LedgerFile {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut writer = BufWriter::with_capacity(64 * 1024, File::create_new(path)?);
        writeln!(writer, "{HEADER}")?;
        Ok(Self { writer, failed: None })
    }

    pub(super) fn append(&mut self, id: TransactionId, entry: LedgerEntry) {
        let outcome = match entry.outcome {
            CommitOutcome::Acknowledged => 'a',
            CommitOutcome::Unknown => 'u',
            CommitOutcome::Failed => 'f',
        };
        let LedgerEntry { changes, digest, .. } = entry;
        let line = writeln!(self.writer, "{outcome} {} {} {changes} {digest}", id.worker, id.sequence);
        if let Err(error) = line {
            self.failed.get_or_insert(error);
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.writer.flush(),
        }
    }
}

/// Reads a ledger file. An incomplete last line, which a killed process leaves, is ignored.
pub(super) fn read(path: &Path, mut each: impl FnMut(TransactionId, LedgerEntry)) -> io::Result<()> {
    let text = fs::read_to_string(path)?;
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let wrong = |number: usize| {
        let message = format!("{}, line {number}: the line is not in the format of a ledger", path.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let mut lines = whole.lines();
    if lines.next() != Some(HEADER) {
        return Err(wrong(1));
    }
    for (line, number) in lines.zip(2..) {
        let (id, entry) = parse(line).ok_or_else(|| wrong(number))?;
        each(id, entry);
    }
    Ok(())
}

fn parse(line: &str) -> Option<(TransactionId, LedgerEntry)> {
    /// Maximum sequence number. A damaged larger number would make the ledger allocate without a limit.
    const SEQUENCE_MAX: u64 = 1 << 32;
    let mut words = line.split(' ');
    let outcome = match words.next()? {
        "a" => CommitOutcome::Acknowledged,
        "u" => CommitOutcome::Unknown,
        "f" => CommitOutcome::Failed,
        _ => return None,
    };
    let id = TransactionId { worker: words.next()?.parse().ok()?, sequence: words.next()?.parse().ok()? };
    let entry =
        LedgerEntry { outcome, changes: words.next()?.parse().ok()?, digest: words.next()?.parse().ok()? };
    (words.next().is_none() && (1..=SEQUENCE_MAX).contains(&id.sequence)).then_some((id, entry))
}

#[cfg(test)]
mod tests {
    use super::super::Ledger;
    use super::*;

    #[test]
    fn a_ledger_is_read_up_to_an_incomplete_line() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("ledger");
        let ledger = Ledger::with_file(&path).expect("create");
        for (sequence, outcome) in
            [(1, CommitOutcome::Acknowledged), (2, CommitOutcome::Unknown), (3, CommitOutcome::Failed)]
        {
            let entry = LedgerEntry { outcome, changes: 3, digest: -7 };
            ledger.record(TransactionId { worker: 5, sequence }, entry);
        }
        ledger.flush().expect("flush");
        let mut bytes = fs::read(&path).expect("read");
        bytes.extend_from_slice(b"a 5 4 3");
        fs::write(&path, &bytes).expect("tear");
        let read = Ledger::read_file(&path).expect("read back");
        assert_eq!(read.totals(), ledger.totals());
        assert_eq!(read.last_sequence(5), 3);
        assert!(Ledger::with_file(&path).is_err(), "an existing ledger file was overwritten");

        bytes.extend_from_slice(b"\n");
        fs::write(&path, &bytes).expect("a line break after the incomplete line is written");
        let error = Ledger::read_file(&path).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("line 5"), "the error does not name line 5: {error}");
    }
}
