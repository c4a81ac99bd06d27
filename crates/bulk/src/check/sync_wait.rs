//! How to know that the target has what the source had.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;

use super::channel_progress::{ChannelProgressReader, MarkProgress};
use super::replication_check;
use crate::error::BulkError;
use crate::progress::BulkProgress;
use crate::snapshot::replica_logging::{self, ReplicaLogging};
use crate::sql::literal;

/// How the two servers are kept in step, as far as waiting for it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMethod {
    /// The target executes the source's transactions under the source's GTIDs.
    Gtid,
    /// A row is written to `tailwater.check_marks` on the source and awaited on the target: for whatever brings the source's
    /// transactions to the target in the source's order, and for channels of Tailwater in any order.
    Mark,
    /// Nothing is waited for: nobody writes.
    None,
}

/// How long one statement waits on the target, so that other things can be seen to meanwhile.
const WAIT_SECONDS: u64 = 2;
const OTHER_FAMILY: &str = "the two are of different families, with different GTIDs";
/// True, and nothing that a server logs as a statement unless it is told to log all so (`binlog_format = MIXED`): a channel
/// that filters takes no statements.
const LOGGED_AS_ROWS: &str = "UUID() IS NOT NULL";
const MARK_POLL: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];
const NO_SUCH_TABLE: u16 = 1146;
const UNKNOWN_DATABASE: u16 = 1049;

/// What the target is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncPosition {
    /// These transactions.
    Gtids(String),
    /// This number under this name in the table of marks.
    Mark(String, u64),
    /// Nothing.
    None,
}

/// Takes positions and waits for them. Each worker has its own.
#[derive(Debug)]
pub struct SyncWaiter {
    way: SyncMethod,
    wait_max: Duration,
    /// The name of this worker's mark on its present connection to the source.
    mark: String,
    /// How many times it has connected again.
    connections: u32,
    number: u64,
    /// The last position that the target reached.
    reached: Option<SyncPosition>,
    /// Who reads what channels that feed the target have applied.
    progress_reader: Option<Arc<dyn ChannelProgressReader>>,
}

impl SyncMethod {
    /// Finds out how these servers can be waited for.
    ///
    /// # Errors
    /// [`BulkError::SyncUnknown`] if that cannot be told; [`BulkError::Session`].
    pub async fn find_out(source: &mut Connection, target: &mut Connection) -> Result<Self, BulkError> {
        let name = target.endpoint().to_owned();
        let not = |reason: &str| BulkError::SyncUnknown { target: name.clone(), reason: reason.into() };
        match (source.server().flavour, target.server().flavour) {
            (Flavour::MySql, Flavour::MySql) => {
                for connection in [source, target] {
                    let mode = connection.query("SELECT @@GLOBAL.gtid_mode").await?;
                    if mode.scalar() != Some("ON") {
                        return Err(not("gtid_mode is not ON on both"));
                    }
                }
                Ok(Self::Gtid)
            }
            (Flavour::MariaDb, Flavour::MariaDb) => {
                let position = target.query("SELECT @@GLOBAL.gtid_slave_pos").await?;
                if position.scalar().is_some_and(|position| !position.is_empty()) {
                    return Ok(Self::Gtid);
                }
                // It may have replicated nothing yet.
                match target.query("SHOW ALL SLAVES STATUS").await?.rows.is_empty() {
                    true => Err(not("it is no replica, and its gtid_slave_pos is empty")),
                    false => Ok(Self::Gtid),
                }
            }
            _ => Err(not(OTHER_FAMILY)),
        }
    }

