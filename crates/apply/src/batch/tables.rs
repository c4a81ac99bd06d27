//! The tables of a batch: each once, however often its source mapped it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tailwater_wire::Flavour;

use super::PlanOptions;
use super::key_columns::KeyColumns;
use super::key_rank::Ranking;
use crate::target::TargetTable;
use crate::transaction::MappedTable;

/// The bytes of a table map that name its table for one statement only.
const TABLE_ID_BYTES: usize = 6;

/// A table and what may be done with its rows.
#[derive(Debug)]
pub(super) struct BatchTable<'a> {
    pub mapped: &'a MappedTable,
    /// Its primary key, if it has one.
    pub key: Option<KeyColumns>,
    /// Whether the rows of a group may be sorted, and how.
    pub ranking: Option<Ranking>,
    /// Whether several changes of one row may become one.
    pub net_change: bool,
    /// Whether before images may be cut to the key, and after images to what changed.
    pub cut_images: bool,
    /// Whether a row that comes and goes leaves a trace: the counter of an AUTO_INCREMENT column has passed it.
    pub counts: bool,
}

/// Finds tables again.
#[derive(Debug, Default)]
pub(super) struct BatchTables<'a> {
    list: Vec<BatchTable<'a>>,
    by_mapping: FxHashMap<*const MappedTable, u32>,
    by_meaning: FxHashMap<(*const TargetTable, &'a [u8]), u32>,
}

impl<'a> BatchTables<'a> {
    /// The number of a table. Mappings that differ in nothing but their id give the same.
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

    /// The table of a number.
    pub fn get(&self, number: u32) -> Option<&BatchTable<'a>> {
        self.list.get(number as usize)
    }
}

impl<'a> BatchTable<'a> {
    fn new(mapped: &'a MappedTable, options: PlanOptions) -> Self {
        let target = &*mapped.target;
        let key = KeyColumns::of(&mapped.map, target).filter(|_| mapped.same_shape);
        // Cascades are done by the target, and are not in the log.
        let alone = target.parents.is_empty() && target.children.is_empty();
        let generated = target.columns.iter().any(|column| column.generated);
        // MariaDB shows the columns of a versioned table's row period so; its history comes as rows of the same key.
        let versioned =
            target.flavour == Flavour::MariaDb && target.columns.iter().any(|column| column.stored);
        // Whether a value of a counter beside the key changes in between is not looked at.
        let counts_beside = key.as_ref().is_some_and(|key| {
            let mut counted = target.columns.iter().enumerate().filter(|(_, column)| column.auto_increment);
            counted
                .any(|(index, _)| key.bitmap.get(index / 8).is_none_or(|byte| byte >> (index % 8) & 1 == 0))
        });
        Self {
            mapped,
            net_change: options.net_change && key.is_some() && alone && !versioned && !counts_beside,
            counts: target.columns.iter().any(|column| column.auto_increment),
            // A generated column may be indexed, and the server computes its old value from the before image.
            cut_images: options.cut_images && key.is_some() && !generated,
            ranking: Ranking::of(&mapped.map, target).filter(|_| key.is_some() && !versioned),
            key,
        }
    }
}
