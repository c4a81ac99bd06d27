//! Runs the source's statements, each with its session settings. Before a statement that commits implicitly
//! (DDL), this module records on the target the intent to run the statement.
//!
//! One connection runs the statements of all workers, because temporary tables belong to a connection. Within
//! that connection, the source's thread ID identifies the temporary tables. The connection holds a server
//! lock (`GET_LOCK`) with the channel's name. A process that takes the channel over waits for this lock, and
//! so for the end of an earlier statement. Then the process decides whether that statement has run.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tailwater_session::SessionError;
use tailwater_wire::gtid::Gtid;
use tokio::sync::Mutex;
use tracing::debug;

use super::channel_lock;
use super::channel_options::GtidMode;
use super::ddl_object_fingerprint::{Fingerprint, fingerprint, is_already_done, may_swap, rest_of_drop};
use super::dml_statement_tables::changed_tables;
use super::gtid_next_session::GtidSession;
use super::hex_literal::hex;
use super::log_reader::{BudgetedTransaction, StreamedStep};
use super::multi_statement_packets::Packets;
use super::nontransactional_rows::{NontransactionalRows, table_name};
use super::progress_store::{Intents, load_intents, source_session_statement};
use super::repeatable_statement::{RerunResult, may_have_run, rerun_result};
use super::row_writer::{LONG_ROW_BYTES, RowWriter};
use super::shared_channel_state::ChannelShared;
use super::source_statement_session::{SourceSession, statement_label};
use super::started_ddl_records::IntentRetention;
use super::statement_rewrite::start_transaction_clause;
use crate::error::ApplyError;
use crate::source_transaction::{ApplyStep, Statement, TransactionContent};
use crate::transaction_decoder::statement_classifier::is_temporary;
use tailwater_wire::sql_quote::portable_literal;

/// Collected rows are sent once they have this many bytes.
const FLUSH_BYTES: usize = 1 << 20;

/// The prefix of a fingerprint that was taken after a statement whose result differed from the result on the
/// source. While the fingerprint stays the same, the channel reports the error of the statement again.
const DIFFERENT_RESULT_PREFIX: &str = "otherwise ";

/// This text is stored instead of a fingerprint for a statement that can be run a second time.
const REPEATABLE: &str = "repeatable";

/// Runs transactions that contain statements.
#[derive(Debug, Default)]
pub(super) struct StatementRunner {
    session: Mutex<Option<RunnerSession>>,
}

#[derive(Debug)]
struct RunnerSession {
    source: SourceSession,
    /// The statements that earlier runs of the channel intended to run. These statements may have run.
    intents: Intents,
    /// All recorded intents to run statements on the target, with the time at which each statement may have
    /// completed.
    retention: IntentRetention,
    /// The rows of nontransactional tables in the running transaction.
    nontransactional: NontransactionalRows,
}

/// The state of a transaction that is being run.
#[derive(Debug)]
struct TransactionRun {
    /// Whether the target transaction that will contain the progress has started.
    in_transaction: bool,
    /// Whether a statement of the transaction that commits implicitly has run, in this attempt or an earlier
    /// one.
    ddl_ran: bool,
    /// Rows of the transaction that are not sent to the target yet.
    rows: Packets,
}

/// Returns the error for a statement that must not start, because after a crash it would be unknown whether
/// it has run.
fn undecidable_error(transaction: &BudgetedTransaction) -> ApplyError {
    ApplyError::Unsupported {
        gtid: transaction.gtid_text(),
        what: "a statement that may swap tables".to_owned(),
        reason: "after a crash it would be unknown whether the statement has run, because the account cannot read the IDs of the tables; \
                 `GRANT PROCESS ON *.*` to it, then start the channel"
            .to_owned(),
    }
}

/// Returns the error for a statement that creates and fills a table: MySQL logs the table and its rows
/// separately.
fn create_select_error(transaction: &BudgetedTransaction) -> ApplyError {
    ApplyError::Unsupported {
        gtid: transaction.gtid_text(),
        what: "CREATE TABLE ... SELECT".to_owned(),
        reason: "with gtid = preserve, the target cannot log the table and its rows under one GTID; apply the \
                 transaction with gtid = log, or create the table with its rows on the target by hand and skip the \
                 transaction"
            .to_owned(),
    }
}

