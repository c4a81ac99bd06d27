//! Statements of the source, each with the session it ran in, and those that commit by themselves (DDL) with an intent.
//!
//! One connection runs all of them, whatever worker they fall to: temporary tables live in it, under the number of the
//! source's thread. It holds a lock of the server (`GET_LOCK`) by the channel's name: who takes the channel over waits for
//! a statement that is still under way before judging whether it has run.

use std::sync::Arc;

use tailwater_session::SessionError;
use tailwater_wire::event::{EventBody, QueryEvent, UserVar};
use tailwater_wire::print::sql::{session_statement, variable_statement};
use tokio::sync::Mutex;

use super::fingerprint::{fingerprint, says_done_already};
use super::gtid_session::GtidSession;
use super::options::GtidMode;
use super::packets::Packets;
use super::store::Intent;
use super::text::{hex, quote};
use super::worker::Shared;
use super::writer::Writer;
use crate::error::ApplyError;
use crate::transaction::{Content, RowChanges, Statement, StatementVariable, Step, Transaction};

/// How long a statement of a predecessor is waited for, in seconds.
const PREDECESSOR_SECONDS_MAX: u32 = 7 * 24 * 3600;

/// Runs transactions that hold statements.
#[derive(Debug)]
pub(super) struct Statements {
    /// A statement of before that may have run.
    intent: Mutex<Option<Intent>>,
    session: Mutex<Option<Session>>,
}

#[derive(Debug)]
struct Session {
    writer: Writer,
    database: Vec<u8>,
}

impl Statements {
    pub(super) fn new(intent: Option<Intent>) -> Self {
        Self { intent: Mutex::new(intent), session: Mutex::new(None) }
    }

    /// Runs the steps of a transaction and commits them with its progress, which `progress` writes.
    ///
    /// # Errors
    /// What the target refuses. A statement that commits by itself may then have run: its intent stands, and running the
    /// transaction again finds out.
    pub(super) async fn apply(
        &self,
        shared: &Arc<Shared>,
        transaction: &Transaction,
        progress: Vec<u8>,
    ) -> Result<(), ApplyError> {
        let mut session = self.session.lock().await;
        let mut intent = self.intent.lock().await;
        if session.is_none() {
            *session = Some(Session::open(shared).await?);
        }
        // Taken, so that an error leaves none behind: the next one opens anew.
        let Some(mut open) = session.take() else { return Ok(()) };
        open.run(shared, transaction, progress, intent.take()).await?;
        *session = Some(open);
        Ok(())
    }
}

impl Session {
    async fn open(shared: &Arc<Shared>) -> Result<Self, ApplyError> {
        let mut writer = Writer::open(&shared.options).await?;
        let lock = format!("tailwater.{}", shared.options.name);
        let lock: String = lock.chars().take(60).collect();
        // A statement may take days; the predecessor's does so too.
        let asked = writer
            .connection
            .query(&format!("SELECT GET_LOCK({}, {PREDECESSOR_SECONDS_MAX})", quote(&lock)))
            .await?;
        if asked.scalar() != Some("1") {
            let reason = "another connection of the channel still runs a statement".to_owned();
            return Err(ApplyError::Record { channel: shared.options.name.clone(), reason });
        }
        Ok(Self { writer, database: Vec::new() })
    }

    async fn run(
        &mut self,
        shared: &Arc<Shared>,
        transaction: &Transaction,
        progress: Vec<u8>,
        intent: Option<Intent>,
    ) -> Result<(), ApplyError> {
        let steps = match &transaction.content {
            Content::Steps(steps) => steps.as_slice(),
            _ => &[],
        };
        let commits_itself = steps.iter().any(|step| matches!(step, Step::Statement(it) if !it.dml));
        let preserved = transaction.gtid.as_ref().filter(|_| shared.options.gtid == GtidMode::Preserve);
        if commits_itself {
            self.run_definitions(shared, transaction, steps, progress, intent).await?;
        } else {
            if let Some(gtid) = preserved {
                self.writer.connection.execute(&GtidSession::statement(gtid)).await?;
            }
            self.writer.connection.execute("BEGIN").await?;
            for step in steps {
                match step {
                    Step::Rows(rows) => self.rows(rows).await?,
                    Step::Statement(statement) => self.statement(transaction, statement).await?,
                }
            }
            self.writer.connection.execute_bytes(&progress).await?;
            self.writer.connection.execute("COMMIT").await?;
        }
        if preserved.is_some() {
            self.writer.connection.execute(GtidSession::reset(shared.flavour)).await?;
        }
        // The next rows must not meet the last statement's session.
        self.writer
            .connection
            .execute(&super::store::session_statement(shared.flavour, shared.options.gtid))
            .await?;
        self.writer.connection.execute("SET NAMES utf8mb4").await?;
        Ok(())
    }

