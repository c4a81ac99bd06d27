//! Whether others can go on behind a server by GTIDs, and what MariaDB needs for that.
//!
//! A MariaDB server that has written none of what it replicated into its binlog (it was copied, or is fed by a channel)
//! knows its position, and would still number its own transactions from one: below those that everybody has, and so never
//! asked for. Its binlog then begins anew, behind its position, as is right for one that holds nothing of it.

use tailwater_session::Connection;
use tailwater_wire::gtid::{GtidSet, MariadbBinlogState};

use super::replication::{executed, failed, run};
use super::words::quote;
use crate::error::ManagerError;

const DOING: &str = "numbering behind what it has";

/// Has a server's own transactions be numbered behind all that it has, and be found by who asks for what comes behind that.
/// MySQL does so by itself.
///
/// # Errors
/// [`ManagerError::Act`] if its binlog holds transactions, or somebody reads it, so that it cannot begin anew.
pub async fn number_behind(connection: &mut Connection) -> Result<(), ManagerError> {
    let GtidSet::MariaDb(all) = executed(connection).await? else { return Ok(()) };
    let answer = connection.query("SELECT @@global.gtid_binlog_state, @@global.gtid_slave_pos").await?;
    let column = |index| answer.first().and_then(|row| row.get_str(index)).unwrap_or_default();
    let written = MariadbBinlogState::parse(column(0)).map_err(|_| ManagerError::Answer {
        server: connection.endpoint().to_owned(),
        what: "gtid_binlog_state",
        value: column(0).chars().take(200).collect(),
    })?;
    let is_numbered = |gtid: tailwater_wire::gtid::MariadbGtid| {
        written.last(gtid.domain).is_some_and(|last| last.sequence >= gtid.sequence)
    };
    if all.position().iter().all(is_numbered) {
        return Ok(());
    }
    let position = column(1).to_owned();
    if !written.is_empty() {
        let reason = format!(
            "its binlog holds {written} and not what it replicated (up to {position}); it would number its transactions \
             below those. Set it up anew with log_slave_updates, or run RESET MASTER there if nobody needs its binlog"
        );
        return Err(failed(connection, DOING, reason));
    }
    let readers = connection
        .query("SELECT COUNT(*) FROM information_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'")
        .await?;
    if readers.scalar() != Some("0") {
        let reason = "its binlog is read by others and would have to begin anew; stop them".to_owned();
        return Err(failed(connection, DOING, reason));
    }
    run(connection, "RESET MASTER").await?;
    run(connection, &format!("SET GLOBAL gtid_binlog_state = {}", quote(&position))).await
}

/// What a server that is fed by a channel has beyond what the channel brought: its own transactions, which nobody else has.
///
/// # Errors
/// Those of the conversation.
pub async fn beyond(connection: &mut Connection, brought: &GtidSet) -> Result<Option<String>, ManagerError> {
    let has = executed(connection).await?;
    let own = has.subtract(brought).map_err(|error| failed(connection, DOING, error.to_string()))?;
    Ok((!own.is_empty()).then(|| own.to_string()))
}
