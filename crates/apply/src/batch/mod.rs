//! Merges the row changes of a batch of transactions into few groups of many rows, which the target applies
//! at once.
//!
//! A row may move only past rows with which it shares no key. So one group collects as many rows as possible
//! per table and kind of change (`row_reorder_limits` computes how far rows may move). Changes of one row
//! become close enough to be merged into one (`row_change_coalescer`). The target sees only the difference
//! between the start and the end of the batch, in an order that violates no unique key. For an update, the
//! target sees only the key and the changed columns (`minimal_after_image`).
//!
//! Rows are slices of the log entries that contain them, so no row is copied. The plan needs only a few
//! machine words of memory per row.

mod batch_plan;
mod batch_tables;
mod chained_updates;
mod minimal_after_image;
mod primary_key_sort;
mod primary_key_values;
mod row_change_coalescer;
mod row_group_builder;
mod row_grouping_criteria;
mod row_reorder_limits;
#[cfg(test)]
pub(crate) mod tests;

use tailwater_wire::WireError;

pub use self::batch_plan::{BatchPlan, NullBits, PlanOptions, PlannedRow, RowGroup, RowImage};
use self::row_group_builder::Planner;
use crate::source_transaction::RowChanges;

/// Plans the changes of a batch. `changes` are in log order.
///
/// # Errors
/// [`WireError::Malformed`] if the positions of a row are invalid.
pub fn plan<'a>(
    changes: impl IntoIterator<Item = &'a RowChanges>,
    options: PlanOptions,
) -> Result<BatchPlan<'a>, WireError> {
    let changes: Vec<&RowChanges> = changes.into_iter().collect();
    let mut planner = Planner::new(options, changes.iter().map(|changes| changes.rows.len()).sum());
    for changes in changes {
        planner.add(changes)?;
    }
    Ok(planner.finish())
}
