//! Inspects a former primary and the log, and repairs the server. Unlike the planning modules, it does I/O.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use bytes::BytesMut;
use tailwater_log::{LogDir, LogEntry, LogPosition, LogReader};
use tailwater_session::{
    BACKUP_LOCK_WAIT_MAX, ConnectOptions, Connection, SessionError, TextRow, set_mariadb_slave_position,
};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::EventType;
use tailwater_wire::gtid::{Gtid, GtidSet};
use tracing::info;

use tailwater_apply::channel::IdempotentSession;

use crate::common_gtids::{Identity, common};
use crate::error::RejoinError;
use crate::reapply_range::{self, FIRST_EVENT_OFFSET, RedoRange, SharedHistory, is_apart};
use crate::row_change_decoder::RejoinRowReader;
use crate::server_quiesce::quiesce;
use crate::server_wipe::refuse_same;
use crate::stored_rejoin_state::{self, RejoinRecord, RejoinResume, RejoinStep};
use crate::undo_and_reapply_rows::{EngineState, inverse, reapply};
use crate::unreplicated_binlog_tail::{self, BinlogTail};
use tailwater_apply::source_transaction::RowChanges;
use tailwater_wire::sql_quote::portable_literal;

/// The name that messages show for the session that writes rows.
const SESSION_NAME: &str = "rejoin";

/// The approximate size at which a transaction that reapplies changes is committed, in bytes.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// The largest transaction of the log that can be reapplied, in bytes.
const TRANSACTION_BYTES_MAX: usize = 256 << 20;

/// Options of a rejoin.
#[derive(Debug, Clone)]
pub struct RejoinOptions {
    /// The server to rejoin, with an administrative account.
    pub server: ConnectOptions,
    /// The current primary of the cluster.
    pub primary: ConnectOptions,
    /// The `server_id` under which the rejoin reads the server's binlog. No replica of the server may use it.
    pub server_id: u32,
    /// Commits that are older than the end of the server's binlog by more than this duration are certainly in
    /// the server's tables. `None` derives the value from the server's settings: zero with full durability,
    /// otherwise [`RejoinOptions::WINDOW`].
    pub window: Option<Duration>,
    /// Whether the rejoin may undo transactions that only this server has. The caller knows that no client
    /// received an OK for them.
    pub may_undo: bool,
    /// The maximum total size of the transactions that only this server has, in bytes.
    pub tail_bytes_max: usize,
    /// The binlog file to which the rejoin saves the transactions that only this server has, before it undoes
    /// them.
    pub tail_file: PathBuf,
}

impl RejoinOptions {
    /// The longest time for which an engine can lose commits that the binlog has. InnoDB flushes its log once
    /// a second, so this is a generous upper bound.
    pub const WINDOW: Duration = Duration::from_secs(60);
    /// Default of [`RejoinOptions::tail_bytes_max`].
    pub const TAIL_BYTES_MAX: usize = 256 << 20;
}

/// The planned repair of a former primary.
#[derive(Debug)]
pub struct RejoinPlan {
    /// The GTID set of the server.
    pub has: GtidSet,
    /// The GTIDs that both the server and the log have.
    pub common: GtidSet,
    /// Whether the tables of the server match its binlog.
    pub engine: EngineState,
    /// The transactions that only this server has.
    pub tail: BinlogTail,
    /// The range of the log that must be reapplied.
    pub redo: RedoRange,
    innodb: HashSet<(String, String)>,
    flavour: Flavour,
    /// The row changes that undo the tail.
    undo: Vec<RowChanges>,
    resume: RejoinResume,
    exec_mode: String,
}

impl RejoinPlan {
    /// Whether this plan continues an interrupted rejoin.
    pub fn is_resumed(&self) -> bool {
        self.resume != RejoinResume::FromStart
    }
}

/// The result of a repair.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RejoinRepair {
    /// GTIDs of the transactions that were undone.
    pub undone: Vec<String>,
    /// Number of rows written or deleted by the undo.
    pub rows_undone: u64,
    /// The binlog file with the transactions that were undone.
    pub tail_file: Option<PathBuf>,
    /// Number of log transactions that were reapplied.
    pub transactions_again: u64,
    /// Number of reapplied transactions that the server's GTID set did not contain.
    pub transactions_lost: u64,
    /// The GTID set of the server after the repair.
    pub gtids: String,
    /// Whether this repair continued an interrupted rejoin.
    pub resumed: bool,
}

