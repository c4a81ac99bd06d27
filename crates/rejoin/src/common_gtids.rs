//! Compares the GTIDs of a server with the GTIDs of Tailwater's log.

use tailwater_wire::gtid::{Gtid, GtidSet, MariadbBinlogState, MariadbGtid};

use crate::error::RejoinError;

/// What a server writes into its binlog to identify itself as the origin of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The `server_uuid` of MySQL.
    pub uuid: Option<[u8; 16]>,
    /// The `server_id`.
    pub server_id: u32,
}

impl Identity {
    /// Whether a transaction was first committed on this server. As a replica, the server would skip such a
    /// transaction.
    pub fn is_own(&self, gtid: &Gtid) -> bool {
        match gtid {
            Gtid::MySql(gtid) => self.uuid == Some(gtid.uuid),
            Gtid::MariaDb(gtid) => gtid.server_id == self.server_id,
        }
    }
}

/// Returns the GTIDs that the server and the log have in common. On MariaDB, these are the GTIDs up to the
/// lower of the two last sequence numbers, for each pair of domain and `server_id`.
///
/// # Errors
/// [`RejoinError::Impossible`] for sets of different flavours.
pub fn common(server: &GtidSet, log: &GtidSet) -> Result<GtidSet, RejoinError> {
    match (server, log) {
        (GtidSet::MySql(server), GtidSet::MySql(log)) => Ok(GtidSet::MySql(server.intersect(log))),
        (GtidSet::MariaDb(server), GtidSet::MariaDb(log)) => {
            let shorter = |gtid: MariadbGtid| {
                if log.contains(&gtid) {
                    return Some(gtid);
                }
                let same = |known: &MariadbGtid| {
                    (known.domain, known.server_id) == (gtid.domain, gtid.server_id)
                        && known.sequence < gtid.sequence
                };
                log.iter().find(same)
            };
            let mut both: Vec<_> = server.iter().filter_map(shorter).collect();
            // The newest GTID of a domain must come last.
            both.sort_by_key(|gtid| (gtid.domain, gtid.sequence));
            Ok(GtidSet::MariaDb(MariadbBinlogState::from_gtids(both)))
        }
        (server, log) => Err(RejoinError::Impossible {
            reason: format!(
                "the server is {}, and the log was captured from {}: their GTIDs cannot be compared",
                server.flavour(),
                log.flavour()
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_wire::Flavour;

    fn check(flavour: Flavour, server: &str, log: &str, expected: &str) {
        let parse = |text| GtidSet::parse(flavour, text).expect("the GTIDs must be valid");
        let both = common(&parse(server), &parse(log)).expect("both GTID sets must have the same flavour");
        assert_eq!(
            both,
            parse(expected),
            "the common GTIDs of the server ({server}) and the log ({log}) are wrong"
        );
    }

    #[test]
    fn the_common_set_ends_with_the_shorter_history() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        check(Flavour::MySql, &format!("{uuid}:1-9"), &format!("{uuid}:1-7"), &format!("{uuid}:1-7"));
        check(Flavour::MySql, &format!("{uuid}:1-5"), &format!("{uuid}:1-7"), &format!("{uuid}:1-5"));
        // Only the server has 0-1-102. The new primary, server 2, continued after 0-1-101.
        check(Flavour::MariaDb, "0-1-102", "0-1-101,0-2-105", "0-1-101");
        check(Flavour::MariaDb, "0-1-99", "0-1-101,0-2-105", "0-1-99");
        // Server 2 was the primary before server 1.
        check(Flavour::MariaDb, "0-2-50,0-1-102", "0-2-50,0-1-101", "0-2-50,0-1-101");
        check(Flavour::MariaDb, "4-9-3", "0-1-101", "");
    }

    #[test]
    fn own_transactions_have_this_server_as_their_origin() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let gtid = Gtid::parse(Flavour::MySql, &format!("{uuid}:7")).expect("the GTID must be valid");
        let Gtid::MySql(mysql) = &gtid else { unreachable!("the GTID must be a MySQL GTID") };
        assert!(Identity { uuid: Some(mysql.uuid), server_id: 3 }.is_own(&gtid));
        assert!(!Identity { uuid: Some([0; 16]), server_id: 1 }.is_own(&gtid));
        let gtid = Gtid::parse(Flavour::MariaDb, "0-1-7").expect("the GTID must be valid");
        assert!(Identity { uuid: None, server_id: 1 }.is_own(&gtid));
        assert!(!Identity { uuid: None, server_id: 2 }.is_own(&gtid));
    }
}
