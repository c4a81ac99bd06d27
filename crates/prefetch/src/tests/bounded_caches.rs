//! The pending keys and the slow-query cache, against models.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use crate::pending_keys::PendingKeys;
use crate::slow_query_cache::{QueryShape, SlowQueryCache, SlowQueryLimits};

proptest! {
    #[test]
    fn pending_keys_are_those_of_the_newest_transactions(
        entries_max in 1usize..20,
        steps in proptest::collection::vec((0u64..30, 0u64..4, proptest::bool::weighted(0.2)), 1..200),
    ) {
        let mut keys = PendingKeys::new(entries_max);
        let mut model: VecDeque<(u64, u64)> = VecDeque::new();
        let (mut position, mut applied) = (0, 0);
        for (hash, bytes, applies) in steps {
            position += bytes;
            if applies {
                applied += (position - applied) / 2;
                keys.applied(applied);
                while model.front().is_some_and(|(_, end)| *end <= applied) {
                    model.pop_front();
                }
            }
            let is_new = model.iter().all(|(known, _)| *known != hash);
            prop_assert_eq!(keys.insert(hash, position), is_new);
            if is_new {
                model.push_back((hash, position));
                if model.len() > entries_max {
                    model.pop_front();
                }
            }
            prop_assert_eq!(keys.len(), model.len());
        }
    }

    #[test]
    fn slow_queries_are_remembered_for_their_time(
        steps in proptest::collection::vec((0u64..6, 0u64..40, proptest::bool::ANY), 1..120),
    ) {
        let limits = SlowQueryLimits { keep_seconds: 60, ..SlowQueryLimits::default() };
        let mut cache = SlowQueryCache::new(limits);
        let mut model: HashMap<u64, u64> = HashMap::new();
        let mut now = 0;
        for (shape, seconds, is_slow) in steps {
            now += seconds;
            let rows = if is_slow { 1_001 } else { 50 };
            let name = QueryShape(shape.to_string());
            prop_assert_eq!(cache.finished(name, 1, rows, 0, false, now), is_slow);
            if is_slow {
                model.insert(shape, now + 60);
            }
            for shape in 0..6 {
                let expected = model.get(&shape).is_some_and(|until| *until > now);
                prop_assert_eq!(cache.is_slow(&QueryShape(shape.to_string()), now), expected);
            }
        }
    }
}

#[test]
fn a_query_is_slow_by_rows_share_or_time() {
    let mut cache = SlowQueryCache::new(SlowQueryLimits::default());
    let mut slow =
        |keys, rows, table, long| cache.finished(QueryShape("q".into()), keys, rows, table, long, 0);
    assert!(!slow(1, 1_000, 0, false) && slow(1, 1_001, 0, false));
    assert!(!slow(8, 8_000, 1_000_000, false), "the rows count for each key");
    assert!(slow(1, 101, 2_000, false) && !slow(1, 101, 2_021, false));
    assert!(!slow(1, 5, 10, false), "small numbers are never a large share");
    assert!(slow(1, 0, 0, true));
}

#[test]
fn the_oldest_slow_query_is_forgotten_first() {
    let limits = SlowQueryLimits { entries_max: 3, ..SlowQueryLimits::default() };
    let mut cache = SlowQueryCache::new(limits);
    for number in 0..10u64 {
        assert!(cache.finished(QueryShape(number.to_string()), 1, 5_000, 0, false, number));
        assert!(cache.len() <= 3);
    }
    assert!(!cache.is_slow(&QueryShape("6".into()), 10) && cache.is_slow(&QueryShape("7".into()), 10));
}
