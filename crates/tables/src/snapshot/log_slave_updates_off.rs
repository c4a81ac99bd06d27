//! MariaDB servers whose own replication commits without writing the binlog: with `log_slave_updates = OFF`,
//! which is the default, or without a binlog. Their binlog position does not change while rows change. Each
//! replicated transaction records its GTID in a table (`mysql.gtid_slave_pos`).

use std::collections::BTreeMap;

use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{MariadbGtid, MariadbPosition};

use crate::error::BulkError;
use crate::schema::texts;
use tailwater_wire::sql_quote::qualified_name;

/// Error codes of a server if the account lacks the privilege to read the tables `mysql.gtid_slave_pos*`, or
/// if the session has locked only other tables. In both cases the variable `gtid_slave_pos` is read.
const NOT_READABLE: [u16; 4] = [1044, 1100, 1142, 1146];

/// How much of a server's replication is written to its binlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaLogging {
    /// All replicated transactions are in the binlog.
    Logged,
    /// No replicated transactions are in the binlog.
    Unlogged,
    /// A Galera node, which may apply transactions at any time without writing the binlog.
    Cluster,
}

/// Returns whether transactions that are not in the binlog may commit now. Must not be called while the
/// session holds a backup lock, see [`is_replica_running`].
///
/// # Errors
/// [`BulkError::Session`]
pub async fn commits_unlogged(connection: &mut Connection) -> Result<bool, BulkError> {
    match of(connection).await? {
        ReplicaLogging::Logged => Ok(false),
        ReplicaLogging::Unlogged => is_replica_running(connection).await,
        ReplicaLogging::Cluster => Ok(true),
    }
}

/// Returns whether any applier thread of a MariaDB server is running. The query waits for the server's
/// replication mutex. A session that sets `gtid_slave_pos` holds this mutex and may wait for a backup lock.
/// So a session that holds the backup lock must not send the query.
///
/// # Errors
/// [`BulkError::Session`]
pub async fn is_replica_running(connection: &mut Connection) -> Result<bool, BulkError> {
    let running = connection.query("SHOW GLOBAL STATUS LIKE 'slaves\\_running'").await?;
    Ok(running.first().and_then(|row| row.get_u64(1)).unwrap_or(0) > 0)
}

/// Reads whether a server writes replicated transactions to its binlog.
///
/// # Errors
/// [`BulkError::Session`]
pub async fn of(connection: &mut Connection) -> Result<ReplicaLogging, BulkError> {
    if connection.server().flavour == Flavour::MySql {
        // On MySQL it makes no difference whether transactions are in the binlog: the GTID set has them, too.
        return Ok(ReplicaLogging::Logged);
    }
    let sql = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('log_bin', 'log_slave_updates', 'wsrep_on')";
    let variables = connection.query(sql).await?;
    let is_on = |name: &str| {
        let row = variables.rows.iter().find(|row| row.get_str(0) == Some(name));
        row.and_then(|row| row.get_str(1)) == Some("ON")
    };
    if is_on("log_bin") && is_on("log_slave_updates") {
        return Ok(ReplicaLogging::Logged);
    }
    if is_on("wsrep_on") {
        return Ok(ReplicaLogging::Cluster);
    }
    Ok(ReplicaLogging::Unlogged)
}

/// Returns the GTIDs that replication has applied, from the rows that the server commits with each
/// transaction. The variable `gtid_slave_pos` is not used: the server updates it shortly after the commit, so
/// it may lack a transaction whose rows are visible.
///
/// # Errors
/// [`BulkError::Session`]
pub async fn applied(connection: &mut Connection) -> Result<String, BulkError> {
    match applied_rows(connection).await {
        Err(BulkError::Session(SessionError::Server { error, .. }))
            if NOT_READABLE.contains(&error.number) =>
        {
            let applied = connection.query("SELECT @@GLOBAL.gtid_slave_pos").await?;
            Ok(applied.scalar().unwrap_or_default().to_owned())
        }
        other => other,
    }
}

async fn applied_rows(connection: &mut Connection) -> Result<String, BulkError> {
    // With `gtid_pos_auto_engines`, there is one table `gtid_slave_pos*` per storage engine. An account that
    // lacks the privilege to read these tables gets an error for the first of them.
    let sql = "SELECT table_name FROM information_schema.tables \
               WHERE table_schema = 'mysql' AND table_name LIKE 'gtid\\_slave\\_pos_%'";
    let mut tables = vec!["gtid_slave_pos".to_owned()];
    tables.extend(texts(&connection.query(sql).await?)?.into_iter().map(|[table]| table));
    // The newest row of a domain has the highest `sub_id`; the server deletes older rows later.
    let mut newest: BTreeMap<u64, (u64, String)> = BTreeMap::new();
    for table in tables {
        let sql = format!(
            "SELECT domain_id, sub_id, CONCAT_WS('-', domain_id, server_id, seq_no) FROM {}",
            qualified_name("mysql", &table)
        );
        for row in &connection.query(&sql).await?.rows {
            let (Some(domain), Some(sub_id), Some(gtid)) = (row.get_u64(0), row.get_u64(1), row.get_str(2))
            else {
                continue;
            };
            let newer = newest.get(&domain).is_none_or(|(before, _)| *before < sub_id);
            if newer {
                newest.insert(domain, (sub_id, gtid.to_owned()));
            }
        }
    }
    Ok(newest.into_values().map(|(_, gtid)| gtid).collect::<Vec<_>>().join(","))
}

/// Returns the GTID position of a server, from the GTIDs that the server has logged and those that it has
/// applied. In each domain the later of the two GTIDs is taken, as in `gtid_current_pos`. A former primary
/// has applied transactions after its own transactions. A former replica has written its own transactions
/// after those that it applied.
pub fn current(logged: &str, applied: &str) -> String {
    let (Ok(logged), Ok(applied)) = (MariadbPosition::parse(logged), MariadbPosition::parse(applied)) else {
        return logged.to_owned();
    };
    let mut latest: BTreeMap<u32, MariadbGtid> = BTreeMap::new();
    for gtid in logged.iter().chain(applied.iter()) {
        let of_domain = latest.entry(gtid.domain).or_insert(gtid);
        if gtid.sequence > of_domain.sequence {
            *of_domain = gtid;
        }
    }
    latest.values().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Returns whether no applied GTID is later than the GTIDs that the server itself has logged.
pub fn is_behind(applied: &str, logged: &str) -> bool {
    MariadbPosition::parse(logged).is_ok_and(|own| {
        let own: Vec<_> = own.iter().map(|gtid| gtid.to_string()).collect();
        current(logged, applied) == own.join(",")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_gtid_of_each_domain_is_taken() {
        for (logged, applied, all) in [
            ("", "0-1-7", "0-1-7"),
            ("0-1-100", "0-2-500", "0-2-500"),
            ("0-2-80", "0-1-50", "0-2-80"),
            ("5-2-3,0-9-9", "0-9-9,1-1-1", "0-9-9,1-1-1,5-2-3"),
            ("", "", ""),
        ] {
            assert_eq!(current(logged, applied), all, "{logged} {applied}");
        }
        assert!(is_behind("0-1-50", "0-2-80") && is_behind("", "0-2-80") && is_behind("", ""));
        assert!(!is_behind("0-2-81", "0-1-80") && !is_behind("1-1-1", "0-1-80") && !is_behind("0-1-1", ""));
    }
}
