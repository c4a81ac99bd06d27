//! Decides whether a statement runs under the filters. The filters never change the text of a statement.

use super::filter_rule_matcher::Filters;
use super::{FilterRoute, Operation};

/// A table that a statement names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementTable<'a> {
    /// The database, if the statement names it; otherwise the default database applies.
    pub schema: Option<&'a str>,
    /// The table; `None` if the statement changes the database itself.
    pub table: Option<&'a str>,
}

/// What the filters decide for a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatementRoute {
    /// The statement is executed.
    Run,
    /// The statement is executed with another default database.
    RunIn {
        /// The default database on the target.
        schema: String,
    },
    /// The statement is excluded.
    Drop,
    /// The statement can neither be executed nor be excluded. The text states the reason.
    Refuse(String),
}

impl Filters {
    /// Returns the decision for a statement that changes `tables`, which must list all of them.
    ///
    /// If a statement changes no table, for example if it creates an account, its default database decides,
    /// as for `binlog_do_db` on servers. Without a default database it is executed. Filters never change the
    /// text of a statement. So a statement on a renamed table can be executed only if it names no database.
    /// All its tables must also move to the same new database, under their own names.
    pub fn statement_route(
        &self,
        default_schema: Option<&str>,
        tables: &[StatementTable<'_>],
        operation: Operation,
    ) -> StatementRoute {
        if self.is_empty() {
            return StatementRoute::Run;
        }
        let mut fates = Vec::with_capacity(tables.len());
        for table in tables {
            let Some(schema) = table.schema.or(default_schema) else {
                return StatementRoute::Refuse(
                    "the statement names a table without a database, and has no default database".into(),
                );
            };
            fates.push(self.fate(schema, *table, operation));
        }
        if tables.is_empty() {
            // Let the default database decide, because the statement may depend on it in ways that the text
            // does not show.
            let Some(schema) = default_schema else { return StatementRoute::Run };
            fates.push(self.fate(schema, StatementTable { schema: None, table: None }, operation));
        }
        join(&fates)
    }

    fn fate(&self, schema: &str, named: StatementTable<'_>, operation: Operation) -> FilterDecision {
        let name = match named.table {
            Some(table) => format!("{schema}.{table}"),
            None => schema.to_owned(),
        };
        let Some(table) = named.table else { return self.schema_fate(schema, named, name) };
        match self.route(schema, table, operation) {
            FilterRoute::Keep => FilterDecision::Keep(name),
            FilterRoute::Drop => FilterDecision::Drop(name),
            FilterRoute::Rename { schema, table: to } if named.schema.is_none() && *to == *table => {
                FilterDecision::Elsewhere(name, schema.to_string())
            }
            FilterRoute::Rename { schema, table } => {
                FilterDecision::Renamed(name, format!("{schema}.{table}"))
            }
        }
    }

    fn schema_fate(&self, schema: &str, named: StatementTable<'_>, name: String) -> FilterDecision {
        match self.schema(schema) {
            (false, _) => FilterDecision::Drop(name),
            (true, Some(to)) if named.schema.is_some() => FilterDecision::Renamed(name, to.to_string()),
            (true, Some(to)) => FilterDecision::Elsewhere(name, to.to_string()),
            (true, None) if named.schema.is_some() && self.has_renamed_tables(schema) => {
                FilterDecision::Renamed(name, "more than one database".to_owned())
            }
            (true, None) => FilterDecision::Keep(name),
        }
    }
}

/// What the filters decide for one table of a statement.
enum FilterDecision {
    Keep(String),
    Drop(String),
    /// The table is applied under its own name, but in another database, so the default database must change.
    Elsewhere(String, String),
    /// The table has another name on the target, so the text of the statement would have to change.
    Renamed(String, String),
}

fn join(fates: &[FilterDecision]) -> StatementRoute {
    let dropped = fates.iter().find_map(|fate| match fate {
        FilterDecision::Drop(name) => Some(name),
        _ => None,
    });
    let applied = fates.iter().find_map(|fate| match fate {
        FilterDecision::Drop(_) => None,
        FilterDecision::Keep(name)
        | FilterDecision::Elsewhere(name, _)
        | FilterDecision::Renamed(name, _) => Some(name),
    });
    match (dropped, applied) {
        (Some(dropped), Some(applied)) => {
            return StatementRoute::Refuse(format!(
                "the statement changes {dropped}, which is excluded, and {applied}, which is not"
            ));
        }
        (Some(_), None) => return StatementRoute::Drop,
        _ => {}
    }
    let mut default: Option<&str> = None;
    let mut kept: Option<&str> = None;
    for fate in fates {
        match fate {
            FilterDecision::Drop(_) => {}
            FilterDecision::Keep(name) => kept = Some(name),
            FilterDecision::Renamed(name, to) => {
                return StatementRoute::Refuse(format!(
                    "the statement names {name}, which is written to {to}"
                ));
            }
            FilterDecision::Elsewhere(name, to) if default.is_some_and(|default| default != to) => {
                return StatementRoute::Refuse(format!(
                    "the statement's tables are written to more than one database, {name} to {to}"
                ));
            }
            FilterDecision::Elsewhere(_, to) => default = Some(to),
        }
    }
    match (default, kept) {
        (None, _) => StatementRoute::Run,
        (Some(to), None) => StatementRoute::RunIn { schema: to.to_owned() },
        (Some(to), Some(kept)) => StatementRoute::Refuse(format!(
            "the statement changes {kept}, and other tables that are written to {to}"
        )),
    }
}
