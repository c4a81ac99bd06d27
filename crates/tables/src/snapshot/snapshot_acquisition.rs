//! Takes a snapshot with the first plan that the server does not refuse.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use chrono::{SecondsFormat, Utc};
use futures_util::future::try_join_all;
use tailwater_session::session_settings::check_rows_unlimited;
use tailwater_session::{AccountPurpose, ConnectOptions, Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::protocol::ServerStatus;
use tracing::{info, warn};

use super::gtids_applied_without_binlog;
use super::log_slave_updates_off::{self, ReplicaLogging};
use super::snapshot_methods::{
    LockWait, ServerCapabilities, SnapshotAction, SnapshotMethod, SnapshotPlan, WriterEffect, plans,
};
use super::table_list::{TableList, TableSizes};
use super::table_metadata_locks::SnapshotReader;
use crate::chunker::chunk_queries;
use crate::error::BulkError;
use crate::schema::{self, SchemaInventory, SchemaObject, Selection, TableName};
use crate::session_settings::disable_timeouts;
use crate::snapshot::SnapshotPoint;
use tailwater_wire::server_version::ServerFeature;
use tailwater_wire::sql_quote::string_literal;

/// Maximum number of attempts to open snapshots until they are equal. With thousands of commits per second,
/// few attempts succeed.
const OPEN_TRIES_MAX: u32 = 30;

/// Maximum number of attempts with one plan, if its locks cannot be taken within the lock wait timeout.
const LOCK_TRIES_MAX: u32 = 3;

/// Maximum pause before another attempt with a plan that does not wait for locks.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(200);

/// Server error for a lock wait timeout.
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// Server error for a table that was changed between the snapshot and the lock on the table.
const TABLE_CHANGED: u16 = 1412;
const DEADLOCK: u16 = 1213;
const REFUSED: [u16; 7] = [1044, 1045, 1142, 1143, 1227, 1064, 1370];

/// How to take a snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotOptions {
    /// The server, and the account that reads.
    pub connect: ConnectOptions,
    /// Number of connections that see the snapshot; at least one.
    pub connections: usize,
    /// Maximum wait for a lock, which is also the maximum time for which writers are blocked.
    pub lock_wait_max: Duration,
    /// The databases and tables to read.
    pub selection: Selection,
    /// Tables of the selection that an earlier, interrupted dump or copy has finished. They are not read.
    pub finished: HashSet<TableName>,
    /// Names of channels that are paused until the snapshot is taken. They apply to this server without
    /// writing its binlog, see [`super::gtids_applied_without_binlog`].
    pub channels_stopped: Vec<String>,
}

/// Connections with the same consistent snapshot.
#[derive(Debug)]
pub struct Snapshot {
    /// The connections. Each is in a transaction with the snapshot, and has a metadata lock on every table.
    pub readers: Vec<SnapshotReader>,
    /// The selected objects, as they were at the snapshot's point in time.
    pub inventory: SchemaInventory,
    /// The locked tables, in about the order in which they should be finished.
    pub tables: Vec<TableName>,
    /// The definitions at the snapshot's point in time, except those of tables and sequences.
    pub definitions: HashMap<SchemaObject, Vec<u8>>,
    /// The point in time of the snapshot.
    pub point: SnapshotPoint,
    /// The snapshot method that succeeded.
    pub method: SnapshotMethod,
    /// How long writers were blocked.
    pub stall: Duration,
}

