//! The ledger: the outcome of each transaction as the clients know it. Checks compare a log or a server with
//! it.

mod binlog_file_comparison;
mod captured_log_comparison;
mod ledger_file;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use parking_lot::{Mutex, MutexGuard};
use tailwater_session::{ConnectOptions, Connection, SessionError};

pub use binlog_file_comparison::{BinlogCheck, BinlogCheckError};
pub use captured_log_comparison::{LedgerCheck, LedgerReport, LoggedTransaction};
use ledger_file::LedgerFile;

/// Identifies a transaction by the worker that ran it and the worker's sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionId {
    /// Number of the worker, which is a connection of the workload.
    pub worker: u32,
    /// Sequence number, from 1 for each worker. A failed attempt uses a number too.
    pub sequence: u64,
}

impl std::fmt::Display for TransactionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.worker, self.sequence)
    }
}

/// Outcome of a transaction as the client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommitOutcome {
    /// The server answered the commit with OK.
    Acknowledged,
    /// The commit was sent, and no answer arrived.
    Unknown,
    /// The transaction is certainly not committed: it failed or was abandoned before the commit was sent.
    Failed,
}

/// A transaction in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The outcome, as the client knows it.
    pub outcome: CommitOutcome,
    /// Number of row changes, without the row in the ledger's own table.
    pub changes: u32,
    /// Sum of the digests of these row changes and of the payload of the ledger row.
    pub digest: i64,
}

/// The transactions of a workload with their outcomes. The workers share it. It needs 16 bytes of memory for
/// each transaction.
#[derive(Debug, Default)]
pub struct Ledger {
    // A worker's entry for sequence number n has index n - 1. `None` for a number that was never finished.
    workers: Mutex<BTreeMap<u32, Vec<Option<LedgerEntry>>>>,
    file: Option<Mutex<LedgerFile>>,
}

impl Ledger {
    /// Returns an empty ledger in memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty ledger that is also written to a new file, for [`Ledger::read_file`]. The lines are
    /// buffered, so the last ones are missing if the process is killed. Such a file may lack transactions,
    /// but has no wrong ones.
    ///
    /// # Errors
    /// If the file exists or cannot be created.
    pub fn with_file(path: &Path) -> io::Result<Self> {
        Ok(Self { workers: Mutex::default(), file: Some(Mutex::new(LedgerFile::create(path)?)) })
    }

    /// Reads a file written by [`Ledger::with_file`]. An incomplete last line is ignored.
    ///
    /// # Errors
    /// If the file cannot be read or is not a ledger. The message names the line.
    pub fn read_file(path: &Path) -> io::Result<Self> {
        let ledger = Self::new();
        ledger_file::read(path, |id, entry| ledger.record(id, entry))?;
        Ok(ledger)
    }

    /// Records the outcome of a transaction.
    pub fn record(&self, id: TransactionId, entry: LedgerEntry) {
        if let Some(file) = &self.file {
            file.lock().append(id, entry);
        }
        let mut workers = self.lock();
        let entries = workers.entry(id.worker).or_default();
        let index = id.sequence.saturating_sub(1) as usize;
        if entries.len() <= index {
            entries.resize(index + 1, None);
        }
        entries[index] = Some(entry);
    }

    /// Writes the buffered lines to the file, if there is one.
    ///
    /// # Errors
    /// The first error of this or any earlier write.
    pub fn flush(&self) -> io::Result<()> {
        match &self.file {
            Some(file) => file.lock().flush(),
            None => Ok(()),
        }
    }

    /// Returns the entry of a transaction; `None` if the ledger has no outcome for it.
    pub fn get(&self, id: TransactionId) -> Option<LedgerEntry> {
        let index = usize::try_from(id.sequence.checked_sub(1)?).ok()?;
        *self.lock().get(&id.worker)?.get(index)?
    }

    /// Returns the last sequence number that a worker used; 0 if it used none.
    pub fn last_sequence(&self, worker: u32) -> u64 {
        self.lock().get(&worker).map_or(0, |entries| entries.len() as u64)
    }

    /// Calls `each` for each transaction, ordered by worker and sequence number.
    pub fn for_each(&self, mut each: impl FnMut(TransactionId, LedgerEntry)) {
        for (&worker, entries) in self.lock().iter() {
            for (sequence, entry) in (1..).zip(entries) {
                if let Some(entry) = entry {
                    each(TransactionId { worker, sequence }, *entry);
                }
            }
        }
    }

