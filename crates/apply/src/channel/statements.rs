//! Statements of the source, each with the session it ran in, and those that commit by themselves (DDL) with an intent.
//!
//! One connection runs all of them, whatever worker they fall to: temporary tables live in it, under the number of the
//! source's thread. It holds a lock of the server (`GET_LOCK`) by the channel's name: who takes the channel over waits for
//! a statement that is still under way before judging whether it has run.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tailwater_session::SessionError;
use tailwater_wire::event::{EventBody, QueryEvent, UserVar};
use tailwater_wire::gtid::Gtid;
use tailwater_wire::print::sql::{session_statement, variable_statement};
use tokio::sync::Mutex;
use tracing::info;

use super::disabled_events::{disabled, disabled_event};
use super::fingerprint::{fingerprint, says_done_already};
use super::gtid_session::GtidSession;
use super::options::GtidMode;
use super::packets::Packets;
use super::reader::{Held, Streamed};
use super::retention::TARGET_LOSS_MAX;
use super::store::{Intents, kept_intents, session_statement as session_setting};
use super::text::{hex, quote};
use super::worker::Shared;
use super::writer::{LONG_ROW_BYTES, Writer};
use crate::error::ApplyError;
use crate::transaction::{Content, Statement, StatementVariable, Step, Transaction};

/// Rows are sent when they are so many bytes.
const FLUSHED_BYTES: usize = 1 << 20;

/// A statement of a predecessor is waited for in steps of this many seconds: in between, `stop` is heard.
const PREDECESSOR_STEP_SECONDS: u32 = 1;

/// Runs transactions that hold statements.
#[derive(Debug, Default)]
pub(super) struct Statements {
    session: Mutex<Option<Session>>,
}

#[derive(Debug)]
struct Session {
    writer: Writer,
    database: Vec<u8>,
    /// Statements of before that may have run.
    intents: Intents,
    /// It is set up for a statement of the source.
    of_source: bool,
}

/// A transaction that is being run.
#[derive(Debug)]
struct Sequence {
    /// The target transaction that will hold the progress has begun.
    begun: bool,
    /// A statement that commits by itself has run, here or before.
    ran: bool,
    /// Rows that are not sent yet.
    rows: Packets,
}

/// MySQL logs `CREATE TABLE ... SELECT` as `CREATE TABLE ... START TRANSACTION` and rows. The table must be there before
/// its rows can be looked at, so it is made at once; its rows come with the progress, like those of MariaDB.
fn without_start_transaction(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"START TRANSACTION").unwrap_or(text)
}

/// The GTID that a transaction is to have on the target.
fn preserved<'h>(shared: &Shared, held: &'h Held) -> Option<&'h Gtid> {
    held.gtid.as_ref().filter(|_| shared.options.gtid == GtidMode::Preserve)
}

impl Statements {
    /// Runs the steps of a transaction and commits them with its progress, which `progress` writes. False if nothing was
    /// done, because the channel was told to stop while a predecessor's statement still ran.
    ///
    /// # Errors
    /// What the target refuses. A statement that commits by itself may then have run: its intent stands, and running the
    /// transaction again finds out.
    pub(super) async fn apply(
        &self,
        shared: &Arc<Shared>,
        held: &Held,
        progress: Vec<u8>,
    ) -> Result<bool, ApplyError> {
        let mut session = self.session.lock().await;
        // Taken, so that an error leaves none behind: the next one opens anew.
        let open = match session.take() {
            Some(open) => Some(open),
            None => Session::open(shared).await?,
        };
        let Some(mut open) = open else { return Ok(false) };
        open.run(shared, held, progress).await?;
        *session = Some(open);
        Ok(true)
    }
}

impl Session {
    /// Waits for a predecessor's statement; `None` if it was told to stop before that ended.
    async fn open(shared: &Arc<Shared>) -> Result<Option<Self>, ApplyError> {
        let mut writer = Writer::open(&shared.options).await?;
        let lock = format!("tailwater.{}", shared.options.name);
        let lock: String = lock.chars().take(60).collect();
        let ask = format!("SELECT GET_LOCK({}, {PREDECESSOR_STEP_SECONDS})", quote(&lock));
        let mut waited = false;
        loop {
            match writer.connection.query(&ask).await?.scalar() {
                Some("1") => break,
                Some("0") if shared.stop.is_cancelled() => return Ok(None),
                // A statement may take days.
                Some("0") => {
                    // Or it is no predecessor, and keeps the lock.
                    shared.claim.check(&mut writer.connection).await?;
                    if !std::mem::replace(&mut waited, true) {
                        let channel = &shared.options.name;
                        info!(
                            channel,
                            "waits for a statement that an earlier connection of the channel runs"
                        );
                    }
                }
                _ => {
                    let reason = format!("the target does not say who holds the lock {lock:?} (GET_LOCK)");
                    return Err(ApplyError::Record { channel: shared.options.name.clone(), reason });
                }
            }
        }
        // Not before: a predecessor may have noted one after the channel was taken from it.
        let intents = kept_intents(&mut writer.connection, &shared.options.name).await?;
        Ok(Some(Self { writer, database: Vec::new(), intents, of_source: false }))
    }

