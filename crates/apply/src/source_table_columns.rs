//! Reads the columns of a table from the source, because the binlog does not contain all their details.
//!
//! The channel defines the trait [`SourceCatalogue`]. The program that runs the channel implements it with a
//! session to the source.

use std::fmt;
use std::pin::Pin;

use tailwater_session::Connection;
use tailwater_wire::WireError;
use tailwater_wire::gtid::MariadbPosition;

use crate::column_matching::TargetType;
use crate::error::ApplyError;
use crate::table_definition_cache;
use crate::target_table::TargetColumn;

/// The table definition that the source returns, as a future.
pub type SourceAnswer<'a> = Pin<Box<dyn Future<Output = Result<SourceTable, ApplyError>> + Send + 'a>>;

/// Queries the server whose binlog the log contains. Used only for MariaDB sources.
pub trait SourceCatalogue: fmt::Debug + Send + Sync {
    /// Reads the columns of a table, and afterwards the position of the server's binlog.
    fn table<'a>(&'a self, schema: &'a str, table: &'a str) -> SourceAnswer<'a>;
}

/// A table of the source, as the source's `information_schema` shows it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTable {
    /// The `server_id` of the server that answered the query.
    pub server_id: u32,
    /// The columns that the table maps of this table contain, in order. `None` if the account cannot see such
    /// a table.
    pub columns: Option<Vec<SourceColumn>>,
    /// `gtid_binlog_pos`, read after the columns. If the columns reflect a logged DDL statement, that
    /// statement is at or before this position.
    pub position: MariadbPosition,
}

/// A column of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceColumn {
    /// Column name.
    pub name: String,
    /// Type name in lower case, for example `time`.
    pub type_name: String,
    /// Number of fractional digits of `time`, `datetime` and `timestamp`.
    pub digits: u8,
    /// Whether the column has the temporal layout from before MySQL 5.6. `None` if the server does not show
    /// the layout, as for hidden columns of a system-versioned table.
    pub old_layout: Option<bool>,
}

impl SourceColumn {
    fn of(column: &TargetColumn) -> Self {
        let column_type = TargetType::of(column);
        let is_hidden = column.generated && matches!(column.name.as_str(), "row_start" | "row_end");
        Self {
            name: column.name.clone(),
            digits: column_type.digits(),
            old_layout: (column_type.old_layout || !is_hidden).then_some(column_type.old_layout),
            type_name: column_type.name,
        }
    }
}

/// Reads a table's columns and the binlog position on `connection`.
///
/// # Errors
/// [`ApplyError::Session`]; [`ApplyError::Event`] for a malformed position.
pub async fn read_source_table(
    connection: &mut Connection,
    schema: &str,
    table: &str,
) -> Result<SourceTable, ApplyError> {
    let columns = table_definition_cache::columns_of(connection, schema, table).await?;
    let answer = connection.query("SELECT @@GLOBAL.server_id, @@GLOBAL.gtid_binlog_pos").await?;
    let row = answer.first();
    let server_id = row.and_then(|row| row.get_u64(0)).and_then(|id| u32::try_from(id).ok());
    let server_id =
        server_id.ok_or_else(|| ApplyError::rows(WireError::malformed("server_id", "no number")))?;
    let position = row.and_then(|row| row.get_str(1)).unwrap_or_default();
    Ok(SourceTable {
        server_id,
        columns: columns.map(|columns| columns.iter().map(SourceColumn::of).collect()),
        position: MariadbPosition::parse(position).map_err(ApplyError::rows)?,
    })
}
