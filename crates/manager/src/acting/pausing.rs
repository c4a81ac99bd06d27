//! Has a primary take no more writes, in bounded time, and take them again.
//!
//! The server lets through what is under way: statements that write, and commits, which wait for ACKs. While it waits for
//! them it lets nobody else write, so waiting is a part of the pause. If it takes longer than allowed the attempt is ended
//! and everything goes on. Statements are ended after a grace; a commit that waits for ACKs never: that would make it
//! visible without one.

use std::time::{Duration, Instant};

use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tracing::info;

use super::replication::{executed, failed, pause, run, too_long};
use super::sessions::{self, Session};
use super::{semi_sync, writing};
use crate::error::ManagerError;

const DOING: &str = "taking no more writes";

/// Marks the statement, by which whoever undoes this finds it.
const MARK: &str = "/* tailwater: hold writes */";

/// Between two looks at who holds on.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// For the end of an attempt that was ended.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Has the server take no more writes, on MySQL not even from administrators, and tells what it has executed then. `setter`
/// waits for the server, `other` asks and ends meanwhile. Statements that hold on are ended after `grace`.
///
/// # Errors
/// [`ManagerError::TooLong`] if something held on for longer than `within`, with what: the server takes writes then.
pub(super) async fn hold_writes(
    setter: &mut Connection,
    other: &mut Connection,
    within: Duration,
    grace: Duration,
) -> Result<GtidSet, ManagerError> {
    let begun = Instant::now();
    let ours = [setter.server().connection_id, other.server().connection_id];
    let variable = match setter.server().flavour {
        Flavour::MySql => "super_read_only",
        Flavour::MariaDb => "read_only",
    };
    let statement = format!("SET GLOBAL {variable} = 1 {MARK}");
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
        let mut holding = sessions::list(other).await?;
        holding.retain(|session: &Session| !ours.contains(&session.id_32()));
        if begun.elapsed() >= within {
            break holding;
        }
        for session in holding.iter().filter(|session| session.writes()) {
            info!(server = other.endpoint(), session = session.id, "ending a statement that holds on");
            sessions::kill(other, session.id).await?;
        }
        next = (begun.elapsed() + LOOK_EVERY).min(within);
    };
    sessions::kill(other, u64::from(ours[0])).await?;
    // Whether it was ended or done in the last moment: the server takes writes when this is over.
    let ended = tokio::time::timeout(END_PATIENCE, setting).await;
    writing::make_writable(other).await?;
    let waiting = holding.iter().filter(|session| session.waits_for_acks()).count();
    let writing = holding.iter().filter(|session| session.writes()).count();
    let ended = if ended.is_ok() { "" } else { ", and the attempt does not end" };
    let reason = format!("{waiting} commits wait for ACKs, {writing} statements write{ended}");
    Err(too_long(other, DOING, within, reason))
}

/// Undoes [`hold_writes`], wherever that is. `setter` is the session that was told, as far as that is known: its statement may
/// be on the way and nowhere to be seen, so it is ended always. Commits wait for as many as `acks` ACKs before the first of them
/// can be told to a client; tells what has to be known of that, if anything.
///
/// # Errors
/// [`ManagerError::Act`] if commits do not wait, and it stays as it is then; if clients cannot write afterwards, or a session that
/// was told does not end; those of the conversation.
pub(super) async fn release_writes(
    connection: &mut Connection,
    setter: Option<u32>,
    acks: u32,
) -> Result<Option<String>, ManagerError> {
    let own = connection.server().connection_id;
    let is_told = |session: &Session| {
        session.id_32() != own && (session.text.contains(MARK) || Some(session.id_32()) == setter)
    };
    let begun = Instant::now();
    // Until they are gone: one that ends has yet to find out.
    let ended = loop {
        let mut told = sessions::list(connection).await?;
        told.retain(is_told);
        if told.is_empty() {
            break true;
        }
        for session in told {
            sessions::kill(connection, session.id).await?;
        }
        if begun.elapsed() >= END_PATIENCE {
            break false;
        }
        pause(begun).await;
    };
    let note = semi_sync::wait_again(connection, acks).await?;
    writing::make_writable(connection).await?;
    let reason = match (writing::is_writable(connection).await?, ended) {
        (true, true) => return Ok(note),
        (true, false) => "a session that was told to make it read-only does not end, and may yet do so",
        (false, _) => "it is still read-only",
    };
    Err(failed(connection, "taking writes again", reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use anyhow::{Result, ensure};
    use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};

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
        let mut setter = Connection::connect(&server.connect_options()).await?;
        let mut other = Connection::connect(&server.connect_options()).await?;
        let told = setter.server().connection_id;
        // Nobody waits for ACKs there, and for how many is not known: it takes no writes.
        writing::make_read_only(&mut other, END_PATIENCE).await?;
        ensure!(release_writes(&mut other, None, 0).await.is_err());
        ensure!(!writing::is_writable(&mut other).await?);
        release_writes(&mut other, Some(told), 1).await?;
        semi_sync::is_waiting(&mut other, 1).await?;
        ensure!(run(&mut setter, &format!("SET GLOBAL read_only = 1 {MARK}")).await.is_err());
        ensure!(writing::is_writable(&mut other).await?);
        // Its own session goes on.
        let own = other.server().connection_id;
        release_writes(&mut other, Some(own), 0).await?;
        Ok(())
    }
}
