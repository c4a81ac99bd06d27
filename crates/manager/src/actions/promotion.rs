//! The steps by which a server becomes a primary, and back. Each holds that nothing has changed since the one before.
//!
//! Who goes on behind a new primary asks it by GTIDs. A server whose binlog never held what it replicated (it was copied,
//! or a channel with `gtid = "log"` feeds it) answers all the same: MySQL by `gtid_purged`; MariaDB by `gtid_slave_pos`,
//! behind which it also numbers its own transactions, after a restart, too. Nobody has to reset its binlog.

use std::fmt;
use std::time::Duration;

use tailwater_session::Connection;
use tailwater_wire::gtid::GtidSet;

use super::backfill::no_log;
use super::channel_control::ChannelControl;
use super::executor_config::{ExecutorConfig, ManagedServer};
use super::replication::{executed, failed, forget, read_from, start, status};
use super::{read_only, relay_log_drain, semi_sync};
use crate::action_executor::AckerError;
use crate::error::ManagerError;

const DRAINING: &str = "executing what it has received";
const PROMOTING: &str = "becoming primary";

/// How far a server is on its way to become primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PromotionState {
    /// All that it had executed when it was drained.
    pub(super) executed: GtidSet,
    /// Once it waits for ACKs: for how many, and how that stood before.
    waits: Option<(u32, semi_sync::SemiSyncSides)>,
    /// How it was prepared, until [`persist_source`].
    unsettled: Option<semi_sync::PreparedSource>,
    /// Clients may write.
    writable: bool,
}

impl fmt::Display for PromotionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it has executed {}", self.executed.to_string().replace('\n', ""))?;
        if let Some((acks, _)) = &self.waits {
            write!(f, ", waits for {acks} ACKs")?;
        }
        if self.unsettled.is_some() {
            f.write_str(" until a restart")?;
        }
        f.write_str(if self.writable { ", takes writes" } else { ", read-only" })
    }
}

/// Has it execute all that it has, and stops what feeds it. If it cannot, see [`go_on_reading`].
pub(super) async fn drain(
    connection: &mut Connection,
    server: &ManagedServer,
    patience: Duration,
) -> Result<PromotionState, ManagerError> {
    let executed = match &server.feed {
        Some(feed) => drain_channel(connection, feed.as_ref(), patience).await?,
        None => relay_log_drain::drain(connection, patience).await?,
    };
    Ok(PromotionState { executed, waits: None, unsettled: None, writable: false })
}

/// After a draining that failed it receives from the log again, since another server becomes primary. Not where the applier is stopped: MariaDB would drop what it has not executed.
pub(super) async fn go_on_reading(
    connection: &mut Connection,
    setup: &ExecutorConfig,
    server: &ManagedServer,
) -> Result<(), ManagerError> {
    if let Some(feed) = &server.feed {
        return feed.resume().await.map_err(|error| channel_failed(connection, "go on", error));
    }
    let Some(channel) = status(connection).await? else { return Ok(()) };
    if channel.sql_running && setup.logs.iter().any(|log| log.address.is_source_of(&channel)) {
        return start(connection).await;
    }
    Ok(())
}

fn channel_failed(connection: &Connection, what: &str, error: AckerError) -> ManagerError {
    let (AckerError::Refused(reason) | AckerError::Unknown(reason)) = error;
    failed(connection, "being fed by its channel", format!("the channel did not {what}: {reason}"))
}

async fn drain_channel(
    connection: &mut Connection,
    feed: &dyn ChannelControl,
    patience: Duration,
) -> Result<GtidSet, ManagerError> {
    if !feed.keeps_gtids() {
        let reason = "its channel writes under GTIDs of its own; run: tailwater channel set NAME --gtid log";
        return Err(failed(connection, DRAINING, reason.to_owned()));
    }
    if !feed.is_whole() {
        let reason = "its channel has filters, or left transactions out: it is no copy of the primary";
        return Err(failed(connection, DRAINING, reason.to_owned()));
    }
    let brought = feed.pause().await.map_err(|error| channel_failed(connection, "stop", error))?;
    relay_log_drain::wait_executed(connection, &brought, patience).await?;
    if let Some(own) = beyond(connection, &brought).await? {
        let reason = format!("it has transactions of its own, which its channel did not bring: {own}");
        return Err(failed(connection, DRAINING, reason));
    }
    executed(connection).await
}

/// What a server has beyond what its channel brought: its own transactions, which nobody else has, and which everybody
/// would get if the log followed it.
async fn beyond(connection: &mut Connection, brought: &GtidSet) -> Result<Option<String>, ManagerError> {
    let has = executed(connection).await?;
    let own = has.subtract(brought).map_err(|error| failed(connection, DRAINING, error.to_string()))?;
    Ok((!own.is_empty()).then(|| own.to_string()))
}

