//! Waits until the target has everything that the source had.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;

use super::channel_progress::{ChannelProgressReader, MarkProgress};
use super::replication_running_check;
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::snapshot::log_slave_updates_off::{self, ReplicaLogging};
use tailwater_wire::sql_quote::string_literal;

/// How to wait until the target has everything that the source had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMethod {
    /// By GTIDs: the target executes the source's transactions under the source's GTIDs.
    Gtid,
    /// By a mark: a row in `tailwater.check_marks` that is written on the source, and must arrive on the
    /// target. This method suits any replication that keeps the source's order, and Tailwater channels in any
    /// commit order.
    Mark,
    /// No waiting, because no client writes.
    None,
}

/// The longest time that one statement waits on the target, in seconds. Between two statements the check
/// handles cancellation and shows its progress.
const WAIT_SECONDS: u64 = 2;
const OTHER_FAMILY: &str = "the servers are of different families (MySQL and MariaDB), whose GTIDs differ";
/// A condition that is always true. It makes the server log the statement in row format, also with
/// `binlog_format = MIXED`, because a channel with filters accepts no statements.
const LOGGED_AS_ROWS: &str = "UUID() IS NOT NULL";
const MARK_POLL: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];
const NO_SUCH_TABLE: u16 = 1146;
const UNKNOWN_DATABASE: u16 = 1049;

/// A position of the source that the target must reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncPosition {
    /// The target must have this GTID set.
    Gtids(String),
    /// The target's table of marks must have the mark with this name, with at least this number.
    Mark(String, u64),
    /// There is no position to wait for.
    None,
}

/// Reads positions on the source and waits for them on the target. Each worker has its own waiter.
#[derive(Debug)]
pub struct SyncWaiter {
    method: SyncMethod,
    wait_max: Duration,
    /// The name of this worker's mark, for its current connection to the source.
    mark: String,
    /// Number of reconnections to the source.
    connections: u32,
    number: u64,
    /// The last position that the target reached.
    reached: Option<SyncPosition>,
    /// Decodes the progress of the channels that apply to the target.
    progress_reader: Option<Arc<dyn ChannelProgressReader>>,
}

impl SyncMethod {
    /// Detects how to wait for these servers.
    ///
    /// # Errors
    /// [`BulkError::SyncUnknown`] if the method cannot be detected; [`BulkError::Session`].
    pub async fn detect(source: &mut Connection, target: &mut Connection) -> Result<Self, BulkError> {
        let name = target.endpoint().to_owned();
        let not = |reason: &str| BulkError::SyncUnknown { target: name.clone(), reason: reason.into() };
        match (source.server().flavour, target.server().flavour) {
            (Flavour::MySql, Flavour::MySql) => {
                for connection in [source, target] {
                    let mode = connection.query("SELECT @@GLOBAL.gtid_mode").await?;
                    if mode.scalar() != Some("ON") {
                        return Err(not("gtid_mode is not ON on both servers"));
                    }
                }
                Ok(Self::Gtid)
            }
            (Flavour::MariaDb, Flavour::MariaDb) => {
                let position = target.query("SELECT @@GLOBAL.gtid_slave_pos").await?;
                if position.scalar().is_some_and(|position| !position.is_empty()) {
                    return Ok(Self::Gtid);
                }
                // The target may be a replica that has replicated nothing yet.
                match target.query("SHOW ALL SLAVES STATUS").await?.rows.is_empty() {
                    true => Err(not("the target is not a replica, and its gtid_slave_pos is empty")),
                    false => Ok(Self::Gtid),
                }
            }
            _ => Err(not(OTHER_FAMILY)),
        }
    }

