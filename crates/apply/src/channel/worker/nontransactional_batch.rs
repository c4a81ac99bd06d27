//! Applies transactions with rows of nontransactional tables. A rollback does not undo these rows after their
//! statement has run.
//!
//! Each such transaction is a separate batch, and no other batch runs at the same time. Its transactional
//! rows are written first, so that nothing remains on the target if one of these rows is rejected. Then come
//! the nontransactional rows, and directly after them the progress. MySQL and MariaDB log nontransactional
//! rows as a separate transaction when the statement ends. Under `gtid = preserve` that transaction takes the
//! only GTID, so the progress is not logged.

use std::time::{Duration, Instant};

use tailwater_session::SessionError;
use tailwater_wire::Flavour;
use tracing::debug;

use super::{ApplyWorker, BatchOutcome, CONFLICTS_MAX, changes, end_of, is_conflict, oldest, timing};
use crate::channel::channel_options::GtidMode;
use crate::channel::gtid_next_session::GtidSession;
use crate::channel::log_reader::BudgetedTransaction;
use crate::channel::multi_statement_packets::Packets;
use crate::channel::nontransactional_rows::{NontransactionalRows, table_name};
use crate::error::ApplyError;
use crate::scheduler::TransactionBatch;
use crate::source_transaction::RowChanges;

impl ApplyWorker {
    /// Applies and commits a batch of one transaction that has nontransactional rows.
    ///
    /// # Errors
    /// The error of the target; [`ApplyError::PartlyWritten`] if the target keeps some of the rows, so that
    /// they must not be written again; [`ApplyError::NotTransactional`] if the transaction cannot be applied
    /// exactly once.
    pub(super) async fn apply_nontransactional(
        &mut self,
        batch: &TransactionBatch<BudgetedTransaction>,
    ) -> Result<BatchOutcome, ApplyError> {
        let mut conflicts = 0;
        loop {
            // If these rows are sent again, MySQL ignores them, because it already has their GTID.
            let ignored_if_repeated = self.preserves() && self.shared.flavour == Flavour::MySql;
            let mut nontransactional = NontransactionalRows::new(ignored_if_repeated);
            let error = match self.attempt_nontransactional(batch, &mut nontransactional).await {
                Ok(BatchOutcome::Returned) => {
                    self.roll_back_all().await?;
                    return Ok(BatchOutcome::Returned);
                }
                Ok(committed) => return Ok(committed),
                Err(error) => error,
            };
            let gtid = oldest(batch).map(|transaction| transaction.gtid_text()).unwrap_or_default();
            let error = match nontransactional.explain(&gtid, error) {
                error @ ApplyError::PartlyWritten { .. } => {
                    if let Err(failed) = self.roll_back_all().await {
                        debug!(
                            "the rollback failed; the target rolls back when the connection closes: {failed}"
                        );
                    }
                    return Err(error);
                }
                error => error,
            };
            let ApplyError::Session(SessionError::Server { error: server, .. }) = &error else {
                return Err(error);
            };
            let server = server.clone();
            self.roll_back_all().await?;
            conflicts += 1;
            if !is_conflict(server.number) || nontransactional.are_written() || conflicts > CONFLICTS_MAX {
                return Err(match nontransactional.table() {
                    None => error,
                    Some(table) => ApplyError::Rejected {
                        gtid,
                        subject: table.to_owned(),
                        values: String::new().into(),
                        error: Box::new(server),
                    },
                });
            }
            tokio::time::sleep(Duration::from_millis(u64::from(conflicts.min(10)))).await;
        }
    }

    fn preserves(&self) -> bool {
        self.shared.options.gtid == GtidMode::Preserve
    }

    /// Rolls back, and turns binary logging of the session on again. Binary logging may be off because the
    /// worker was about to write progress without logging it.
    async fn roll_back_all(&mut self) -> Result<(), ApplyError> {
        self.roll_back().await?;
        if self.preserves() {
            self.writer.connection.execute("SET SESSION sql_log_bin=1").await?;
        }
        Ok(())
    }

    async fn attempt_nontransactional(
        &mut self,
        batch: &TransactionBatch<BudgetedTransaction>,
        rows: &mut NontransactionalRows,
    ) -> Result<BatchOutcome, ApplyError> {
        let started = Instant::now();
        let all: [&[BudgetedTransaction]; 2] = [&batch.first, &batch.rest];
        if !self.wait_until_durable(end_of(&all)).await? || !self.log_xa_prepare(batch).await? {
            return Ok(BatchOutcome::Returned);
        }
        self.writer.start_transaction();
        let (transactional, nontransactional): (Vec<&RowChanges>, Vec<&RowChanges>) =
            changes(&all).partition(|changes| changes.table.target.transactional);
        let preserves = self.preserves();
        let mut identity = Packets::default();
        if preserves {
            if !transactional.is_empty() {
                let reason = "with gtid = preserve, its rows and those of transactional tables cannot be \
                              written under one GTID";
                return Err(not_exactly_once(batch, &nontransactional, reason));
            }
            let gtid = oldest(batch).and_then(|transaction| transaction.gtid.as_ref());
            gtid.iter().for_each(|gtid| identity.push(GtidSession::statement(gtid)));
        }
        let mut packets = identity;
        self.writer.push_rows(transactional.into_iter(), &mut packets)?;
        self.writer.run_counted(packets).await?;
        // With one statement for each table, an error shows which table failed. If all rows have one GTID,
        // all of them must be in one statement.
        let changes_per_statement = if preserves { nontransactional.len().max(1) } else { 1 };
        for some in nontransactional.chunks(changes_per_statement) {
            let mut packets = Packets::default();
            self.writer.push_rows(some.iter().copied(), &mut packets)?;
            if preserves && packets.changes() > 1 {
                return Err(not_exactly_once(
                    batch,
                    some,
                    "the rows of the transaction need several statements, but only one statement can have its GTID",
                ));
            }
            some.iter().for_each(|changes| rows.push(&changes.table.target, changes.rows.len()));
            rows.send();
            self.writer.run_counted(packets).await?;
            rows.succeed();
        }
        self.check_rows(&all).await?;
        let commit_begun = Instant::now();
        let mut packets = Packets::default();
        if preserves {
            packets.push("COMMIT");
            packets.push(GtidSession::reset(self.shared.flavour));
            packets.push("SET SESSION sql_log_bin=0");
        }
        self.push_rows(&[], &all, &mut packets)?;
        self.push_statements(&all, &mut packets);
        packets.push("COMMIT");
        if preserves {
            packets.push("SET SESSION sql_log_bin=1");
        }
        self.writer.run_counted(packets).await?;
        self.writer.row_count().commit();
        let commit = commit_begun.elapsed();
        Ok(BatchOutcome::Committed(timing(started.elapsed().saturating_sub(commit), commit)))
    }
}

fn not_exactly_once(
    batch: &TransactionBatch<BudgetedTransaction>,
    nontransactional: &[&RowChanges],
    reason: &str,
) -> ApplyError {
    ApplyError::NotTransactional {
        gtid: oldest(batch).map(|transaction| transaction.gtid_text()).unwrap_or_default(),
        table: nontransactional.first().map(|changes| table_name(&changes.table.target)).unwrap_or_default(),
        reason: reason.to_owned(),
    }
}
