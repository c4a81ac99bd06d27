//! Has a replica execute everything it has received, and stop: what a relay log holds is never dropped.
//!
//! Pure: [`next`], what is to be done next as a replica stands. The rest does it. Two things are peculiar:
//!
//! - MariaDB drops relay logs when replication by GTIDs starts while nothing runs, even if only the applier is started. What
//!   was stopped whole is therefore drained by the place in the relay log, which keeps them.
//! - A delay can only be lifted by a change of source. MySQL keeps relay logs where one of the threads runs; MariaDB, and
//!   MySQL where none runs, where the place in the relay log is named.

use std::time::{Duration, Instant};

use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use super::replication::{executed, failed, pause, run, status, too_long, within};
use super::replication_dialect::{ReplicationDialect, quote};
use crate::error::ManagerError;
use crate::observation::{IoState, ReplicaChannel};

const DOING: &str = "executing what it has received";

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainStep {
    /// Everything that was received is executed, and nothing more comes.
    Drained,
    /// Start the applier.
    StartApplier,
    /// Lift the delay, while it receives.
    LiftDelay,
    /// Go on by the place in the relay log, without a delay; it is stopped whole before.
    ResumeAtPosition,
    /// Stop receiving.
    StopReceiving,
    /// Wait for the applier.
    Wait,
    /// The applier has stopped with an error, and did so again.
    Failed,
}

/// What is known of a replica that is drained.
#[derive(Debug, Clone, Copy)]
pub struct DrainState<'a> {
    /// Its family.
    pub flavour: Flavour,
    /// How its replication stands.
    pub channel: &'a ReplicaChannel,
    /// All that it was ever seen to have received.
    pub received: &'a GtidSet,
    /// All that it has executed.
    pub executed: &'a GtidSet,
    /// How often the applier was started.
    pub starts: u32,
}

/// Decides. The applier is started before receiving ends: from then on something runs all the time, and relay logs stay.
pub fn next(view: DrainState<'_>) -> DrainStep {
    let DrainState { flavour, channel, received, executed, starts } = view;
    let receives = channel.io != IoState::Stopped;
    let is_done = received.is_subset_of(executed);
    if is_done {
        return if receives { DrainStep::StopReceiving } else { DrainStep::Drained };
    }
    if channel.delay_seconds > 0 {
        return match flavour {
            Flavour::MySql if receives => DrainStep::LiftDelay,
            _ => DrainStep::ResumeAtPosition,
        };
    }
    if !channel.sql_running {
        return match (starts, flavour, receives) {
            (0, Flavour::MariaDb, false) => DrainStep::ResumeAtPosition,
            (0, ..) => DrainStep::StartApplier,
            _ => DrainStep::Failed,
        };
    }
    if receives { DrainStep::StopReceiving } else { DrainStep::Wait }
}

/// Drains it, and leaves its replication stopped. Tells all that it has executed then.
///
/// If this fails half way, a delay may stay lifted, and the replica is stopped where it stands; nothing of its relay log is
/// dropped, and it can be drained again.
///
/// # Errors
/// [`ManagerError::ActionFailed`] with the applier's error; if it does not replicate by GTIDs; [`ManagerError::ActionTimeout`] if it takes
/// longer than `patience`, and then the connection may be no use any more.
pub async fn drain(connection: &mut Connection, patience: Duration) -> Result<GtidSet, ManagerError> {
    let endpoint = connection.endpoint().to_owned();
    within(patience, endpoint, DOING, drain_in(connection, patience)).await
}

async fn drain_in(connection: &mut Connection, patience: Duration) -> Result<GtidSet, ManagerError> {
    let words = ReplicationDialect::of(connection);
    let Some(first) = status(connection).await? else { return executed(connection).await };
    if !first.uses_gtids && words.flavour == Flavour::MariaDb {
        let reason = "it does not replicate by GTIDs, so what it has received is not known; run there: STOP SLAVE, \
                      CHANGE MASTER TO MASTER_USE_GTID = slave_pos, START SLAVE";
        return Err(failed(connection, DOING, reason.to_owned()));
    }
    let mut at_position = false;
    let drained = step_by_step(connection, &words, &first, &mut at_position, patience).await;
    if drained.is_ok() && at_position {
        restore(connection, &words, &first).await?;
    } else if at_position && words.flavour == Flavour::MariaDb {
        // By GTIDs again, or the next attempt could not tell what it has received.
        change_at_position(connection, &words, &first.name, "MASTER_USE_GTID=slave_pos", first.delay_seconds)
            .await?;
    }
    drained
}