    /// Whether what the source says of itself tells what it has, however the way was chosen: GTIDs that do not move with its rows
    /// would be waited for in vain, which is to say not at all.
    ///
    /// # Errors
    /// [`BulkError::SyncUnknown`] if it does not; [`BulkError::Session`].
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
                let says =
                    |index| answer.first().and_then(|row| row.get_str(index)).unwrap_or_default().to_owned();
                let (logged, applied) = (says(1), says(2));
                match replica_logging::of(source).await? {
                    _ if says(0) != "1" => Some("the source writes no binlog"),
                    ReplicaLogging::Logged => None,
                    // A replica that became a primary, and has written behind all that it applied.
                    ReplicaLogging::Unlogged { running: false }
                        if replica_logging::is_behind(&applied, &logged) =>
                    {
                        None
                    }
                    // What it replicates is visible before gtid_slave_pos has it, and in gtid_binlog_pos only if it logs it.
                    ReplicaLogging::Unlogged { .. } | ReplicaLogging::Cluster => Some(
                        "the source is a replica, or was one to the end, and does not log what it replicates (log_slave_updates)",
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

    /// Whether anything brings to the target what it lacks: it would be waited for in vain.
    ///
    /// # Errors
    /// [`BulkError::SyncUnknown`] if nothing does; [`BulkError::Session`].
    pub async fn refuse_unfed(
        self,
        source: &mut Connection,
        target: &mut Connection,
    ) -> Result<(), BulkError> {
        if self != Self::Gtid || !lacks(source, target).await? || replication_check::is_fed(target).await? {
            return Ok(());
        }
        let reason = "it replicates from nowhere, no channel of Tailwater feeds it, and it lacks transactions of the source";
        Err(BulkError::SyncUnknown { target: target.endpoint().to_owned(), reason: reason.into() })
    }

    /// What has to be there before [`SyncWaiter::position`].
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
            take_away_left(source).await?;
        }
        Ok(())
    }
}

/// Whether the target lacks something of what the source has now; without waiting.
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
    let answer = target.query(&function.replace("{}", &literal(&gtids))).await?;
    Ok(answer.scalar() == Some("0"))
}

/// What stands before a mark's name in the name of the lock that its worker holds.
const LOCK: &str = "tailwater.check_marks.";

/// How long that lock is waited for. No other check takes it: it asks only whether it is free.
const LOCK_SECONDS: u32 = 5;

/// Takes away marks of workers that are gone: of checks that were killed, or lost their connection.
async fn take_away_left(source: &mut Connection) -> Result<(), BulkError> {
    let sql =
        format!("SELECT name FROM tailwater.check_marks WHERE IS_FREE_LOCK(CONCAT('{LOCK}', name)) = 1");
    let left = source.query(&sql).await?;
    for name in left.rows.iter().filter_map(|row| row.get_str(0)) {
        take_away(source, name).await?;
    }
    Ok(())
}

async fn take_away(source: &mut Connection, mark: &str) -> Result<(), BulkError> {
    let sql =
        format!("DELETE FROM tailwater.check_marks WHERE name = {} AND {LOGGED_AS_ROWS}", literal(mark));
    source.execute(&sql).await?;
    Ok(())
}

/// Takes away marks whose names begin so, of a check that failed or was cancelled. What this cannot do, the next check does.
pub(super) async fn take_away_of(source: &mut Connection, run: &str) -> Result<(), BulkError> {
    let sql = format!(
        "DELETE FROM tailwater.check_marks WHERE LEFT(name, {}) = {} AND {LOGGED_AS_ROWS}",
        run.len(),
        literal(run)
    );
    source.execute(&sql).await?;
    Ok(())
}

impl SyncWaiter {
    /// For one worker. Nobody else may use the same name for a mark at any time.
    pub fn new(
        way: SyncMethod,
        wait_max: Duration,
        mark: String,
        progress_reader: Option<Arc<dyn ChannelProgressReader>>,
    ) -> Self {
        Self { way, wait_max, mark, connections: 0, number: 0, reached: None, progress_reader }
    }

