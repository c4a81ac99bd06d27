//! Runs the SQL scripts that create objects.

use std::borrow::Cow;
use std::io::Read;

use tailwater_session::{Connection, SessionError};
use tailwater_wire::sql_redaction::{SHOWN_BYTES_MAX, public_statement};
use tracing::warn;

use super::dump_contents::{DefinitionScript, FileCompression, ScriptDialect, file_name};
use super::{data_file_reader, mydumper_folder, scheduled_events};
use crate::dump_folder::small_file_reader::document_of;
use tailwater_files::file_store::FileStore;
use tailwater_tables::error::{BulkError, ResumeHint, file_error};
use tailwater_tables::schema::{TableName, sql_script, statement_splitter};
use tailwater_wire::sql_quote::{quote_identifier, string_literals};

/// Server errors for an object that exists already: a table, view or sequence; a database; a routine; a
/// trigger; an event.
const EXISTS: [u16; 5] = [1050, 1007, 1304, 1359, 1537];

/// Errors that a server may report for the definition of a table that exists. They include "table exists".
/// The other errors are for a missing engine, character set, collation or type, which the server checks
/// first. MySQL reports an unknown type as a syntax error.
pub(super) const TABLE_EXISTS_ERRORS: [u16; 10] =
    [1050, 1007, 1304, 1359, 1537, 1286, 1115, 1273, 4161, 1064];

/// Server errors for a missing table, and for a missing routine.
pub(super) const MISSING: [u16; 2] = [1146, 1305];

/// MySQL's error for `GRANT PROXY`, if the account that runs the statement lacks the privilege to grant
/// PROXY for all accounts.
pub(super) const NO_PROXY: u16 = 1698;

/// Maximum size of a script before compression, in bytes.
const SCRIPT_BYTES_MAX: u64 = 256 << 20;

/// Returns the tables of this list that exist on the target. A view with the name of a table counts, too.
pub(crate) async fn existing_tables<'a>(
    connection: &mut Connection,
    names: impl Iterator<Item = &'a TableName> + Clone,
) -> Result<Vec<TableName>, BulkError> {
    let mut schemas: Vec<_> = names.clone().map(|name| name.schema.as_str()).collect();
    schemas.sort_unstable();
    schemas.dedup();
    if schemas.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN ({})",
        string_literals(schemas)
    );
    // A server that stores table names in lower case lists them in lower case, however the dump spells them.
    let folds = connection.query("SELECT @@lower_case_table_names").await?.scalar() != Some("0");
    let folded = |schema: &str, table: &str| match folds {
        true => TableName::new(schema.to_lowercase(), table.to_lowercase()),
        false => TableName::new(schema, table),
    };
    let mut existing = std::collections::HashSet::new();
    let mut rows = connection.query_stream(&sql).await?;
    while let Some(row) = rows.next().await? {
        let text = |column| row.get_str(column).unwrap_or_default();
        existing.insert(folded(text(0), text(1)));
    }
    Ok(names.filter(|name| existing.contains(&folded(&name.schema, &name.name))).cloned().collect())
}

/// Runs the script of a definition. With `skip_existing`, which is set after an interrupted load, an object
/// that exists is skipped and the following statements still run. With `events_disabled`, events are created
/// disabled.
///
/// # Errors
/// [`BulkError::DefinitionRejected`] if the server rejects a statement; [`BulkError::Session`] if the
/// connection breaks.
pub(crate) async fn create(
    connection: &mut Connection,
    files: &dyn FileStore,
    definition: &DefinitionScript,
    skip_existing: bool,
    events_disabled: bool,
) -> Result<(), BulkError> {
    let passed: &[u16] = if skip_existing { &EXISTS } else { &[] };
    run_script_ignoring(connection, files, definition, passed, events_disabled).await
}

