//! Transactions with rows of tables that have no transactions: such rows are there as soon as the target takes them.
//!
//! Each is a batch of its own, and nothing else runs meanwhile. What can be undone is done first, so that what the target refuses of
//! it leaves no trace; then the rows that cannot, and progress at once after them. MySQL logs these rows as a
//! transaction of their own as soon as their statement ends, and MariaDB too: under `gtid = preserve` that is the one
//! GTID that there is, and progress is then not logged.

use super::{Worker, changes, end_of, is_conflict, oldest, timing};
use crate::channel::gtid_session::GtidSession;
use crate::channel::options::GtidMode;
use crate::channel::packets::Packets;
use crate::channel::reader::Held;
use crate::error::ApplyError;
use crate::scheduler::Batch;
use crate::target::TargetTable;
use crate::transaction::RowChanges;

use std::time::{Duration, Instant};

use tailwater_session::SessionError;

use super::{CONFLICTS_MAX, Committed};

/// What has become of the rows that cannot be undone.
#[derive(Debug, Default)]
struct Written {
    /// How many were sent.
    rows: usize,
    /// The table of the last of them.
    table: String,
}

impl Written {
    /// Whether some may be there although the target has refused what it was sent last. A row alone is there or not.
    fn may_be_there(&self) -> bool {
        self.rows > 1
    }
}

/// The name of a table for people.
fn name(table: &TargetTable) -> String {
    format!("{}.{}", table.schema, table.table)
}

impl Worker {
    /// Applies and commits a batch of one transaction, some of whose rows cannot be undone.
    ///
    /// # Errors
    /// What the target refuses: [`ApplyError::PartlyWritten`] if some of it is there nevertheless, and must not come again.
    /// [`ApplyError::NotTransactional`] if it could not be done exactly once.
    pub(super) async fn apply_untransactional(
        &mut self,
        batch: &Batch<Held>,
    ) -> Result<Committed, ApplyError> {
        let mut conflicts = 0;
        loop {
            let mut written = Written::default();
            let error = match self.attempt_untransactional(batch, &mut written).await {
                Ok(Committed::Nothing) => {
                    self.roll_back().await?;
                    return Ok(Committed::Nothing);
                }
                Ok(committed) => return Ok(committed),
                Err(error) => error,
            };
            let ApplyError::Session(SessionError::Server { error: server, .. }) = &error else {
                return Err(error);
            };
            let (server, table) = (server.clone(), written.table.clone());
            self.roll_back().await?;
            let gtid = oldest(batch).map(|held| held.gtid_text()).unwrap_or_default();
            if written.may_be_there() {
                return Err(ApplyError::PartlyWritten { gtid, table, error: Box::new(server) });
            }
            conflicts += 1;
            if !is_conflict(server.number) || conflicts > CONFLICTS_MAX {
                return Err(match written.rows {
                    0 => error,
                    _ => ApplyError::Refused {
                        gtid,
                        subject: table,
                        values: String::new().into(),
                        error: Box::new(server),
                    },
                });
            }
            tokio::time::sleep(Duration::from_millis(u64::from(conflicts.min(10)))).await;
        }
    }

    async fn attempt_untransactional(
        &mut self,
        batch: &Batch<Held>,
        written: &mut Written,
    ) -> Result<Committed, ApplyError> {
        let begun = Instant::now();
        let all: [&[Held]; 2] = [&batch.first, &batch.rest];
        if !self.until_durable(end_of(&all)).await? || !self.log_prepared(batch).await? {
            return Ok(Committed::Nothing);
        }
        let (undoable, lasting): (Vec<&RowChanges>, Vec<&RowChanges>) =
            changes(&all).partition(|changes| changes.table.target.transactional);
        let preserves = self.shared.options.gtid == GtidMode::Preserve;
        let mut identity = Packets::default();
        if preserves {
            if !undoable.is_empty() {
                let reason = "with gtid = preserve its rows and those of tables with transactions cannot stand \
                              under one GTID";
                return Err(not_once(batch, &lasting, reason));
            }
            let gtid = oldest(batch).and_then(|transaction| transaction.gtid.as_ref());
            gtid.iter().for_each(|gtid| identity.push(GtidSession::statement(gtid)));
        }
        let mut packets = identity;
        self.writer.push_rows(undoable.into_iter(), &mut packets)?;
        self.writer.run_counted(packets).await?;
        // Each by itself, so that it is known of which table it was: under one GTID there is but one statement.
        let at_once = if preserves { lasting.len().max(1) } else { 1 };
        for some in lasting.chunks(at_once) {
            let mut packets = Packets::default();
            self.writer.push_rows(some.iter().copied(), &mut packets)?;
            if preserves && packets.changes() > 1 {
                return Err(not_once(batch, some, "its rows need several statements, and have one GTID"));
            }
            written.rows += some.iter().map(|changes| changes.rows.len()).sum::<usize>();
            if let Some(changes) = some.first() {
                written.table = name(&changes.table.target);
            }
            self.writer.run_counted(packets).await?;
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
        Ok(Committed::All(timing(begun.elapsed().saturating_sub(commit), commit)))
    }
}

fn not_once(batch: &Batch<Held>, lasting: &[&RowChanges], reason: &str) -> ApplyError {
    ApplyError::NotTransactional {
        gtid: oldest(batch).map(|held| held.gtid_text()).unwrap_or_default(),
        table: lasting.first().map(|changes| name(&changes.table.target)).unwrap_or_default(),
        reason: reason.to_owned(),
    }
}
