//! The session of `gtid = preserve`: the next transaction stands under the source's GTID in the target's binlog.

use tailwater_wire::Flavour;
use tailwater_wire::gtid::Gtid;

use super::sql_literal::quote;

/// What such a session is told.
pub(super) struct GtidSession;

impl GtidSession {
    /// The next transaction is this one.
    pub(super) fn statement(gtid: &Gtid) -> String {
        match gtid {
            Gtid::MySql(gtid) => format!("SET @@SESSION.gtid_next={}", quote(&gtid.to_string())),
            Gtid::MariaDb(gtid) => format!(
                "SET @@SESSION.gtid_domain_id={}, @@SESSION.server_id={}, @@SESSION.gtid_seq_no={}",
                gtid.domain, gtid.server_id, gtid.sequence
            ),
        }
    }

    /// No transaction follows under a given GTID.
    pub(super) fn reset(flavour: Flavour) -> &'static str {
        match flavour {
            Flavour::MySql => "SET @@SESSION.gtid_next='AUTOMATIC'",
            Flavour::MariaDb => "SET @@SESSION.gtid_seq_no=0",
        }
    }
}
