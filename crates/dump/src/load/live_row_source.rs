//! The interface to a source of rows that are not in the files of a dump.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tailwater_session::Connection;

use super::dump_contents::DumpContents;
use super::load_options::LoadOptions;
use super::load_progress_table::LoadRecord;
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::schema::TableName;

/// A source of rows that are not in the files of a dump, such as the source server of a copy.
pub(crate) trait LoadSource: Sync {
    /// Whether to drop everything that an interrupted copy has created.
    fn is_restart(&self) -> bool;

    /// Returns the estimated number of rows of a table.
    fn rows_estimate<'a>(&'a self, table: &'a TableName) -> BoxFuture<'a, u64>;

    /// Prepares the target before tables are created. Drops the tables that an earlier copy did not finish,
    /// or all tables for a restart. Returns the number of tables that are kept.
    ///
    /// # Errors
    /// [`BulkError::GtidState`] if tables of an earlier copy are kept, but `one_point` requires one point in
    /// time for all tables; [`BulkError::Session`].
    fn begin<'a>(
        &'a self,
        target: &'a mut Connection,
        record: &'a LoadRecord,
        one_point: bool,
    ) -> BoxFuture<'a, Result<usize, BulkError>>;

    /// Loads all rows of the tables that are not finished.
    ///
    /// # Errors
    /// The same as for [`super::load`].
    fn load_rows<'a>(
        &'a self,
        target: &'a mut Connection,
        contents: &'a DumpContents,
        options: &'a LoadOptions,
        record: &'a LoadRecord,
        progress: &'a Arc<BulkProgress>,
    ) -> BoxFuture<'a, Result<(), BulkError>>;
}
