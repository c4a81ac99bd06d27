//! Which tables are compared: those that both sides have.

use std::collections::BTreeSet;

use tailwater_session::{Connection, Retry, SessionError};

use super::comparing::Comparing;
use super::difference::TableFinding;
use super::pair::TablePair;
use crate::error::BulkError;
use crate::schema::{self, Selection, TableName, Whole};
use crate::sql::{literals, qualified};
use crate::walk::TableShape;

/// What there is on both sides.
pub(super) struct Found {
    /// Tables that can be compared.
    pub(super) pairs: Vec<TablePair>,
    /// Tables of one side, and what keeps others from being compared wholly.
    pub(super) findings: Vec<TableFinding>,
}

/// Finds the tables of a selection. The target is asked when it has what the source had, and what only one of them seems to have
/// is looked for once more: tables come and go meanwhile.
///
/// # Errors
/// [`BulkError::Missing`] if something selected is not on the source; [`BulkError::TargetBehind`]; [`BulkError::Session`].
pub(super) async fn find(comparing: &mut Comparing, selection: &Selection) -> Result<Found, BulkError> {
    let on_source = schema::inventory(&mut comparing.source, selection).await?;
    let is_empty = on_source.is_empty(selection);
    for side in [&mut comparing.source, &mut comparing.target] {
        schema::check_seen(side, &on_source.schemas, selection, Whole::Rows).await?;
    }
    let names: BTreeSet<_> = on_source.tables.into_iter().collect();
    comparing.catch_up().await?;
    let Comparing { source, target, .. } = comparing;
    let others = tables_of(target, &on_source.schemas, selection).await?;
    let mut findings = Vec::new();
    if names != others {
        let still = tables_of(source, &on_source.schemas, selection).await?;
        let only_source = names.difference(&others).filter(|name| still.contains(name));
        findings.extend(only_source.cloned().map(TableFinding::OnlySource));
        let only_target = others.difference(&names).filter(|name| !still.contains(name));
        findings.extend(only_target.cloned().map(TableFinding::OnlyTarget));
    }
    let mut pairs = Vec::new();
    for name in names.intersection(&others) {
        let found = match pair(&mut comparing.source, &mut comparing.target, name).await {
            Ok(found) => found,
            Err(error) if is_of_one_table(&error) => {
                findings.push(unreadable(&mut comparing.source, &mut comparing.target, name, &error).await);
                continue;
            }
            Err(error) => return Err(error),
        };
        // Dropped since, on either side: there is nothing to compare.
        let Some(mut found) = found else { continue };
        if !found.mismatch.is_empty() {
            // Changed just now, and the target is behind.
            comparing.catch_up().await?;
            found = match pair(&mut comparing.source, &mut comparing.target, name).await? {
                Some(found) => found,
                None => continue,
            };
        }
        let pair = found;
        if !pair.mismatch.is_empty() {
            findings.push(TableFinding::Columns(name.clone(), pair.mismatch.clone()));
        }
        pairs.push(pair);
    }
    if pairs.is_empty() && findings.is_empty() && (is_empty || names.is_empty()) {
        // Nothing is not the same as nothing.
        let server = comparing.source.endpoint().to_owned();
        return Err(BulkError::NothingSelected { server });
    }
    Ok(Found { pairs, findings })
}

/// A table on both sides; `None` if one of them does not have it.
pub(crate) async fn pair(
    source: &mut Connection,
    target: &mut Connection,
    name: &TableName,
) -> Result<Option<TablePair>, BulkError> {
    let flavours = [source.server().flavour, target.server().flavour];
    let on_source = TableShape::read(source, &name.schema, &name.name).await?;
    let on_target = TableShape::read(target, &name.schema, &name.name).await?;
    let shapes = on_source.zip(on_target);
    Ok(shapes.map(|(source, target)| TablePair::new(name.clone(), source, target, flavours)))
}

/// The tables of a server in some databases, which it need not have; in all of its own if all are selected.
async fn tables_of(
    connection: &mut Connection,
    schemas: &[String],
    selection: &Selection,
) -> Result<BTreeSet<TableName>, BulkError> {
    if selection.schemas.is_empty() && selection.tables.is_empty() {
        return Ok(schema::inventory(connection, selection).await?.tables.into_iter().collect());
    }
    let sql = format!(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN ({}) AND table_type IN \
         ('BASE TABLE', 'SYSTEM VERSIONED')",
        literals(schemas.iter().map(String::as_str))
    );
    let text = |bytes: Option<&[u8]>| bytes.map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    let answer = connection.query(&sql).await?;
    let names = answer.rows.iter().map(|row| TableName::new(text(row.get(0)), text(row.get(1))));
    Ok(names.filter(|name| selection.wants_table(&name.schema, &name.name)).collect())
}

/// Whether an error is about the table that was asked for, so that others may be compared all the same: its tablespace is gone, its engine
/// is not there, its file is damaged, what it consists of is missing.
pub(super) fn is_of_one_table(error: &BulkError) -> bool {
    match error {
        BulkError::Session(SessionError::Server { error, .. }) => {
            error.retry() == Retry::AfterChange && !OF_THE_SERVER.contains(&error.number)
        }
        BulkError::RowTooLong { .. } => true,
        _ => false,
    }
}

/// Errors that meet every table: no database for the check's own marks, read-only, a full disk, no privilege for statements.
const OF_THE_SERVER: [u16; 5] = [1021, 1044, 1049, 1227, 1290];

/// What is said about a table that a server does not read.
pub(super) async fn unreadable(
    source: &mut Connection,
    target: &mut Connection,
    name: &TableName,
    error: &BulkError,
) -> TableFinding {
    let sql = format!("SELECT 1 FROM {} LIMIT 1", qualified(&name.schema, &name.name));
    let mut side = "while both sides are compared";
    for (connection, is) in [(source, "on the source"), (target, "on the target")] {
        if connection.query(&sql).await.is_err() {
            side = is;
            break;
        }
    }
    let said = match error {
        BulkError::Session(SessionError::Server { error, .. }) => error.to_string(),
        error => error.to_string(),
    };
    TableFinding::Unreadable(name.clone(), format!("{side}: {said}"))
}