    /// Runs the steps one behind the other. Rows, and statements that change rows, stand in one target transaction with the
    /// progress; a statement that commits by itself stands before it, with an intent.
    async fn run(&mut self, shared: &Arc<Shared>, held: &Held, progress: Vec<u8>) -> Result<(), ApplyError> {
        let mut run = Sequence { begun: false, ran: false, rows: Packets::default() };
        // The fingerprint of what was there before, if it was begun before.
        let mut resumed = self.intents.remove(&held.span.start.to_string());
        if let Content::Steps(steps) = &held.content {
            for step in steps {
                self.step(shared, held, step, &mut run, &mut resumed).await?;
            }
        }
        if let Some(steps) = held.steps() {
            let mut steps = steps.lock().await;
            loop {
                match steps.recv().await {
                    Some(Streamed::Step { step, done, memory: _memory }) => {
                        self.step(shared, held, &step, &mut run, &mut resumed).await?;
                        // Gone, if it does not care.
                        done.map(|done| done.send(()));
                    }
                    Some(Streamed::End) => break,
                    None => return Err(ApplyError::Interrupted { gtid: held.gtid_text() }),
                }
            }
        }
        self.flush(&mut run).await?;
        // Under its GTID stands what it does; that it is done is the target's own affair.
        let unlogged = run.ran && !run.begun && shared.options.gtid == GtidMode::Preserve;
        if unlogged {
            self.writer.connection.execute("SET SESSION sql_log_bin=0").await?;
        }
        self.begin(shared, held, &mut run).await?;
        // The intent stays: a target may come back from a crash without this commit.
        self.writer.connection.execute_bytes(&progress).await?;
        self.writer.connection.execute("COMMIT").await?;
        if shared.options.gtid == GtidMode::Preserve {
            self.writer.connection.execute(GtidSession::reset(shared.flavour)).await?;
        }
        self.writer.connection.execute(&session_setting(shared.flavour, shared.options.gtid)).await?;
        self.leave_source().await
    }

    /// Rows must not meet the last statement's session: its time zone, its checks of foreign keys.
    async fn leave_source(&mut self) -> Result<(), ApplyError> {
        if std::mem::take(&mut self.of_source) {
            self.writer.set_up_sql().await?;
        }
        Ok(())
    }

