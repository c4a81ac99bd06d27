//! What a server has and its dump lacks. It is reported, because otherwise it would only be noticed when it
//! is needed.

use tailwater_session::Connection;

use tailwater_tables::chunker::TableInfo;
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::{TableName, texts};
use tailwater_wire::server_version::ServerFeature;
use tailwater_wire::sql_quote::string_literals;

/// Something that the dump lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Omission {
    /// The table or the library.
    pub of: String,
    /// What is missing of it.
    pub what: OmissionKind,
}

/// What a dump lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OmissionKind {
    /// A table's rows, which another table stores.
    Rows,
    /// A table's history rows (system versioning).
    History,
    /// A library for routines in JavaScript.
    Library,
}

impl OmissionKind {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::History => "history",
            Self::Library => "library",
        }
    }

    /// A description.
    pub fn words(self) -> &'static str {
        match self {
            Self::Rows => {
                "its rows are stored in other tables, on this server or another: only its definition is dumped"
            }
            Self::History => {
                "its history rows: the history starts from scratch where it is loaded (system versioning)"
            }
            Self::Library => "the library itself: create it by hand for the functions that use it",
        }
    }
}

/// What the dump lacks of these tables.
pub(super) fn of_tables(infos: &[(TableName, TableInfo)]) -> Vec<Omission> {
    let kind = |info: &TableInfo| match info {
        info if !info.keeps_rows() => Some(OmissionKind::Rows),
        info if info.versioned => Some(OmissionKind::History),
        _ => None,
    };
    infos
        .iter()
        .filter_map(|(name, info)| Some(Omission { of: name.to_string(), what: kind(info)? }))
        .collect()
}

/// The libraries of these databases.
///
/// # Errors
/// [`BulkError::Session`]
pub(super) async fn libraries(
    connection: &mut Connection,
    schemas: &[String],
) -> Result<Vec<Omission>, BulkError> {
    let server = connection.server();
    if schemas.is_empty() || !server.has(ServerFeature::Libraries) {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT library_schema, library_name FROM information_schema.libraries WHERE library_schema IN ({}) \
         ORDER BY library_schema, library_name",
        string_literals(schemas.iter().map(String::as_str))
    );
    let found = texts(&connection.query(&sql).await?)?.into_iter();
    Ok(found
        .map(|[schema, name]| Omission { of: format!("{schema}.{name}"), what: OmissionKind::Library })
        .collect())
}