fn gtid_conflict_error(transaction: &BudgetedTransaction, table: String) -> ApplyError {
    ApplyError::NotTransactional {
        gtid: transaction.gtid_text(),
        table,
        reason:
            "with gtid = preserve, the target cannot log a statement or streamed rows of the table and the \
                 progress under one GTID"
                .to_owned(),
    }
}

/// Returns the GTID under which the target must log a transaction.
fn preserved_gtid<'h>(shared: &ChannelShared, transaction: &'h BudgetedTransaction) -> Option<&'h Gtid> {
    transaction.gtid.as_ref().filter(|_| shared.options.gtid == GtidMode::Preserve)
}

/// Returns whether a statement that may have run can be run again.
fn is_repeatable(statement: &Statement, gtid: GtidMode) -> bool {
    let how = rerun_result(&statement.text).filter(|_| statement.error_code == 0);
    // A `CREATE TABLE ... SELECT` must not run again, because MySQL logs the table and its rows separately.
    start_transaction_clause(&statement.text).is_none()
        && match how {
            Some(RerunResult::AlreadyDone) => true,
            // A target that logs the statement would log it a second time, and its replicas would run it
            // twice.
            Some(RerunResult::Unchanged) => gtid == GtidMode::Log,
            None => false,
        }
}

impl StatementRunner {
    /// Runs the steps of a transaction, and commits them with the statement `progress`. Returns false if
    /// nothing was done, because the channel was stopped while the statement of an earlier connection still
    /// ran.
    ///
    /// # Errors
    /// The error of the target. A statement that commits implicitly may have run nevertheless. Its intent
    /// stays on the target, and the next attempt at the transaction finds out whether the statement has run.
    pub(super) async fn apply(
        &self,
        shared: &Arc<ChannelShared>,
        transaction: &BudgetedTransaction,
        progress: Vec<u8>,
    ) -> Result<bool, ApplyError> {
        let mut session = self.session.lock().await;
        // Take the session out of the mutex. After an error the session is dropped, and the next transaction
        // opens a new one.
        let open = match session.take() {
            Some(open) => Some(open),
            None => RunnerSession::open(shared).await?,
        };
        let Some(mut open) = open else { return Ok(false) };
        open.nontransactional = NontransactionalRows::default();
        if let Err(error) = open.run(shared, transaction, progress).await {
            return Err(open.nontransactional.explain(&transaction.gtid_text(), error));
        }
        *session = Some(open);
        Ok(true)
    }
}

impl RunnerSession {
    /// Connects, and waits until the statement of an earlier connection has ended. Returns `None` if the
    /// channel is stopped first.
    async fn open(shared: &Arc<ChannelShared>) -> Result<Option<Self>, ApplyError> {
        let mut writer = RowWriter::open(&shared.options).await?;
        if !channel_lock::acquire(&mut writer.connection, shared).await? {
            return Ok(None);
        }
        // Read the recorded intents to run statements only now that the lock is held: an earlier connection
        // may have recorded an intent after the takeover.
        let intents = load_intents(&mut writer.connection, &shared.options.name).await?;
        let retention = IntentRetention::new(intents.keys().cloned(), Instant::now());
        let setting = source_session_statement(shared.flavour, shared.options.gtid);
        writer.connection.execute(&setting).await?;
        let source = SourceSession::new(writer, shared).await?;
        Ok(Some(Self { source, intents, retention, nontransactional: NontransactionalRows::default() }))
    }

