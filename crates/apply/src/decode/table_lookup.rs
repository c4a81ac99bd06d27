//! Access to filters and tables, for the decoder.

use std::sync::Arc;

use tailwater_wire::event::RowsKind;

use super::old_times::OldTimeDigits;
use crate::filter::{FilterError, FilterRoute};
use crate::target::TargetTable;

/// Table information for the decoder. The decoder caches the answers until
/// [`Decoder::forget`](super::Decoder::forget).
pub trait TableLookup {
    /// The filter decision for rows of a source table.
    ///
    /// # Errors
    /// [`FilterError::Clash`] if another table is written to the same target table.
    fn route(&mut self, schema: &str, table: &str, kind: RowsKind) -> Result<FilterRoute, FilterError>;
    /// A table of the target; `None` if it is not loaded.
    fn target(&self, schema: &str, table: &str) -> Option<Arc<TargetTable>>;
    /// The source of the fractional digits of columns with the temporal layout from before MySQL 5.6.
    /// `schema` and `table` are the names on the source. Called only for tables of a MariaDB source with such
    /// columns.
    fn old_time_digits(&self, schema: &str, table: &str) -> OldTimeDigits;
}
