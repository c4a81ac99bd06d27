//! Runs the source's statements on the target, each with the session settings that it had on the source.
//!
//! The source's settings can change the meaning of Tailwater's own statements. For example, literals may be
//! in UCS-2, and `BEGIN` has another meaning under `sql_mode=ORACLE`. So Tailwater restores its own settings
//! before its own statements. Only the statements that set the source's settings may run under the settings
//! of an earlier statement, because they work under any settings.

use std::sync::Arc;

use tailwater_session::{ServerError, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{EventBody, QueryEvent, StatusVars, UserVar};
use tailwater_wire::event_printer::PrintError;
use tailwater_wire::event_printer::sql_output::{session_statement, variable_statement};
use tailwater_wire::gtid::Gtid;
use tailwater_wire::server_version::ServerFeature;
use tailwater_wire::sql_quote::quote_identifier;
use tailwater_wire::sql_redaction::{SHOWN_BYTES_MAX, private_statement, public_statement};
use tracing::info;

use super::account_statement_effects::AccountEffects;
use super::current_user_rewrite::UnknownInvoker;
use super::ddl_exec_mode::{DdlExecMode, TABLE_EXISTS, drops_tables, replacement_statements};
use super::ddl_object_fingerprint::rest_of_drop;
use super::gtid_next_session::GtidSession;
use super::row_writer::RowWriter;
use super::shared_channel_state::ChannelShared;
use super::statement_rewrite::target_text;
use super::temporary_role_admin_grant::grant_role_admin;
use crate::error::ApplyError;
use crate::replication_filter::changed_by;
use crate::source_transaction::{Statement, StatementVariable, Transaction};

/// The current database for a statement without a database, or for a statement whose database the target does
/// not have. No client can create or change anything in it. Statements that name their databases work in any
/// current database.
const NEUTRAL_DATABASE: &str = "information_schema";

/// The error `ER_BAD_DB_ERROR`.
const UNKNOWN_DATABASE: u16 = 1049;

/// The errors that show that a statement was interrupted on the source: `ER_SERVER_SHUTDOWN`,
/// `ER_NEW_ABORTING_CONNECTION`, `ER_NET_READ_ERROR`, `ER_NET_ERROR_ON_WRITE`, `ER_QUERY_INTERRUPTED`,
/// `ER_CONNECTION_KILLED`, `ER_STATEMENT_TIMEOUT`, `ER_QUERY_TIMEOUT`. The server's replication thread has
/// the same list (`unexpected_error_code` in `log_event.cc`).
const INTERRUPTIONS: [u16; 8] = [1053, 1184, 1158, 1160, 1317, 1927, 1969, 3024];

/// The errors that a concurrent transaction causes: `ER_LOCK_WAIT_TIMEOUT`, `ER_LOCK_DEADLOCK`,
/// `ER_XA_RBDEADLOCK`. The target may not have this concurrent transaction.
const CONFLICT_ERRORS: [u16; 3] = [1205, 1213, 1614];

/// The error `ER_BAD_TABLE_ERROR`, and MariaDB's `ER_UNKNOWN_SEQUENCES` and `ER_UNKNOWN_VIEW`.
const UNKNOWN_TABLES: [u16; 3] = [1051, 4091, 4092];

/// Returns whether an error names [`NEUTRAL_DATABASE`]. Such an error means that the target lacks the
/// statement's own database.
fn is_about_neutral_database(error: &ServerError) -> bool {
    error.message.expose().to_ascii_lowercase().contains(NEUTRAL_DATABASE)
}

/// Returns the text of a statement for messages, without its values.
pub(super) fn statement_label(statement: &Statement) -> String {
    format!("statement {:?} ", public_statement(&statement.text, SHOWN_BYTES_MAX))
}

/// Returns a statement as the query event of the binlog.
fn as_query_event(statement: &Statement) -> QueryEvent<'_> {
    QueryEvent {
        thread_id: statement.thread_id,
        execution_seconds: 0,
        error_code: statement.error_code,
        status_vars_bytes: &statement.status_vars,
        database: &statement.database,
        query: &statement.text,
        compressed: false,
    }
}

fn inexact_error(transaction: &Transaction, error: &PrintError) -> ApplyError {
    ApplyError::Unsupported {
        gtid: transaction.gtid_text(),
        what: "a statement".to_owned(),
        reason: error.to_string(),
    }
}

