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

use super::replication::{executed, failed, run, too_long};
use super::sessions::{self, Session};
use super::writing;
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

/// Undoes [`hold_writes`], wherever that is.
///
/// # Errors
/// [`ManagerError::Act`] if clients cannot write afterwards; those of the conversation.
pub(super) async fn release_writes(connection: &mut Connection) -> Result<(), ManagerError> {
    for session in sessions::list(connection).await? {
        if session.text.contains(MARK) && session.id_32() != connection.server().connection_id {
            sessions::kill(connection, session.id).await?;
        }
    }
    writing::make_writable(connection).await?;
    match writing::is_writable(connection).await? {
        true => Ok(()),
        false => Err(failed(connection, "taking writes again", "it is still read-only".to_owned())),
    }
}