    /// Refuses a source whose GTID position does not cover its data. If its GTIDs do not change when its rows
    /// change, waiting for the GTIDs proves nothing. This also applies if the user has chosen to wait for
    /// GTIDs.
    ///
    /// # Errors
    /// [`BulkError::SyncUnknown`] if the position does not cover the data; [`BulkError::Session`].
    pub async fn refuse_unsure(
        self,
        source: &mut Connection,
        target: &mut Connection,
    ) -> Result<(), BulkError> {
        if self != Self::Gtid {
            return Ok(());
        }
        let reason = match (source.server().flavour, target.server().flavour) {
            (Flavour::MySql, Flavour::MySql) => None,
            (Flavour::MariaDb, Flavour::MariaDb) => {
                let sql = "SELECT @@GLOBAL.log_bin, @@GLOBAL.gtid_binlog_pos, @@GLOBAL.gtid_slave_pos";
                let answer = source.query(sql).await?;
                let value =
                    |index| answer.first().and_then(|row| row.get_str(index)).unwrap_or_default().to_owned();
                let (logged, applied) = (value(1), value(2));
                match log_slave_updates_off::of(source).await? {
                    _ if value(0) != "1" => Some("the source writes no binlog"),
                    ReplicaLogging::Logged => None,
                    // The server is a replica that became a primary, and its newest commit is later than
                    // everything that it applied.
                    ReplicaLogging::Unlogged
                        if log_slave_updates_off::is_behind(&applied, &logged)
                            && !log_slave_updates_off::is_replica_running(source).await? =>
                    {
                        None
                    }
                    // Replicated rows are visible before gtid_slave_pos includes their GTIDs. gtid_binlog_pos
                    // includes these GTIDs only if replicated transactions are logged.
                    ReplicaLogging::Unlogged | ReplicaLogging::Cluster => Some(
                        "the source is a replica, or was one until now, and does not log replicated transactions (log_slave_updates)",
                    ),
                }
            }
            _ => Some(OTHER_FAMILY),
        };
        let target = target.endpoint().to_owned();
        match reason {
            Some(reason) => Err(BulkError::SyncUnknown { target, reason: reason.into() }),
            None => Ok(()),
        }
    }

    /// Refuses a target that lacks transactions and receives none, because the check would wait in vain.
    ///
    /// # Errors
    /// [`BulkError::SyncUnknown`] if the target receives no transactions; [`BulkError::Session`].
    pub async fn refuse_unreplicated(
        self,
        source: &mut Connection,
        target: &mut Connection,
    ) -> Result<(), BulkError> {
        if self != Self::Gtid
            || !lacks(source, target).await?
            || replication_running_check::receives_transactions(target).await?
        {
            return Ok(());
        }
        let reason = "the target lacks transactions of the source, but it is not a replica, and no channel of Tailwater applies to it";
        Err(BulkError::SyncUnknown { target: target.endpoint().to_owned(), reason: reason.into() })
    }

    /// Creates the table of marks on the source, which [`SyncWaiter::position`] needs.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn prepare(self, source: &mut Connection) -> Result<(), BulkError> {
        if self == Self::Mark {
            source.execute("CREATE DATABASE IF NOT EXISTS tailwater").await?;
            let table = "CREATE TABLE IF NOT EXISTS tailwater.check_marks (\
                         name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, \
                         number BIGINT UNSIGNED NOT NULL) ENGINE=InnoDB COMMENT='How far a check is that waits for marks'";
            source.execute(table).await?;
            delete_orphaned_marks(source).await?;
        }
        Ok(())
    }
}

/// Returns whether the target lacks transactions that the source has now. Does not wait.
async fn lacks(source: &mut Connection, target: &mut Connection) -> Result<bool, BulkError> {
    let (variable, function) = match source.server().flavour {
        Flavour::MySql => ("gtid_executed", "SELECT GTID_SUBSET({}, @@GLOBAL.gtid_executed)"),
        Flavour::MariaDb => ("gtid_binlog_pos", "SELECT MASTER_GTID_WAIT({}, 0) = 0"),
    };
    let answer = source.query(&format!("SELECT @@GLOBAL.{variable}")).await?;
    let gtids: String = answer.scalar().unwrap_or_default().split_whitespace().collect();
    if gtids.is_empty() {
        return Ok(false);
    }
    let answer = target.query(&function.replace("{}", &string_literal(&gtids))).await?;
    Ok(answer.scalar() == Some("0"))
}

/// The prefix of the name of the lock for a mark. The name of the mark follows the prefix.
const LOCK: &str = "tailwater.check_marks.";

