//! Lists the databases, tables and other objects of a server.

use std::fmt;

use serde::{Deserialize, Serialize};
use tailwater_session::{Connection, QueryResult, SessionError};
use tailwater_wire::printable;

use super::view_order::{self, ViewDefinition};
use crate::error::BulkError;
use crate::schema::ObjectKind;
use tailwater_wire::sql_quote::string_literals;

/// The system databases, and the database of Tailwater itself.
pub(super) const SYSTEM_SCHEMAS: [&str; 6] =
    ["information_schema", "performance_schema", "mysql", "sys", "ndbinfo", "tailwater"];

/// A table name qualified by its database.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableName {
    /// The name of the database.
    pub schema: String,
    /// The name of the table.
    pub name: String,
}

impl TableName {
    /// Creates a qualified name.
    pub fn new(schema: impl Into<String>, name: impl Into<String>) -> Self {
        Self { schema: schema.into(), name: name.into() }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", printable(&self.schema), printable(&self.name))
    }
}

/// The databases and tables that the user selected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The selected databases. If empty, all databases are selected, except system databases and `tailwater`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemas: Vec<String>,
    /// The selected tables; their triggers are selected, too. If empty, all tables and all other objects of
    /// the databases are selected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableName>,
    /// The tables that are excluded, together with their triggers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<TableName>,
}

impl Selection {
    /// Returns whether a table is selected, in any database.
    pub fn wants(&self, table: &TableName) -> bool {
        let of_schema = self.schemas.is_empty() || self.schemas.contains(&table.schema);
        of_schema && self.wants_table(&table.schema, &table.name)
    }

    /// Returns whether a table is selected, if its database is.
    pub fn wants_table(&self, schema: &str, name: &str) -> bool {
        let is_it = |table: &TableName| table.schema == schema && table.name == name;
        (self.tables.is_empty() || self.tables.iter().any(is_it)) && !self.except.iter().any(is_it)
    }
}

/// The objects of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchemaInventory {
    /// The databases.
    pub schemas: Vec<String>,
    /// The tables, without sequences and views.
    pub tables: Vec<TableName>,
    /// All other objects, in an order in which they can be created. Sequences come first because tables may
    /// use them.
    pub objects: Vec<SchemaObject>,
}

impl SchemaInventory {
    /// Returns whether there is no selected object.
    pub fn is_empty(&self, selection: &Selection) -> bool {
        let nothing_left = self.tables.is_empty() && self.objects.is_empty();
        nothing_left && (self.schemas.is_empty() || !selection.except.is_empty())
    }
}

/// An object with a definition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SchemaObject {
    /// A database.
    Schema(String),
    /// A table.
    Table(TableName),
    /// Any other object.
    Other {
        /// The kind of the object.
        kind: ObjectKind,
        /// The database of the object.
        schema: String,
        /// The name of the object.
        name: String,
    },
}

impl fmt::Display for SchemaObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schema(name) => write!(f, "database {}", printable(name)),
            Self::Table(table) => write!(f, "table {table}"),
            Self::Other { kind, schema, name } => {
                let (schema, name) = (printable(schema), printable(name));
                write!(f, "{} {schema}.{name}", kind.name().replace('_', " "))
            }
        }
    }
}

/// Lists the selected objects. The connection must be prepared by [`super::prepare`].
///
/// # Errors
/// [`BulkError::NotFound`] if a selected database or table does not exist; [`BulkError::SchemaChanged`];
/// [`BulkError::Session`].
pub async fn inventory(
    connection: &mut Connection,
    selection: &Selection,
) -> Result<SchemaInventory, BulkError> {
    let schemas = schemas(connection, selection).await?;
    if schemas.is_empty() {
        return Ok(SchemaInventory::default());
    }
    let within = string_literals(schemas.iter().map(String::as_str));
    let mut tables = Vec::new();
    let mut objects = Vec::new();
    let sql = format!(
        "SELECT table_schema, table_name, table_type FROM information_schema.tables \
         WHERE table_schema IN ({within}) ORDER BY table_schema, table_name"
    );
    let whole = selection.tables.is_empty();
    for [schema, name, table_type] in texts(&listed(connection, &sql).await?)? {
        if !selection.wants_table(&schema, &name) {
            continue;
        }
        match table_type.as_str() {
            "BASE TABLE" | "SYSTEM VERSIONED" => tables.push(TableName { schema, name }),
            "SEQUENCE" => objects.push(SchemaObject::Other { kind: ObjectKind::Sequence, schema, name }),
            _ => {}
        }
    }
    if let Some(missing) = selection.tables.iter().find(|wanted| !tables.contains(wanted)) {
        return Err(BulkError::NotFound {
            what: format!("table {missing}"),
            server: connection.endpoint().into(),
        });
    }
    if whole {
        objects.extend(routines(connection, &within).await?);
        objects.extend(views(connection, &within).await?);
    }
    objects.extend(triggers(connection, &within, selection).await?);
    if whole {
        objects.extend(events(connection, &within).await?);
    }
    Ok(SchemaInventory { schemas, tables, objects })
}

/// Runs a query that must return a complete list.
///
/// # Errors
/// [`BulkError::SchemaChanged`] if the server omitted an object that another session is altering (MariaDB
/// omits it while the connection is in a backup stage); [`BulkError::Session`].
async fn listed(connection: &mut Connection, sql: &str) -> Result<QueryResult, BulkError> {
    /// Number of `ER_WARN_I_S_SKIPPED_TABLE`.
    const SKIPPED: u64 = 1684;
    let result = connection.query(sql).await?;
    if result.warnings > 0 {
        let warnings = connection.query("SHOW WARNINGS").await?;
        if let Some(skipped) = warnings.rows.iter().find(|row| row.get_u64(1) == Some(SKIPPED)) {
            let reason = skipped.get_str(2).unwrap_or_default().to_owned();
            return Err(BulkError::SchemaChanged { reason });
        }
    }
    Ok(result)
}