    /// Returns how many transactions have each outcome.
    pub fn totals(&self) -> LedgerTotals {
        let mut totals = LedgerTotals::default();
        self.for_each(|_, entry| match entry.outcome {
            CommitOutcome::Acknowledged => totals.acknowledged += 1,
            CommitOutcome::Unknown => totals.unknown += 1,
            CommitOutcome::Failed => totals.failed += 1,
        });
        totals
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Vec<Option<LedgerEntry>>>> {
        self.workers.lock()
    }

    /// Compares the ledger with the rows of `tw_load.tw_ledger` on a server. The result shows which
    /// transactions a restarted or promoted server has lost.
    ///
    /// # Errors
    /// Any error of the connection.
    pub async fn compare_with_server(&self, options: &ConnectOptions) -> Result<ServerReport, SessionError> {
        let mut connection = Connection::connect(options).await?;
        let mut present: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
        let mut report = ServerReport::default();
        let mut rows =
            connection.query_stream("SELECT worker, sequence, digest FROM tw_load.tw_ledger").await?;
        while let Some(row) = rows.next().await? {
            let (Some(worker), Some(sequence), Some(digest)) = (
                row.get_u64(0).and_then(|worker| u32::try_from(worker).ok()),
                row.get_u64(1),
                row.get_i64(2),
            ) else {
                continue;
            };
            report.rows += 1;
            let id = TransactionId { worker, sequence };
            match self.get(id) {
                None => report.unlisted += 1,
                Some(entry) => {
                    let seen = present.entry(worker).or_default();
                    let index = sequence as usize - 1;
                    if seen.len() <= index {
                        seen.resize(index + 1, false);
                    }
                    seen[index] = true;
                    if entry.digest != digest {
                        report.altered.add(id);
                    }
                    match entry.outcome {
                        CommitOutcome::Acknowledged => {}
                        CommitOutcome::Unknown => report.unknown_but_present += 1,
                        CommitOutcome::Failed => report.failed_but_present.add(id),
                    }
                }
            }
        }
        drop(rows);
        connection.close().await;
        self.for_each(|id, entry| {
            if entry.outcome == CommitOutcome::Acknowledged {
                report.acknowledged += 1;
                let index = id.sequence as usize - 1;
                if present.get(&id.worker).is_none_or(|seen| seen.get(index) != Some(&true)) {
                    report.missing.add(id);
                }
            }
        });
        Ok(report)
    }
}

/// Numbers of transactions by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgerTotals {
    /// See [`CommitOutcome::Acknowledged`].
    pub acknowledged: u64,
    /// See [`CommitOutcome::Unknown`].
    pub unknown: u64,
    /// See [`CommitOutcome::Failed`].
    pub failed: u64,
}

/// The result of comparing a server's table `tw_ledger` with the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// Number of rows in the table.
    pub rows: u64,
    /// Number of acknowledged transactions in the ledger.
    pub acknowledged: u64,
    /// Acknowledged transactions without a row. They are lost.
    pub missing: Violations,
    /// Rows whose digest differs from the digest in the ledger.
    pub altered: Violations,
    /// Number of transactions of unknown outcome that have a row. Any number is correct.
    pub unknown_but_present: u64,
    /// Failed transactions that have a row, which is wrong.
    pub failed_but_present: Violations,
    /// Number of rows that are not in the ledger.
    pub unlisted: u64,
}

/// Transactions that violate a check: their number, and the first of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations {
    /// Number of transactions.
    pub count: u64,
    /// The first transactions that violate the check.
    pub first: Vec<TransactionId>,
}

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, missing, altered, failed_but_present, unlisted, .. } = self;
        write!(
            f,
            "the table has {rows} rows; {} are missing, {} altered, {} present although their commit failed, {unlisted} not in the ledger",
            missing.count, altered.count, failed_but_present.count
        )
    }
}

impl Violations {
    const LISTED_MAX: usize = 20;

    pub(crate) fn add(&mut self, id: TransactionId) {
        self.count += 1;
        if self.first.len() < Self::LISTED_MAX {
            self.first.push(id);
        }
    }

    /// Whether there are no such transactions.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl std::fmt::Display for Violations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.count.fmt(f)?;
        if let Some((first, rest)) = self.first.split_first() {
            write!(f, " ({first}")?;
            for id in rest {
                write!(f, ", {id}")?;
            }
            f.write_str(if self.first.len() as u64 == self.count { ")" } else { ", ...)" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_stored_by_worker_and_sequence_number() {
        let ledger = Ledger::new();
        let id = |worker, sequence| TransactionId { worker, sequence };
        let entry = |outcome| LedgerEntry { outcome, changes: 1, digest: 2 };
        ledger.record(id(4, 1), entry(CommitOutcome::Acknowledged));
        ledger.record(id(4, 3), entry(CommitOutcome::Unknown));
        ledger.record(id(9, 1), entry(CommitOutcome::Failed));
        assert_eq!(ledger.totals(), LedgerTotals { acknowledged: 1, unknown: 1, failed: 1 });
        assert_eq!(ledger.get(id(4, 1)).map(|entry| entry.outcome), Some(CommitOutcome::Acknowledged));
        for missing in [id(4, 2), id(4, 0), id(4, 4), id(5, 1)] {
            assert_eq!(ledger.get(missing), None);
        }
        assert_eq!((ledger.last_sequence(4), ledger.last_sequence(5)), (3, 0));
    }
}