/// The longest time to wait for the lock of a mark, in seconds. Other checks do not wait for it: they only
/// test whether the lock is free.
const LOCK_SECONDS: u32 = 5;

/// Deletes the marks of workers that no longer exist, because their check was killed or lost its connection.
async fn delete_orphaned_marks(source: &mut Connection) -> Result<(), BulkError> {
    let sql =
        format!("SELECT name FROM tailwater.check_marks WHERE IS_FREE_LOCK(CONCAT('{LOCK}', name)) = 1");
    let left = source.query(&sql).await?;
    for name in left.rows.iter().filter_map(|row| row.get_str(0)) {
        delete_mark(source, name).await?;
    }
    Ok(())
}

async fn delete_mark(source: &mut Connection, mark: &str) -> Result<(), BulkError> {
    let sql = format!(
        "DELETE FROM tailwater.check_marks WHERE name = {} AND {LOGGED_AS_ROWS}",
        string_literal(mark)
    );
    source.execute(&sql).await?;
    Ok(())
}

/// Deletes all marks whose names begin with `run`, after a check failed or was cancelled. If marks remain,
/// the next check deletes them.
pub(super) async fn delete_marks_of(source: &mut Connection, run: &str) -> Result<(), BulkError> {
    let sql = format!(
        "DELETE FROM tailwater.check_marks WHERE LEFT(name, {}) = {} AND {LOGGED_AS_ROWS}",
        run.len(),
        string_literal(run)
    );
    source.execute(&sql).await?;
    Ok(())
}

impl SyncWaiter {
    /// Creates the waiter of one worker. No other worker may ever use the name `mark`.
    pub fn new(
        method: SyncMethod,
        wait_max: Duration,
        mark: String,
        progress_reader: Option<Arc<dyn ChannelProgressReader>>,
    ) -> Self {
        Self { method, wait_max, mark, connections: 0, number: 0, reached: None, progress_reader }
    }