    async fn step(
        &mut self,
        shared: &Arc<Shared>,
        held: &Held,
        step: &Step,
        run: &mut Sequence,
        resumed: &mut Option<String>,
    ) -> Result<(), ApplyError> {
        match step {
            Step::Rows(rows) => {
                self.begin(shared, held, run).await?;
                self.leave_source().await?;
                if rows.images.len() > LONG_ROW_BYTES {
                    self.flush(run).await?;
                    return self.writer.run_rows(rows).await;
                }
                self.writer.push_rows(std::iter::once(rows), &mut run.rows)?;
                if run.rows.bytes() >= FLUSHED_BYTES {
                    self.flush(run).await?;
                }
            }
            Step::Statement(statement) if statement.dml => {
                self.flush(run).await?;
                self.begin(shared, held, run).await?;
                self.statement(held, statement, None).await?;
            }
            Step::Statement(statement) => {
                self.flush(run).await?;
                self.definition(shared, held, statement, run, resumed).await?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self, run: &mut Sequence) -> Result<(), ApplyError> {
        std::mem::take(&mut run.rows).run(&mut self.writer.connection).await?;
        Ok(())
    }

    /// Begins the transaction that the progress will stand in, if it has not begun.
    async fn begin(
        &mut self,
        shared: &Arc<Shared>,
        held: &Held,
        run: &mut Sequence,
    ) -> Result<(), ApplyError> {
        if run.begun {
            return Ok(());
        }
        run.begun = true;
        // A statement that commits by itself stands under the GTID already.
        if !run.ran
            && let Some(gtid) = preserved(shared, held)
        {
            self.writer.connection.execute(&GtidSession::statement(gtid)).await?;
        }
        self.writer.connection.execute("BEGIN").await?;
        Ok(())
    }

    /// A statement that commits by itself.
    async fn definition(
        &mut self,
        shared: &Arc<Shared>,
        held: &Held,
        statement: &Statement,
        run: &mut Sequence,
        resumed: &mut Option<String>,
    ) -> Result<(), ApplyError> {
        let now = fingerprint(&mut self.writer.connection, statement, shared.flavour).await?;
        let intent = resumed.take();
        let ran = intent.as_ref().is_some_and(|before| *before != now);
        if intent.is_none() {
            self.intend(shared, held, statement, &now).await?;
        }
        if !ran {
            if preserved(shared, held).is_some() && statement.text.ends_with(b"START TRANSACTION") {
                return Err(ApplyError::Unsupported {
                    gtid: held.gtid_text(),
                    what: "CREATE TABLE ... SELECT".to_owned(),
                    reason: "with gtid = preserve the table and its rows cannot stand under one GTID; apply it with \
                             gtid = log, or make the table on the target by hand and skip the transaction"
                        .to_owned(),
                });
            }
            match self.statement(held, statement, preserved(shared, held)).await {
                Err(ApplyError::Refused { error, .. })
                    if intent.is_some() && says_done_already(error.number) => {}
                other => other?,
            }
        }
        run.ran = true;
        run.begun = false;
        if preserved(shared, held).is_some() {
            self.writer.connection.execute(GtidSession::reset(shared.flavour)).await?;
        }
        Ok(())
    }

    /// Notes what is about to run, outside the target's binlog: servers that replicate from it do not know of it.
    async fn intend(
        &mut self,
        shared: &Arc<Shared>,
        held: &Held,
        statement: &Statement,
        fingerprint: &str,
    ) -> Result<(), ApplyError> {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut text = format!(
            "REPLACE INTO tailwater.apply_intent (channel, gtid, position, noted_at_s, fingerprint, statement) \
             VALUES ({}, {}, {}, {now_s}, {}, x'",
            quote(&shared.options.name),
            quote(&held.gtid_text()),
            quote(&held.span.start.to_string()),
            shared.claim.unless_taken_over(&quote(fingerprint))
        )
        .into_bytes();
        // For people; the statement that is run comes out of the log.
        hex(&statement.text[..statement.text.len().min(64 << 10)], &mut text);
        text.extend_from_slice(b"')");
        self.writer.connection.execute("SET SESSION sql_log_bin=0").await?;
        self.writer.connection.execute_bytes(&text).await?;
        let old_s = now_s.saturating_sub(TARGET_LOSS_MAX.as_secs());
        let forget = format!(
            "DELETE FROM tailwater.apply_intent WHERE channel={} AND noted_at_s < {old_s}",
            quote(&shared.options.name)
        );
        self.writer.connection.execute(&forget).await?;
        if shared.options.gtid != GtidMode::Log {
            self.writer.connection.execute("SET SESSION sql_log_bin=1").await?;
        }
        Ok(())
    }

    async fn statement(
        &mut self,
        transaction: &Transaction,
        statement: &Statement,
        gtid: Option<&Gtid>,
    ) -> Result<(), ApplyError> {
        if !statement.database.is_empty() && statement.database != self.database {
            let name = String::from_utf8_lossy(&statement.database).replace('`', "``");
            // A statement may create the database that it runs in.
            match self.writer.connection.execute(&format!("USE `{name}`")).await {
                Ok(_) => self.database = statement.database.to_vec(),
                Err(SessionError::Server { error, .. }) if error.number == 1049 => {}
                Err(error) => return Err(error.into()),
            }
        }
        let query = QueryEvent {
            thread_id: statement.thread_id,
            execution_seconds: 0,
            error_code: statement.error_code,
            status_vars_bytes: &statement.status_vars,
            database: &statement.database,
            query: &statement.text,
            compressed: false,
        };
        let inexact = |error: tailwater_wire::print::PrintError| ApplyError::Unsupported {
            gtid: transaction.gtid_text(),
            what: "a statement".to_owned(),
            reason: error.to_string(),
        };
        let session = session_statement(statement.timestamp, &query, self.writer.connection.server().flavour);
        self.of_source = true;
        self.writer.connection.execute_bytes(&session.map_err(inexact)?).await?;
        for variable in &statement.variables {
            let body = match variable {
                StatementVariable::Int(value) => EventBody::IntVar(*value),
                StatementVariable::Rand(seeds) => EventBody::Rand(*seeds),
                StatementVariable::User(body) => match UserVar::parse(body) {
                    Ok(variable) => EventBody::UserVar(variable),
                    Err(error) => return Err(transaction.event_error(error)),
                },
            };
            self.writer.connection.execute_bytes(&variable_statement(&body).map_err(inexact)?).await?;
        }
        if let Some(gtid) = gtid {
            self.writer.connection.execute(&GtidSession::statement(gtid)).await?;
        }
        let text = without_start_transaction(&statement.text);
        let vars = query.status_vars().map_err(|error| transaction.event_error(error))?;
        let status = disabled(self.writer.connection.server());
        let event = disabled_event(text, status, vars.invoker.as_ref());
        match self.writer.connection.execute_bytes(event.as_deref().unwrap_or(text)).await {
            Ok(_) => Ok(()),
            Err(SessionError::Server { error, .. }) if error.number == statement.error_code => Ok(()),
            Err(SessionError::Server { error, .. }) => Err(ApplyError::Refused {
                gtid: transaction.gtid_text(),
                table: format!(
                    "statement {:?} ",
                    String::from_utf8_lossy(&statement.text[..statement.text.len().min(200)])
                ),
                key: String::new(),
                error: Box::new(error),
            }),
            Err(error) => Err(error.into()),
        }
    }
}
