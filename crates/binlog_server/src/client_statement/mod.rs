//! Executes the SQL statements of clients and returns their results. It does no I/O.
//!
//! A replica sends a dozen statements before it requests a stream, and `mysqlbinlog -R` sends a few. Shells
//! and monitoring send other statements. The results look like the results of a source. A client can change
//! only its own variables. An unknown statement is refused with an error that names this server.
//!
//! - `statement_tokens`, `statement_parser`, `sql_expression`, `like_and_where_filter`: parse the bytes of a
//!   statement, with limits for length and depth.
//! - [`StatementSession`]: the variables that one client has set.
//! - [`ServerView`]: the data for the results; the caller builds a new one for each statement.
//! - `system_variables`, `show_statement_results`, `show_replica_status`: the results.

mod like_and_where_filter;
mod queryable_server_state;
mod session_variables;
mod show_replica_status;
mod show_statement_results;
mod sql_date_time;
mod sql_expression;
mod statement_parser;
mod statement_result;
mod statement_tokens;
mod system_variables;
#[cfg(test)]
mod tests;

pub use queryable_server_state::{
    ProcessView, ReceiverError, ReceiverView, ReplicaView, ServedGtids, ServerView,
};
pub use session_variables::{SqlValue, StatementSession};
pub use statement_parser::COLUMN_NAME_CHARACTERS_MAX;
pub use statement_result::{PurgeBefore, ResultColumn, ResultColumnType, ResultRows, StatementResult};

use tailwater_wire::Flavour;

use self::sql_expression::Expression;
use self::statement_parser::{Assignment, ClientStatement, SelectItem};
use self::statement_tokens::{ParseResult, WHAT_THIS_IS};
use super::client_error::{ClientError, quoted};

/// The maximum size of a result in bytes. It is large enough for GTID sets of millions of transactions.
const RESULT_BYTES_MAX: usize = 64 << 20;

/// Executes one statement of a client. `sql` is the text of a COM_QUERY.
pub fn execute(session: &mut StatementSession, view: &ServerView, sql: &[u8]) -> StatementResult {
    run(session, view, sql).unwrap_or_else(StatementResult::Error)
}

fn run(session: &mut StatementSession, view: &ServerView, sql: &[u8]) -> ParseResult<StatementResult> {
    Ok(match statement_parser::parse(sql)? {
        ClientStatement::Select { items, limit } => select(&items, limit, session, view)?,
        ClientStatement::Set(assignments) => {
            for assignment in &assignments {
                set(assignment, session, view)?;
            }
            StatementResult::Ok
        }
        ClientStatement::Show(show) => show_statement_results::rows(&show, view).into(),
        ClientStatement::Kill { connection_id, query_only } => {
            StatementResult::Kill { connection_id, query_only }
        }
        ClientStatement::Purge(before) => StatementResult::Purge(before),
        ClientStatement::Use(database) => {
            session.set_database(&database);
            StatementResult::Ok
        }
        ClientStatement::Nothing => StatementResult::Ok,
        ClientStatement::Change(word) => return Err(read_only(&word, view)),
    })
}

fn read_only(what: &str, view: &ServerView) -> ClientError {
    let family = match view.flavour() {
        Flavour::MySql => "MySQL",
        Flavour::MariaDb => "MariaDB",
    };
    let what = quoted(what);
    let message = format!(
        "The {family} server is running with the --read-only option so it cannot execute this statement \
         ({what}). {WHAT_THIS_IS}"
    );
    ClientError::new(ClientError::OPTION_PREVENTS_STATEMENT, message)
}

fn select(
    items: &[SelectItem],
    limit: Option<u64>,
    session: &StatementSession,
    view: &ServerView,
) -> ParseResult<StatementResult> {
    if let [SelectItem { expression: Expression::Call(function, arguments), name }] = items
        && let ("BINLOG_GTID_POS", [file, position]) = (function.as_str(), arguments.as_slice())
    {
        let file = sql_expression::evaluate(file, session, view)?.into_cell().unwrap_or_default();
        let position = sql_expression::evaluate(position, session, view)?.to_integer();
        let position = position.and_then(|position| u64::try_from(position).ok()).unwrap_or(0);
        return Ok(StatementResult::GtidPosition { column: name.clone(), file, position });
    }
    let mut columns = Vec::with_capacity(items.len());
    let mut row = Vec::with_capacity(items.len());
    let mut bytes = 0;
    for SelectItem { expression, name } in items {
        let value = sql_expression::evaluate(expression, session, view)?;
        let column_type = match value {
            SqlValue::Integer(_) => ResultColumnType::Integer,
            SqlValue::Null | SqlValue::Text(_) => ResultColumnType::Text,
        };
        columns.push(ResultColumn { name: name.clone(), column_type });
        let cell = value.into_cell();
        bytes += cell.as_ref().map_or(0, String::len);
        if bytes > RESULT_BYTES_MAX {
            let message = format!("A result of this server has no more than {RESULT_BYTES_MAX} bytes");
            return Err(ClientError::new(ClientError::OUT_OF_RESOURCES, message));
        }
        row.push(cell);
    }
    let rows = if limit == Some(0) { Vec::new() } else { vec![row] };
    Ok(StatementResult::Rows(ResultRows { columns, rows }))
}

fn set(assignment: &Assignment, session: &mut StatementSession, view: &ServerView) -> ParseResult<()> {
    match assignment {
        Assignment::User(name, expression) => {
            let value = sql_expression::evaluate(expression, session, view)?;
            session.set_variable(name, value)
        }
        Assignment::Session(name, expression) => {
            let value = match expression {
                // The value may be a word without quotes, as in `SET sql_mode = ANSI`, `= DEFAULT` or `= ON`.
                Expression::Word(word) => SqlValue::Text(word.clone()),
                expression => sql_expression::evaluate(expression, session, view)?,
            };
            session.set_system_variable(name, &value);
            Ok(())
        }
        Assignment::Global(name) => Err(read_only(&format!("SET GLOBAL {name}"), view)),
        Assignment::Ignored => Ok(()),
    }
}