/// Plans the repair, and checks that it is possible. Changes nothing.
///
/// # Errors
/// [`RejoinError::Impossible`] if the repair is impossible or pointless; [`RejoinError::Irreversible`] for a
/// transaction that cannot be undone; [`RejoinError::ErrantTransactions`] if the options do not allow an
/// undo; [`RejoinError::Session`], [`RejoinError::Log`].
pub async fn inspect(options: &RejoinOptions, log: &LogDir) -> Result<RejoinPlan, RejoinError> {
    let mut connection = Connection::connect(&options.server).await?;
    let server = RejoinServer::ask(&mut connection).await?;
    let logged = log.gtid_set()?.ok_or_else(|| refused("the log is empty"))?;
    let primary = RejoinServer::ask(&mut Connection::connect(&options.primary).await?).await?;
    if primary.identity == server.identity {
        return Err(refused("the server is the current primary"));
    }
    let common = common(&server.has, &logged)?;
    let noted = stored_rejoin_state::read(&mut connection, server.flavour).await?;
    let resume = match &noted {
        Some(noted) => noted.resume(&server.has, server.binlog_is_empty)?,
        None => RejoinResume::FromStart,
    };
    let exec_mode = match noted.filter(|noted| noted.step != RejoinStep::GtidsSet) {
        Some(noted) if !noted.exec_mode.is_empty() => noted.exec_mode,
        _ => server.exec_mode.clone(),
    };
    let window = options.window.unwrap_or(match server.engine {
        EngineState::MatchesBinlog => Duration::ZERO,
        EngineState::Uncertain => RejoinOptions::WINDOW,
    });
    let engine = if window.is_zero() { EngineState::MatchesBinlog } else { EngineState::Uncertain };
    let innodb = innodb_tables(&mut connection).await?;
    let mut plan = RejoinPlan {
        redo: match &resume {
            RejoinResume::SetGtids(keeps) => nothing(keeps.clone()),
            _ => {
                let common = SharedHistory { gtids: &common, innodb: &innodb };
                reapply_range::find(log, &common, &server.identity, window)?
            }
        },
        has: server.has,
        common,
        innodb,
        engine,
        tail: BinlogTail::default(),
        flavour: server.flavour,
        undo: Vec::new(),
        resume,
        exec_mode,
    };
    if plan.resume == RejoinResume::FromStart && !plan.has.is_subset_of(&plan.common) {
        plan.tail = read_tail(options, &logged, &plan.common).await?;
        let ahead = |gtid: &Gtid| primary.has.contains(gtid);
        let of_primary =
            plan.tail.transactions.iter().filter_map(|own| own.entry.gtid.as_ref()).find(|gtid| ahead(gtid));
        if let Some(gtid) = of_primary {
            return Err(refused(&format!(
                "the primary has {gtid}, and the log does not have it yet; retry after the capture has caught up"
            )));
        }
        if !options.may_undo {
            let (has, common) = (&plan.has, &plan.common);
            let gtids = has.subtract(common).map_or_else(|_| has.to_string(), |alone| alone.to_string());
            return Err(RejoinError::ErrantTransactions { gtids });
        }
        plan.undo = build_undo(options, &plan).await?;
    }
    connection.close().await;
    Ok(plan)
}

fn nothing(gtids: GtidSet) -> RedoRange {
    let nowhere = LogPosition::ZERO;
    RedoRange { segment: 0, from: nowhere, until: nowhere, gtids, lost: 0 }
}

/// Computes the row changes that undo the tail.
async fn build_undo(options: &RejoinOptions, plan: &RejoinPlan) -> Result<Vec<RowChanges>, RejoinError> {
    let mut reader = RejoinRowReader::open(&options.server, options.tail_bytes_max).await?;
    reader.format_of_tail(&plan.tail.description)?;
    let mut undone = Vec::new();
    for own in &plan.tail.transactions {
        let transaction = reader.transaction(&own.entry, own.events.clone()).await?;
        undone.push(inverse(&transaction, plan.engine)?);
    }
    // The newest transaction is undone first.
    Ok(undone.into_iter().rev().flatten().collect())
}