    /// Runs the steps in order. Rows, and statements that change rows, are in one target transaction with the
    /// progress. Statements that create or drop a temporary table within that transaction are in the target
    /// transaction too. A statement that commits implicitly runs before that transaction, after the intent to
    /// run it was recorded. Such a statement also commits the earlier steps.
    async fn run(
        &mut self,
        shared: &Arc<ChannelShared>,
        transaction: &BudgetedTransaction,
        progress: Vec<u8>,
    ) -> Result<(), ApplyError> {
        self.source.writer.start_transaction();
        let mut run = TransactionRun { in_transaction: false, ddl_ran: false, rows: Packets::default() };
        // The recorded fingerprint from before the statement, if an earlier attempt has started the
        // statement.
        let mut intent = self.intents.remove(&transaction.span.start.to_string());
        if let TransactionContent::Steps(steps) = &transaction.content {
            for step in steps {
                self.step(shared, transaction, step, &mut run, &mut intent).await?;
            }
        }
        if let Some(steps) = transaction.steps() {
            let mut steps = steps.lock().await;
            loop {
                match steps.recv().await {
                    Some(StreamedStep::ApplyStep { step, done, memory: _memory }) => {
                        self.step(shared, transaction, &step, &mut run, &mut intent).await?;
                        // Tell the reader that the step has run. The reader waits for this message only after
                        // DDL statements.
                        done.map(|done| done.send(()));
                    }
                    Some(StreamedStep::End) => break,
                    None => return Err(ApplyError::ReadInterrupted { gtid: transaction.gtid_text() }),
                }
            }
        }
        self.flush_and_check(transaction, &mut run).await?;
        self.source.restore_own_settings().await?;
        // The target has logged the statement under the source's GTID. It must not log the progress too,
        // because the progress would get another GTID.
        let unlogged = run.ddl_ran && !run.in_transaction && shared.options.gtid == GtidMode::Preserve;
        if unlogged {
            self.source.writer.connection.execute("SET SESSION sql_log_bin=0").await?;
        }
        self.begin_transaction(shared, transaction, &mut run).await?;
        // Keep the recorded intent to run the statement even after this commit, because a crash of the target
        // may lose the commit.
        self.source.writer.connection.execute_bytes(&progress).await?;
        self.source.writer.connection.execute("COMMIT").await?;
        if unlogged {
            // Turn binary logging on again: replicas of the target need the later transactions.
            self.source.writer.connection.execute("SET SESSION sql_log_bin=1").await?;
        }
        if run.ddl_ran {
            self.retention.record(transaction.span.start.to_string(), Instant::now());
        }
        if shared.options.gtid == GtidMode::Preserve {
            self.source.writer.connection.execute(GtidSession::reset(shared.flavour)).await?;
        }
        let setting = source_session_statement(shared.flavour, shared.options.gtid);
        self.source.writer.connection.execute(&setting).await?;
        Ok(())
    }

