//! The data files that wait to be loaded, in the order of [`TableOrder`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::data_file_loader::LoadTarget;
use super::dump_contents::LoadChunk;
use super::table_load_order::{LoadSize, TableOrder, TableToLoad};

/// A table whose rows are being loaded.
pub(super) struct TableLoad {
    pub(super) target: LoadTarget,
    /// Number of the table's files that are not loaded yet.
    pub(super) left: AtomicUsize,
}

/// A table that waits to be loaded.
pub(super) struct QueuedTable {
    pub(super) loading: Arc<TableLoad>,
    /// The files of the table that are not loaded yet.
    pub(super) missing: VecDeque<Arc<LoadChunk>>,
    /// The size of all files of the table, whether loaded or not.
    pub(super) whole: LoadSize,
    /// Number of deferred indexes of the table.
    pub(super) indexes: usize,
}

/// Data files that wait for a connection.
pub(super) struct LoadQueue {
    order: TableOrder,
    tables: Vec<QueuedTable>,
}

impl LoadQueue {
    pub(super) fn new(connections: usize, tables: Vec<QueuedTable>) -> Self {
        let to_load = |(number, table): (usize, &QueuedTable)| TableToLoad {
            number,
            missing: table.missing.iter().map(|chunk| size(chunk)).sum(),
            whole: table.whole,
            indexes: table.indexes,
            one_by_one: !table.loading.target.transactional,
        };
        let is_unfinished = |table: &QueuedTable| !table.missing.is_empty() || table.indexes > 0;
        let unfinished = tables.iter().enumerate().filter(|(_, table)| is_unfinished(table));
        Self { order: TableOrder::new(connections, unfinished.map(to_load)), tables }
    }

    /// Returns a table and its next file. The file is `None` if all files of the table are loaded and only
    /// its indexes are missing.
    pub(super) fn take(&mut self) -> Option<(Arc<TableLoad>, Option<Arc<LoadChunk>>)> {
        let number = self.order.next()?;
        let table = self.tables.get_mut(number)?;
        let chunk = table.missing.pop_front();
        if let Some(chunk) = &chunk {
            self.order.take(number, size(chunk));
        }
        if table.missing.is_empty() {
            self.order.end(number);
        }
        Some((Arc::clone(&table.loading), chunk))
    }
}

/// Returns the size of a data file.
pub(super) fn size(chunk: &LoadChunk) -> LoadSize {
    LoadSize::new(chunk.rows, chunk.bytes.unwrap_or(chunk.file_bytes))
}
