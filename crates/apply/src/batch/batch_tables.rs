//! The tables of a batch: one entry for each table, even if the source wrote several table maps for it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tailwater_wire::Flavour;

use super::batch_plan::PlanOptions;
use super::primary_key_sort::Ranking;
use super::primary_key_values::KeyColumns;
use crate::source_to_target_table::MappedTable;
use crate::target_table::TargetTable;

/// Length of the table ID at the start of a table map. An ID is valid for one statement only.
const TABLE_ID_BYTES: usize = 6;

/// A table and the optimizations that are allowed for its rows.
#[derive(Debug)]
pub(super) struct BatchTable<'a> {
    pub mapped: &'a MappedTable,
    /// The columns of the primary key in row images; `None` if the table has no primary key.
    pub key: Option<KeyColumns>,
    /// How to sort the rows of a group; `None` if they must keep their order.
    pub ranking: Option<Ranking>,
    /// Whether several changes of one row may be merged.
    pub net_change: bool,
    /// Whether before images may be cut to the key, and after images to the changed columns.
    pub cut_images: bool,
    /// Whether a row that is inserted and then deleted still has an effect, because it advances the table's
    /// AUTO_INCREMENT counter.
    pub counts: bool,
}

/// Finds the tables that the source mapped several times, and gives each table one number.
#[derive(Debug, Default)]
pub(super) struct BatchTables<'a> {
    list: Vec<BatchTable<'a>>,
    by_mapping: FxHashMap<*const MappedTable, u32>,
    by_meaning: FxHashMap<(*const TargetTable, &'a [u8]), u32>,
}

impl<'a> BatchTables<'a> {
    /// Returns the number of a table. Table maps that differ only in their table ID get the same number.
    pub fn number(&mut self, mapped: &'a Arc<MappedTable>, options: PlanOptions) -> u32 {
        if let Some(number) = self.by_mapping.get(&Arc::as_ptr(mapped)) {
            return *number;
        }
        let meaning =
            (Arc::as_ptr(&mapped.target), mapped.body.get(TABLE_ID_BYTES..).unwrap_or(&mapped.body));
        let list = &mut self.list;
        let number = *self.by_meaning.entry(meaning).or_insert_with(|| {
            list.push(BatchTable::new(mapped, options));
            (list.len() - 1) as u32
        });
        self.by_mapping.insert(Arc::as_ptr(mapped), number);
        number
    }

    /// Returns the table with this number.
    pub fn get(&self, number: u32) -> Option<&BatchTable<'a>> {
        self.list.get(number as usize)
    }
}

impl<'a> BatchTable<'a> {
    fn new(mapped: &'a MappedTable, options: PlanOptions) -> Self {
        let target = &*mapped.target;
        let key = KeyColumns::of(&mapped.map, target).filter(|_| mapped.same_shape);
        // The target executes foreign key cascades itself, and the log does not contain their changes. So the
        // changes of a row are merged only if its table has no foreign keys.
        let alone = target.parents.is_empty() && target.children.is_empty();
        let generated = target.columns.iter().any(|column| column.generated);
        // MariaDB shows the period columns of a system-versioned table as generated columns. A history row in
        // such a table has the same key as the current row, so the rows of the table are not merged.
        let versioned =
            target.flavour == Flavour::MariaDb && target.columns.iter().any(|column| column.stored);
        // The target's AUTO_INCREMENT counter must pass every intermediate value, and a merge would remove
        // such values. This is noticed only for columns of the primary key. So the changes of a row are not
        // merged if its table has an AUTO_INCREMENT column outside the primary key.
        let counts_beside = key.as_ref().is_some_and(|key| {
            let mut counted = target.columns.iter().enumerate().filter(|(_, column)| column.auto_increment);
            counted
                .any(|(index, _)| key.bitmap.get(index / 8).is_none_or(|byte| byte >> (index % 8) & 1 == 0))
        });
        // Rows with a full-text document identifier must be written in log order. So the rows of such a table
        // must not move, and their changes must not be merged.
        let in_order = target.is_written_in_order();
        Self {
            mapped,
            net_change: options.net_change
                && key.is_some()
                && alone
                && !versioned
                && !counts_beside
                && !in_order,
            counts: target.columns.iter().any(|column| column.auto_increment),
            // A generated column may be indexed, and the server computes its old value from the full before
            // image. So the before images of such a table must not be cut.
            cut_images: options.cut_images && key.is_some() && !generated,
            ranking: Ranking::of(&mapped.map, target).filter(|_| key.is_some() && !versioned && !in_order),
            key,
        }
    }
}