async fn step_by_step(
    connection: &mut Connection,
    words: &ReplicationDialect,
    first: &ReplicaChannel,
    at_position: &mut bool,
    patience: Duration,
) -> Result<GtidSet, ManagerError> {
    let begun = Instant::now();
    let (mut channel, mut received, mut starts) = (first.clone(), first.received.clone(), 0);
    let name = &first.name;
    loop {
        let has = executed(connection).await?;
        let step = next(DrainState {
            flavour: words.flavour,
            channel: &channel,
            received: &received,
            executed: &has,
            starts,
        });
        match step {
            DrainStep::Drained => {
                run(connection, &words.verb(words.stop, "", name)).await?;
                return Ok(has);
            }
            DrainStep::StartApplier => {
                starts += 1;
                run(connection, &words.verb(words.start, "SQL_THREAD", name)).await?;
            }
            DrainStep::LiftDelay => {
                starts += 1;
                run(connection, &words.verb(words.stop, "SQL_THREAD", name)).await?;
                run(connection, &words.change(name, &["SOURCE_DELAY=0".to_owned()])).await?;
                run(connection, &words.verb(words.start, "SQL_THREAD", name)).await?;
                *at_position = true;
            }
            DrainStep::ResumeAtPosition => {
                starts += 1;
                *at_position = true;
                received = resume_at_position(connection, words, &channel, &received).await?;
            }
            DrainStep::StopReceiving => run(connection, &words.verb(words.stop, "IO_THREAD", name)).await?,
            DrainStep::Wait => _ = wait_executed_for(connection, &received, begun, patience).await?,
            DrainStep::Failed => {
                let reason = match &channel.sql_error {
                    Some(error) => {
                        format!("the applier stopped with error {}: {}", error.number, error.message)
                    }
                    None => "the applier was stopped by somebody".to_owned(),
                };
                return Err(failed(connection, DOING, reason));
            }
        }
        if begun.elapsed() >= patience {
            let left = received.subtract(&has).map(|left| left.to_string()).unwrap_or_default();
            return Err(too_long(connection, DOING, patience, format!("{left} is left")));
        }
        let Some(now) = status(connection).await? else {
            return Err(failed(connection, DOING, "somebody made it forget its source".to_owned()));
        };
        channel = now;
        received = received.union(&channel.received).unwrap_or(received);
    }
}

/// Waits a little, less if it is there sooner, which it tells.
async fn wait_executed_for(
    connection: &mut Connection,
    wanted: &GtidSet,
    begun: Instant,
    patience: Duration,
) -> Result<bool, ManagerError> {
    /// Then the applier's state is asked for again.
    const SLICE: Duration = Duration::from_millis(100);
    let slice = SLICE.min(patience.saturating_sub(begun.elapsed())).as_secs_f64();
    let question = match wanted {
        GtidSet::MySql(set) => format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{set}', {slice:.3})"),
        GtidSet::MariaDb(state) => format!("SELECT MASTER_GTID_WAIT('{}', {slice:.3})", state.position()),
    };
    Ok(connection.query(&question).await?.scalar() == Some("0"))
}

/// Waits until it has executed `wanted`, however that comes.
///
/// # Errors
/// [`ManagerError::ActionFailed`] with the applier's error; [`ManagerError::ActionTimeout`].
pub async fn wait_executed(
    connection: &mut Connection,
    wanted: &GtidSet,
    patience: Duration,
) -> Result<(), ManagerError> {
    let begun = Instant::now();
    loop {
        let has = executed(connection).await?;
        if wanted.is_subset_of(&has) {
            return Ok(());
        }
        if begun.elapsed() >= patience {
            let left = wanted.subtract(&has).map(|left| left.to_string()).unwrap_or_default();
            return Err(too_long(connection, DOING, patience, format!("{left} is left")));
        }
        if wait_executed_for(connection, wanted, begun, patience).await? {
            continue;
        }
        // It takes its time: why?
        if let Some(error) =
            status(connection).await?.filter(|channel| !channel.sql_running).and_then(|c| c.sql_error)
        {
            let reason = format!("the applier stopped with error {}: {}", error.number, error.message);
            return Err(failed(connection, DOING, reason));
        }
        pause(begun).await;
    }
}

