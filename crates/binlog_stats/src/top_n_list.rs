//! A list of the greatest few of many items.

/// Keeps the items with the greatest keys, in descending order. Of items with equal keys, it keeps those that
/// were added first.
#[derive(Debug)]
pub(crate) struct TopList<T> {
    items_max: usize,
    items: Vec<(u64, T)>,
}

impl<T> TopList<T> {
    pub(crate) fn new(items_max: usize) -> Self {
        Self { items_max, items: Vec::new() }
    }

    /// Adds an item if it is among the greatest. `item` is called only in that case. An item with the key 0
    /// is never added.
    pub(crate) fn offer(&mut self, key: u64, item: impl FnOnce() -> T) {
        let full = self.items.len() >= self.items_max;
        if key == 0 || (full && self.items.last().is_none_or(|(least, _)| *least >= key)) {
            return;
        }
        let at = self.items.partition_point(|(greater, _)| *greater >= key);
        self.items.insert(at, (key, item()));
        self.items.truncate(self.items_max);
    }

    /// The items in descending order of their keys.
    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::TopList;

    proptest! {
        #[test]
        fn the_list_keeps_the_same_items_as_sorting(keys in proptest::collection::vec(0u64..20, 0..60), items_max in 0usize..6) {
            let mut top = TopList::new(items_max);
            for (number, key) in keys.iter().enumerate() {
                top.offer(*key, || (*key, number));
            }
            let mut sorted: Vec<_> = keys.iter().enumerate().map(|(number, key)| (*key, number)).collect();
            sorted.retain(|(key, _)| *key > 0);
            sorted.sort_by_key(|(key, number)| (std::cmp::Reverse(*key), *number));
            sorted.truncate(items_max);
            prop_assert_eq!(top.items().copied().collect::<Vec<_>>(), sorted);
        }
    }
}
