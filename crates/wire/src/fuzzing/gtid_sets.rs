//! Checks of GTIDs and GTID sets of both flavours, as text and in binary form.

use super::{split_at_nul, split_mode};
use crate::Flavour;
use crate::gtid::{
    Gtid, GtidSet, Interval, MariadbBinlogState, MariadbGtidList, MariadbPosition, MysqlGtidSet,
};

pub(super) fn check(data: &[u8]) {
    match split_mode(data, 6) {
        Some((0, text)) => mysql_text(&String::from_utf8_lossy(text)),
        Some((1, bytes)) => mysql_bytes(bytes),
        Some((2, text)) => mariadb_text(&String::from_utf8_lossy(text)),
        Some((3, bytes)) => mariadb_bytes(bytes),
        Some((4, texts)) => algebra(Flavour::MySql, texts),
        Some((_, texts)) => algebra(Flavour::MariaDb, texts),
        None => {}
    }
}

fn mysql_text(text: &str) {
    if let Ok(set) = MysqlGtidSet::parse(text) {
        check_mysql_set(&set);
    }
    check_gtid(Flavour::MySql, text);
}

fn mysql_bytes(bytes: &[u8]) {
    let Ok(set) = MysqlGtidSet::decode(bytes) else { return };
    assert!(
        16 * set.iter_intervals().count() <= bytes.len(),
        "the set has more intervals than the input has bytes"
    );
    assert!(set.encoded_len() <= bytes.len(), "the normal form is longer than the input");
    check_mysql_set(&set);
}

/// Checks that a set is in normal form, and that it survives a round trip as text and in binary form.
fn check_mysql_set(set: &MysqlGtidSet) {
    let mut previous: Option<(&[u8; 16], &str, Interval)> = None;
    let mut count = 0;
    for (uuid, tag, interval) in set.iter_intervals() {
        assert!(interval.first >= 1 && interval.first <= interval.last);
        if let Some((previous_uuid, previous_tag, before)) = previous {
            let order = (previous_uuid, previous_tag).cmp(&(uuid, tag));
            assert!(
                order.is_lt() || order.is_eq() && before.last + 1 < interval.first,
                "the intervals of {set} are out of order"
            );
        }
        previous = Some((uuid, tag, interval));
        count += u128::from(interval.last - interval.first) + 1;
    }
    assert_eq!(set.count(), count);
    assert_eq!(set.is_empty(), count == 0);
    assert_eq!(MysqlGtidSet::parse(&set.to_string()).as_ref(), Ok(set));
    assert_eq!(MysqlGtidSet::parse(&format!("{set:#}")).as_ref(), Ok(set));
    let bytes = set.encode();
    assert_eq!(bytes.len(), set.encoded_len());
    assert_eq!(MysqlGtidSet::decode(&bytes).as_ref(), Ok(set));
}

fn mariadb_text(text: &str) {
    check_gtid(Flavour::MariaDb, text);
    if let Ok(list) = MariadbGtidList::parse(text) {
        check_list(&list);
        check_state(&MariadbBinlogState::from_gtids(list.gtids.iter().copied()));
        if let Ok(position) = MariadbPosition::parse(text) {
            assert_eq!(position.iter().count(), list.gtids.len());
            assert_eq!(MariadbPosition::parse(&position.to_string()), Ok(position));
        }
    }
}

fn mariadb_bytes(bytes: &[u8]) {
    let Ok(list) = MariadbGtidList::decode(bytes) else { return };
    assert!(16 * list.gtids.len() <= bytes.len());
    check_list(&list);
    check_state(&MariadbBinlogState::from_gtids(list.gtids));
}

fn check_list(list: &MariadbGtidList) {
    let bytes = list.encode().expect("a parsed list can be encoded");
    assert_eq!(MariadbGtidList::decode(&bytes).as_ref(), Ok(list));
    assert_eq!(MariadbGtidList::parse(&list.to_string()).map(|list| list.gtids).as_ref(), Ok(&list.gtids));
}

fn check_state(state: &MariadbBinlogState) {
    assert_eq!(MariadbBinlogState::parse(&state.to_string()).as_ref(), Ok(state));
    assert_eq!(&MariadbBinlogState::from_gtids(state.to_list().gtids), state);
    for gtid in state.iter() {
        assert!(state.contains(&gtid), "{gtid} must be in {state}");
    }
    for gtid in state.position().iter() {
        assert_eq!(state.last(gtid.domain), Some(gtid));
    }
}

fn check_gtid(flavour: Flavour, text: &str) {
    let Ok(gtid) = Gtid::parse(flavour, text) else { return };
    assert_eq!(Gtid::parse(flavour, &gtid.to_string()).as_ref(), Ok(&gtid));
    let mut set = GtidSet::empty(flavour);
    set.insert(&gtid).expect("a parsed GTID is in range");
    assert!(set.contains(&gtid));
    assert_eq!(
        set,
        GtidSet::parse(flavour, &gtid.to_string()).expect("a single GTID can be parsed as a set")
    );
}

/// Checks the laws of set operations for any two sets of one flavour.
fn algebra(flavour: Flavour, texts: &[u8]) {
    let (a, b) = split_at_nul(texts);
    let parse = |text| GtidSet::parse(flavour, &String::from_utf8_lossy(text));
    let (Ok(a), Ok(b)) = (parse(a), parse(b)) else { return };
    let union = a.union(&b).expect("both sets have the same flavour");
    assert_eq!(b.union(&a).as_ref(), Ok(&union));
    assert_eq!(a.union(&a).as_ref(), Ok(&a));
    assert!(a.subtract(&a).expect("both sets have the same flavour").is_empty());
    assert_eq!(a.is_subset_of(&b), a.subtract(&b).expect("both sets have the same flavour").is_empty());
    if let (GtidSet::MySql(a), GtidSet::MySql(b), GtidSet::MySql(union)) = (&a, &b, &union) {
        let (common, only_a) = (a.intersect(b), a.subtract(b));
        for set in [union, &common, &only_a] {
            check_mysql_set(set);
        }
        assert!(union.is_superset_of(a) && union.is_superset_of(b) && a.is_superset_of(&common));
        assert_eq!(common, b.intersect(a));
        assert_eq!(&common.union(&only_a), a);
        assert!(only_a.intersect(b).is_empty());
        assert_eq!(union.count() + common.count(), a.count() + b.count());
    }
    if let (GtidSet::MariaDb(a), GtidSet::MariaDb(b), GtidSet::MariaDb(union)) = (&a, &b, &union) {
        check_state(union);
        for gtid in a.iter().chain(b.iter()) {
            assert!(union.contains(&gtid), "{gtid} must be in {union}");
        }
        for range in a.subtract(b) {
            assert!(range.first <= range.last);
        }
    }
}
