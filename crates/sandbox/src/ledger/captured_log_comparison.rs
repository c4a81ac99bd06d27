//! Compares the transactions of a log with the ledger.

use std::collections::BTreeMap;
use std::fmt;

use tailwater_wire::WireError;
use tailwater_wire::row_event::{BinlogValue, Image, RowChange, TableMap};

use super::{CommitOutcome, Ledger, TransactionId, Violations};
use crate::workload::workload_tables::{
    ChangeKind, DELETED, RowStamp, SCHEMA, StampField, WorkloadTable, change_digest, payload_digest,
};

/// One transaction as a log contains it. Add the transaction's row changes, then pass it to
/// [`LedgerCheck::transaction`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggedTransaction {
    /// Id of the transaction, from its ledger row.
    id: Option<TransactionId>,
    /// Number of row changes and their digest, as recorded in the ledger row.
    stated: Option<(i64, i64)>,
    /// Number of ledger rows in the transaction. More than one is an error.
    ledger_rows: u32,
    changes: i64,
    digest: i64,
    /// Number of rows whose stamp column does not contain the digest of the other columns.
    altered: u32,
}

impl LoggedTransaction {
    /// Adds a changed row of any table. Rows outside the workload's schema are ignored.
    ///
    /// # Errors
    /// [`WireError`] if the row cannot be decoded, or does not have the columns of the workload's table.
    pub fn row(&mut self, change: &RowChange<'_>) -> Result<(), WireError> {
        let Some(image) = change.after.or(change.before) else { return Ok(()) };
        let map = image.table();
        if map.schema != SCHEMA {
            return Ok(());
        }
        let Some(table) = WorkloadTable::from_name(&map.table) else { return Ok(()) };
        let shape = table.shape();
        if map.columns.len() != shape.columns {
            let reason = format!("{} has {} columns", map.table, map.columns.len());
            return Err(WireError::malformed("a row of the workload", reason));
        }
        let kind = match (&change.before, &change.after) {
            (None, _) => ChangeKind::Insert,
            (Some(_), Some(_)) => ChangeKind::Update,
            (Some(_), None) => ChangeKind::Delete,
        };
        // The key is in the before image if there is one, even if only the changed columns were logged.
        let keyed = change.before.unwrap_or(image);
        let mut key = [0; 2];
        for (index, part) in key.iter_mut().enumerate().take(shape.key_columns) {
            *part = integer(&keyed, map, index)?;
        }
        let stamp = match kind {
            ChangeKind::Delete => DELETED,
            ChangeKind::Insert | ChangeKind::Update => integer(&image, map, shape.stamp)?,
        };
        if table == WorkloadTable::Ledger {
            return self.ledger_row(&image, map, key, stamp);
        }
        if (table, kind) == (WorkloadTable::Accounts, ChangeKind::Insert) {
            // The rows of this table are created before the workload starts. Workers only update them.
            return Ok(());
        }
        self.changes += 1;
        self.digest = self.digest.wrapping_add(change_digest(table, kind, key, stamp));
        for image in [change.before, change.after].into_iter().flatten() {
            if table.stamp_covers_row()
                && image.is_full()
                && stamp_of(&image, map, shape.stamp)? != integer(&image, map, shape.stamp)?
            {
                self.altered += 1;
            }
        }
        Ok(())
    }

    fn ledger_row(
        &mut self,
        image: &Image<'_>,
        map: &TableMap,
        key: [i64; 2],
        digest: i64,
    ) -> Result<(), WireError> {
        const CHANGES: usize = 2;
        const PAYLOAD: usize = 4;
        self.ledger_rows += 1;
        let outside = |_| WireError::malformed("a ledger row", "worker and sequence out of range");
        let worker = u32::try_from(key[0]).map_err(outside)?;
        let sequence = u64::try_from(key[1]).map_err(outside)?;
        self.id = Some(TransactionId { worker, sequence });
        self.stated = Some((integer(image, map, CHANGES)?, digest));
        if let Some(cell) = image.cell(PAYLOAD)?
            && let BinlogValue::Bytes(payload) = cell.value(&map.columns)?
        {
            self.digest = self.digest.wrapping_add(payload_digest(payload));
        }
        Ok(())
    }

    /// Whether the transaction contains no row of the workload.
    pub fn is_empty(&self) -> bool {
        self.id.is_none() && self.changes == 0
    }
}

fn integer(image: &Image<'_>, map: &TableMap, index: usize) -> Result<i64, WireError> {
    let wrong = || WireError::malformed("a row of the workload", format!("no integer in column {index}"));
    match image.cell(index)?.ok_or_else(wrong)?.value(&map.columns)? {
        BinlogValue::Int(value) => Ok(value),
        BinlogValue::UInt(value) => Ok(value as i64),
        _ => Err(wrong()),
    }
}