async fn read_tail(
    options: &RejoinOptions,
    logged: &GtidSet,
    common: &GtidSet,
) -> Result<BinlogTail, RejoinError> {
    let read = unreplicated_binlog_tail::read(
        &options.server,
        options.server_id,
        logged,
        common,
        options.tail_bytes_max,
    )
    .await;
    match read {
        // ER_MASTER_FATAL_ERROR_READING_BINLOG: the server has purged a part of the range, or never logged
        // it.
        Err(RejoinError::Session(SessionError::Server { error, .. })) if error.number == 1236 => {
            Err(refused(&format!(
                "the transactions that only this server has cannot be read from its binlog: {}; copy the server from scratch (--copy)",
                error.message
            )))
        }
        other => other,
    }
}

/// Repairs the server. Its first step makes the server read-only, disconnects its clients, and stops its
/// replication. The server stays read-only.
///
/// # Errors
/// As [`inspect`]. Completed steps are recorded on the server, and the next call continues after them.
pub async fn repair(options: &RejoinOptions, log: &LogDir) -> Result<RejoinRepair, RejoinError> {
    refuse_same(&options.server, &options.primary).await?;
    quiesce(&options.server).await?;
    let plan = inspect(options, log).await?;
    let flavour = plan.flavour;
    let mut repaired = RejoinRepair {
        undone: plan.tail.gtids(),
        rows_undone: 0,
        tail_file: None,
        transactions_again: 0,
        transactions_lost: plan.redo.lost,
        gtids: plan.redo.gtids.to_string(),
        resumed: plan.is_resumed(),
    };
    let mut record = RejoinRecord {
        step: RejoinStep::Started,
        had: plan.has.clone(),
        keeps: plan.redo.gtids.clone(),
        exec_mode: plan.exec_mode.clone(),
    };
    if let RejoinResume::SetGtids(_) = plan.resume {
        record.step = RejoinStep::Reapplied;
    } else {
        write_rows(options, log, &plan, &mut record, &mut repaired).await?;
    }
    let mut connection = unlogged(&options.server).await?;
    set_gtids(&mut connection, flavour, &plan, &record.keeps).await?;
    record.step = RejoinStep::GtidsSet;
    connection.execute(&record.statement()).await?;
    connection.close().await;
    info!(gtids = repaired.gtids, "the tables and GTIDs of the server match the log up to these GTIDs");
    Ok(repaired)
}

/// Undoes the tail and reapplies the redo range.
async fn write_rows(
    options: &RejoinOptions,
    log: &LogDir,
    plan: &RejoinPlan,
    record: &mut RejoinRecord,
    repaired: &mut RejoinRepair,
) -> Result<(), RejoinError> {
    {
        let mut connection = unlogged(&options.server).await?;
        stored_rejoin_state::create(&mut connection).await?;
        if plan.resume == RejoinResume::FromStart {
            connection.execute(&record.statement()).await?;
        }
        connection.close().await;
    }
    if !plan.tail.transactions.is_empty() {
        plan.tail.save(&options.tail_file).map_err(|error| {
            refused(&format!(
                "the transactions to undo cannot be saved to {}: {error}",
                options.tail_file.display()
            ))
        })?;
        repaired.tail_file = Some(options.tail_file.clone());
    }
    let mut session = IdempotentSession::open(SESSION_NAME, &options.server).await?;
    let written = async {
        if plan.resume == RejoinResume::FromStart {
            record.step = RejoinStep::Undone;
            info!(
                transactions = plan.tail.transactions.len(),
                "undoing the transactions that only this server has"
            );
            repaired.rows_undone = session.write(&plan.undo, Some(&record.statement())).await?;
        }
        repaired.transactions_again = reapply_range(options, log, plan, &mut session).await?;
        record.step = RejoinStep::Reapplied;
        session.connection().execute(&record.statement()).await?;
        Ok::<(), RejoinError>(())
    }
    .await;
    let restored = session.restore_exec_mode(&plan.exec_mode).await;
    written?;
    Ok(restored?)
}

