//! The steps that make a server a primary, and how they are undone. Each step first verifies that nothing has
//! been written to the server since the previous step.
//!
//! Replicas of a new primary replicate from it by GTIDs. This works even if the binlog of the new primary
//! never held the replicated transactions. That is the case if the server was copied, or was the target of a
//! channel with `gtid = "log"`. MySQL then relies on `gtid_purged`. MariaDB relies on `gtid_slave_pos`, and
//! also numbers its own new transactions after it, even after a restart. The binlog of the server need not be
//! reset.

use std::fmt;
use std::time::Duration;

use tailwater_session::Connection;
use tailwater_wire::gtid::GtidSet;

use super::channel_control::ChannelControl;
use super::executor_config::{ExecutorConfig, ManagedServer};
use super::replication_setup::{executed, failed, forget, read_from, start, status};
use super::transaction_backfill::no_log;
use super::{read_only_switch, relay_log_drain, semi_sync_source};
use crate::action_executor::AckerError;
use crate::error::ManagerError;
use crate::model::failover_action::acks_text;

const DRAINING: &str = "executing the received transactions";
const PROMOTING: &str = "becoming primary";

/// How far the promotion of a server has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PromotionState {
    /// All transactions that the server had executed at the end of its drain.
    pub(super) executed: GtidSet,
    /// Set once the server waits for ACKs: the number of ACKs, and the semi-sync state before that.
    waits: Option<(u32, semi_sync_source::SemiSyncSides)>,
    /// Semi-sync settings that are prepared and not yet persisted by [`persist_source`].
    unsettled: Option<semi_sync_source::PreparedSource>,
    /// Whether clients may write.
    writable: bool,
}

impl fmt::Display for PromotionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server has executed {}", self.executed.to_string().replace('\n', ""))?;
        if let Some((acks, _)) = &self.waits {
            write!(f, ", waits for {}", acks_text(*acks))?;
        }
        if self.unsettled.is_some() {
            f.write_str(" until a restart")?;
        }
        f.write_str(if self.writable { ", clients may write" } else { ", read-only" })
    }
}

/// Executes all received transactions and stops replication. If that fails, call [`go_on_reading`].
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

/// Starts reading from the log again after a failed drain, because another server becomes primary. Does
/// nothing if the applier is stopped: MariaDB would then drop transactions that it has not executed.
pub(super) async fn go_on_reading(
    connection: &mut Connection,
    setup: &ExecutorConfig,
    server: &ManagedServer,
) -> Result<(), ManagerError> {
    if let Some(feed) = &server.feed {
        return feed.resume().await.map_err(|error| channel_failed(connection, "resume", error));
    }
    let Some(channel) = status(connection).await? else { return Ok(()) };
    if channel.sql_running && setup.logs.iter().any(|log| log.address.is_source_of(&channel)) {
        return start(connection).await;
    }
    Ok(())
}

fn channel_failed(connection: &Connection, what: &str, error: AckerError) -> ManagerError {
    let (AckerError::Refused(reason) | AckerError::Unknown(reason)) = error;
    failed(
        connection,
        "controlling the channel of the server",
        format!("the channel did not {what}: {reason}"),
    )
}

async fn drain_channel(
    connection: &mut Connection,
    feed: &dyn ChannelControl,
    patience: Duration,
) -> Result<GtidSet, ManagerError> {
    if !feed.keeps_gtids() {
        let reason = "the channel of this server writes under the target's own GTIDs; run: tailwater channel set NAME --gtid log";
        return Err(failed(connection, DRAINING, reason.to_owned()));
    }
    if !feed.is_whole() {
        let reason = "the channel of this server has filters or skipped transactions, so the server is not a copy of the primary";
        return Err(failed(connection, DRAINING, reason.to_owned()));
    }
    let brought = feed.pause().await.map_err(|error| channel_failed(connection, "stop", error))?;
    relay_log_drain::wait_executed(connection, &brought, patience).await?;
    if let Some(own) = beyond(connection, &brought).await? {
        let reason = format!("the server has transactions that its channel did not apply: {own}");
        return Err(failed(connection, DRAINING, reason));
    }
    executed(connection).await
}

/// Returns the transactions that the server has and that its channel did not apply. No other server has them.
/// If the log followed this server, every replica would get them.
async fn beyond(connection: &mut Connection, brought: &GtidSet) -> Result<Option<String>, ManagerError> {
    let has = executed(connection).await?;
    let own = has.subtract(brought).map_err(|error| failed(connection, DRAINING, error.to_string()))?;
    Ok((!own.is_empty()).then(|| own.to_string()))
}

