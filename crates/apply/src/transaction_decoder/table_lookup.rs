//! Gives the decoder access to filters and tables.

use std::sync::Arc;

use tailwater_wire::binlog_event::RowsKind;

use super::old_temporal_format::OldTimeDigits;
use crate::replication_filter::{FilterError, FilterRoute};
use crate::target_table::TargetTable;

/// Answers the decoder's questions about tables. The decoder caches the answers until
/// [`Decoder::forget`](super::Decoder::forget).
pub trait TableLookup {
    /// Returns what the filters decide for rows of a source table.
    ///
    /// # Errors
    /// [`FilterError::Clash`] if another source table is written to the same target table.
    fn route(&mut self, schema: &str, table: &str, kind: RowsKind) -> Result<FilterRoute, FilterError>;
    /// Returns a table of the target; `None` if it is not loaded.
    fn target(&self, schema: &str, table: &str) -> Option<Arc<TargetTable>>;
    /// Returns where the fractional digits of columns with the temporal layout from before MySQL 5.6 come
    /// from. `schema` and `table` are the names on the source. Called only for tables of a MariaDB source
    /// that have such columns.
    fn old_time_digits(&self, schema: &str, table: &str) -> OldTimeDigits;
}
