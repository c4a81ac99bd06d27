//! Has a primary take no more writes, in bounded time, and take them again.
//!
//! The server lets through what is under way: statements that write, and commits, which wait for ACKs. While it waits for
//! them it lets nobody else write, so waiting is a part of the pause. If it takes longer than allowed the attempt is ended
//! and everything goes on. Statements are ended after a grace; a commit that waits for ACKs never: that would make it
//! visible without one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tailwater_session::Connection;
use tailwater_wire::gtid::GtidSet;
use tracing::info;

use super::process_list::{self, ProcessListEntry};
use super::replication::{executed, failed, run, too_long};
use super::{read_only, semi_sync};
use crate::error::ManagerError;

const DOING: &str = "taking no more writes";

/// Between two looks at who holds on.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Has the server take no more writes, on MySQL not even from administrators, and tells what it has executed then. `setter`
/// waits for the server, `other` asks and ends meanwhile. Statements that hold on are ended after `grace`.
///
/// # Errors
/// [`ManagerError::ActionTimeout`] if something held on for longer than `within`, with what: the server takes writes then, unless it
/// says that the attempt does not end.
pub(super) async fn hold_writes(
    setter: &mut Connection,
    other: &mut Connection,
    within: Duration,
    grace: Duration,
) -> Result<GtidSet, ManagerError> {
    let begun = Instant::now();
    let ours = [setter.server().connection_id, other.server().connection_id];
    // What lets clients write again, if it comes behind this, makes two primaries.
    read_only::kill_pending_changes(other, &BTreeSet::new()).await?;
    let statement = read_only::read_only(setter);
    let setting = run(setter, &statement);
    tokio::pin!(setting);
    let mut next = grace.min(within);
    let holding = loop {
        tokio::select! {
            done = &mut setting => {
                done?;
                return executed(other).await;
            }
            () = tokio::time::sleep_until((begun + next).into()) => {}
        }
        let mut holding = process_list::list(other).await?;
        holding.retain(|session: &ProcessListEntry| !ours.contains(&session.id_32()));
        if begun.elapsed() >= within {
            break holding;
        }
        for session in holding.iter().filter(|session| session.writes()) {
            info!(server = other.endpoint(), session = session.id, "ending a statement that holds on");
            process_list::kill(other, session.id).await?;
        }
        next = (begun.elapsed() + LOOK_EVERY).min(within);
    };
    // Whether it is ended or done in the last moment: the server takes writes when this is over.
    let ended = match read_only::kill_pending_changes(other, &BTreeSet::from([ours[0]])).await {
        Ok(()) => {
            read_only::make_writable(other).await?;
            ""
        }
        Err(ManagerError::ActionTimeout { .. }) => ", and the attempt does not end",
        Err(error) => return Err(error),
    };
    let waiting = holding.iter().filter(|session| session.waits_for_acks()).count();
    let writing = holding.iter().filter(|session| session.writes()).count();
    let reason = format!("{waiting} commits wait for ACKs, {writing} statements write{ended}");
    Err(too_long(other, DOING, within, reason))
}

/// Undoes [`hold_writes`], wherever that is, once nothing is on its way any more that would make the server read-only. Commits wait
/// for as many as `acks` ACKs before the first of them can be told to a client; tells what has to be known of that, if anything.
///
/// # Errors
/// [`ManagerError::ActionFailed`] if commits do not wait, and it stays as it is then; if clients cannot write afterwards; those of
/// [`read_only::make_writable`], and of the conversation.
pub(super) async fn release_writes(
    connection: &mut Connection,
    acks: u32,
) -> Result<Option<String>, ManagerError> {
    let note = semi_sync::restore_waiting(connection, acks).await?;
    read_only::make_writable(connection).await?;
    if !read_only::is_writable(connection).await? {
        return Err(failed(connection, "taking writes again", "it is still read-only".to_owned()));
    }
    Ok(note)
}

#[cfg(test)]
mod tests {
    use anyhow::{Result, ensure};
    use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
    use tailwater_session::ConnectOptions;

    use super::*;

    #[tokio::test]
    async fn who_was_told_is_ended_though_nothing_shows_it_mysql_97() -> Result<()> {
        who_was_told_is_ended(ServerKind::Mysql97).await
    }

    #[tokio::test]
    async fn who_was_told_is_ended_though_nothing_shows_it_mariadb_1011() -> Result<()> {
        who_was_told_is_ended(ServerKind::Mariadb1011).await
    }

    /// What it was told is on the way still when everything is undone.
    async fn who_was_told_is_ended(kind: ServerKind) -> Result<()> {
        if require(kind).is_none() {
            return Ok(());
        }
        let server = Server::start(ServerSpec::new(kind)).await?;
        server.sql("CREATE USER app@'%' IDENTIFIED BY 'app'").await?;
        let mut setter = Connection::connect(&server.connect_options()).await?;
        let mut other = Connection::connect(&server.connect_options()).await?;
        let told = BTreeSet::from([setter.server().connection_id]);
        // Nobody waits for ACKs there, and for how many is not known: it takes no writes.
        read_only::make_read_only(&mut other, Duration::from_secs(60)).await?;
        ensure!(release_writes(&mut other, 0).await.is_err());
        ensure!(!read_only::is_writable(&mut other).await?);
        read_only::kill_pending_changes(&mut other, &told).await?;
        release_writes(&mut other, 1).await?;
        semi_sync::verify_waiting(&mut other, 1).await?;
        let late = read_only::read_only(&setter);
        ensure!(run(&mut setter, &late).await.is_err());
        ensure!(read_only::is_writable(&mut other).await?);
        // Its own session goes on, and so does somebody else's that has the number now.
        let app = ConnectOptions { user: "app".into(), password: "app".into(), ..server.connect_options() };
        let mut app = Connection::connect(&app).await?;
        let told = [other.server().connection_id, app.server().connection_id].into();
        read_only::kill_pending_changes(&mut other, &told).await?;
        app.ping().await?;
        other.ping().await?;
        Ok(())
    }
}