    /// Statements that commit by themselves, and rows that may follow them.
    async fn run_definitions(
        &mut self,
        shared: &Arc<Shared>,
        transaction: &Transaction,
        steps: &[Step],
        progress: Vec<u8>,
        intent: Option<Intent>,
    ) -> Result<(), ApplyError> {
        let position = transaction.span.start.to_string();
        let channel = quote(&shared.options.name);
        let preserved = transaction.gtid.as_ref().filter(|_| shared.options.gtid == GtidMode::Preserve);
        let statements = steps.iter().filter_map(|step| match step {
            Step::Statement(statement) => Some(statement),
            Step::Rows(_) => None,
        });
        let Some(first) = statements.clone().next() else { return Ok(()) };
        let now = fingerprint(&mut self.writer.connection, first, shared.flavour).await?;
        let resumed = intent.filter(|intent| intent.position == position);
        let ran = resumed.as_ref().is_some_and(|intent| intent.fingerprint != now);
        if resumed.is_none() {
            self.writer.connection.execute("SET SESSION sql_log_bin=0").await?;
            self.intend(&channel, transaction, first, &now, &position).await?;
            if shared.options.gtid != GtidMode::Log {
                self.writer.connection.execute("SET SESSION sql_log_bin=1").await?;
            }
        }
        if !ran {
            for statement in statements {
                if let Some(gtid) = preserved {
                    self.writer.connection.execute(&GtidSession::statement(gtid)).await?;
                }
                match self.statement(transaction, statement).await {
                    Err(ApplyError::Refused { error, .. })
                        if resumed.is_some() && says_done_already(error.number) => {}
                    other => other?,
                }
            }
        }
        // What MySQL's atomic CREATE TABLE ... SELECT began goes on here, and commits with its rows.
        let atomic = first.text.ends_with(b"START TRANSACTION");
        if !(atomic && ran) {
            if !atomic {
                self.writer.connection.execute("BEGIN").await?;
            }
            for step in steps {
                if let Step::Rows(rows) = step {
                    self.rows(rows).await?;
                }
            }
            if atomic {
                self.writer.connection.execute("COMMIT").await?;
            }
        }
        if preserved.is_some() {
            self.writer.connection.execute(GtidSession::reset(shared.flavour)).await?;
        }
        if atomic {
            self.writer.connection.execute("BEGIN").await?;
        }
        // The intent stays: it names a transaction that is applied now, and is overwritten by the next.
        self.writer.connection.execute_bytes(&progress).await?;
        self.writer.connection.execute("COMMIT").await?;
        Ok(())
    }

    /// Notes what is about to run, outside the target's binlog: servers that replicate from it do not know of it.
    async fn intend(
        &mut self,
        channel: &str,
        transaction: &Transaction,
        statement: &Statement,
        fingerprint: &str,
        position: &str,
    ) -> Result<(), ApplyError> {
        let mut text = format!(
            "REPLACE INTO tailwater.apply_intent (channel, gtid, position, fingerprint, statement) VALUES \
             ({channel}, {}, {}, {}, x'",
            quote(&transaction.gtid_text()),
            quote(position),
            quote(fingerprint)
        )
        .into_bytes();
        // For people; the statement that is run comes out of the log.
        hex(&statement.text[..statement.text.len().min(64 << 10)], &mut text);
        text.extend_from_slice(b"')");
        self.writer.connection.execute_bytes(&text).await?;
        Ok(())
    }

    async fn rows(&mut self, rows: &RowChanges) -> Result<(), ApplyError> {
        let mut packets = Packets::default();
        self.writer.push_rows(std::iter::once(rows), &mut packets)?;
        packets.run(&mut self.writer.connection).await?;
        Ok(())
    }

    async fn statement(
        &mut self,
        transaction: &Transaction,
        statement: &Statement,
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
        match self.writer.connection.execute_bytes(&statement.text).await {
            Ok(_) => Ok(()),
            Err(SessionError::Server { error, .. }) if error.number == statement.error_code => Ok(()),
            Err(SessionError::Server { error, .. }) => Err(ApplyError::Refused {
                gtid: transaction.gtid_text(),
                table: format!(
                    "statement {:?} ",
                    String::from_utf8_lossy(&statement.text[..statement.text.len().min(200)])
                ),
                key: String::new(),
                error,
            }),
            Err(error) => Err(error.into()),
        }
    }
}
