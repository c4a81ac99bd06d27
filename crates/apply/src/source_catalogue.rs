//! What a channel asks the source of its log about a table: its columns, for what the binlog does not hold.
//!
//! The channel owns the trait; the program implements it with a session to the source.

use std::fmt;
use std::pin::Pin;

use tailwater_session::Connection;
use tailwater_wire::WireError;
use tailwater_wire::gtid::MariadbPosition;

use crate::catalogue;
use crate::columns::TargetType;
use crate::error::ApplyError;
use crate::target::TargetColumn;

/// The answer of a source, later.
pub type SourceAnswer<'a> = Pin<Box<dyn Future<Output = Result<SourceTable, ApplyError>> + Send + 'a>>;

/// Asks the server that a channel's log is captured from, which is a MariaDB server.
pub trait SourceCatalogue: fmt::Debug + Send + Sync {
    /// Reads the columns of a table, and after them the position of the server's binlog.
    fn table<'a>(&'a self, schema: &'a str, table: &'a str) -> SourceAnswer<'a>;
}

/// A table of the source, as its catalogue has it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTable {
    /// The `server_id` of the server that answered.
    pub server_id: u32,
    /// The columns that its table maps have, in order; `None` if the server shows no such table to the account.
    pub columns: Option<Vec<SourceColumn>>,
    /// Its `gtid_binlog_pos`, read after the columns: each logged definition that they reflect is at or before it.
    pub position: MariadbPosition,
}

/// A column of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceColumn {
    /// Its name.
    pub name: String,
    /// The name of its type, in lower case: `time`.
    pub type_name: String,
    /// Digits of a fraction of a second, for `time`, `datetime` and `timestamp`.
    pub digits: u8,
    /// Whether it has the temporal layout of before MySQL 5.6; `None` where the server does not show it, as for the hidden
    /// columns of a system-versioned table.
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

/// Reads a table and the position of the binlog on `connection`.
///
/// # Errors
/// [`ApplyError::Session`]; [`ApplyError::Event`] for a position that names no GTIDs.
pub async fn read_source_table(
    connection: &mut Connection,
    schema: &str,
    table: &str,
) -> Result<SourceTable, ApplyError> {
    let columns = catalogue::columns_of(connection, schema, table).await?;
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