/// Stops it whole, and has the applier go on at its place in the relay log, without a delay. Tells what it has received.
async fn resume_at_position(
    connection: &mut Connection,
    words: &ReplicationDialect,
    channel: &ReplicaChannel,
    received: &GtidSet,
) -> Result<GtidSet, ManagerError> {
    let name = &channel.name;
    if words.flavour == Flavour::MariaDb && !has_single_position(connection, received).await? {
        let reason = "relay logs hold several domains, which are executed side by side, so that their place is not one; \
                      run there: START SLAVE, while its source answers";
        return Err(failed(connection, DOING, reason.to_owned()));
    }
    run(connection, &words.verb(words.stop, "", name)).await?;
    // It may have received more until it stopped.
    let stopped = status(connection).await?.map(|channel| channel.received);
    let received = stopped.and_then(|last| received.union(&last).ok()).unwrap_or_else(|| received.clone());
    let at_position = match words.flavour {
        Flavour::MySql => "SOURCE_AUTO_POSITION=0",
        Flavour::MariaDb => "MASTER_USE_GTID=no",
    };
    change_at_position(connection, words, name, at_position, 0).await?;
    run(connection, &words.verb(words.start, "SQL_THREAD", name)).await?;
    Ok(received)
}

/// Changes a replica, which it stops, and keeps its relay log and its place in it.
async fn change_at_position(
    connection: &mut Connection,
    words: &ReplicationDialect,
    name: &str,
    positioning: &str,
    delay_seconds: u64,
) -> Result<(), ManagerError> {
    run(connection, &words.verb(words.stop, "", name)).await?;
    let (file, position) = relay_log_position(connection, words).await?;
    let settings = [
        format!("{}_DELAY={delay_seconds}", words.prefix),
        positioning.to_owned(),
        format!("RELAY_LOG_FILE={}", quote(&file)),
        format!("RELAY_LOG_POS={position}"),
    ];
    run(connection, "SET SESSION sql_mode = ''").await?;
    run(connection, &words.change(name, &settings)).await
}

/// By GTIDs again, and with the delay that it had; it is drained, so nothing is dropped.
async fn restore(
    connection: &mut Connection,
    words: &ReplicationDialect,
    first: &ReplicaChannel,
) -> Result<(), ManagerError> {
    let uses_gtids = match words.flavour {
        Flavour::MySql => format!("SOURCE_AUTO_POSITION={}", u8::from(first.uses_gtids)),
        Flavour::MariaDb => "MASTER_USE_GTID=slave_pos".to_owned(),
    };
    let delay = format!("{}_DELAY={}", words.prefix, first.delay_seconds);
    run(connection, &words.change(&first.name, &[uses_gtids, delay])).await
}

/// Whether one place in the relay log says what is executed: MariaDB executes domains side by side.
async fn has_single_position(connection: &mut Connection, received: &GtidSet) -> Result<bool, ManagerError> {
    let GtidSet::MariaDb(state) = received else { return Ok(true) };
    if state.position().iter().count() <= 1 {
        return Ok(true);
    }
    let answer = connection.query("SELECT @@global.slave_parallel_threads").await?;
    Ok(answer.scalar() == Some("0"))
}

/// The applier's place in the relay log.
async fn relay_log_position(
    connection: &mut Connection,
    words: &ReplicationDialect,
) -> Result<(String, u64), ManagerError> {
    let question = match words.flavour {
        Flavour::MySql => "SHOW REPLICA STATUS",
        Flavour::MariaDb => "SHOW ALL SLAVES STATUS",
    };
    let answer = connection.query(question).await?;
    let value = |name: &str| {
        let column = answer.column(name)?;
        answer.first()?.get_str(column)
    };
    let place = value("Relay_Log_File")
        .filter(|file| !file.is_empty())
        .zip(value("Relay_Log_Pos").and_then(|position| position.parse().ok()));
    match place {
        Some((file, position)) => Ok((file.to_owned(), position)),
        None => Err(failed(connection, DOING, "it does not tell its place in the relay log".to_owned())),
    }
}
