//! Compares the transactions of two servers.

use std::collections::BTreeMap;

use tailwater_wire::gtid::{GtidDifference, GtidSet, MariadbBinlogState, MariadbGtid, MysqlGtidSet};

use super::cluster_tree::GtidComparison;
use crate::server_state::{ObservedGtids, ServerState};

/// Compares the transactions of a server with those of the primary. Returns `None` if their flavours differ.
///
/// `before` are the transactions that the server had before the probe of the primary began. If the primary
/// lacks some of its own transactions in `before`, it has lost them, or they still wait for their ACK. If
/// `before` is absent, the result does not contain such transactions.
pub fn compare(
    server: &ServerState,
    before: Option<&ObservedGtids>,
    primary: &ServerState,
) -> Option<GtidComparison> {
    let now = compare_gtids(server, &server.executed, server.binlog_state.as_ref(), primary)?;
    let before = before
        .and_then(|before| compare_gtids(server, &before.executed, before.binlog_state.as_ref(), primary));
    Some(GtidComparison { ahead: before.and_then(|before| before.ahead), ..now })
}

fn compare_gtids(
    server: &ServerState,
    executed: &GtidSet,
    binlog_state: Option<&GtidSet>,
    primary: &ServerState,
) -> Option<GtidComparison> {
    match (executed, &primary.executed) {
        (GtidSet::MySql(has), GtidSet::MySql(primarys)) => {
            let own = primary.uuid.as_deref().and_then(uuid_bytes);
            Some(compare_mysql(has, primarys, own))
        }
        (GtidSet::MariaDb(has), GtidSet::MariaDb(primarys)) => {
            let written = match binlog_state {
                Some(GtidSet::MariaDb(state)) => state,
                _ => has,
            };
            Some(compare_mariadb(server.server_id, has, written, primary.server_id, primarys))
        }
        _ => None,
    }
}

/// Returns the number of transactions in `wanted` that `has` lacks. MariaDB sequence numbers have gaps, so
/// for MariaDB this is the highest possible number.
pub fn missing(has: &GtidSet, wanted: &GtidSet) -> Option<u64> {
    Some(match wanted.subtract(has).ok()? {
        GtidDifference::MySql(set) => u64::try_from(set.count()).unwrap_or(u64::MAX),
        GtidDifference::MariaDb(ranges) => ranges
            .iter()
            .fold(0_u64, |sum, range| sum.saturating_add((range.last - range.first).saturating_add(1))),
    })
}

fn compare_mysql(has: &MysqlGtidSet, primarys: &MysqlGtidSet, own: Option<[u8; 16]>) -> GtidComparison {
    let (mut ahead, mut errant) = (MysqlGtidSet::new(), MysqlGtidSet::new());
    for (uuid, tag, interval) in has.subtract(primarys).iter_intervals() {
        let to = if own == Some(*uuid) { &mut ahead } else { &mut errant };
        // The interval comes from a GTID set, so its insertion into another set cannot fail.
        let _ = to.insert_interval(*uuid, tag, interval);
    }
    GtidComparison {
        behind: u64::try_from(primarys.subtract(has).count()).unwrap_or(u64::MAX),
        errant: (!errant.is_empty()).then(|| errant.to_string()),
        ahead: (!ahead.is_empty()).then(|| ahead.to_string()),
    }
}

/// Returns the transactions that one server has and another lacks, as text. Returns `None` if there are none,
/// or if the flavours differ. `server_id` is the id of the first server.
pub fn only(has: &GtidSet, server_id: u32, other: &GtidSet) -> Option<String> {
    match (has, other) {
        (GtidSet::MariaDb(has), GtidSet::MariaDb(other)) => {
            let names: Vec<_> = mariadb_only(has, server_id, other)
                .iter()
                .map(|(gtid, known)| range_text(gtid, *known))
                .collect();
            (!names.is_empty()).then(|| names.join(","))
        }
        _ => {
            let difference = has.subtract(other).ok()?;
            (!difference.is_empty()).then(|| difference.to_string())
        }
    }
}