/// Returns the InnoDB tables of the server, as pairs of database and table name in lower case.
async fn innodb_tables(connection: &mut Connection) -> Result<HashSet<(String, String)>, RejoinError> {
    let sql = "SELECT table_schema, table_name FROM information_schema.tables WHERE engine='InnoDB'";
    let rows = connection.query(sql).await?.rows;
    let name = |row: &TextRow, column| row.get_str(column).unwrap_or_default().to_lowercase();
    Ok(rows.iter().map(|row| (name(row, 0), name(row, 1))).collect())
}

/// Reapplies the redo range, and returns the number of transactions. Skips DDL statements that the server
/// already has and that do not affect rows.
async fn reapply_range(
    options: &RejoinOptions,
    log: &LogDir,
    plan: &RejoinPlan,
    session: &mut IdempotentSession,
) -> Result<u64, RejoinError> {
    let redo = &plan.redo;
    let common = SharedHistory { gtids: &plan.common, innodb: &plan.innodb };
    if redo.from >= redo.until {
        return Ok(0);
    }
    info!(from = %redo.from, until = %redo.until, lost = redo.lost, "reapplying the end of the log");
    let mut reader = RejoinRowReader::open(&options.server, TRANSACTION_BYTES_MAX).await?;
    let mut log = log.reader(LogPosition { segment: redo.segment, offset: FIRST_EVENT_OFFSET })?;
    let (mut batch, mut batch_bytes, mut count) = (Vec::new(), 0, 0);
    while let Some(entry) = log.try_next()?.filter(|entry| entry.position < redo.until) {
        if !entry.is_transaction() {
            take_format(&mut log, &entry, &mut reader)?;
            continue;
        }
        if entry.position < redo.from {
            continue;
        }
        let events = read_entry(&mut log, &entry)?;
        let transaction = reader.transaction(&entry, events).await?;
        if common.has(&entry) && is_apart(&transaction, &common) {
            continue;
        }
        batch_bytes += transaction.memory_bytes;
        batch.extend(reapply(&transaction)?);
        count += 1;
        if batch_bytes >= BATCH_BYTES_MAX {
            session.write(&batch, None).await?;
            (batch, batch_bytes) = (Vec::new(), 0);
        }
    }
    session.write(&batch, None).await?;
    Ok(count)
}

fn take_format(
    log: &mut LogReader,
    entry: &LogEntry,
    reader: &mut RejoinRowReader,
) -> Result<(), RejoinError> {
    let mut event = Vec::new();
    while let Some(header) = log.next_event()? {
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            log.read_event(&mut event)?;
            reader.format(&event, entry)?;
        }
    }
    Ok(())
}

fn read_entry(log: &mut LogReader, entry: &LogEntry) -> Result<bytes::Bytes, RejoinError> {
    let length = usize::try_from(entry.length).unwrap_or(usize::MAX);
    // If a transaction is larger than the limit, do not read all of it: one byte more than the limit is
    // enough to report the error.
    let wanted = length.min(TRANSACTION_BYTES_MAX + 1);
    let mut bytes = BytesMut::with_capacity(wanted);
    while bytes.len() < wanted {
        let chunk = log.read_chunk(wanted - bytes.len())?;
        if chunk.is_empty() {
            break;
        }
        bytes.extend_from_slice(chunk);
    }
    Ok(bytes.freeze())
}

/// Sets the server's GTIDs to `keeps` by resetting its binlog. Does nothing if they already match.
async fn set_gtids(
    connection: &mut Connection,
    flavour: Flavour,
    plan: &RejoinPlan,
    keeps: &GtidSet,
) -> Result<(), RejoinError> {
    let now = RejoinServer::ask(connection).await?;
    // Another tool may have promoted this server in the meantime.
    if connection.query("SELECT @@GLOBAL.read_only").await?.scalar() != Some("1") {
        return Err(refused("the server became writable during the rejoin; its binlog was not changed"));
    }
    if now.has == *keeps && plan.resume == RejoinResume::FromStart {
        return Ok(());
    }
    // The tables are flushed first. After the reset, the binlog could no longer show that a crash lost a row.
    connection.execute("FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS").await?;
    forget_binlog(connection).await?;
    match (flavour, keeps) {
        (Flavour::MySql, keeps) => {
            connection
                .execute(&format!("SET GLOBAL gtid_purged={}", portable_literal(&keeps.to_string())))
                .await?;
        }
        (Flavour::MariaDb, GtidSet::MariaDb(state)) => {
            let logged: Vec<_> = state.iter().map(|gtid| gtid.to_string()).collect();
            let logged = portable_literal(&logged.join(","));
            match connection.execute(&format!("SET GLOBAL gtid_binlog_state={logged}")).await {
                // ER_FLUSH_MASTER_BINLOG_CLOSED: the binlog is disabled.
                Err(SessionError::Server { error, .. }) if error.number == 1186 => {}
                other => drop(other?),
            }
            let position = portable_literal(&state.position().to_string());
            set_mariadb_slave_position(connection, &position, BACKUP_LOCK_WAIT_MAX).await?;
        }
        // The GTID set was read from this server, so it has the server's flavour and these cases do not
        // occur.
        (Flavour::MariaDb, GtidSet::MySql(_)) => return Err(refused("the GTIDs are of the other flavour")),
    }
    Ok(())
}