impl Snapshot {
    /// Takes a snapshot.
    ///
    /// # Errors
    /// [`BulkError::NoSnapshot`] if the server refuses all methods; [`BulkError::NotFound`],
    /// [`BulkError::SchemaChanged`], [`BulkError::Session`].
    pub async fn take(options: &SnapshotOptions) -> Result<Self, BulkError> {
        let mut control = connect_control(options).await?;
        let mut capabilities = capabilities(&mut control).await?;
        let channels = gtids_applied_without_binlog::unlogged_channels(&mut control).await?;
        let unlogged_channel = match channels.iter().all(|channel| options.channels_stopped.contains(channel))
        {
            _ if channels.is_empty() => UnloggedChannel::No,
            true => UnloggedChannel::Stopped,
            false => UnloggedChannel::Running,
        };
        if unlogged_channel == UnloggedChannel::Running {
            warn!(
                channels = channels.join(", "),
                "the server's GTIDs lag its data while a channel of Tailwater applies to it, so they are omitted; pause the channel \
                 for the snapshot with --pause-channel. If there is no such channel any more, delete its row in \
                 tailwater.apply_unlogged"
            );
        }
        capabilities.unlogged = unlogged_channel == UnloggedChannel::Running;
        let tables = schema::inventory(&mut control, &options.selection).await?.tables;
        let (mut refusals, mut moved) = (Vec::new(), None);
        for plan in plans(capabilities, options.connections, &tables) {
            let started = Instant::now();
            for tries in 1.. {
                let mut taking = SnapshotAttempt::prepare(options, unlogged_channel).await?;
                if plan.method == SnapshotMethod::TableLocks && taking.listing.inventory.tables != tables {
                    // This plan locks the tables that existed when the plan was created. If the list of
                    // tables has changed, the plan is useless.
                    let reason =
                        "tables were created or dropped after the list of tables to lock was read".into();
                    return Err(BulkError::SchemaChanged { reason });
                }
                match taking.run(&plan).await {
                    Ok(()) => return taking.finish(plan.method),
                    Err(error)
                        if is_lock_timeout(&error)
                            && plan.gives_up_at_once()
                            && started.elapsed() < options.lock_wait_max * LOCK_TRIES_MAX =>
                    {
                        info!(method = plan.method.name(), tries, %error, "the snapshot attempt failed; trying the same method again");
                        let rest = Duration::from_millis(10) * tries;
                        tokio::time::sleep(rest.min(RETRY_PAUSE_MAX)).await;
                    }
                    Err(error)
                        if is_lock_timeout(&error) && !plan.gives_up_at_once() && tries < LOCK_TRIES_MAX =>
                    {
                        warn!(method = plan.method.name(), %error, "the snapshot attempt failed; trying the same method again");
                        if !is_schema_change(&error) {
                            tokio::time::sleep(options.lock_wait_max).await;
                        }
                    }
                    Err(error) if is_lock_timeout(&error) || is_refusal(&error) => {
                        warn!(method = plan.method.name(), %error, "the snapshot method failed; trying the next method");
                        refusals.push(format!("{}: {error}", plan.method.name()));
                        moved = moved.or(is_schema_change(&error).then_some(error));
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Err(moved.unwrap_or(BulkError::NoSnapshot { reasons: refusals.join("; ") }))
    }

    /// Verifies that the connection is still in the transaction of the snapshot. A server may end a
    /// transaction without a request.
    ///
    /// # Errors
    /// [`BulkError::SnapshotLost`]; [`BulkError::Session`], also if a setting that limits the rows of queries
    /// has changed.
    pub async fn check_open(connection: &mut Connection) -> Result<(), BulkError> {
        let is_open = match connection.execute("DO 0").await {
            Ok(ok) => ok.status.has(ServerStatus::IN_TRANS),
            Err(SessionError::Server { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        if is_open {
            // If no setting limits the rows of queries, every query has returned all of its rows.
            Ok(check_rows_unlimited(connection).await?)
        } else {
            Err(BulkError::SnapshotLost { server: connection.endpoint().to_owned() })
        }
    }
}

/// Reads the properties of the server and the account on which the choice of a snapshot method depends, as
/// far as the account may see them.
///
/// # Errors
/// [`BulkError::Session`]
pub async fn capabilities(connection: &mut Connection) -> Result<ServerCapabilities, BulkError> {
    let binlog = connection.query("SELECT @@GLOBAL.log_bin").await?.scalar() == Some("1");
    let flavour = connection.server().flavour;
    let mut has = async |purpose| match tailwater_session::check_privileges(connection, purpose).await {
        Ok(()) => Ok(true),
        Err(SessionError::MissingGrant { .. }) => Ok(false),
        Err(error) => Err(error),
    };
    let reload = has(AccountPurpose::Snapshot).await?;
    let backup_admin = flavour == Flavour::MySql && has(AccountPurpose::BlockDdl).await?;
    let unlogged = !gtids_applied_without_binlog::unlogged_channels(connection).await?.is_empty();
    let replicated_unlogged = log_slave_updates_off::commits_unlogged(connection).await?;
    Ok(ServerCapabilities { flavour, binlog, reload, backup_admin, unlogged, replicated_unlogged })
}

fn is_lock_timeout(error: &BulkError) -> bool {
    matches!(error, BulkError::WritersBlocked { .. } | BulkError::SnapshotMismatch { .. })
        || is_schema_change(error)
        || matches!(number(error), Some(LOCK_WAIT_TIMEOUT | TABLE_CHANGED | DEADLOCK))
}

fn is_schema_change(error: &BulkError) -> bool {
    matches!(error, BulkError::SchemaChanged { .. })
}

fn is_refusal(error: &BulkError) -> bool {
    matches!(error, BulkError::LongRunningStatement { .. })
        || number(error).is_some_and(|number| REFUSED.contains(&number))
}

fn number(error: &BulkError) -> Option<u16> {
    match error {
        BulkError::Session(SessionError::Server { error, .. }) => Some(error.number),
        _ => None,
    }
}

fn lock_wait_statement(options: &SnapshotOptions) -> String {
    format!("SET SESSION lock_wait_timeout = {}", options.lock_wait_max.as_secs().max(1))
}

async fn connect_control(options: &SnapshotOptions) -> Result<Connection, BulkError> {
    let mut control = Connection::connect(&options.connect).await?;
    schema::prepare(&mut control).await?;
    control.execute(&lock_wait_statement(options)).await?;
    disable_timeouts(&mut control).await?;
    Ok(control)
}

/// Opens a connection that reads. It receives values as the bytes that the server stores, and no timeout ends
/// its session.
async fn connect_reader(options: &SnapshotOptions) -> Result<Connection, BulkError> {
    let mut reader = Connection::connect(&options.connect).await?;
    schema::prepare(&mut reader).await?;
    reader.execute(chunk_queries::SESSION_SETTINGS).await?;
    reader.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
    // The wait for locks is limited to prevent a deadlock: a session that alters a table may wait for another
    // reader, and this reader may wait for that session.
    reader.execute(&lock_wait_statement(options)).await?;
    disable_timeouts(&mut reader).await?;
    reader.widen_answers().await?;
    Ok(reader)
}

/// Returns whether a connection may set savepoints, and releases metadata locks when it rolls back to a
/// savepoint. In MariaDB only sessions without a binlog release them. At its commit, a session that writes
/// the binlog would also log a transaction that contains only savepoints.
async fn prepare_savepoints(reader: &mut Connection) -> Result<bool, BulkError> {
    if reader.server().flavour == Flavour::MySql {
        return Ok(true);
    }
    match reader.execute("SET SESSION sql_log_bin = 0").await {
        Ok(_) => Ok(true),
        Err(SessionError::Server { error, .. }) if REFUSED.contains(&error.number) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether a channel applies to the server without writing its binlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnloggedChannel {
    No,
    Running,
    Stopped,
}

/// A snapshot plan that is being executed. If this value is dropped before its end, it closes all its
/// connections. The server then releases their locks.
struct SnapshotAttempt<'a> {
    options: &'a SnapshotOptions,
    unlogged_channel: UnloggedChannel,
    control: Connection,
    readers: Vec<Connection>,
    releases_locks: bool,
    lengths: TableSizes,
    listing: TableList,
    /// The readers that have locked the tables.
    locked_readers: Vec<SnapshotReader>,
    point: Option<SnapshotPoint>,
    stall: Duration,
}

impl<'a> SnapshotAttempt<'a> {
    /// Opens all connections, before any writer is blocked.
    async fn prepare(
        options: &'a SnapshotOptions,
        unlogged_channel: UnloggedChannel,
    ) -> Result<Self, BulkError> {
        let mut control = connect_control(options).await?;
        let readers = (0..options.connections.max(1)).map(|_| connect_reader(options));
        let mut readers = try_join_all(readers).await?;
        let mut releases_locks = true;
        for reader in &mut readers {
            releases_locks &= prepare_savepoints(reader).await?;
        }
        if !releases_locks {
            warn!(
                "the account lacks the privilege BINLOG ADMIN, so the metadata locks on all tables are kept until the end"
            );
        }
        let inventory = schema::inventory(&mut control, &options.selection).await?;
        let lengths = TableSizes::read(&mut control, &inventory.schemas).await?;
        let listing = TableList::new(inventory, &options.finished, &lengths);
        let (locked_readers, point, stall) = (Vec::new(), None, Duration::ZERO);
        Ok(Self {
            options,
            unlogged_channel,
            control,
            readers,
            releases_locks,
            lengths,
            listing,
            locked_readers,
            point,
            stall,
        })
    }

    async fn run(&mut self, plan: &SnapshotPlan) -> Result<(), BulkError> {
        let mut waiting_since: Option<Instant> = None;
        for step in &plan.steps {
            if step.writers == WriterEffect::Blocked {
                waiting_since = Some(Instant::now());
            }
            match waiting_since {
                None => self.execute(&step.action).await?,
                Some(since) => {
                    // Writers may be blocked for at most twice the maximum lock wait: once while the snapshot
                    // waits for the lock, and once while it holds the lock.
                    let left = (self.options.lock_wait_max * 2).saturating_sub(since.elapsed());
                    let acted = tokio::time::timeout(left, self.execute(&step.action)).await;
                    acted.map_err(|_| BulkError::WritersBlocked { waited: since.elapsed() })??;
                }
            }
            if step.writers == WriterEffect::Released
                && let Some(since) = waiting_since.take()
            {
                self.stall += since.elapsed();
            }
        }
        Ok(())
    }

    async fn execute(&mut self, action: &SnapshotAction) -> Result<(), BulkError> {
        match action {
            SnapshotAction::Control(sql) => drop(self.control.execute(sql).await?),
            SnapshotAction::WaitForQuiet => {
                wait_for_quiet(&mut self.control, self.options.lock_wait_max).await?
            }
            SnapshotAction::List(wait) => {
                if *wait == LockWait::Never {
                    self.control.execute("SET SESSION lock_wait_timeout = 0").await?;
                }
                self.listing = self.list().await?;
                self.control.execute(&lock_wait_statement(self.options)).await?;
            }
            SnapshotAction::VerifyList => {
                let listing = self.list().await?;
                if listing.inventory != self.listing.inventory {
                    let reason =
                        "tables or other objects were created or dropped since they were listed".into();
                    return Err(BulkError::SchemaChanged { reason });
                }
                self.listing = listing;
            }
            SnapshotAction::Open => self.open().await?,
            SnapshotAction::OpenUntilEqual => self.open_until_equal().await?,
            SnapshotAction::Position => self.point = Some(self.position().await?),
            SnapshotAction::LockTables(wait) => {
                let (tables, releases_locks) = (&self.listing.tables, self.releases_locks);
                let lock_wait = lock_wait_statement(self.options);
                let readers = self.readers.drain(..).map(async |mut reader| {
                    if *wait == LockWait::Never {
                        reader.execute("SET SESSION lock_wait_timeout = 0").await?;
                    }
                    let mut reader = SnapshotReader::lock_tables(reader, tables, releases_locks).await?;
                    reader.connection.execute(&lock_wait).await?;
                    Ok::<_, BulkError>(reader)
                });
                self.locked_readers = try_join_all(readers).await?;
            }
        }
        Ok(())
    }

    async fn list(&mut self) -> Result<TableList, BulkError> {
        let inventory = schema::inventory(&mut self.control, &self.options.selection).await?;
        let mut listing = TableList::new(inventory, &self.options.finished, &self.lengths);
        listing.define(&mut self.control).await?;
        Ok(listing)
    }

    async fn open(&mut self) -> Result<(), BulkError> {
        let opened = self
            .readers
            .iter_mut()
            .map(|reader| reader.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"));
        try_join_all(opened).await?;
        Ok(())
    }

    async fn open_until_equal(&mut self) -> Result<(), BulkError> {
        for tries in 1..=OPEN_TRIES_MAX {
            self.open().await?;
            // The position is read twice, because the server may return the position of another session, see
            // `binlog_snapshot`.
            let first = self.common_position().await?;
            if first.is_some() && first == self.common_position().await? {
                info!(tries, "all snapshots are at the same binlog position");
                return Ok(());
            }
        }
        Err(BulkError::SnapshotMismatch { tries: OPEN_TRIES_MAX })
    }

    /// Returns the binlog position that all snapshots have; `None` if the positions differ.
    async fn common_position(&mut self) -> Result<Option<(String, u64)>, BulkError> {
        let mut common = None;
        for reader in &mut self.readers {
            let place = binlog_snapshot(reader).await?;
            if place.is_none() || common.as_ref().is_some_and(|common| Some(common) != place.as_ref()) {
                return Ok(None);
            }
            common = place;
        }
        Ok(common)
    }

    async fn position(&mut self) -> Result<SnapshotPoint, BulkError> {
        let taken_at = Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true);
        let point = SnapshotPoint { taken_at, ..SnapshotPoint::default() };
        let mut point = match self.control.server().flavour {
            Flavour::MySql => mysql_position(&mut self.control, point).await?,
            Flavour::MariaDb => {
                let place = match self.readers.first_mut() {
                    Some(reader) => binlog_snapshot(reader).await?,
                    None => None,
                };
                mariadb_position(&mut self.control, place, self.unlogged_channel, point).await?
            }
        };
        if self.unlogged_channel == UnloggedChannel::Running {
            point.gtid_set = None;
        }
        Ok(point)
    }

    fn finish(self, method: SnapshotMethod) -> Result<Snapshot, BulkError> {
        let Self { locked_readers: readers, point: Some(point), stall, listing, .. } = self else {
            return Err(BulkError::NoSnapshot {
                reasons: "the plan has no step that reads the position".into(),
            });
        };
        info!(
            method = method.name(),
            stall_ms = stall.as_millis(),
            gtid_set = point.gtid_set,
            "snapshot taken"
        );
        let TableList { inventory, tables, definitions } = listing;
        Ok(Snapshot { readers, inventory, tables, definitions, point, method, stall })
    }
}

/// Waits until none of the statements that the account may see has run for a second or longer.
async fn wait_for_quiet(control: &mut Connection, wait_max: Duration) -> Result<(), BulkError> {
    const LONG: &str = "SELECT id, time FROM information_schema.processlist WHERE command IN ('Query', 'Execute') AND time > 0 \
                        AND id <> CONNECTION_ID() AND user <> 'system user' ORDER BY time DESC LIMIT 1";
    let started = Instant::now();
    loop {
        let long = control.query(LONG).await?;
        let Some(row) = long.first() else { return Ok(()) };
        if started.elapsed() >= wait_max {
            let (id, seconds) = (row.get_u64(0).unwrap_or(0), row.get_u64(1).unwrap_or(0));
            return Err(BulkError::LongRunningStatement { id, seconds });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the binlog position of a connection's snapshot (MariaDB); `None` without a binlog.
///
/// The server writes the answer into variables that all sessions share, and then reads them. If several
/// connections query at the same time, one of them may get the answer for another.
async fn binlog_snapshot(reader: &mut Connection) -> Result<Option<(String, u64)>, BulkError> {
    let status = reader.query("SHOW STATUS LIKE 'binlog\\_snapshot\\_%'").await?;
    let value = |name: &str| {
        let row =
            status.rows.iter().find(|row| row.get_str(0).is_some_and(|of| of.eq_ignore_ascii_case(name)));
        row.and_then(|row| row.get_str(1)).filter(|value| !value.is_empty())
    };
    let position = value("binlog_snapshot_position").and_then(|position| position.parse().ok());
    Ok(value("binlog_snapshot_file").map(str::to_owned).zip(position))
}

async fn mariadb_position(
    control: &mut Connection,
    place: Option<(String, u64)>,
    unlogged_channel: UnloggedChannel,
    point: SnapshotPoint,
) -> Result<SnapshotPoint, BulkError> {
    let mut gtid_set = match &place {
        Some((file, position)) => {
            let sql = format!("SELECT BINLOG_GTID_POS({}, {position})", string_literal(file));
            control.query(&sql).await?.scalar().unwrap_or_default().to_owned()
        }
        None => String::new(),
    };
    if unlogged_channel == UnloggedChannel::Stopped {
        let applied = control.query("SELECT @@GLOBAL.gtid_slave_pos").await?;
        gtid_set =
            gtids_applied_without_binlog::merge_applied(&gtid_set, applied.scalar().unwrap_or_default());
    } else {
        match log_slave_updates_off::of(control).await? {
            ReplicaLogging::Logged => {}
            ReplicaLogging::Unlogged => {
                gtid_set = log_slave_updates_off::current(
                    &gtid_set,
                    &log_slave_updates_off::applied(control).await?,
                );
            }
            ReplicaLogging::Cluster => {
                warn!(
                    "a Galera node without log_slave_updates does not report the GTIDs of its data, so they are omitted"
                );
                gtid_set.clear();
            }
        }
    }
    let gtid_set = Some(gtid_set).filter(|gtids| !gtids.is_empty());
    let (binlog_file, binlog_position) = place.unzip();
    Ok(SnapshotPoint { gtid_set, binlog_file, binlog_position, ..point })
}

async fn mysql_position(control: &mut Connection, point: SnapshotPoint) -> Result<SnapshotPoint, BulkError> {
    let gtids = control.query("SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')").await?;
    let gtid_set = gtids.scalar().filter(|gtids| !gtids.is_empty()).map(str::to_owned);
    let sql = match control.server().has(ServerFeature::ShowBinaryLogStatus) {
        true => "SHOW BINARY LOG STATUS",
        false => "SHOW MASTER STATUS",
    };
    // If the account may not read the binlog position, the GTIDs are returned without it.
    let place = match control.query(sql).await {
        Ok(place) => place,
        Err(SessionError::Server { .. }) => return Ok(SnapshotPoint { gtid_set, ..point }),
        Err(error) => return Err(error.into()),
    };
    let row = place.first();
    let binlog_file = row.and_then(|row| row.get_str(0)).map(str::to_owned);
    let binlog_position = row.and_then(|row| row.get_u64(1));
    Ok(SnapshotPoint { gtid_set, binlog_file, binlog_position, ..point })
}