    async fn step(
        &mut self,
        shared: &Arc<ChannelShared>,
        transaction: &BudgetedTransaction,
        step: &ApplyStep,
        run: &mut TransactionRun,
        intent: &mut Option<String>,
    ) -> Result<(), ApplyError> {
        let is_definition = matches!(step, ApplyStep::Statement(statement) if !statement.dml);
        if run.ddl_ran
            && !run.in_transaction
            && !is_definition
            && preserved_gtid(shared, transaction).is_some()
        {
            // These rows come after the statement that has created their table, which has used the GTID. So
            // they would get the source's next GTID, which belongs to another transaction.
            return Err(create_select_error(transaction));
        }
        match step {
            ApplyStep::Rows(rows) => {
                if !rows.table.target.transactional && preserved_gtid(shared, transaction).is_some() {
                    return Err(gtid_conflict_error(transaction, table_name(&rows.table.target)));
                }
                // Rows must not be written with settings of the last statement, such as its time zone and
                // foreign key checks.
                self.source.restore_own_settings().await?;
                self.begin_transaction(shared, transaction, run).await?;
                let is_long = rows.images.len() > LONG_ROW_BYTES;
                if is_long {
                    self.flush(run).await?;
                }
                if !rows.table.target.transactional {
                    self.nontransactional.push(&rows.table.target, rows.rows.len());
                }
                if is_long {
                    self.nontransactional.send();
                    self.source.writer.run_rows(rows).await?;
                    self.nontransactional.succeed();
                    return Ok(());
                }
                self.source.writer.push_rows(std::iter::once(rows), &mut run.rows)?;
                if run.rows.bytes() >= FLUSH_BYTES {
                    self.flush(run).await?;
                }
            }
            // Creating or dropping a temporary table does not end the transaction.
            ApplyStep::Statement(statement)
                if statement.dml || run.in_transaction && is_temporary(&statement.text) =>
            {
                self.flush_and_check(transaction, run).await?;
                if preserved_gtid(shared, transaction).is_some() {
                    self.refuse_nontransactional(transaction, statement).await?;
                }
                self.begin_transaction(shared, transaction, run).await?;
                self.source.run(shared, transaction, statement, None).await?;
            }
            ApplyStep::Statement(statement) => {
                self.flush_and_check(transaction, run).await?;
                self.run_ddl(shared, transaction, statement, run, intent).await?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self, run: &mut TransactionRun) -> Result<(), ApplyError> {
        self.nontransactional.send();
        self.source.writer.run_counted(std::mem::take(&mut run.rows)).await?;
        self.nontransactional.succeed();
        Ok(())
    }

    /// Sends all pending rows, and checks how many rows the target has changed. This check must come before
    /// the next statement, because that statement changes the target's row counters.
    async fn flush_and_check(
        &mut self,
        transaction: &BudgetedTransaction,
        run: &mut TransactionRun,
    ) -> Result<(), ApplyError> {
        self.flush(run).await?;
        // The target's changes are checked only if its row counters were read before the rows were sent.
        let counted = self.source.writer.count_rows().await;
        counted.map_err(|error| error.of_transaction(&transaction.gtid_text()))?;
        self.source.writer.row_count().reset();
        Ok(())
    }

    /// Rejects a statement on a nontransactional table. The target would log the rows of such a table under
    /// the GTID, but without the transaction's progress.
    async fn refuse_nontransactional(
        &mut self,
        transaction: &BudgetedTransaction,
        statement: &Statement,
    ) -> Result<(), ApplyError> {
        let tables = changed_tables(&statement.text);
        if tables.is_empty() {
            return Ok(());
        }
        self.source.restore_own_settings().await?;
        let session = String::from_utf8_lossy(&statement.database);
        // Use a separate condition on a single table in each query: for a condition on two tables, MariaDB
        // would open all tables.
        let questions: Vec<String> = tables
            .iter()
            .map(|table| {
                let schema = table.schema.as_deref().unwrap_or(&session);
                format!(
                    "SELECT CONCAT(t.table_schema, '.', t.table_name) FROM information_schema.tables t JOIN \
                     information_schema.engines e ON e.engine=t.engine AND e.transactions<>'YES' \
                     WHERE t.table_schema={} AND t.table_name={} AND t.table_type<>'TEMPORARY'",
                    portable_literal(schema),
                    portable_literal(&table.name)
                )
            })
            .collect();
        let found = self.source.writer.connection.query(&questions.join(" UNION ALL ")).await?;
        match found.scalar() {
            Some(table) => Err(gtid_conflict_error(transaction, table.to_owned())),
            None => Ok(()),
        }
    }

    /// Starts the target transaction that will contain the progress, if this transaction has not started yet.
    async fn begin_transaction(
        &mut self,
        shared: &Arc<ChannelShared>,
        transaction: &BudgetedTransaction,
        run: &mut TransactionRun,
    ) -> Result<(), ApplyError> {
        if run.in_transaction {
            return Ok(());
        }
        run.in_transaction = true;
        self.source.restore_own_settings().await?;
        // If a statement that commits implicitly has run in this transaction, that statement has used the
        // GTID.
        if !run.ddl_ran
            && let Some(gtid) = preserved_gtid(shared, transaction)
        {
            self.source.writer.connection.execute(&GtidSession::statement(gtid)).await?;
        }
        self.source.writer.connection.execute("START TRANSACTION").await?;
        Ok(())
    }

    /// Runs a statement that commits implicitly, if the statement has not already run.
    async fn run_ddl(
        &mut self,
        shared: &Arc<ChannelShared>,
        transaction: &BudgetedTransaction,
        statement: &Statement,
        run: &mut TransactionRun,
        pending_intent: &mut Option<String>,
    ) -> Result<(), ApplyError> {
        self.source.restore_own_settings().await?;
        let mut intent = pending_intent.take();
        // For a statement that can be run a second time, no fingerprint is taken: reading the definitions of
        // all tables of a database takes longer than most statements.
        let is_repeatable = intent.as_deref().is_none_or(|text| text == REPEATABLE)
            && is_repeatable(statement, shared.options.gtid);
        let now = match is_repeatable {
            true => Fingerprint { text: REPEATABLE.to_owned(), lacks_numbers: false },
            false => fingerprint(&mut self.source.writer.connection, statement, shared.flavour).await?,
        };
        if let Some(after) = intent.as_deref().and_then(|text| text.strip_prefix(DIFFERENT_RESULT_PREFIX)) {
            if after == now.text {
                return Err(ApplyError::OutcomeDiffers {
                    gtid: transaction.gtid_text(),
                    statement: statement_label(statement),
                    number: statement.error_code,
                });
            }
            // The fingerprint has changed since the error, so an operator has corrected the objects.
            intent = None;
        }
        let ran = intent.as_ref().is_some_and(|before| *before != now.text);
        if !ran
            && preserved_gtid(shared, transaction).is_some()
            && start_transaction_clause(&statement.text).is_some()
        {
            return Err(create_select_error(transaction));
        }
        if intent.is_none() {
            if now.lacks_numbers && may_swap(&statement.text) {
                return Err(undecidable_error(transaction));
            }
            self.record_intent(shared, transaction, statement, &now.text).await?;
        }
        if ran {
            self.source.run_effects(shared, transaction, statement).await?;
        } else {
            let result =
                self.source.run(shared, transaction, statement, preserved_gtid(shared, transaction)).await;
            self.record_result(shared, transaction, statement, &now.text, result, intent.is_some()).await?;
        }
        let rest =
            rest_of_drop(&statement.text).filter(|_| ran && preserved_gtid(shared, transaction).is_none());
        if let Some(rest) = rest {
            let rest = Statement { text: rest.into(), ..statement.clone() };
            self.source.run(shared, transaction, &rest, None).await?;
        }
        run.ddl_ran = true;
        run.in_transaction = false;
        self.source.restore_own_settings().await?;
        if preserved_gtid(shared, transaction).is_some() {
            self.source.writer.connection.execute(GtidSession::reset(shared.flavour)).await?;
        }
        Ok(())
    }

    /// Records the failure of a statement. `was_started` means that an earlier attempt may have executed the
    /// statement. In that case, an error that the object already exists, or no longer exists, counts as
    /// success.
    ///
    /// # Errors
    /// The error of `result`.
    async fn record_result(
        &mut self,
        shared: &Arc<ChannelShared>,
        transaction: &BudgetedTransaction,
        statement: &Statement,
        before: &str,
        result: Result<(), ApplyError>,
        was_started: bool,
    ) -> Result<(), ApplyError> {
        let error = match result {
            Ok(()) => return Ok(()),
            Err(ApplyError::Rejected { error, .. }) if was_started && is_already_done(error.number) => {
                return Ok(());
            }
            Err(error) => error,
        };
        if let Err(failed) = self.record_failure(shared, transaction, statement, before, &error).await {
            debug!("cannot record that a statement has failed, so its intent stays on the target: {failed}");
        }
        Err(error)
    }

    /// Records that a statement has failed with `error`: it has not run, or its result differs from the
    /// source's. After a connection error it is unknown whether the statement has run. Then the recorded
    /// intent to run it stays on the target.
    async fn record_failure(
        &mut self,
        shared: &Arc<ChannelShared>,
        transaction: &BudgetedTransaction,
        statement: &Statement,
        before: &str,
        error: &ApplyError,
    ) -> Result<(), ApplyError> {
        match error {
            ApplyError::Session(SessionError::Server { .. }) => {}
            ApplyError::Session(_) => return Ok(()),
            ApplyError::Rejected { error, .. } if before == REPEATABLE && may_have_run(error.number) => {
                return Ok(());
            }
            ApplyError::OutcomeDiffers { .. } => {
                self.source.restore_own_settings().await?;
                if preserved_gtid(shared, transaction).is_some() {
                    self.source.writer.connection.execute(GtidSession::reset(shared.flavour)).await?;
                }
                let now = fingerprint(&mut self.source.writer.connection, statement, shared.flavour).await?;
                let text = format!("{DIFFERENT_RESULT_PREFIX}{}", now.text);
                return self.record_intent(shared, transaction, statement, &text).await;
            }
            _ => {}
        }
        self.withdraw_intent(shared, transaction, statement, before).await
    }

    /// Deletes the recorded intent to run a rejected statement, if the fingerprint of the target's objects
    /// has not changed: the statement has then not run. If the fingerprint differs at the next attempt, an
    /// operator has removed the cause.
    async fn withdraw_intent(
        &mut self,
        shared: &Arc<ChannelShared>,
        transaction: &BudgetedTransaction,
        statement: &Statement,
        before: &str,
    ) -> Result<(), ApplyError> {
        self.source.restore_own_settings().await?;
        if preserved_gtid(shared, transaction).is_some() {
            self.source.writer.connection.execute(GtidSession::reset(shared.flavour)).await?;
        }
        // A rejected statement that can be run a second time has done nothing. The errors after which this is
        // not certain are handled by `record_failure`.
        if before != REPEATABLE {
            let now = fingerprint(&mut self.source.writer.connection, statement, shared.flavour).await?;
            if now.text != before {
                return Ok(());
            }
        }
        // Do not write the deletion of the intent to the binlog, because its creation was not written there
        // either. The error ends this session, so the setting need not be restored.
        self.source.writer.connection.execute("SET SESSION sql_log_bin=0").await?;
        self.delete_intents(shared, &[transaction.span.start.to_string()]).await
    }

    /// Deletes recorded intents to run statements. `positions` are the log positions of their transactions.
    async fn delete_intents(
        &mut self,
        shared: &Arc<ChannelShared>,
        positions: &[String],
    ) -> Result<(), ApplyError> {
        let positions: Vec<String> = positions.iter().map(|position| portable_literal(position)).collect();
        let forget = format!(
            "DELETE FROM tailwater.apply_intent WHERE channel={} AND position IN ({})",
            portable_literal(&shared.options.name),
            positions.join(",")
        );
        self.source.writer.connection.execute(&forget).await?;
        Ok(())
    }

    /// Records the intent to run a statement. The intent is not written to the target's binlog, so replicas
    /// of the target do not have it.
    async fn record_intent(
        &mut self,
        shared: &Arc<ChannelShared>,
        transaction: &BudgetedTransaction,
        statement: &Statement,
        fingerprint: &str,
    ) -> Result<(), ApplyError> {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut text = format!(
            "REPLACE INTO tailwater.apply_intent (channel, gtid, position, noted_at_s, fingerprint, statement) \
             VALUES ({}, {}, {}, {now_s}, {}, x'",
            portable_literal(&shared.options.name),
            portable_literal(&transaction.gtid_text()),
            portable_literal(&transaction.span.start.to_string()),
            shared.claim.unless_taken_over(&portable_literal(fingerprint))
        )
        .into_bytes();
        // The text is stored only for information. The statement that runs comes from the log.
        hex(&statement.text[..statement.text.len().min(64 << 10)], &mut text);
        text.extend_from_slice(b"')");
        self.source.writer.connection.execute("SET SESSION sql_log_bin=0").await?;
        self.source.writer.connection.execute_bytes(&text).await?;
        let old = self.retention.take_expired(Instant::now());
        if !old.is_empty() {
            self.delete_intents(shared, &old).await?;
        }
        if shared.options.gtid != GtidMode::Log {
            self.source.writer.connection.execute("SET SESSION sql_log_bin=1").await?;
        }
        Ok(())
    }
}
