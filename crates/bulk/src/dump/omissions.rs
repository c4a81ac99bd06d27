//! What is on a server and not in its dump: said, as nobody would look for it before it is needed.

use tailwater_session::Connection;
use tailwater_wire::Flavour;

use crate::chunker::TableInfo;
use crate::error::BulkError;
use crate::schema::{TableName, texts};
use crate::sql::literals;

/// Something that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Omission {
    /// Of which table, or which library.
    pub of: String,
    /// What.
    pub what: OmissionKind,
}

/// What was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OmissionKind {
    /// A table's rows, which are another table's.
    Rows,
    /// What a table's rows were before (system versioning).
    History,
    /// A library for routines in JavaScript.
    Library,
}

impl OmissionKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::History => "history",
            Self::Library => "library",
        }
    }

    /// What it means.
    pub fn words(self) -> &'static str {
        match self {
            Self::Rows => {
                "its rows are those of other tables, of this server or another: only its definition is taken"
            }
            Self::History => {
                "what its rows were before: they begin anew where they are loaded (system versioning)"
            }
            Self::Library => "the library itself: functions that use it need it made by hand",
        }
    }
}

/// What is left out of tables.
pub(super) fn of_tables(shapes: &[(TableName, TableInfo)]) -> Vec<Omission> {
    let kind = |shape: &TableInfo| match shape {
        shape if !shape.keeps_rows() => Some(OmissionKind::Rows),
        shape if shape.versioned => Some(OmissionKind::History),
        _ => None,
    };
    shapes
        .iter()
        .filter_map(|(name, shape)| Some(Omission { of: name.to_string(), what: kind(shape)? }))
        .collect()
}

/// Libraries of these databases.
///
/// # Errors
/// [`BulkError::Session`]
pub(super) async fn libraries(
    connection: &mut Connection,
    schemas: &[String],
) -> Result<Vec<Omission>, BulkError> {
    let server = connection.server();
    if schemas.is_empty() || server.flavour != Flavour::MySql || server.version < (9, 2, 0) {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT library_schema, library_name FROM information_schema.libraries WHERE library_schema IN ({}) \
         ORDER BY library_schema, library_name",
        literals(schemas.iter().map(String::as_str))
    );
    let found = texts(&connection.query(&sql).await?)?.into_iter();
    Ok(found
        .map(|[schema, name]| Omission { of: format!("{schema}.{name}"), what: OmissionKind::Library })
        .collect())
}