/// Has it wait for ACKs, read-only as it is. Tells what has to be known. Where it was prepared nothing is done that takes time;
/// [`persist_source`] does that.
pub(super) async fn make_source(
    connection: &mut Connection,
    ready: Option<PromotionState>,
    prepared: Option<semi_sync::PreparedSource>,
    acks: u32,
    patience: Duration,
) -> Result<(PromotionState, Option<String>), ManagerError> {
    let mut ready = ready.ok_or_else(|| not_prepared(connection, "it was not drained in this run"))?;
    if read_only::is_writable(connection).await? {
        read_only::make_read_only(connection, patience).await?;
    }
    unchanged(connection, &ready).await?;
    let (now, note) = match prepared {
        Some(prepared) => {
            semi_sync::enable_waiting(connection, &prepared).await?;
            ready.unsettled = Some(prepared);
            (prepared.before, None)
        }
        None => semi_sync::make_source(connection, acks).await?,
    };
    // Done twice, it remembers how it stood at first.
    let before = ready.waits.map_or(now, |(_, before)| before);
    ready.waits = Some((acks, before));
    Ok((ready, note))
}

/// Does what [`make_source`] left, and has it forget its source.
pub(super) async fn persist_source(
    connection: &mut Connection,
    ready: Option<PromotionState>,
) -> Result<(PromotionState, Option<String>), ManagerError> {
    let mut ready = ready.ok_or_else(|| not_prepared(connection, "it was not drained in this run"))?;
    forget(connection).await?;
    let note = match ready.unsettled {
        Some(prepared) => semi_sync::settle(connection, &prepared).await?,
        None => None,
    };
    ready.unsettled = None;
    Ok((ready, note))
}

/// Lets clients write. It forgets its source before: after a restart it must not begin to replicate.
pub(super) async fn make_writable(
    connection: &mut Connection,
    ready: Option<PromotionState>,
) -> Result<PromotionState, ManagerError> {
    let mut ready = ready.ok_or_else(|| not_prepared(connection, "it was not drained in this run"))?;
    let Some((acks, _)) = ready.waits else {
        return Err(not_prepared(connection, "it was not made to wait for ACKs in this run"));
    };
    if ready.unsettled.is_some() {
        return Err(not_prepared(connection, "it would not wait for ACKs after a restart"));
    }
    if ready.writable && read_only::is_writable(connection).await? {
        return Ok(ready);
    }
    unchanged(connection, &ready).await?;
    semi_sync::verify_waiting(connection, acks).await?;
    forget(connection).await?;
    read_only::make_writable(connection).await?;
    ready.writable = true;
    Ok(ready)
}

/// Undoes [`make_writable`].
pub(super) async fn make_read_only(
    connection: &mut Connection,
    patience: Duration,
) -> Result<(), ManagerError> {
    read_only::make_read_only(connection, patience).await
}

/// Undoes [`make_source`], and what [`drain`] and [`make_writable`] stopped: it replicates again, from where it did; from
/// the log if it has forgotten that.
pub(super) async fn disable_source(
    connection: &mut Connection,
    setup: &ExecutorConfig,
    server: &ManagedServer,
    ready: Option<PromotionState>,
    patience: Duration,
) -> Result<(), ManagerError> {
    if read_only::is_writable(connection).await? {
        return Err(not_prepared(connection, "clients may write to it: make it read-only first"));
    }
    let before = ready.and_then(|ready| ready.waits).map(|(_, before)| before).unwrap_or_default();
    semi_sync::disable_source(connection, before).await?;
    if let Some(feed) = &server.feed {
        return feed.resume().await.map_err(|error| channel_failed(connection, "go on", error));
    }
    if status(connection).await?.is_some() {
        return start(connection).await;
    }
    let log = setup.logs.first().ok_or_else(|| no_log(connection))?;
    read_from(connection, &log.address, patience).await
}

/// Nothing came since it was drained: nobody writes to it, nothing replicates to it.
async fn unchanged(connection: &mut Connection, ready: &PromotionState) -> Result<(), ManagerError> {
    let now = executed(connection).await?;
    if now.is_subset_of(&ready.executed) && ready.executed.is_subset_of(&now) {
        return Ok(());
    }
    let more = now.subtract(&ready.executed).map(|more| more.to_string()).unwrap_or_default();
    let reason = format!("it has executed {more} since it was drained; somebody writes to it");
    Err(failed(connection, PROMOTING, reason))
}

fn not_prepared(connection: &Connection, reason: &str) -> ManagerError {
    failed(connection, PROMOTING, reason.to_owned())
}