/// Computes the stamp of a row from its other columns.
fn stamp_of(image: &Image<'_>, map: &TableMap, stamp_index: usize) -> Result<i64, WireError> {
    let mut stamp = RowStamp::new();
    for cell in image.cells() {
        let cell = cell?;
        if cell.index == stamp_index {
            continue;
        }
        stamp = match cell.value(&map.columns)? {
            BinlogValue::Null => stamp.field(StampField::Null),
            BinlogValue::Int(value) => stamp.field(StampField::Integer(value)),
            BinlogValue::UInt(value) => stamp.field(StampField::Integer(value as i64)),
            BinlogValue::Enum(member) => stamp.field(StampField::Integer(i64::from(member))),
            BinlogValue::Double(value) => stamp.field(StampField::Double(value)),
            BinlogValue::Bytes(bytes) => stamp.field(StampField::Bytes(bytes)),
            BinlogValue::Decimal(decimal) => stamp.field(StampField::Bytes(decimal.to_string().as_bytes())),
            BinlogValue::DateTime(time) => stamp.field(StampField::Bytes(time.to_string().as_bytes())),
            other => {
                return Err(WireError::malformed(
                    "a row of the workload",
                    format!("column {} of {} holds {other:?}", cell.index, map.table),
                ));
            }
        };
    }
    Ok(stamp.finish())
}

/// Compares the transactions of a log with the ledger, one by one.
#[derive(Debug)]
pub struct LedgerCheck<'a> {
    ledger: &'a Ledger,
    /// For each worker and sequence number, how many times the log contains it. The count stops at 255.
    seen: BTreeMap<u32, Vec<u8>>,
    /// For each worker, the sequence number of its last transaction.
    last: BTreeMap<u32, u64>,
    report: LedgerReport,
}

impl fmt::Display for LedgerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "of {} acknowledged transactions {} are missing, {} doubled, {} incomplete, {} altered, {} out of order; {} are there \
             though their commit failed, {} not in the ledger, {} without a ledger row",
            self.acknowledged,
            self.missing_in_log.count,
            self.duplicated.count,
            self.incomplete.count,
            self.altered.count,
            self.out_of_order.count,
            self.failed_but_present.count,
            self.unlisted,
            self.unidentified
        )
    }
}

/// The result of a [`LedgerCheck`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerReport {
    /// Number of acknowledged transactions in the ledger.
    pub acknowledged: u64,
    /// Number of transactions of the workload in the log.
    pub in_log: u64,
    /// Acknowledged transactions that the log does not have. They are lost.
    pub missing_in_log: Violations,
    /// Transactions that the log has more than once.
    pub duplicated: Violations,
    /// Transactions whose row changes differ from those in their ledger row, or from those that the client
    /// made.
    pub incomplete: Violations,
    /// Transactions with a row whose contents differ from what the client wrote.
    pub altered: Violations,
    /// Transactions that the log has before an earlier transaction of the same worker.
    pub out_of_order: Violations,
    /// Number of transactions of unknown outcome.
    pub unknown: u64,
    /// Number of transactions of unknown outcome that the log has. Any number is correct.
    pub unknown_but_present: u64,
    /// Failed transactions that are in the log, which is wrong.
    pub failed_but_present: Violations,
    /// Number of transactions that are not in the ledger.
    pub unlisted: u64,
    /// Number of transactions that change the workload's tables without a ledger row.
    pub unidentified: u64,
}

impl LedgerReport {
    /// Whether the log has each acknowledged transaction completely, once and in order, and has neither
    /// failed nor unidentified transactions.
    pub fn is_ok(&self) -> bool {
        self.missing_in_log.is_empty()
            && self.duplicated.is_empty()
            && self.incomplete.is_empty()
            && self.altered.is_empty()
            && self.out_of_order.is_empty()
            && self.failed_but_present.is_empty()
            && self.unidentified == 0
    }
}

impl<'a> LedgerCheck<'a> {
    /// Starts a comparison. The workload should have ended: a transaction that is acknowledged later counts
    /// as missing.
    pub fn new(ledger: &'a Ledger) -> Self {
        Self { ledger, seen: BTreeMap::new(), last: BTreeMap::new(), report: LedgerReport::default() }
    }

