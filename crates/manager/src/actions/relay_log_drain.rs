//! Makes a replica execute everything that it received, and then stops its replication. No transaction in a
//! relay log is dropped.
//!
//! [`next`] is pure: it returns the next step for a given state of the replica. The other functions execute
//! the step. Two facts about the servers determine the steps:
//!
//! - MariaDB drops relay logs when GTID replication starts while both threads are stopped, even if only the
//!   applier starts. A stopped replica is therefore drained by its relay log position, which keeps the relay
//!   logs.
//! - Only CHANGE SOURCE can remove a delay. MySQL keeps the relay logs if one of the two threads runs. If
//!   none runs, MySQL keeps them only if the statement names the relay log position. MariaDB always needs
//!   that position.

use std::time::{Duration, Instant};

use tailwater_session::Connection;
use tailwater_topology::server_state::{IoState, ReplicaChannel};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tailwater_wire::sql_quote::string_literal;

use super::replication_setup::{executed, failed, pause, run, status, too_long, within};
use super::replication_sql_dialect::ReplicationDialect;
use crate::error::ManagerError;

const DOING: &str = "executing the received transactions";

/// The next step of draining a relay log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainStep {
    /// All received transactions are executed, and receiving is stopped.
    Drained,
    /// Start the applier.
    StartApplier,
    /// Remove the configured delay while the replica receives.
    LiftDelay,
    /// Stop the replica, then execute from its relay log position without a delay.
    ResumeAtPosition,
    /// Stop receiving.
    StopReceiving,
    /// Wait until the applier has executed more.
    Wait,
    /// The drain fails: the applier stopped again after it was started.
    Failed,
}

/// State of a replica during its drain.
#[derive(Debug, Clone, Copy)]
pub struct DrainState<'a> {
    /// Flavour of the replica.
    pub flavour: Flavour,
    /// Replication status of the replica.
    pub channel: &'a ReplicaChannel,
    /// All transactions that the replica is known to have received so far.
    pub received: &'a GtidSet,
    /// All transactions that the replica has executed.
    pub executed: &'a GtidSet,
    /// How often this drain has started the applier.
    pub starts: u32,
}

/// Returns the next step. The applier starts before receiving stops. So one thread always runs, and the
/// server keeps its relay logs.
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

/// Drains the replica and leaves its replication stopped. Returns all transactions that it has executed.
///
/// After a failure, the replica may lack its configured delay, and may be stopped. Its relay log is complete,
/// so it can be drained again.
///
/// # Errors
/// [`ManagerError::ActionFailed`] with the applier's error, or if a MariaDB replica does not use GTIDs;
/// [`ManagerError::ActionTimeout`] after `patience`, after which the connection may be unusable.
pub async fn drain(connection: &mut Connection, patience: Duration) -> Result<GtidSet, ManagerError> {
    let endpoint = connection.endpoint().to_owned();
    within(patience, endpoint, DOING, drain_in(connection, patience)).await
}

async fn drain_in(connection: &mut Connection, patience: Duration) -> Result<GtidSet, ManagerError> {
    let words = ReplicationDialect::of(connection);
    let Some(first) = status(connection).await? else { return executed(connection).await };
    if !first.uses_gtids && words.flavour == Flavour::MariaDb {
        let reason = "the replica does not replicate by GTIDs, so what it has received is not known; run on the replica: STOP SLAVE, \
                      CHANGE MASTER TO MASTER_USE_GTID = slave_pos, START SLAVE";
        return Err(failed(connection, DOING, reason.to_owned()));
    }
    let mut at_position = false;
    let drained = step_by_step(connection, &words, &first, &mut at_position, patience).await;
    if drained.is_ok() && at_position {
        restore(connection, &words, &first).await?;
    } else if at_position && words.flavour == Flavour::MariaDb {
        // Switches the replica back to GTIDs. Otherwise the next attempt could not know what the replica
        // received.
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
    let started = Instant::now();
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
            DrainStep::Wait => _ = wait_executed_for(connection, &received, started, patience).await?,
            DrainStep::Failed => {
                let reason = match &channel.sql_error {
                    Some(error) => {
                        format!("the applier stopped with error {}: {}", error.number, error.message)
                    }
                    None => "the applier was stopped without an error".to_owned(),
                };
                return Err(failed(connection, DOING, reason));
            }
        }
        if started.elapsed() >= patience {
            let left = received.subtract(&has).map(|left| left.to_string()).unwrap_or_default();
            return Err(too_long(
                connection,
                DOING,
                patience,
                format!("the server has not executed {left} yet"),
            ));
        }
        let Some(now) = status(connection).await? else {
            return Err(failed(
                connection,
                DOING,
                "the replication source of the server was removed".to_owned(),
            ));
        };
        channel = now;
        received = received.union(&channel.received).unwrap_or(received);
    }
}