/// Enables semi-sync while the server is still read-only. Returns a note for the audit record. If the server
/// was prepared in advance, this function skips the slow steps; [`persist_source`] does them later.
pub(super) async fn make_source(
    connection: &mut Connection,
    ready: Option<PromotionState>,
    prepared: Option<semi_sync_source::PreparedSource>,
    acks: u32,
    patience: Duration,
) -> Result<(PromotionState, Option<String>), ManagerError> {
    let mut ready = ready.ok_or_else(|| {
        not_prepared(connection, "this failover or switchover has not drained the relay log of the server")
    })?;
    if read_only_switch::is_writable(connection).await? {
        read_only_switch::make_read_only(connection, patience).await?;
    }
    unchanged(connection, &ready).await?;
    let (now, note) = match prepared {
        Some(prepared) => {
            semi_sync_source::enable_waiting(connection, &prepared).await?;
            ready.unsettled = Some(prepared);
            (prepared.before, None)
        }
        None => semi_sync_source::make_source(connection, acks).await?,
    };
    // If this step is repeated, keep the semi-sync state from before the first execution of the step.
    let before = ready.waits.map_or(now, |(_, before)| before);
    ready.waits = Some((acks, before));
    Ok((ready, note))
}

/// Executes the slow steps that [`make_source`] skipped, and removes the replication source of the server.
pub(super) async fn persist_source(
    connection: &mut Connection,
    ready: Option<PromotionState>,
) -> Result<(PromotionState, Option<String>), ManagerError> {
    let mut ready = ready.ok_or_else(|| {
        not_prepared(connection, "this failover or switchover has not drained the relay log of the server")
    })?;
    forget(connection).await?;
    let note = match ready.unsettled {
        Some(prepared) => semi_sync_source::settle(connection, &prepared).await?,
        None => None,
    };
    ready.unsettled = None;
    Ok((ready, note))
}

/// Lets clients write. Removes the replication source first, so that the server does not start replication
/// again after a restart.
pub(super) async fn make_writable(
    connection: &mut Connection,
    ready: Option<PromotionState>,
) -> Result<PromotionState, ManagerError> {
    let mut ready = ready.ok_or_else(|| {
        not_prepared(connection, "this failover or switchover has not drained the relay log of the server")
    })?;
    let Some((acks, _)) = ready.waits else {
        return Err(not_prepared(
            connection,
            "this failover or switchover has not made the server wait for ACKs",
        ));
    };
    if ready.unsettled.is_some() {
        return Err(not_prepared(connection, "the server would not wait for ACKs after a restart"));
    }
    if ready.writable && read_only_switch::is_writable(connection).await? {
        return Ok(ready);
    }
    unchanged(connection, &ready).await?;
    semi_sync_source::verify_waiting(connection, acks).await?;
    forget(connection).await?;
    read_only_switch::make_writable(connection).await?;
    ready.writable = true;
    Ok(ready)
}

pub(super) async fn make_read_only(
    connection: &mut Connection,
    patience: Duration,
) -> Result<(), ManagerError> {
    read_only_switch::make_read_only(connection, patience).await
}

/// Undoes [`make_source`], and resumes the replication that [`drain`] and [`make_writable`] stopped. The
/// server replicates from its previous source, or from the log if that source was removed.
pub(super) async fn disable_source(
    connection: &mut Connection,
    setup: &ExecutorConfig,
    server: &ManagedServer,
    ready: Option<PromotionState>,
    patience: Duration,
) -> Result<(), ManagerError> {
    if read_only_switch::is_writable(connection).await? {
        return Err(not_prepared(connection, "clients may write to this server: make it read-only first"));
    }
    let before = ready.and_then(|ready| ready.waits).map(|(_, before)| before).unwrap_or_default();
    semi_sync_source::disable_source(connection, before).await?;
    if let Some(feed) = &server.feed {
        return feed.resume().await.map_err(|error| channel_failed(connection, "resume", error));
    }
    if status(connection).await?.is_some() {
        return start(connection).await;
    }
    let log = setup.logs.first().ok_or_else(|| no_log(connection))?;
    read_from(connection, &log.address, patience).await
}

/// Verifies that nothing was written or replicated to the server since the end of its drain.
async fn unchanged(connection: &mut Connection, ready: &PromotionState) -> Result<(), ManagerError> {
    let now = executed(connection).await?;
    if now.is_subset_of(&ready.executed) && ready.executed.is_subset_of(&now) {
        return Ok(());
    }
    let more = now.subtract(&ready.executed).map(|more| more.to_string()).unwrap_or_default();
    let reason = format!(
        "the server has executed {more} since it applied all transactions that it had received: a client writes to the server"
    );
    Err(failed(connection, PROMOTING, reason))
}

fn not_prepared(connection: &Connection, reason: &str) -> ManagerError {
    failed(connection, PROMOTING, reason.to_owned())
}