    /// For a new connection to the source. The one before may still hold its lock, and no longer than it takes the server to end it: so
    /// this one has a mark of its own, and the mark of the other goes.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn connected_again(&mut self, source: &mut Connection) -> Result<(), BulkError> {
        self.finish(source).await?;
        let first = self.mark.split('+').next().unwrap_or_default();
        self.connections += 1;
        self.mark = format!("{first}+{}", self.connections);
        self.number = 0;
        Ok(())
    }

    /// Takes this worker's mark away again.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn finish(&self, source: &mut Connection) -> Result<(), BulkError> {
        if self.number > 0 {
            take_away(source, &self.mark).await?;
        }
        Ok(())
    }

    /// Where the source is: everything that was seen on it before is within.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn position(&mut self, source: &mut Connection) -> Result<SyncPosition, BulkError> {
        match self.way {
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
                    // For as long as the connection lasts: nobody else takes the mark for one that was left.
                    let lock = literal(&format!("{LOCK}{}", self.mark));
                    let answer = source.query(&format!("SELECT GET_LOCK({lock}, {LOCK_SECONDS})")).await?;
                    if answer.scalar() != Some("1") {
                        let reason = format!("GET_LOCK({lock}) gives {:?}, not 1", answer.scalar());
                        let doing = "taking the lock of the check's mark";
                        return Err(SessionError::UnexpectedResult { doing, reason }.into());
                    }
                }
                self.number += 1;
                let sql = format!(
                    "REPLACE INTO tailwater.check_marks (name, number) SELECT {}, {} FROM DUAL WHERE {LOGGED_AS_ROWS}",
                    literal(&self.mark),
                    self.number
                );
                source.execute(&sql).await?;
                Ok(SyncPosition::Mark(self.mark.clone(), self.number))
            }
        }
    }

    /// Waits until the target has a position. What it waits for stands in the progress.
    ///
    /// # Errors
    /// [`BulkError::TargetBehind`] if that takes too long; [`BulkError::SyncUnknown`] if the target cannot wait for it;
    /// [`BulkError::Session`].
    pub async fn wait(
        &mut self,
        target: &mut Connection,
        position: SyncPosition,
        progress: &BulkProgress,
    ) -> Result<(), BulkError> {
        if self.reached.as_ref() == Some(&position) {
            return Ok(());
        }
        let begun = Instant::now();
        let mut told = None;
        let mut poll = MARK_POLL[0];
        let mut behind = MarkProgress::default();
        while let Some(missing) = self.missing(target, &position, &mut behind).await? {
            if begun.elapsed() >= self.wait_max {
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
            if told.is_none() && begun.elapsed() >= Duration::from_secs(1) {
                told = Some(progress.waits(format!("{} is not yet where the source was", target.endpoint())));
            }
        }
        self.reached = Some(position);
        Ok(())
    }

    /// What the target lacks of a position, if it lacks something.
    async fn missing(
        &self,
        target: &mut Connection,
        position: &SyncPosition,
        behind: &mut MarkProgress,
    ) -> Result<Option<String>, BulkError> {
        if !has(target, position).await? {
            return Ok(Some(format!("{position:?}")));
        }
        match position {
            SyncPosition::Mark(..) => behind.missing(target, self.progress_reader.as_deref()).await,
            SyncPosition::Gtids(_) | SyncPosition::None => Ok(None),
        }
    }
}

/// Whether the target has a position; waits a little for GTIDs.
async fn has(target: &mut Connection, position: &SyncPosition) -> Result<bool, BulkError> {
    match position {
        SyncPosition::None => Ok(true),
        // Everybody has them all, whatever the rows are.
        SyncPosition::Gtids(gtids) if gtids.is_empty() => Err(BulkError::SyncUnknown {
            target: target.endpoint().into(),
            reason: "the source has no GTID yet that could be waited for".into(),
        }),
        SyncPosition::Gtids(gtids) => {
            let function = match target.server().flavour {
                Flavour::MySql => "WAIT_FOR_EXECUTED_GTID_SET",
                Flavour::MariaDb => "MASTER_GTID_WAIT",
            };
            let answer =
                target.query(&format!("SELECT {function}({}, {WAIT_SECONDS})", literal(gtids))).await?;
            match answer.scalar() {
                Some("0") => Ok(true),
                Some("1" | "-1") => Ok(false),
                other => Err(BulkError::SyncUnknown {
                    target: target.endpoint().into(),
                    reason: format!("{function} answered {other:?}"),
                }),
            }
        }
        SyncPosition::Mark(name, number) => {
            let sql = format!("SELECT number FROM tailwater.check_marks WHERE name = {}", literal(name));
            match target.query(&sql).await {
                Ok(answer) => {
                    Ok(answer.first().and_then(|row| row.get_u64(0)).is_some_and(|found| found >= *number))
                }
                // The table comes with the first mark.
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
