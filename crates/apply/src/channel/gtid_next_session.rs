//! Session settings of `gtid = preserve`: the target logs the next transaction under the source's GTID.

use tailwater_wire::Flavour;
use tailwater_wire::gtid::Gtid;

use tailwater_wire::sql_quote::portable_literal;

/// Builds the SQL statements that set a session's next GTID.
pub(super) struct GtidSession;

impl GtidSession {
    /// Returns the statement that sets the GTID of the next transaction.
    pub(super) fn statement(gtid: &Gtid) -> String {
        match gtid {
            Gtid::MySql(gtid) => format!("SET @@SESSION.gtid_next={}", portable_literal(&gtid.to_string())),
            Gtid::MariaDb(gtid) => format!(
                "SET @@SESSION.gtid_domain_id={}, @@SESSION.server_id={}, @@SESSION.gtid_seq_no={}",
                gtid.domain, gtid.server_id, gtid.sequence
            ),
        }
    }

    /// Returns the statement after which the server assigns GTIDs again.
    pub(super) fn reset(flavour: Flavour) -> &'static str {
        match flavour {
            Flavour::MySql => "SET @@SESSION.gtid_next='AUTOMATIC'",
            Flavour::MariaDb => "SET @@SESSION.gtid_seq_no=0",
        }
    }
}
