//! Tests plans against a model of a server. Applying the plan gives the same rows as applying the history row
//! by row, and no intermediate step violates a key.

mod batch_plan_contents;
pub(crate) mod planned_row_changes;
pub(crate) mod server_model;

use proptest::prelude::*;

use super::{BatchPlan, PlanOptions, plan};
use server_model::{History, Store, wishes};

/// Applies a plan to a store that checks every step. Returns the first violation.
fn applied(store: &mut Store, plan: &BatchPlan<'_>) -> Result<(), String> {
    for group in &plan.groups {
        store.look_up(group)?;
        for row in &group.rows {
            store
                .apply(group, row)
                .map_err(|error| format!("{error}; caused by {:?} of row {row:?}", group.kind))?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn plans_give_the_same_rows_without_key_violations(
        before in wishes(30),
        wishes in wishes(60),
        hashes in prop_oneof![Just(1u64), Just(3), Just(u64::MAX)],
        wild in prop_oneof![3 => Just(5u8), 1 => Just(3u8)],
        net_change: bool,
        cut_images: bool,
    ) {
        let mut history = History::new(hashes, wild);
        history.write(&before);
        let start = history.store.clone();
        history.changes.clear();
        history.write(&wishes);
        let options = PlanOptions { net_change, cut_images };
        let plan = plan(&history.changes, options).unwrap();
        let mut store = start;
        if let Err(error) = applied(&mut store, &plan) {
            prop_assert!(
                false,
                "a step of the plan fails: {error}\nhistory: {:#?}\nplan: {plan:#?}",
                history.told
            );
        }
        prop_assert_eq!(store.sorted(), history.store.clone(), "wrong rows after the history {:#?}", history.told);
        let rows: usize = history.changes.iter().map(|changes| changes.rows.len()).sum();
        prop_assert!(plan.rows() <= rows && (net_change || plan.rows() == rows));
    }
}
