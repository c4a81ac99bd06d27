//! Finds what exists on a server and is not in its dump. The dump reports these omissions. Otherwise the user
//! would discover them only when the missing data is needed.

use tailwater_session::Connection;

use tailwater_tables::chunker::TableInfo;
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::{TableName, texts};
use tailwater_wire::server_version::ServerFeature;
use tailwater_wire::sql_quote::string_literals;

/// Something on the server that is not in the dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Omission {
    /// The name of the table or of the library.
    pub of: String,
    /// Which part of the table or library is not in the dump.
    pub what: OmissionKind,
}

/// The kinds of content that a dump does not include.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OmissionKind {
    /// The rows of a table whose engine reads them from another table.
    Rows,
    /// The history rows of a system-versioned table.
    History,
    /// A library of JavaScript code for routines.
    Library,
}

impl OmissionKind {
    /// Returns the name of the kind, for JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::History => "history",
            Self::Library => "library",
        }
    }

    /// Returns a description for users.
    pub fn words(self) -> &'static str {
        match self {
            Self::Rows => {
                "the rows, which are stored in other tables on this server or another: only the definition is dumped"
            }
            Self::History => {
                "the history rows (system versioning): the loaded table starts with an empty history"
            }
            Self::Library => {
                "the library itself: create it manually on the target for the functions that use it"
            }
        }
    }
}

/// Returns what the dump does not include of these tables.
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

/// Returns the libraries of these databases.
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
