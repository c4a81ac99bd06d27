//! Sets the GTID state of the target to the GTID set of the dump.

use std::collections::BTreeSet;

use tailwater_session::{BACKUP_LOCK_WAIT_MAX, Connection, set_mariadb_slave_position};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{MariadbPosition, MysqlGtidSet};

use super::dump_contents::DumpContents;
use tailwater_tables::error::BulkError;
use tailwater_tables::snapshot::gtids_applied_without_binlog;
use tailwater_wire::sql_quote::string_literal;

/// Returns the GTID set of a dump, if it can be set on the target.
///
/// # Errors
/// [`BulkError::GtidState`] if the dump has no single GTID set, or a GTID set of the other flavour.
pub(super) fn state(contents: &DumpContents, target: Flavour) -> Result<&str, BulkError> {
    let refused = |reason: &str| Err(BulkError::GtidState { reason: reason.into() });
    if contents.flavour.is_some_and(|flavour| flavour != target) {
        return refused(
            "the dump is from a server of the other flavour, whose GTIDs are not valid on the target",
        );
    }
    match contents.point.as_ref().map(|point| point.gtid_set.as_deref()) {
        Some(Some(set)) => Ok(set),
        Some(None) => refused("the dumped server had no GTIDs"),
        None => refused("the dump has several points in time"),
    }
}

/// Refuses a target that has executed transactions of the source that are not in the dump. Replication of the
/// target would start after these transactions. It would skip earlier transactions that are neither in the
/// dump nor on the target. MariaDB targets are not checked: they store one GTID per domain, which the load
/// sets back to the GTID of the dump.
///
/// # Errors
/// [`BulkError::GtidState`], also if a set cannot be parsed; [`BulkError::Session`].
pub(super) async fn check(connection: &mut Connection, state: &str) -> Result<(), BulkError> {
    if connection.server().flavour == Flavour::MariaDb {
        return Ok(());
    }
    let has = connection.query("SELECT @@GLOBAL.gtid_executed, @@server_uuid").await?;
    let field = |index| has.first().and_then(|row| row.get_str(index)).unwrap_or_default();
    let reason = match surplus(field(0), state, field(1)) {
        Ok(None) => return Ok(()),
        Ok(Some(surplus)) => format!(
            "the server has executed {surplus}, which is not in the dump; reset the GTID state of the server first (RESET BINARY LOGS AND \
             GTIDS, before 8.4 RESET MASTER)"
        ),
        Err(reason) => reason,
    };
    Err(BulkError::GtidState { reason })
}

/// Returns the transactions in `executed` that are not in the dump, but come from a server in the dump's GTID
/// set. Transactions that the target itself has written, such as those of this load, do not count.
fn surplus(executed: &str, state: &str, own: &str) -> Result<Option<String>, String> {
    let set = |text: &str| {
        MysqlGtidSet::parse(text).map_err(|error| format!("the GTID set {text:?} cannot be parsed: {error}"))
    };
    let (executed, state) = (set(executed)?, set(state)?);
    let own = set(&format!("{own}:1"))?;
    let uuids = |set: &MysqlGtidSet| set.iter_intervals().map(|(uuid, ..)| *uuid).collect::<BTreeSet<_>>();
    let of: BTreeSet<_> = &uuids(&state) - &uuids(&own);
    let mut surplus = MysqlGtidSet::new();
    for (uuid, tag, interval) in
        executed.subtract(&state).iter_intervals().filter(|(uuid, ..)| of.contains(*uuid))
    {
        surplus.insert_interval(*uuid, tag, interval).map_err(|error| error.to_string())?;
    }
    Ok((!surplus.is_empty()).then(|| surplus.to_string()))
}

/// Sets the GTID state of the target. On MySQL, only the transactions that the target lacks are added. On
/// MariaDB, the other domains keep their GTID. If an earlier load is `finished`, it has already set the
/// state, and replication may have continued since; in that case the state is left unchanged.
///
/// # Errors
/// The errors of [`check`], for transactions that have arrived since that check.
/// [`BulkError::Session`] if the account lacks the privilege to set the state, or if replication is
/// running.
pub(super) async fn set(connection: &mut Connection, state: &str, finished: bool) -> Result<(), BulkError> {
    match connection.server().flavour {
        Flavour::MariaDb => {
            let now = connection.query("SELECT @@GLOBAL.gtid_slave_pos").await?;
            let all = match MariadbPosition::parse(state) {
                Ok(_) => gtids_applied_without_binlog::merge_applied(now.scalar().unwrap_or_default(), state),
                // The set cannot be parsed; the server's error will say what is wrong with it.
                Err(_) => state.to_owned(),
            };
            set_mariadb_slave_position(connection, &string_literal(&all), BACKUP_LOCK_WAIT_MAX).await?;
        }
        Flavour::MySql => {
            let sql = format!("SELECT GTID_SUBTRACT({}, @@GLOBAL.gtid_executed)", string_literal(state));
            let missing = connection.query(&sql).await?;
            let missing = missing.scalar().unwrap_or_default();
            if !missing.is_empty() || !finished {
                check(connection, state).await?;
            }
            if missing.is_empty() {
                return Ok(());
            }
            let sql = format!("SET GLOBAL gtid_purged = CONCAT('+', {})", string_literal(missing));
            connection.execute(&sql).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_transactions_of_the_dumped_servers_count_as_surplus() {
        let (p, q, own) = (
            "3e11fa47-71ca-11e1-9e33-c80aa9429562",
            "4e11fa47-71ca-11e1-9e33-c80aa9429562",
            "5E11FA47-71CA-11E1-9E33-C80AA9429562",
        );
        let dump = format!("{p}:1-700,{own}:1-3");
        let more = |executed: String| surplus(&executed, &dump, own).expect("the GTID sets are valid");
        assert_eq!(more(String::new()), None);
        assert_eq!(more(format!("{p}:1-700")), None);
        assert_eq!(more(format!("{p}:1-700,\n{own}:1-9,\n{q}:1-5")), None);
        assert_eq!(more(format!("{p}:1-1000,\n{q}:1-5")), Some(format!("{p}:701-1000")));
        assert_eq!(more(format!("{p}:5-6:some_tag:1")), Some(format!("{p}:some_tag:1")));
        assert!(surplus("nonsense", &dump, own).is_err());
    }
}
