//! Applies filters and rewrites to statements. A statement runs unchanged, runs in another database, is
//! dropped, or stops the channel.

use bytes::Bytes;

use tailwater_wire::sql_redaction::{SHOWN_BYTES_MAX, public_statement};

use crate::error::ApplyError;
use crate::replication_filter::{Filters, NamedObject, Operation, StatementRoute, changed_by};
use crate::source_transaction::{ApplyStep, Transaction, TransactionContent};
use crate::transaction_decoder::statement_classifier;

/// The schema that Tailwater creates on a server. On the source, this schema contains the state of channels
/// that write to the source. So the channel does not apply changes of this schema to the target.
pub const OWN_SCHEMA: &str = "tailwater";

/// The table in schema `tailwater` into which `tailwater check` writes marks on the source. The command then
/// waits until the target has the marks.
pub(crate) const MARKS_TABLE: &str = "check_marks";

/// Applies `filters` to the statements of a transaction.
///
/// # Errors
/// As [`filter_step`].
pub(super) fn filter_transaction(filters: &Filters, transaction: &mut Transaction) -> Result<(), ApplyError> {
    let TransactionContent::Steps(steps) = &mut transaction.content else { return Ok(()) };
    let mut kept = Vec::with_capacity(steps.len());
    let steps_before = std::mem::take(steps);
    let gtid = transaction.gtid_text();
    for step in steps_before {
        kept.extend(filter_step(filters, step, &gtid)?);
    }
    if kept.is_empty() {
        // The filters have dropped all statements, so only the progress is left to apply. No other
        // transaction needs to wait for this transaction.
        transaction.content = TransactionContent::Rows(Vec::new());
        transaction.writeset.barrier = false;
    } else {
        transaction.content = TransactionContent::Steps(kept);
    }
    Ok(())
}

/// Applies `filters` to a step of a transaction. Steps with rows are already filtered.
///
/// # Errors
/// [`ApplyError::Unsupported`] for a statement that can neither run nor be dropped.
pub(super) fn filter_step(
    filters: &Filters,
    step: ApplyStep,
    gtid: &str,
) -> Result<Option<ApplyStep>, ApplyError> {
    let ApplyStep::Statement(mut statement) = step else { return Ok(Some(step)) };
    if statement_classifier::moves_within(&statement.text) {
        return Ok(Some(ApplyStep::Statement(statement)));
    }
    match route(filters, &statement.text, &statement.database, statement.dml) {
        StatementRoute::Run => Ok(Some(ApplyStep::Statement(statement))),
        StatementRoute::Drop => Ok(None),
        StatementRoute::RunIn { schema } => {
            statement.database = Bytes::from(schema.into_bytes());
            Ok(Some(ApplyStep::Statement(statement)))
        }
        StatementRoute::Refuse(reason) => {
            let text = public_statement(&statement.text, SHOWN_BYTES_MAX);
            Err(ApplyError::Unsupported {
                gtid: gtid.to_owned(),
                what: format!("statement {text:?}"),
                reason: format!(
                    "{reason}; run the corresponding statement on the target, and skip the transaction"
                ),
            })
        }
    }
}

/// Returns the databases and tables of the target that a DDL statement changes. A database without a table
/// represents the whole database. The list is empty if the filters drop the statement. `None` if the objects
/// are unknown, or the statement cannot run.
pub(super) fn changed_objects(
    filters: &Filters,
    text: &[u8],
    database: &[u8],
) -> Option<Vec<(String, Option<String>)>> {
    let default = match route(filters, text, database, false) {
        StatementRoute::Drop => return Some(Vec::new()),
        StatementRoute::Refuse(_) => return None,
        StatementRoute::Run => String::from_utf8_lossy(database).into_owned(),
        StatementRoute::RunIn { schema } => schema,
    };
    let named = |named: NamedObject| (named.schema.unwrap_or_else(|| default.clone()), named.table);
    changed_by(statement_classifier::wrapped(text)).map(|all| all.into_iter().map(named).collect())
}

fn route(filters: &Filters, text: &[u8], database: &[u8], dml: bool) -> StatementRoute {
    let database = String::from_utf8_lossy(database);
    let default_schema = (!database.is_empty()).then_some(&*database);
    let changed = changed_by(statement_classifier::wrapped(text));
    let is_own = |schema: Option<&str>| schema.is_some_and(|schema| schema.eq_ignore_ascii_case(OWN_SCHEMA));
    if let Some(changed) = &changed
        && !changed.is_empty()
        && changed.iter().all(|named| is_own(named.schema.as_deref().or(default_schema)))
    {
        return StatementRoute::Drop;
    }
    if filters.is_empty() {
        return StatementRoute::Run;
    }
    let Some(changed) = changed else {
        let reason = match dml {
            true => "filters and rewrites need rows; set binlog_format = ROW on the source",
            false => {
                "filters and rewrites need to know the tables that the statement changes, and its text does not show these tables"
            }
        };
        return StatementRoute::Refuse(reason.to_owned());
    };
    let tables: Vec<_> = changed.iter().map(|named| named.as_table()).collect();
    filters.statement_route(default_schema, &tables, Operation::Ddl)
}