/// A connection that runs statements of the source.
#[derive(Debug)]
pub(super) struct SourceSession {
    pub(super) writer: RowWriter,
    /// The current database of the session, if known.
    database: Option<Vec<u8>>,
    /// Whether the session has the settings of a statement from the source.
    has_source_settings: bool,
    /// The value of `default_table_encryption`, if the server has this variable.
    default_encryption: Option<u8>,
    /// The value of `original_server_version` that was last set; `None` for the target's own version.
    original_version: Option<u32>,
    /// The flavour of the source that ran the statements.
    source: Flavour,
    ddl_exec_mode: DdlExecMode,
}

impl SourceSession {
    pub(super) async fn new(mut writer: RowWriter, shared: &Arc<ChannelShared>) -> Result<Self, ApplyError> {
        let variable = "SHOW SESSION VARIABLES LIKE 'default_table_encryption'";
        let shown = writer.connection.query(variable).await?;
        let default_encryption =
            shown.first().and_then(|row| row.get_str(1)).map(|value| u8::from(value == "ON"));
        let source = shared.log.source().map_or(shared.flavour, |source| source.flavour);
        Ok(Self {
            writer,
            database: None,
            has_source_settings: false,
            default_encryption,
            original_version: None,
            source,
            ddl_exec_mode: shared.options.ddl_exec_mode,
        })
    }

    /// Restores Tailwater's own session settings, if the session has the settings of a statement from the
    /// source.
    pub(super) async fn restore_own_settings(&mut self) -> Result<(), ApplyError> {
        if std::mem::take(&mut self.has_source_settings) {
            self.writer.set_up_sql().await?;
        }
        Ok(())
    }