/// Waits for a short time. Returns whether the transactions are executed.
async fn wait_executed_for(
    connection: &mut Connection,
    wanted: &GtidSet,
    started: Instant,
    patience: Duration,
) -> Result<bool, ManagerError> {
    /// How long to wait before the state of the applier is queried again.
    const SLICE: Duration = Duration::from_millis(100);
    let slice = SLICE.min(patience.saturating_sub(started.elapsed())).as_secs_f64();
    let question = match wanted {
        GtidSet::MySql(set) => format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{set}', {slice:.3})"),
        GtidSet::MariaDb(state) => format!("SELECT MASTER_GTID_WAIT('{}', {slice:.3})", state.position()),
    };
    Ok(connection.query(&question).await?.scalar() == Some("0"))
}

/// Waits until the server has executed `wanted`, through native replication or a channel.
///
/// # Errors
/// [`ManagerError::ActionFailed`] with the applier's error; [`ManagerError::ActionTimeout`].
pub async fn wait_executed(
    connection: &mut Connection,
    wanted: &GtidSet,
    patience: Duration,
) -> Result<(), ManagerError> {
    let started = Instant::now();
    loop {
        let has = executed(connection).await?;
        if wanted.is_subset_of(&has) {
            return Ok(());
        }
        if started.elapsed() >= patience {
            let left = wanted.subtract(&has).map(|left| left.to_string()).unwrap_or_default();
            return Err(too_long(
                connection,
                DOING,
                patience,
                format!("the server has not executed {left} yet"),
            ));
        }
        if wait_executed_for(connection, wanted, started, patience).await? {
            continue;
        }
        // The transactions are not executed yet. The applier may have stopped.
        if let Some(error) =
            status(connection).await?.filter(|channel| !channel.sql_running).and_then(|c| c.sql_error)
        {
            let reason = format!("the applier stopped with error {}: {}", error.number, error.message);
            return Err(failed(connection, DOING, reason));
        }
        pause(started).await;
    }
}

/// Stops the replica, and restarts the applier at its relay log position without a delay. Returns all
/// transactions that the replica has received.
async fn resume_at_position(
    connection: &mut Connection,
    words: &ReplicationDialect,
    channel: &ReplicaChannel,
    received: &GtidSet,
) -> Result<GtidSet, ManagerError> {
    let name = &channel.name;
    if words.flavour == Flavour::MariaDb && !has_single_position(connection, received).await? {
        let reason = "the relay logs contain several domains, and MariaDB executes domains in parallel, so that no single position in the relay logs shows what is executed; \
                      run START SLAVE on the replica while its source answers";
        return Err(failed(connection, DOING, reason.to_owned()));
    }
    run(connection, &words.verb(words.stop, "", name)).await?;
    // The received transactions are read again, because the replica may have received more before it stopped.
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

/// Changes replication settings of a stopped replica, keeping its relay log and position.
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
        format!("RELAY_LOG_FILE={}", string_literal(&file)),
        format!("RELAY_LOG_POS={position}"),
    ];
    run(connection, "SET SESSION sql_mode = ''").await?;
    run(connection, &words.change(name, &settings)).await
}

/// Switches the replica back to GTID positioning, and restores its delay. The replica is drained, so no
/// transaction is dropped.
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

/// Whether one relay log position can describe what the replica has executed. With several GTID domains one
/// position is not enough, because MariaDB executes the domains in parallel.
async fn has_single_position(connection: &mut Connection, received: &GtidSet) -> Result<bool, ManagerError> {
    let GtidSet::MariaDb(state) = received else { return Ok(true) };
    if state.position().iter().count() <= 1 {
        return Ok(true);
    }
    let answer = connection.query("SELECT @@global.slave_parallel_threads").await?;
    Ok(answer.scalar() == Some("0"))
}

/// Returns the applier's position in the relay log.
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
        None => Err(failed(
            connection,
            DOING,
            "the replica does not report its position in the relay log".to_owned(),
        )),
    }
}