    /// Adapts the waiter to a new connection to the source. The old session may keep its lock until the
    /// server ends it. So the new session has its own mark, and the old mark is deleted.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn reconnected(&mut self, source: &mut Connection) -> Result<(), BulkError> {
        self.finish(source).await?;
        let first = self.mark.split('+').next().unwrap_or_default();
        self.connections += 1;
        self.mark = format!("{first}+{}", self.connections);
        self.number = 0;
        Ok(())
    }

    /// Deletes this worker's mark.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn finish(&self, source: &mut Connection) -> Result<(), BulkError> {
        if self.number > 0 {
            delete_mark(source, &self.mark).await?;
        }
        Ok(())
    }

    /// Returns the source's position. It includes everything that was read from the source before.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn position(&mut self, source: &mut Connection) -> Result<SyncPosition, BulkError> {
        match self.method {
            SyncMethod::None => Ok(SyncPosition::None),
            SyncMethod::Gtid => {
                let variable = match source.server().flavour {
                    Flavour::MySql => "SELECT @@GLOBAL.gtid_executed",
                    Flavour::MariaDb => "SELECT @@GLOBAL.gtid_binlog_pos",
                };
                let answer = source.query(variable).await?;
                let gtids = answer.scalar().unwrap_or_default();
                Ok(SyncPosition::Gtids(gtids.split_whitespace().collect()))
            }
            SyncMethod::Mark => {
                if self.number == 0 {
                    // The session holds the lock until its connection ends. So no other check deletes this
                    // mark as the mark of an ended check.
                    let lock = string_literal(&format!("{LOCK}{}", self.mark));
                    let answer = source.query(&format!("SELECT GET_LOCK({lock}, {LOCK_SECONDS})")).await?;
                    if answer.scalar() != Some("1") {
                        let reason = format!("GET_LOCK({lock}) returned {:?} instead of 1", answer.scalar());
                        let doing = "taking the lock of the check's mark";
                        return Err(SessionError::UnexpectedResult { doing, reason }.into());
                    }
                }
                self.number += 1;
                let sql = format!(
                    "REPLACE INTO tailwater.check_marks (name, number) SELECT {}, {} FROM DUAL WHERE {LOGGED_AS_ROWS}",
                    string_literal(&self.mark),
                    self.number
                );
                source.execute(&sql).await?;
                Ok(SyncPosition::Mark(self.mark.clone(), self.number))
            }
        }
    }

    /// Waits until the target reaches a position. The progress shows what the check waits for.
    ///
    /// # Errors
    /// [`BulkError::TargetBehind`] after a time-out; [`BulkError::SyncUnknown`] if the target cannot wait for
    /// the position; [`BulkError::Session`].
    pub async fn wait(
        &mut self,
        target: &mut Connection,
        position: SyncPosition,
        progress: &BulkProgress,
    ) -> Result<(), BulkError> {
        if self.reached.as_ref() == Some(&position) {
            return Ok(());
        }
        let started = Instant::now();
        let mut wait_guard = None;
        let mut poll = MARK_POLL[0];
        let mut mark = MarkProgress::default();
        while let Some(missing) = self.missing(target, &position, &mut mark).await? {
            if started.elapsed() >= self.wait_max {
                return Err(BulkError::TargetBehind {
                    target: target.endpoint().into(),
                    seconds: self.wait_max.as_secs(),
                    position: missing,
                });
            }
            if matches!(position, SyncPosition::Mark(..)) {
                tokio::time::sleep(poll).await;
                poll = (poll * 2).min(MARK_POLL[1]);
            }
            if wait_guard.is_none() && started.elapsed() >= Duration::from_secs(1) {
                wait_guard =
                    Some(progress.begin_wait(format!(
                        "{} has not reached the source's position yet",
                        target.endpoint()
                    )));
            }
        }
        self.reached = Some(position);
        Ok(())
    }

    /// Returns what the target lacks up to a position; `None` if the target has reached it.
    async fn missing(
        &self,
        target: &mut Connection,
        position: &SyncPosition,
        mark: &mut MarkProgress,
    ) -> Result<Option<String>, BulkError> {
        if !has(target, position).await? {
            return Ok(Some(format!("{position:?}")));
        }
        match position {
            SyncPosition::Mark(..) => mark.missing(target, self.progress_reader.as_deref()).await,
            SyncPosition::Gtids(_) | SyncPosition::None => Ok(None),
        }
    }
}

/// Returns whether the target has reached a position. Waits a short time for GTIDs.
async fn has(target: &mut Connection, position: &SyncPosition) -> Result<bool, BulkError> {
    match position {
        SyncPosition::None => Ok(true),
        // Every server has the empty GTID set, whatever its rows are, so this position would prove nothing.
        SyncPosition::Gtids(gtids) if gtids.is_empty() => Err(BulkError::SyncUnknown {
            target: target.endpoint().into(),
            reason: "the source has no GTID yet that the check could wait for".into(),
        }),
        SyncPosition::Gtids(gtids) => {
            let function = match target.server().flavour {
                Flavour::MySql => "WAIT_FOR_EXECUTED_GTID_SET",
                Flavour::MariaDb => "MASTER_GTID_WAIT",
            };
            let answer = target
                .query(&format!("SELECT {function}({}, {WAIT_SECONDS})", string_literal(gtids)))
                .await?;
            match answer.scalar() {
                Some("0") => Ok(true),
                Some("1" | "-1") => Ok(false),
                other => Err(BulkError::SyncUnknown {
                    target: target.endpoint().into(),
                    reason: format!("{function} returned {other:?}"),
                }),
            }
        }
        SyncPosition::Mark(name, number) => {
            let sql =
                format!("SELECT number FROM tailwater.check_marks WHERE name = {}", string_literal(name));
            match target.query(&sql).await {
                Ok(answer) => {
                    Ok(answer.first().and_then(|row| row.get_u64(0)).is_some_and(|found| found >= *number))
                }
                // The table of marks does not exist yet on the target. It arrives with the first mark.
                Err(SessionError::Server { error, .. })
                    if [NO_SUCH_TABLE, UNKNOWN_DATABASE].contains(&error.number) =>
                {
                    Ok(false)
                }
                Err(error) => Err(error.into()),
            }
        }
    }
}
