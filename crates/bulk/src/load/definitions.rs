//! Makes what has a definition.

use tailwater_session::{Connection, SessionError};

use super::contents::{Definition, file_name};
use super::events;
use crate::error::BulkError;
use crate::folder::DumpFiles;
use crate::folder::files::document;
use crate::schema::{TableName, script};
use crate::sql::literals;

/// What servers say of something that is there: a table, view or sequence; a database; a routine; a trigger; an event.
const EXISTS: [u16; 5] = [1050, 1007, 1304, 1359, 1537];

/// How much of a statement is shown.
const SHOWN_LETTERS_MAX: usize = 120;

/// Which of the tables are on the target. A view of that name counts, too.
pub(crate) async fn tables_there<'a>(
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
        literals(schemas)
    );
    let mut there = std::collections::HashSet::new();
    let mut rows = connection.query_stream(&sql).await?;
    while let Some(row) = rows.next().await? {
        let text = |column| row.get_str(column).unwrap_or_default();
        there.insert(TableName::new(text(0), text(1)));
    }
    Ok(names.filter(|name| there.contains(name)).cloned().collect())
}

/// Runs the script of a definition. What is there already is passed over if `again` is set, as after a load that was
/// interrupted; the statements behind it are run all the same. Events come disabled if that is wanted.
///
/// # Errors
/// [`BulkError::Definition`] if the server refuses a statement; [`BulkError::Session`] if the connection breaks.
pub(crate) async fn make(
    connection: &mut Connection,
    files: &dyn DumpFiles,
    definition: &Definition,
    again: bool,
    events_disabled: bool,
) -> Result<(), BulkError> {
    let bytes = document(files, &file_name(&definition.path))?;
    let status = events::status(connection.server());
    for statement in script::statements(&bytes) {
        let disabled = match events_disabled && definition.what.starts_with("event ") {
            true => events::disabled(statement, status),
            false => None,
        };
        let statement = disabled.as_deref().unwrap_or(statement);
        match connection.execute_bytes(statement).await {
            Ok(_) => {}
            Err(SessionError::Server { error, .. }) if again && EXISTS.contains(&error.number) => {}
            Err(SessionError::Server { error, .. }) => {
                let text = String::from_utf8_lossy(statement);
                let mut front: String = text.chars().take(SHOWN_LETTERS_MAX).collect();
                if front.len() < text.len() {
                    front.push_str("...");
                }
                return Err(BulkError::Definition {
                    what: definition.what.clone(),
                    path: definition.path.clone(),
                    statement: front,
                    error: Box::new(error),
                });
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