    /// Adds the next transaction of the log.
    pub fn transaction(&mut self, logged: &LoggedTransaction) {
        let report = &mut self.report;
        let Some(id) = logged.id else {
            report.unidentified += u64::from(logged.changes > 0);
            return;
        };
        report.in_log += 1;
        if logged.ledger_rows != 1 || logged.stated != Some((logged.changes, logged.digest)) {
            report.incomplete.add(id);
        } else if logged.altered > 0 {
            report.altered.add(id);
        }
        let Some(entry) = self.ledger.get(id) else {
            report.unlisted += 1;
            return;
        };
        match entry.outcome {
            CommitOutcome::Acknowledged => {}
            CommitOutcome::Unknown => report.unknown_but_present += 1,
            CommitOutcome::Failed => report.failed_but_present.add(id),
        }
        if logged.stated.is_some_and(|stated| stated != (i64::from(entry.changes), entry.digest)) {
            report.incomplete.add(id);
        }
        // The ledger has an entry with this sequence number, so this vector does not become longer than the
        // ledger's vector.
        let seen = self.seen.entry(id.worker).or_default();
        let index = id.sequence as usize - 1;
        if seen.len() <= index {
            seen.resize(index + 1, 0);
        }
        if seen[index] > 0 {
            report.duplicated.add(id);
        }
        seen[index] = seen[index].saturating_add(1);
        let last = self.last.entry(id.worker).or_default();
        if id.sequence < *last {
            report.out_of_order.add(id);
        }
        *last = id.sequence.max(*last);
    }

    /// Ends the comparison. Acknowledged transactions of the ledger that the log does not have are reported
    /// as missing.
    pub fn finish(mut self) -> LedgerReport {
        self.ledger.for_each(|id, entry| match entry.outcome {
            CommitOutcome::Acknowledged => {
                self.report.acknowledged += 1;
                let seen = self.seen.get(&id.worker).and_then(|seen| seen.get(id.sequence as usize - 1));
                if seen.is_none_or(|count| *count == 0) {
                    self.report.missing_in_log.add(id);
                }
            }
            CommitOutcome::Unknown => self.report.unknown += 1,
            CommitOutcome::Failed => {}
        });
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::super::LedgerEntry;
    use super::*;

    const WORKER: u32 = 2;

    fn id(sequence: u64) -> TransactionId {
        TransactionId { worker: WORKER, sequence }
    }

    fn logged(sequence: u64, digest: i64) -> LoggedTransaction {
        LoggedTransaction {
            id: Some(id(sequence)),
            stated: Some((1, digest)),
            ledger_rows: 1,
            changes: 1,
            digest,
            altered: 0,
        }
    }

    fn ledger(outcomes: &[CommitOutcome]) -> Ledger {
        let ledger = Ledger::new();
        for (sequence, &outcome) in (1..).zip(outcomes) {
            ledger.record(id(sequence), LedgerEntry { outcome, changes: 1, digest: sequence as i64 });
        }
        ledger
    }

    fn check(outcomes: &[CommitOutcome], log: &[LoggedTransaction]) -> LedgerReport {
        let ledger = ledger(outcomes);
        let mut check = LedgerCheck::new(&ledger);
        for transaction in log {
            check.transaction(transaction);
        }
        check.finish()
    }

    #[test]
    fn a_complete_log_is_ok() {
        use CommitOutcome::{Acknowledged, Failed, Unknown};
        let outcomes = [Acknowledged, Unknown, Failed, Acknowledged, Unknown];
        let report = check(&outcomes, &[logged(1, 1), logged(2, 2), logged(4, 4)]);
        assert!(report.is_ok(), "the comparison of a complete log found a fault: {report:?}");
        assert_eq!((report.acknowledged, report.in_log), (2, 3));
        assert_eq!((report.unknown, report.unknown_but_present), (2, 1));
    }

    #[test]
    fn each_kind_of_fault_is_reported() {
        use CommitOutcome::{Acknowledged, Failed};
        let fine = [logged(1, 1), logged(2, 2)];
        let report = |log: &[LoggedTransaction]| check(&[Acknowledged, Acknowledged], log);
        assert!(report(&fine).is_ok());
        assert_eq!(report(&fine[..1]).missing_in_log.first, [id(2)]);
        assert_eq!(report(&[logged(1, 1), logged(1, 1), logged(2, 2)]).duplicated.first, [id(1)]);
        assert_eq!(report(&[logged(2, 2), logged(1, 1)]).out_of_order.first, [id(1)]);
        assert_eq!(report(&[logged(1, 5), logged(2, 2)]).incomplete.first, [id(1)]);
        let half = LoggedTransaction { changes: 0, digest: 0, ..logged(1, 1) };
        assert_eq!(report(&[half, logged(2, 2)]).incomplete.first, [id(1)]);
        let altered = LoggedTransaction { altered: 1, ..logged(1, 1) };
        assert_eq!(report(&[altered, logged(2, 2)]).altered.first, [id(1)]);
        let nameless = LoggedTransaction { id: None, stated: None, ledger_rows: 0, ..logged(1, 1) };
        assert_eq!(report(&[nameless]).unidentified, 1);
        assert_eq!(report(&[logged(1, 1), logged(2, 2), logged(3, 3)]).unlisted, 1);
        assert_eq!(check(&[Failed], &[logged(1, 1)]).failed_but_present.count, 1);
    }
}