/// Resets the server's binlog and its GTID state.
pub(crate) async fn forget_binlog(connection: &mut Connection) -> Result<(), RejoinError> {
    let newest = match connection.server().flavour {
        Flavour::MySql => "RESET BINARY LOGS AND GTIDS",
        Flavour::MariaDb => "RESET MASTER",
    };
    match connection.execute(newest).await {
        // ER_PARSE_ERROR: the statement had another name before MySQL 8.2.
        Err(SessionError::Server { error, .. }) if error.number == 1064 => {
            connection.execute("RESET MASTER").await?;
        }
        // ER_FLUSH_MASTER_BINLOG_CLOSED: the binlog is disabled.
        Err(SessionError::Server { error, .. }) if error.number == 1186 => {}
        other => drop(other?),
    }
    Ok(())
}

/// Opens a connection with `sql_log_bin=0`.
pub(crate) async fn unlogged(server: &ConnectOptions) -> Result<Connection, RejoinError> {
    let mut connection = Connection::connect(server).await?;
    connection.execute("SET SESSION sql_log_bin=0").await?;
    Ok(connection)
}

/// The state that the server reports about itself.
struct RejoinServer {
    flavour: Flavour,
    identity: Identity,
    has: GtidSet,
    binlog_is_empty: bool,
    engine: EngineState,
    exec_mode: String,
}

impl RejoinServer {
    async fn ask(connection: &mut Connection) -> Result<Self, RejoinError> {
        let flavour = connection.server().flavour;
        let sql = match flavour {
            Flavour::MySql => {
                "SELECT @@server_id, @@server_uuid, @@GLOBAL.gtid_executed, '', @@GLOBAL.innodb_flush_log_at_trx_commit, \
                 @@GLOBAL.sync_binlog, ''"
            }
            Flavour::MariaDb => {
                "SELECT @@server_id, '', @@GLOBAL.gtid_slave_pos, @@GLOBAL.gtid_binlog_state, \
                 @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.sync_binlog, @@GLOBAL.slave_exec_mode"
            }
        };
        let rows = connection.query(sql).await?;
        let row = rows
            .first()
            .ok_or_else(|| refused("the server returned no row for the query of its variables"))?;
        let text = |column: usize| row.get_str(column).unwrap_or_default().replace('\n', "");
        let set = |column: usize| {
            GtidSet::parse(flavour, &text(column))
                .map_err(|error| refused(&format!("the GTIDs of the server cannot be parsed: {error}")))
        };
        let (replicated, logged) = (set(2)?, set(3)?);
        let has = replicated.union(&logged).unwrap_or(replicated);
        let binlog_is_empty = match flavour {
            Flavour::MySql => has.is_empty(),
            Flavour::MariaDb => logged.is_empty(),
        };
        let uuid = match Gtid::parse(flavour, &format!("{}:1", text(1))) {
            Ok(Gtid::MySql(gtid)) => Some(gtid.uuid),
            _ => None,
        };
        let engine = if text(4) == "1" && text(5) == "1" {
            EngineState::MatchesBinlog
        } else {
            EngineState::Uncertain
        };
        let server_id = row.get_u64(0).and_then(|id| u32::try_from(id).ok()).unwrap_or_default();
        let identity = Identity { uuid, server_id };
        Ok(Self { flavour, identity, has, binlog_is_empty, engine, exec_mode: text(6) })
    }
}

fn refused(reason: &str) -> RejoinError {
    RejoinError::Impossible { reason: reason.to_owned() }
}
