//! Which tables are compared: those that both sides have.

use std::collections::BTreeSet;

use tailwater_session::Connection;

use super::comparing::Comparing;
use super::difference::TableFinding;
use super::pair::TablePair;
use crate::error::BulkError;
use crate::schema::{self, Selection, TableName};
use crate::sql::literals;
use crate::walk::TableShape;

/// What there is on both sides.
pub(super) struct Found {
    /// Tables that can be compared.
    pub(super) pairs: Vec<TablePair>,
    /// Tables of one side, and what keeps others from being compared wholly.
    pub(super) findings: Vec<TableFinding>,
}

/// Finds the tables of a selection.
///
/// # Errors
/// [`BulkError::Missing`] if something selected is not on the source; [`BulkError::Session`].
pub(super) async fn find(comparing: &mut Comparing, selection: &Selection) -> Result<Found, BulkError> {
    let Comparing { source, target, .. } = comparing;
    let on_source = schema::inventory(source, selection).await?;
    let names: BTreeSet<_> = on_source.tables.into_iter().collect();
    let others = if selection.schemas.is_empty() && selection.tables.is_empty() {
        schema::inventory(target, selection).await?.tables.into_iter().collect()
    } else {
        tables_of(target, &on_source.schemas, selection).await?
    };
    let mut findings: Vec<_> = names.difference(&others).cloned().map(TableFinding::OnlySource).collect();
    findings.extend(others.difference(&names).cloned().map(TableFinding::OnlyTarget));
    let mut pairs = Vec::new();
    for name in names.intersection(&others) {
        // Dropped since, on either side: there is nothing to compare.
        let Some(pair) = pair(source, target, name).await? else { continue };
        if !pair.mismatch.is_empty() {
            findings.push(TableFinding::Columns(name.clone(), pair.mismatch.clone()));
        }
        pairs.push(pair);
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

/// The target's tables in some databases, which it need not have.
async fn tables_of(
    connection: &mut Connection,
    schemas: &[String],
    selection: &Selection,
) -> Result<BTreeSet<TableName>, BulkError> {
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