/// Runs a script as [`create`], but skips statements that the server rejects with one of the error numbers in
/// `passed`.
///
/// # Errors
/// The same as for [`create`].
pub(super) async fn run_script_ignoring(
    connection: &mut Connection,
    files: &dyn FileStore,
    definition: &DefinitionScript,
    passed: &[u16],
    events_disabled: bool,
) -> Result<(), BulkError> {
    let bytes = read(files, definition)?;
    let damaged = |reason| BulkError::Damaged { path: definition.path.clone(), reason };
    let status = scheduled_events::status(connection.server());
    for statement in statements(&bytes, &definition.dialect).map_err(damaged)? {
        let is_event = definition.what.starts_with("event ") || definition.dialect != ScriptDialect::Own;
        let disabled = match events_disabled && is_event {
            true => scheduled_events::disabled(&statement, status),
            false => None,
        };
        let statement = disabled.as_deref().unwrap_or(statement.as_ref());
        let mut done = connection.execute_bytes(statement).await;
        if let Err(SessionError::Server { error, .. }) = &done
            && let Some(other) = substitute_setting(statement, error.number)
        {
            done = connection.execute_bytes(&other).await;
        }
        match done {
            Ok(_) => {}
            Err(SessionError::Server { error, .. }) if passed.contains(&error.number) => {
                if !EXISTS.contains(&error.number) {
                    warn!(what = definition.what, %error, "statement skipped, because the target rejects it");
                }
            }
            Err(SessionError::Server { error, .. }) => {
                let front = public_statement(statement, SHOWN_BYTES_MAX);
                return Err(BulkError::DefinitionRejected {
                    what: definition.what.clone(),
                    path: definition.path.clone(),
                    statement: front,
                    error: Box::new(error),
                    hint: ResumeHint::Resume,
                });
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns a substitute for a SET statement that a server of the other flavour rejects. The substitute omits
/// the collation of the connection, which only affects views that compare string literals. It also omits
/// `NO_AUTO_CREATE_USER`, which has no effect on a server that lacks this SQL mode.
fn substitute_setting(statement: &[u8], error: u16) -> Option<Vec<u8>> {
    const UNKNOWN_COLLATION: u16 = 1273;
    const WRONG_VALUE: u16 = 1231;
    let text = str::from_utf8(statement).ok()?;
    match error {
        UNKNOWN_COLLATION if text.starts_with("SET character_set_client = ") => {
            let (front, _) = text.split_once(", collation_connection = ")?;
            Some(front.as_bytes().to_vec())
        }
        WRONG_VALUE if text.starts_with("SET sql_mode = ") && text.contains("NO_AUTO_CREATE_USER") => {
            Some(text.replace("NO_AUTO_CREATE_USER,", "").replace("NO_AUTO_CREATE_USER", "").into_bytes())
        }
        _ => None,
    }
}

/// Reads a script, and decompresses it if it is compressed.
pub(super) fn read(files: &dyn FileStore, definition: &DefinitionScript) -> Result<Vec<u8>, BulkError> {
    let name = file_name(&definition.path);
    let packing = FileCompression::of(&name);
    if packing == FileCompression::None {
        return document_of(files, &name, SCRIPT_BYTES_MAX);
    }
    let mut bytes = Vec::new();
    let opened = data_file_reader::open(files, &name, packing);
    let read = opened.and_then(|script| script.take(SCRIPT_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(file_error("read", &definition.path))?;
    if bytes.len() as u64 > SCRIPT_BYTES_MAX {
        let reason = format!("the script is larger than {SCRIPT_BYTES_MAX} bytes");
        return Err(BulkError::Damaged { path: definition.path.clone(), reason });
    }
    Ok(bytes)
}

/// Returns the first TIMESTAMP column of a table definition. The text of TIMESTAMP values depends on the time
/// zone.
pub(super) fn timestamp_column(definition: &str) -> Option<&str> {
    definition.lines().find_map(|line| {
        let line = line.trim_start();
        let rest = line.strip_prefix('`')?;
        // A backquote within a column name is doubled.
        let ends = rest.match_indices('`').map(|(at, _)| at);
        let end = {
            let mut ends = ends.peekable();
            loop {
                let at = ends.next()?;
                if ends.next_if_eq(&(at + 1)).is_none() {
                    break at;
                }
            }
        };
        let word =
            rest[end + 1..].trim_start().split(|letter: char| !letter.is_ascii_alphanumeric()).next()?;
        word.eq_ignore_ascii_case("timestamp").then_some(&rest[..end])
    })
}

/// Splits a script into its statements.
///
/// # Errors
/// If the script ends within a statement.
fn statements<'a>(script: &'a [u8], dialect: &ScriptDialect) -> Result<Vec<Cow<'a, [u8]>>, String> {
    let (schema, found) = match dialect {
        ScriptDialect::Own => {
            return Ok(sql_script::statements(script).into_iter().map(Cow::Borrowed).collect());
        }
        ScriptDialect::MysqlShell { schema } => {
            (schema, sql_script::statements(script).into_iter().map(Cow::Borrowed).collect())
        }
        ScriptDialect::Mydumper { schema, is_program } => {
            let mut found = if *is_program {
                mydumper_folder::programs(script)
            } else {
                statement_splitter::all(script)?
            };
            // mydumper does not record the SQL mode of routines, triggers and events. They most likely need
            // the global mode of the target.
            if *is_program {
                found.insert(0, b"SET sql_mode = @@GLOBAL.sql_mode".to_vec());
            }
            (schema, found.into_iter().map(Cow::Owned).collect::<Vec<_>>())
        }
    };
    let schema =
        schema.iter().map(|schema| Cow::Owned(format!("USE {}", quote_identifier(schema)).into_bytes()));
    // Statements that drop existing objects are left out.
    Ok(schema
        .chain(found.into_iter().filter(|statement| statement_splitter::verb(statement) != "DROP"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_columns_are_found() {
        for (line, column) in [
            ("  `a` timestamp(6) NULL DEFAULT NULL,", Some("a")),
            ("  `a``b` TIMESTAMP,", Some("a``b")),
            ("`a`timestamp", Some("a")),
            ("  `timestamp` datetime DEFAULT CURRENT_TIMESTAMP,", None),
            ("  `a` varchar(9) COMMENT '`b` timestamp',", None),
            ("  KEY `timestamp` (`a`)", None),
            ("  `a", None),
        ] {
            let definition = format!("CREATE TABLE `t` (\n{line}\n)");
            assert_eq!(timestamp_column(&definition), column, "{line}");
        }
    }
}
