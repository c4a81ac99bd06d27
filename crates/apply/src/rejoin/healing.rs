//! The driver: looks at a server and the log, and does what is to be done.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use bytes::BytesMut;
use tailwater_log::{LogDir, LogEntry, LogPosition, LogReader};
use tailwater_session::{ConnectOptions, Connection, Row, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::event::EventType;
use tailwater_wire::gtid::{Gtid, GtidSet};
use tracing::info;

use super::emptying::refuse_same;
use super::identity::{Identity, common};
use super::inverse::{Kept, again, inverse};
use super::record::{self, Record, Resume, Step};
use super::rows::{Reader, Session};
use super::still::hold_still;
use super::stretch::{self, Common, FIRST_EVENT_OFFSET, Stretch, is_apart};
use super::tail::{self, Tail};
use crate::channel::sql_literal::quote;
use crate::error::ApplyError;
use crate::transaction::RowChanges;

/// What is done again goes to the server in transactions of about so many bytes.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// A transaction of the log that is done again is no larger, in bytes.
const TRANSACTION_BYTES_MAX: usize = 256 << 20;

/// How a server is to be brought back.
#[derive(Debug, Clone)]
pub struct RejoinOptions {
    /// The server, as somebody who may do all of it.
    pub server: ConnectOptions,
    /// Who leads now.
    pub primary: ConnectOptions,
    /// Under this `server_id` its binlog is read; no replica of it has the same.
    pub server_id: u32,
    /// What committed so long before the end of its binlog is certainly in its tables. `None` for what its settings promise:
    /// nothing is in doubt with full durability, and otherwise [`RejoinOptions::WINDOW`].
    pub window: Option<Duration>,
    /// Whether what only it has may be undone: it is certain that no client was told of it.
    pub may_undo: bool,
    /// The most bytes of transactions that only it has.
    pub tail_bytes_max: usize,
    /// Before anything is undone it is kept here, as a binlog file.
    pub tail_file: PathBuf,
}

impl RejoinOptions {
    /// What an engine may have lost of what a binlog kept, generously: it writes once a second.
    pub const WINDOW: Duration = Duration::from_secs(60);
    /// See [`RejoinOptions::tail_bytes_max`].
    pub const TAIL_BYTES_MAX: usize = 256 << 20;
}

/// What is to be done about a server.
#[derive(Debug)]
pub struct Findings {
    /// What the server has, by its GTIDs.
    pub has: GtidSet,
    /// What of that the log has, too.
    pub common: GtidSet,
    /// Whether its tables are as its binlog says.
    pub kept: Kept,
    /// What only it has.
    pub tail: Tail,
    /// What of the log is to be done again.
    pub stretch: Stretch,
    innodb: HashSet<(String, String)>,
    flavour: Flavour,
    /// What undoes the tail.
    undoing: Vec<RowChanges>,
    resume: Resume,
    exec_mode: String,
}

impl Findings {
    /// Whether an earlier rejoin is gone on with.
    pub fn is_resumed(&self) -> bool {
        self.resume != Resume::Anew
    }
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Healed {
    /// The transactions that were undone.
    pub undone: Vec<String>,
    /// How many rows that took.
    pub rows_undone: u64,
    /// Where they are kept.
    pub tail_file: Option<PathBuf>,
    /// How many transactions of the log were done again.
    pub transactions_again: u64,
    /// How many of these the server had not even by its GTIDs.
    pub transactions_lost: u64,
    /// What the server has now.
    pub gtids: String,
    /// Whether an earlier rejoin was gone on with.
    pub resumed: bool,
}

/// Looks what is to be done, and whether it can be. Nothing is changed.
///
/// # Errors
/// [`ApplyError::Rejoin`] if it cannot be done or makes no sense; [`ApplyError::Irreversible`] for a transaction that cannot be
/// undone; [`ApplyError::Alone`] if none may be; [`ApplyError::Session`], [`ApplyError::Log`].
pub async fn look(options: &RejoinOptions, log: &LogDir) -> Result<Findings, ApplyError> {
    let mut connection = Connection::connect(&options.server).await?;
    let server = Facts::ask(&mut connection).await?;
    let logged = log.gtid_set()?.ok_or_else(|| refused("the log is empty"))?;
    let primary = Facts::ask(&mut Connection::connect(&options.primary).await?).await?;
    if primary.identity == server.identity {
        return Err(refused("the server is the one that leads now"));
    }
    let common = common(&server.has, &logged)?;
    let noted = record::read(&mut connection, server.flavour).await?;
    let resume = match &noted {
        Some(noted) => noted.go_on(&server.has, server.binlog_is_empty)?,
        None => Resume::Anew,
    };
    let exec_mode = match noted.filter(|noted| noted.step != Step::Counted) {
        Some(noted) if !noted.exec_mode.is_empty() => noted.exec_mode,
        _ => server.exec_mode.clone(),
    };
    let window = options.window.unwrap_or(match server.kept {
        Kept::AsLogged => Duration::ZERO,
        Kept::Unsure => RejoinOptions::WINDOW,
    });
    let kept = if window.is_zero() { Kept::AsLogged } else { Kept::Unsure };
    let innodb = innodb_tables(&mut connection).await?;
    let mut findings = Findings {
        stretch: match &resume {
            Resume::Count(keeps) => nothing(keeps.clone()),
            _ => {
                let common = Common { gtids: &common, innodb: &innodb };
                stretch::find(log, &common, &server.identity, window)?
            }
        },
        has: server.has,
        common,
        innodb,
        kept,
        tail: Tail::default(),
        flavour: server.flavour,
        undoing: Vec::new(),
        resume,
        exec_mode,
    };
    if findings.resume == Resume::Anew && !findings.has.is_subset_of(&findings.common) {
        findings.tail = read_tail(options, &logged, &findings.common).await?;
        let ahead = |gtid: &Gtid| primary.has.contains(gtid);
        let of_primary = findings
            .tail
            .transactions
            .iter()
            .filter_map(|own| own.entry.gtid.as_ref())
            .find(|gtid| ahead(gtid));
        if let Some(gtid) = of_primary {
            return Err(refused(&format!(
                "the primary has {gtid}, which the log does not have yet: try again when it has"
            )));
        }
        if !options.may_undo {
            let (has, common) = (&findings.has, &findings.common);
            let gtids = has.subtract(common).map_or_else(|_| has.to_string(), |alone| alone.to_string());
            return Err(ApplyError::Alone { gtids });
        }
        findings.undoing = undoing(options, &findings).await?;
    }
    connection.close().await;
    Ok(findings)
}

fn nothing(gtids: GtidSet) -> Stretch {
    let nowhere = LogPosition::ZERO;
    Stretch { segment: 0, from: nowhere, until: nowhere, gtids, lost: 0 }
}

/// What undoes the tail, if it can be undone.
async fn undoing(options: &RejoinOptions, findings: &Findings) -> Result<Vec<RowChanges>, ApplyError> {
    let mut reader = Reader::open(&options.server, options.tail_bytes_max).await?;
    reader.format_of_tail(&findings.tail.description)?;
    let mut undone = Vec::new();
    for own in &findings.tail.transactions {
        let transaction = reader.transaction(&own.entry, own.events.clone()).await?;
        undone.push(inverse(&transaction, findings.kept)?);
    }
    // The last first.
    Ok(undone.into_iter().rev().flatten().collect())
}

async fn read_tail(options: &RejoinOptions, logged: &GtidSet, common: &GtidSet) -> Result<Tail, ApplyError> {
    let read = tail::read(&options.server, options.server_id, logged, common, options.tail_bytes_max).await;
    match read {
        // ER_MASTER_FATAL_ERROR_READING_BINLOG: it has purged, or never logged, what is between.
        Err(ApplyError::Session(SessionError::Server { error, .. })) if error.number == 1236 => {
            Err(refused(&format!(
                "what only the server has cannot be read from its binlog: {}; copy it anew (--copy)",
                error.message
            )))
        }
        other => other,
    }
}

/// Does what is to be done. The server is read-only from the first moment on, and stays so; clients are disconnected, and
/// replication is stopped there.
///
/// # Errors
/// As [`look`]. What was done is noted on the server, and gone on with the next time.
pub async fn heal(options: &RejoinOptions, log: &LogDir) -> Result<Healed, ApplyError> {
    refuse_same(&options.server, &options.primary).await?;
    hold_still(&options.server).await?;
    let findings = look(options, log).await?;
    let flavour = findings.flavour;
    let mut healed = Healed {
        undone: findings.tail.gtids(),
        rows_undone: 0,
        tail_file: None,
        transactions_again: 0,
        transactions_lost: findings.stretch.lost,
        gtids: findings.stretch.gtids.to_string(),
        resumed: findings.is_resumed(),
    };
    let mut record = Record {
        step: Step::Begun,
        had: findings.has.clone(),
        keeps: findings.stretch.gtids.clone(),
        exec_mode: findings.exec_mode.clone(),
    };
    if let Resume::Count(_) = findings.resume {
        record.step = Step::DoneAgain;
    } else {
        write_rows(options, log, &findings, &mut record, &mut healed).await?;
    }
    let mut connection = unlogged(&options.server).await?;
    count(&mut connection, flavour, &findings, &record.keeps).await?;
    record.step = Step::Counted;
    connection.execute(&record.statement()).await?;
    connection.close().await;
    info!(gtids = healed.gtids, "the server has what the log has up to here, and nothing else");
    Ok(healed)
}

/// Undoes what is to be undone, and does again what is to be done again.
async fn write_rows(
    options: &RejoinOptions,
    log: &LogDir,
    findings: &Findings,
    record: &mut Record,
    healed: &mut Healed,
) -> Result<(), ApplyError> {
    {
        let mut connection = unlogged(&options.server).await?;
        record::create(&mut connection).await?;
        if findings.resume == Resume::Anew {
            connection.execute(&record.statement()).await?;
        }
        connection.close().await;
    }
    if !findings.tail.transactions.is_empty() {
        findings.tail.save(&options.tail_file).map_err(|error| {
            refused(&format!(
                "what is to be undone cannot be kept in {}: {error}",
                options.tail_file.display()
            ))
        })?;
        healed.tail_file = Some(options.tail_file.clone());
    }
    let mut session = Session::open(&options.server).await?;
    let written = async {
        if findings.resume == Resume::Anew {
            record.step = Step::Undone;
            info!(transactions = findings.tail.transactions.len(), "undoing what only the server has");
            healed.rows_undone = session.write(&findings.undoing, Some(&record.statement())).await?;
        }
        healed.transactions_again = do_again(options, log, findings, &mut session).await?;
        record.step = Step::DoneAgain;
        session.connection().execute(&record.statement()).await?;
        Ok::<(), ApplyError>(())
    }
    .await;
    let restored = session.put_back(&findings.exec_mode).await;
    written?;
    restored
}

/// The server's tables whose engine is InnoDB.
async fn innodb_tables(connection: &mut Connection) -> Result<HashSet<(String, String)>, ApplyError> {
    let sql = "SELECT table_schema, table_name FROM information_schema.tables WHERE engine='InnoDB'";
    let rows = connection.query(sql).await?.rows;
    let name = |row: &Row, column| row.get_str(column).unwrap_or_default().to_lowercase();
    Ok(rows.iter().map(|row| (name(row, 0), name(row, 1))).collect())
}

/// Writes the rows of a stretch of the log; returns how many transactions they were. Statements that the server has, and that have
/// nothing to do with rows, are passed over.
async fn do_again(
    options: &RejoinOptions,
    log: &LogDir,
    findings: &Findings,
    session: &mut Session,
) -> Result<u64, ApplyError> {
    let stretch = &findings.stretch;
    let common = Common { gtids: &findings.common, innodb: &findings.innodb };
    if stretch.from >= stretch.until {
        return Ok(0);
    }
    info!(from = %stretch.from, until = %stretch.until, lost = stretch.lost, "doing the log's end again");
    let mut reader = Reader::open(&options.server, TRANSACTION_BYTES_MAX).await?;
    let mut log = log.reader(LogPosition { segment: stretch.segment, offset: FIRST_EVENT_OFFSET })?;
    let (mut batch, mut batch_bytes, mut count) = (Vec::new(), 0, 0);
    while let Some(entry) = log.try_next()?.filter(|entry| entry.position < stretch.until) {
        if !entry.is_transaction() {
            take_format(&mut log, &entry, &mut reader)?;
            continue;
        }
        if entry.position < stretch.from {
            continue;
        }
        let events = read_entry(&mut log, &entry)?;
        let transaction = reader.transaction(&entry, events).await?;
        if common.has(&entry) && is_apart(&transaction, &common) {
            continue;
        }
        batch_bytes += transaction.memory_bytes;
        batch.extend(again(&transaction)?);
        count += 1;
        if batch_bytes >= BATCH_BYTES_MAX {
            session.write(&batch, None).await?;
            (batch, batch_bytes) = (Vec::new(), 0);
        }
    }
    session.write(&batch, None).await?;
    Ok(count)
}

fn take_format(log: &mut LogReader, entry: &LogEntry, reader: &mut Reader) -> Result<(), ApplyError> {
    let mut event = Vec::new();
    while let Some(header) = log.next_event()? {
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            log.read_event(&mut event)?;
            reader.format(&event, entry)?;
        }
    }
    Ok(())
}

fn read_entry(log: &mut LogReader, entry: &LogEntry) -> Result<bytes::Bytes, ApplyError> {
    let length = usize::try_from(entry.length).unwrap_or(usize::MAX);
    // Of a larger one the beginning tells what it is, and it is refused.
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

/// Has the server's GTIDs be `keeps`, by forgetting its binlog, if they are not.
async fn count(
    connection: &mut Connection,
    flavour: Flavour,
    findings: &Findings,
    keeps: &GtidSet,
) -> Result<(), ApplyError> {
    let now = Facts::ask(connection).await?;
    // It may have been made the primary meanwhile.
    if connection.query("SELECT @@GLOBAL.read_only").await?.scalar() != Some("1") {
        return Err(refused(
            "somebody has let the server take writes meanwhile; its binlog is left as it is",
        ));
    }
    if now.has == *keeps && findings.resume == Resume::Anew {
        return Ok(());
    }
    // What was written must not be lost once the binlog no longer tells that something is missing.
    connection.execute("FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS").await?;
    forget_binlog(connection).await?;
    match (flavour, keeps) {
        (Flavour::MySql, keeps) => {
            connection.execute(&format!("SET GLOBAL gtid_purged={}", quote(&keeps.to_string()))).await?;
        }
        (Flavour::MariaDb, GtidSet::MariaDb(state)) => {
            let logged: Vec<_> = state.iter().map(|gtid| gtid.to_string()).collect();
            let logged = quote(&logged.join(","));
            match connection.execute(&format!("SET GLOBAL gtid_binlog_state={logged}")).await {
                // ER_FLUSH_MASTER_BINLOG_CLOSED: it has no binlog.
                Err(SessionError::Server { error, .. }) if error.number == 1186 => {}
                other => drop(other?),
            }
            let position = quote(&state.position().to_string());
            connection.execute(&format!("SET GLOBAL gtid_slave_pos={position}")).await?;
        }
        // Sets were read in the server's own notation.
        (Flavour::MariaDb, GtidSet::MySql(_)) => return Err(refused("GTIDs of another family")),
    }
    Ok(())
}

/// Removes the server's binlog, and what it says of GTIDs.
pub(super) async fn forget_binlog(connection: &mut Connection) -> Result<(), ApplyError> {
    let newest = match connection.server().flavour {
        Flavour::MySql => "RESET BINARY LOGS AND GTIDS",
        Flavour::MariaDb => "RESET MASTER",
    };
    match connection.execute(newest).await {
        // ER_PARSE_ERROR: before MySQL 8.2 it had another name.
        Err(SessionError::Server { error, .. }) if error.number == 1064 => {
            connection.execute("RESET MASTER").await?;
        }
        // ER_FLUSH_MASTER_BINLOG_CLOSED: it has no binlog.
        Err(SessionError::Server { error, .. }) if error.number == 1186 => {}
        other => drop(other?),
    }
    Ok(())
}

/// A connection of which nothing is logged.
pub(super) async fn unlogged(server: &ConnectOptions) -> Result<Connection, ApplyError> {
    let mut connection = Connection::connect(server).await?;
    connection.execute("SET SESSION sql_log_bin=0").await?;
    Ok(connection)
}

/// What a server says about itself.
struct Facts {
    flavour: Flavour,
    identity: Identity,
    has: GtidSet,
    binlog_is_empty: bool,
    kept: Kept,
    exec_mode: String,
}

impl Facts {
    async fn ask(connection: &mut Connection) -> Result<Self, ApplyError> {
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
        let row = rows.first().ok_or_else(|| refused("the server says nothing about itself"))?;
        let text = |column: usize| row.get_str(column).unwrap_or_default().replace('\n', "");
        let set = |column: usize| {
            GtidSet::parse(flavour, &text(column)).map_err(|error| refused(&format!("its GTIDs: {error}")))
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
        let kept = if text(4) == "1" && text(5) == "1" { Kept::AsLogged } else { Kept::Unsure };
        let server_id = row.get_u64(0).and_then(|id| u32::try_from(id).ok()).unwrap_or_default();
        let identity = Identity { uuid, server_id };
        Ok(Self { flavour, identity, has, binlog_is_empty, kept, exec_mode: text(6) })
    }
}

fn refused(reason: &str) -> ApplyError {
    ApplyError::Rejoin { reason: reason.to_owned() }
}