async fn schemas(connection: &mut Connection, selection: &Selection) -> Result<Vec<String>, BulkError> {
    let sql = "SELECT schema_name FROM information_schema.schemata ORDER BY schema_name";
    let existing: Vec<_> = texts(&connection.query(sql).await?)?.into_iter().map(|[name]| name).collect();
    let named = selection.schemas.iter().chain(selection.tables.iter().map(|table| &table.schema));
    let mut wanted: Vec<_> = named.cloned().collect();
    wanted.sort();
    wanted.dedup();
    if wanted.is_empty() {
        let is_system = |name: &String| SYSTEM_SCHEMAS.iter().any(|system| name.eq_ignore_ascii_case(system));
        return Ok(existing.into_iter().filter(|name| !is_system(name)).collect());
    }
    match wanted.iter().find(|name| !existing.contains(name)) {
        None => Ok(wanted),
        Some(name) => Err(BulkError::NotFound {
            what: format!("database {name}"),
            server: connection.endpoint().into(),
        }),
    }
}

/// Lists routines. Packages come before the routines that may use them, and package bodies after them.
async fn routines(connection: &mut Connection, within: &str) -> Result<Vec<SchemaObject>, BulkError> {
    let sql = format!(
        "SELECT routine_schema, routine_name, routine_type FROM information_schema.routines \
         WHERE routine_schema IN ({within}) ORDER BY routine_schema, routine_name"
    );
    let mut found = Vec::new();
    for [schema, name, routine_type] in texts(&listed(connection, &sql).await?)? {
        let kind = match routine_type.as_str() {
            "FUNCTION" => ObjectKind::Function,
            "PROCEDURE" => ObjectKind::Procedure,
            "PACKAGE" => ObjectKind::Package,
            "PACKAGE BODY" => ObjectKind::PackageBody,
            other => {
                let reason = format!("routine {schema}.{name} is a {other}");
                return Err(unexpected(reason));
            }
        };
        found.push((kind, schema, name));
    }
    let rank = |kind: ObjectKind| match kind {
        ObjectKind::Package => 0,
        ObjectKind::PackageBody => 2,
        _ => 1,
    };
    found.sort_by_key(|(kind, ..)| rank(*kind));
    Ok(found.into_iter().map(|(kind, schema, name)| SchemaObject::Other { kind, schema, name }).collect())
}

async fn views(connection: &mut Connection, within: &str) -> Result<Vec<SchemaObject>, BulkError> {
    let sql = format!(
        "SELECT table_schema, table_name, view_definition FROM information_schema.views \
         WHERE table_schema IN ({within}) ORDER BY table_schema, table_name"
    );
    let mut views = Vec::new();
    let result = listed(connection, &sql).await?;
    for (row, [schema, name]) in result.rows.iter().zip(texts(&result)?) {
        // Some accounts may see the view but not its definition, which is then empty. The definition has the
        // character set of the view's creator.
        let definition = row.get(2).map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        views.push(ViewDefinition { schema, name, definition });
    }
    let object =
        |ViewDefinition { schema, name, .. }| SchemaObject::Other { kind: ObjectKind::View, schema, name };
    Ok(view_order::order(views).into_iter().map(object).collect())
}

/// Lists triggers in their execution order, because a new trigger executes after the existing ones.
async fn triggers(
    connection: &mut Connection,
    within: &str,
    selection: &Selection,
) -> Result<Vec<SchemaObject>, BulkError> {
    let sql = format!(
        "SELECT trigger_schema, trigger_name, event_object_table FROM information_schema.triggers \
         WHERE trigger_schema IN ({within}) \
         ORDER BY event_object_schema, event_object_table, action_timing, event_manipulation, action_order"
    );
    let found = texts(&listed(connection, &sql).await?)?.into_iter();
    let wanted = found.filter(|[schema, _, table]| selection.wants_table(schema, table));
    let object =
        |[schema, name, _]: [String; 3]| SchemaObject::Other { kind: ObjectKind::Trigger, schema, name };
    Ok(wanted.map(object).collect())
}

async fn events(connection: &mut Connection, within: &str) -> Result<Vec<SchemaObject>, BulkError> {
    let sql = format!(
        "SELECT event_schema, event_name FROM information_schema.events \
         WHERE event_schema IN ({within}) ORDER BY event_schema, event_name"
    );
    let found = texts(&listed(connection, &sql).await?)?.into_iter();
    let object = |[schema, name]: [String; 2]| SchemaObject::Other { kind: ObjectKind::Event, schema, name };
    Ok(found.map(object).collect())
}

/// Returns the first `COLUMNS` columns of all rows as text.
pub fn texts<const COLUMNS: usize>(result: &QueryResult) -> Result<Vec<[String; COLUMNS]>, BulkError> {
    let row = |row: &tailwater_session::TextRow| {
        let mut texts = [const { String::new() }; COLUMNS];
        for (index, text) in texts.iter_mut().enumerate() {
            let value = row.get_str(index);
            *text = value.ok_or_else(|| unexpected(format!("column {index} is not text")))?.to_owned();
        }
        Ok(texts)
    };
    result.rows.iter().map(row).collect()
}

pub(crate) fn unexpected(reason: String) -> BulkError {
    SessionError::UnexpectedResult { doing: "listing databases and tables", reason }.into()
}