/// Finds the pairs of domain and `server_id` in which one server has newer transactions than another. Returns
/// for each pair the server's last GTID, and the last sequence number that the other server has.
///
/// MariaDB numbers transactions per domain, whichever server writes them. The sequence number alone does not
/// identify a transaction. The sequence number and the `server_id` together usually identify it. A server's
/// binlog state contains every server that ever wrote into its binlog, with the last number of that server.
fn mariadb_only(
    written: &MariadbBinlogState,
    server_id: u32,
    other: &MariadbBinlogState,
) -> Vec<(MariadbGtid, Option<u64>)> {
    let named: BTreeMap<_, _> =
        other.iter().map(|gtid| ((gtid.domain, gtid.server_id), gtid.sequence)).collect();
    let mut only = Vec::new();
    for gtid in written.iter() {
        let known = named.get(&(gtid.domain, gtid.server_id)).copied();
        let is_held = match known {
            Some(last) => gtid.sequence <= last,
            // The other server has no transaction with this `server_id`. If the first server wrote the
            // transaction itself, the other server lacks it. If a third server wrote it, the transaction may
            // be older than the other server's binlogs.
            None => gtid.server_id != server_id && other.contains(&gtid),
        };
        if !is_held {
            only.push((gtid, known));
        }
    }
    only
}

fn compare_mariadb(
    server_id: u32,
    has: &MariadbBinlogState,
    written: &MariadbBinlogState,
    primary_id: u32,
    primarys: &MariadbBinlogState,
) -> GtidComparison {
    let (mut ahead, mut errant) = (Vec::new(), Vec::new());
    for (gtid, known) in mariadb_only(written, server_id, primarys) {
        let to = if gtid.server_id == primary_id { &mut ahead } else { &mut errant };
        to.push(range_text(&gtid, known));
    }
    let text = |list: Vec<String>| (!list.is_empty()).then(|| list.join(","));
    let behind = missing(&GtidSet::MariaDb(has.clone()), &GtidSet::MariaDb(primarys.clone()));
    GtidComparison { behind: behind.unwrap_or_default(), errant: text(errant), ahead: text(ahead) }
}

/// Returns `0-2-7`, or `0-2-5..7` if the other server has the transactions up to number 4.
fn range_text(last: &MariadbGtid, known: Option<u64>) -> String {
    match known {
        Some(known) if known + 1 < last.sequence => {
            format!("{}-{}-{}..{}", last.domain, last.server_id, known + 1, last.sequence)
        }
        _ => last.to_string(),
    }
}

fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; 16];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
    const B: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";

    fn mysql(has: &str, primarys: &str) -> GtidComparison {
        let set = |text: &str| {
            MysqlGtidSet::parse(&text.replace("A:", &format!("{A}:")).replace("B:", &format!("{B}:")))
        };
        compare_mysql(&set(has).unwrap(), &set(primarys).unwrap(), uuid_bytes(A))
    }

    #[test]
    fn mysql_servers_are_found_to_be_behind_errant_or_ahead() {
        assert_eq!(mysql("A:1-7", "A:1-10"), GtidComparison { behind: 3, ..GtidComparison::default() });
        assert_eq!(mysql("A:1-10,B:1-2", "A:1-10").errant, Some(format!("{B}:1-2")));
        assert_eq!(mysql("A:1-12", "A:1-10").ahead, Some(format!("{A}:11-12")));
        assert_eq!(mysql("A:1-10", "A:1-10"), GtidComparison::default());
    }

    fn mariadb(has: &str, primarys: &str) -> GtidComparison {
        let state = |text: &str| MariadbBinlogState::parse(text).unwrap();
        compare_mariadb(2, &state(has), &state(has), 1, &state(primarys))
    }

    #[test]
    fn mariadb_finds_errant_transactions_by_server_id() {
        assert_eq!(mariadb("0-1-7", "0-1-10"), GtidComparison { behind: 3, ..GtidComparison::default() });
        // The sequence number is below that of the primary, but the primary never had this transaction.
        assert_eq!(mariadb("0-1-7,0-2-8", "0-1-10").errant.as_deref(), Some("0-2-8"));
        assert_eq!(mariadb("0-2-4,0-1-10", "0-2-3,0-1-10").errant.as_deref(), Some("0-2-4"));
        assert_eq!(mariadb("0-2-9,0-1-10", "0-2-3,0-1-10").errant.as_deref(), Some("0-2-4..9"));
        assert_eq!(mariadb("0-1-12", "0-1-10").ahead.as_deref(), Some("0-1-11..12"));
        // A third server wrote the transaction before the primary's binlogs begin.
        assert_eq!(mariadb("0-3-5,0-1-10", "0-1-10"), GtidComparison::default());
        assert_eq!(mariadb("0-3-11,0-1-10", "0-1-10").errant.as_deref(), Some("0-3-11"));
        // An earlier primary wrote the transaction, and the present primary replicated it.
        assert_eq!(mariadb("0-2-5,0-1-10", "0-2-5,0-1-10"), GtidComparison::default());
    }

    #[test]
    fn uuids_are_parsed() {
        assert_eq!(uuid_bytes(A), Some([0xaa; 16]));
        assert_eq!(uuid_bytes("aa"), None);
        assert_eq!(uuid_bytes("éééééééééééééééé"), None);
    }
}