    /// Changes to a statement's database, as a server's replication thread does before every statement.
    /// Returns the target's error if the database does not exist.
    async fn use_database(&mut self, statement: &Statement) -> Result<Option<ServerError>, ApplyError> {
        // The database of the previous statement must not stay the current database.
        let wanted =
            if statement.database.is_empty() { NEUTRAL_DATABASE.as_bytes() } else { &statement.database };
        if self.database.as_deref() == Some(wanted) {
            return Ok(None);
        }
        self.restore_own_settings().await?;
        let name = quote_identifier(&String::from_utf8_lossy(wanted));
        match self.writer.connection.execute(&format!("USE {name}")).await {
            Ok(_) => {
                self.database = Some(wanted.to_vec());
                Ok(None)
            }
            Err(SessionError::Server { error, .. }) if error.number == UNKNOWN_DATABASE => {
                self.writer.connection.execute(&format!("USE {NEUTRAL_DATABASE}")).await?;
                self.database = Some(NEUTRAL_DATABASE.into());
                Ok(Some(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the session settings that a statement had on the source.
    async fn apply_source_settings(
        &mut self,
        transaction: &Transaction,
        statement: &Statement,
        query: &QueryEvent<'_>,
        vars: &StatusVars<'_>,
    ) -> Result<(), ApplyError> {
        let target = self.writer.connection.server().flavour;
        if let (Some(wanted), Some(is)) = (vars.default_table_encryption, self.default_encryption)
            && wanted != is
        {
            let set = format!("SET SESSION default_table_encryption={wanted}");
            self.writer.connection.execute(&set).await?;
            self.default_encryption = Some(wanted);
        }
        let session = session_statement(statement.timestamp, query, self.source, target);
        let session = session.map_err(|error| inexact_error(transaction, &error))?;
        self.has_source_settings = true;
        self.writer.connection.execute_bytes(&session).await?;
        self.set_original_version(statement).await?;
        if vars.charset_database.is_none() && self.database.as_deref() == Some(NEUTRAL_DATABASE.as_bytes()) {
            // Set `collation_database` to the server's collation, as in a replication thread without a
            // database. On MySQL, routine parameters get this collation.
            self.writer
                .connection
                .execute("SET SESSION collation_database=@@global.collation_server")
                .await?;
        }
        for variable in &statement.variables {
            let body = match variable {
                StatementVariable::Int(value) => EventBody::IntVar(*value),
                StatementVariable::Rand(seeds) => EventBody::Rand(*seeds),
                StatementVariable::User(body) => match UserVar::parse(body) {
                    Ok(variable) => EventBody::UserVar(variable),
                    Err(error) => return Err(transaction.event_error(error)),
                },
            };
            let set =
                variable_statement(&body, target).map_err(|error| inexact_error(transaction, &error))?;
            self.writer.connection.execute_bytes(&set).await?;
        }
        Ok(())
    }

    /// Sets the session variable `original_server_version` to the version of the server that first ran the
    /// statement, if this version differs from the target's version. MySQL 8.3 and later refuse to revoke a
    /// privilege that does not exist; earlier versions do not refuse this.
    async fn set_original_version(&mut self, statement: &Statement) -> Result<(), ApplyError> {
        let server = self.writer.connection.server();
        if !server.has(ServerFeature::OriginalServerVersion) {
            return Ok(());
        }
        let (major, minor, patch) = server.version;
        let own = u32::from(major) * 10_000 + u32::from(minor) * 100 + u32::from(patch);
        let wanted = statement.original_version.filter(|version| *version != own);
        if wanted.is_some() || self.original_version.is_some() {
            // Set the variable for each statement, because a server that writes a binlog resets it at each
            // transaction.
            let value = wanted.map_or_else(|| "DEFAULT".to_owned(), |version| version.to_string());
            let set = format!("SET @@session.original_server_version={value}");
            self.writer.connection.execute(&set).await?;
            self.original_version = wanted;
        }
        Ok(())
    }

    /// Runs a statement, under a GTID if a GTID is given.
    ///
    /// # Errors
    /// [`ApplyError::Rejected`] or [`ApplyError::OutcomeDiffers`] if the result differs from the source's;
    /// [`ApplyError::InterruptedStatement`], [`ApplyError::SessionAccount`] or [`ApplyError::Unsupported`] if
    /// the statement cannot be run; [`ApplyError::Session`].
    pub(super) async fn run(
        &mut self,
        shared: &Arc<ChannelShared>,
        transaction: &Transaction,
        statement: &Statement,
        gtid: Option<&Gtid>,
    ) -> Result<(), ApplyError> {
        if INTERRUPTIONS.contains(&statement.error_code) {
            return Err(ApplyError::InterruptedStatement {
                gtid: transaction.gtid_text(),
                statement: statement_label(statement),
                number: statement.error_code,
            });
        }
        let query = as_query_event(statement);
        let vars = query.status_vars().map_err(|error| transaction.event_error(error))?;
        let text = target_text(&statement.text, &vars, self.writer.connection.server());
        let text = text.map_err(|unknown| unknown_account_error(transaction, statement, unknown))?;
        let effects =
            AccountEffects::before_statement(shared, &text, &statement.database, vars.invoker.as_ref())
                .await?;
        let missing = self.use_database(statement).await?;
        if let Some(gtid) = gtid {
            self.restore_own_settings().await?;
            self.writer.connection.execute(&GtidSession::statement(gtid)).await?;
        }
        self.apply_source_settings(transaction, statement, &query, &vars).await?;
        let mut result = self.execute(&text).await?;
        let mut returned = Ok(());
        if let Err(error) = &result
            && let Some(admin) = grant_role_admin(shared, transaction, &text, error).await?
        {
            let again = self.execute(&text).await;
            returned = admin.revoke(shared, matches!(again, Ok(Ok(())))).await;
            result = again?;
        }
        if !statement.uses_database() {
            // The statement may have dropped the current database, so select a database again before the next
            // statement.
            self.database = None;
        }
        if let Err(error) = &result
            && error.number == TABLE_EXISTS
            && statement.error_code == 0
            && self.ddl_exec_mode == DdlExecMode::Idempotent
        {
            result = self.replace_table(transaction, &text, gtid, result).await?;
        }
        let has_run = result.is_ok();
        self.check_result(transaction, statement, missing, result).await?;
        if let Some(effects) = effects {
            effects.run(has_run).await?;
        }
        returned
    }

    /// Corrects the grantors and privileges after a statement that ran before a crash, because the crash may
    /// have prevented these corrections.
    ///
    /// # Errors
    /// As [`SourceSession::run`].
    pub(super) async fn run_effects(
        &mut self,
        shared: &Arc<ChannelShared>,
        transaction: &Transaction,
        statement: &Statement,
    ) -> Result<(), ApplyError> {
        let query = as_query_event(statement);
        let vars = query.status_vars().map_err(|error| transaction.event_error(error))?;
        let text = target_text(&statement.text, &vars, self.writer.connection.server());
        let text = text.map_err(|unknown| unknown_account_error(transaction, statement, unknown))?;
        match AccountEffects::after_statement(shared, &text, &statement.database, vars.invoker.as_ref())
            .await?
        {
            Some(effects) => effects.run(true).await,
            None => Ok(()),
        }
    }

    /// Runs a statement. The inner result is the target's result, including its error. The outer result is an
    /// error only if the connection fails.
    async fn execute(&mut self, text: &[u8]) -> Result<Result<(), ServerError>, ApplyError> {
        match self.writer.connection.execute_bytes(text).await {
            Ok(_) => Ok(Ok(())),
            Err(SessionError::Server { error, .. }) => Ok(Err(error)),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces an existing table with the table that the statement creates. Returns the target's result.
    /// Returns the earlier result `before` if the statement creates no table, or if the existing table cannot
    /// be dropped.
    async fn replace_table(
        &mut self,
        transaction: &Transaction,
        text: &[u8],
        gtid: Option<&Gtid>,
        before: Result<(), ServerError>,
    ) -> Result<Result<(), ServerError>, ApplyError> {
        let mut statements = replacement_statements(text, self.writer.connection.server().flavour);
        // Replacing the table takes several statements, which cannot share one GTID.
        let Some(last) = statements.pop().filter(|_| statements.is_empty() || gtid.is_none()) else {
            return Ok(before);
        };
        for statement in statements {
            if self.execute(&statement).await?.is_err() {
                return Ok(before);
            }
        }
        info!(
            gtid = transaction.gtid_text(),
            "the channel replaces a table of the target, because ddl_exec_mode = idempotent"
        );
        self.execute(&last).await
    }

    /// Compares the statement's result on the target with its result on the source.
    async fn check_result(
        &mut self,
        transaction: &Transaction,
        statement: &Statement,
        missing: Option<ServerError>,
        result: Result<(), ServerError>,
    ) -> Result<(), ApplyError> {
        let expected = statement.error_code;
        let error = match result {
            Ok(()) if expected == 0 || CONFLICT_ERRORS.contains(&expected) => return Ok(()),
            Ok(()) => {
                return Err(ApplyError::OutcomeDiffers {
                    gtid: transaction.gtid_text(),
                    statement: statement_label(statement),
                    number: expected,
                });
            }
            Err(error) if error.number == expected => return Ok(()),
            Err(error) => error,
        };
        let may_skip_missing_tables = self.may_skip_missing_tables(statement)
            || self.ddl_exec_mode == DdlExecMode::Idempotent && drops_tables(&statement.text);
        if expected == 0 && UNKNOWN_TABLES.contains(&error.number) && may_skip_missing_tables {
            // On MySQL, drop the remaining tables. If some tables of a DROP TABLE are missing, MariaDB still
            // drops the other tables, but MySQL drops none.
            if self.writer.connection.server().flavour == Flavour::MySql
                && let Some(rest) = rest_of_drop(&statement.text)
            {
                self.writer.connection.execute_bytes(&rest).await?;
            }
            return Ok(());
        }
        Err(ApplyError::Rejected {
            gtid: transaction.gtid_text(),
            subject: statement_label(statement).trim_end().to_owned(),
            values: private_statement(&statement.text, SHOWN_BYTES_MAX).into(),
            error: Box::new(missing.filter(|_| is_about_neutral_database(&error)).unwrap_or(error)),
        })
    }

    /// Returns whether some tables that a statement drops may have been missing on the source. MariaDB
    /// rewrites such a statement in the binlog and omits the error.
    fn may_skip_missing_tables(&self, statement: &Statement) -> bool {
        let text = statement.text.trim_ascii_end();
        self.source == Flavour::MariaDb
            && text.ends_with(b"/* generated by server */")
            && changed_by(text).is_some_and(|dropped| dropped.len() > 1)
    }
}

fn unknown_account_error(
    transaction: &Transaction,
    statement: &Statement,
    unknown: UnknownInvoker,
) -> ApplyError {
    let reason = match unknown {
        UnknownInvoker::NotLogged => "the binlog event does not contain the account",
        UnknownInvoker::OtherCharset => {
            "the account's name is not ASCII, and the statement is in another character set than UTF-8"
        }
    };
    ApplyError::SessionAccount {
        gtid: transaction.gtid_text(),
        statement: statement_label(statement),
        reason,
    }
}
