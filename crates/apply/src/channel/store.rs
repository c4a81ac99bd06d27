//! Stores the progress of a channel on its target, in schema `tailwater` and in the same transactions as the
//! data.
//!
//! Each worker has its own row, so that no worker waits for another. A row contains all transactions that
//! were known to be committed when it was written, and its own batch. So the union of all rows is exact, even
//! if the target loses its newest commits in a crash (`innodb_flush_log_at_trx_commit=0`): it loses data and
//! rows together.
//!
//! Opening the store takes the channel over: it waits until running transactions have committed, and no
//! earlier holder can commit after that. After a connection breaks during a commit, a takeover is enough.
//! Workers update the row of their incarnation of the channel by an [event](super::progress_row), and after a
//! takeover that row no longer exists. Progress that a statement writes has incarnation 0, and the statement
//! checks that its own incarnation still holds the channel.
//!
//! Progress is in the target's binlog if the data is, so that replicas of the target have it too. The other
//! tables are never logged.

use std::collections::HashMap;

use tailwater_session::{Connection, ServerError, SessionError, TextRow};
use tailwater_wire::Flavour;

use super::options::GtidMode;
use super::progress_row::ProgressRow;
use super::sql_literal::hex;
use crate::error::ApplyError;
use crate::progress::AppliedSet;
use tailwater_wire::sql_quote::portable_literal;

/// The version of the tables. It rises with each change that an older Tailwater could not read, or would
/// overwrite wrongly; [`ChannelStore::take_over`] then migrates older tables.
///
/// 2: rows of `apply_progress` have an incarnation.
const SCHEMA_VERSION: u32 = 2;

/// Migrates version 1 to version 2.
const MIGRATE_TO_INCARNATIONS: &str = "ALTER TABLE tailwater.apply_progress \
     ADD COLUMN incarnation BIGINT UNSIGNED NOT NULL DEFAULT 0 AFTER channel, \
     DROP PRIMARY KEY, ADD PRIMARY KEY (channel, incarnation, worker)";

const DATABASE: &str = "CREATE DATABASE IF NOT EXISTS tailwater";

/// Tables that are local to this server.
const LOCAL_TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS tailwater.apply_channel (\
       channel VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY, \
       incarnation BIGINT UNSIGNED NOT NULL, \
       source VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL, \
       origin_gtids LONGTEXT CHARACTER SET utf8mb4 NOT NULL, \
       target_gtids LONGTEXT CHARACTER SET utf8mb4 NOT NULL, \
       filters LONGTEXT CHARACTER SET utf8mb4 NOT NULL\
     ) ENGINE=InnoDB COMMENT='Channels of Tailwater that apply to this server'",
    "CREATE TABLE IF NOT EXISTS tailwater.apply_unlogged (\
       channel VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY\
     ) ENGINE=InnoDB COMMENT='Channels that this server does not log, and whose GTIDs are set a little later'",
    "CREATE TABLE IF NOT EXISTS tailwater.apply_intent (\
       channel VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
       gtid VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL, \
       position VARCHAR(64) CHARACTER SET ascii NOT NULL, \
       noted_at_s BIGINT UNSIGNED NOT NULL, \
       statement LONGBLOB NOT NULL, \
       fingerprint VARCHAR(64) CHARACTER SET ascii NOT NULL, \
       PRIMARY KEY (channel, position)\
     ) COMMENT='Statements that commit by themselves, each with a fingerprint from before it' ENGINE=",
];

/// Tables that are written together with data, and logged if the data is: replicas of the target need them
/// too.
const REPLICATED_TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS tailwater.apply_version (\
       version INT UNSIGNED NOT NULL PRIMARY KEY\
     ) ENGINE=InnoDB COMMENT='What these tables look like'",
    "CREATE TABLE IF NOT EXISTS tailwater.apply_progress (\
       channel VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
       incarnation BIGINT UNSIGNED NOT NULL DEFAULT 0, \
       worker INT UNSIGNED NOT NULL, \
       applied LONGBLOB NOT NULL, \
       gtid VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL, \
       source_time_us BIGINT UNSIGNED NOT NULL, \
       PRIMARY KEY (channel, incarnation, worker)\
     ) ENGINE=InnoDB COMMENT='How far each worker of a channel is'",
    "CREATE TABLE IF NOT EXISTS tailwater.apply_skipped (\
       channel VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
       gtid VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
       skipped_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, \
       tolerated TINYINT NOT NULL DEFAULT 0, \
       PRIMARY KEY (channel, gtid)\
     ) ENGINE=InnoDB COMMENT='Transactions that an operator left out, or had tolerate what the target has'",
    // The same as `tailwater check --wait mark` creates on the source. Definitions in this schema are not
    // applied.
    "CREATE TABLE IF NOT EXISTS tailwater.check_marks (\
       name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, \
       number BIGINT UNSIGNED NOT NULL\
     ) ENGINE=InnoDB COMMENT='How far a check is that waits for marks'",
];

/// `ER_BAD_DB_ERROR`
const UNKNOWN_DATABASE: u16 = 1049;
/// `ER_NO_SUCH_TABLE`
const NO_SUCH_TABLE: u16 = 1146;

/// The row for progress that belongs to no worker: the start position, and statements. With `gtid =
/// preserve` only this row is not in the target's binlog, and replicas of the target do not have it.
pub(super) const STATEMENTS_ROW: usize = 1_000_000;

/// The row for skipped transactions. It is separate because a worker that runs statements overwrites its row
/// with the transactions that were applied before.
const SKIPPED_ROW: usize = STATEMENTS_ROW + 1;

/// Statements that may have run: the fingerprint from before the statement, by the log position of the
/// transaction.
pub(super) type Intents = HashMap<String, String>;

/// The record of a channel on its target, as of the takeover.
#[derive(Debug)]
pub(super) struct ChannelRecord {
    /// The union of all workers' rows; `None` for a channel that is new there.
    pub(super) applied: Option<AppliedSet>,
    /// The newest transaction in each row.
    pub(super) newest_gtids: Vec<String>,
    /// The server that the log was captured from when the channel was created; empty for a new one.
    pub(super) source: String,
    /// The target's transactions from when the channel was created, in the source's notation.
    pub(super) origin_gtids: String,
    /// The target's own GTIDs when the channel was created or moved by a seek, in its notation.
    pub(super) target_gtids: String,
    /// The versions of the filters, as JSON; empty for none.
    pub(super) filters: String,
    /// Transactions that an operator skips.
    pub(super) skipped: Vec<String>,
    /// Transactions with a statement that commits implicitly and may have run.
    pub(super) intent_gtids: Vec<String>,
}

/// The right to commit for a channel; workers have a copy.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    channel: String,
    incarnation: u64,
}

impl Claim {
    /// The row in which a worker writes progress by an event.
    ///
    /// # Errors
    /// As [`ProgressRow::new`].
    pub(super) fn progress_row(&self, flavour: Flavour, worker: usize) -> Result<ProgressRow, ApplyError> {
        ProgressRow::new(flavour, &self.channel, self.incarnation, worker)
    }

    /// The statement that records that a transaction tolerates differences; part of that transaction.
    pub(super) fn tolerated_statement(&self, gtid: &str) -> String {
        format!(
            "INSERT IGNORE INTO tailwater.apply_skipped (channel, gtid, tolerated) VALUES ({}, {}, 1)",
            portable_literal(&self.channel),
            portable_literal(gtid)
        )
    }

    /// The statement that writes progress; part of the data's transaction. It fails (error 1048) if the
    /// channel was taken over.
    pub(super) fn progress_statement(
        &self,
        worker: usize,
        applied: &[u8],
        gtid: &str,
        source_time_us: u64,
    ) -> Vec<u8> {
        let channel = portable_literal(&self.channel);
        let mut statement = format!(
            "REPLACE INTO tailwater.apply_progress (channel, worker, applied, gtid, source_time_us) VALUES \
             ({channel}, {worker}, IF({}, x'",
            self.holds()
        )
        .into_bytes();
        hex(applied, &mut statement);
        statement
            .extend_from_slice(format!("', NULL), {}, {source_time_us})", portable_literal(gtid)).as_bytes());
        statement
    }

    /// An SQL expression that is `value`, or NULL if the channel was taken over.
    pub(super) fn unless_taken_over(&self, value: &str) -> String {
        format!("IF({}, {value}, NULL)", self.holds())
    }

    /// Checks that the claim still holds.
    ///
    /// # Errors
    /// [`ApplyError::TakenOver`]; [`ApplyError::Session`].
    pub(super) async fn check(&self, connection: &mut Connection) -> Result<(), ApplyError> {
        let holds = connection.query(&format!("SELECT {}", self.holds())).await?;
        match holds.scalar() {
            Some("1") => Ok(()),
            _ => Err(ApplyError::TakenOver { channel: self.channel.clone() }),
        }
    }

    fn holds(&self) -> String {
        format!(
            "(SELECT incarnation FROM tailwater.apply_channel WHERE channel={} LOCK IN SHARE MODE)={}",
            portable_literal(&self.channel),
            self.incarnation
        )
    }
}

/// Whether this is the error of a [`Claim`]'s statement after a takeover: a column that cannot be NULL.
pub(super) fn is_taken_over(error: &ServerError) -> bool {
    let columns = ["'applied'", "'fingerprint'", "'incarnation'"];
    error.number == 1048 && columns.iter().any(|column| error.message.expose().contains(column))
}

/// The channel's rows on its target.
#[derive(Debug)]
pub(super) struct ChannelStore {
    connection: Connection,
    channel: String,
    mode: GtidMode,
    /// Whether the tables that are written together with data exist.
    has_progress: bool,
}

impl ChannelStore {
    /// Takes the channel over with `connection`, whose session logs nothing.
    ///
    /// # Errors
    /// [`ApplyError::Session`]; [`ApplyError::NewerSchema`]; [`ApplyError::ProgressRecord`],
    /// [`ApplyError::Progress`] if the stored data is invalid.
    pub(super) async fn take_over(
        mut connection: Connection,
        channel: &str,
        mode: GtidMode,
    ) -> Result<(Self, Claim, ChannelRecord), ApplyError> {
        let has_progress = prepare_tables(&mut connection, channel, mode).await?;
        let name = portable_literal(channel);
        // In one transaction: two simultaneous takeovers must not read the same number.
        connection.execute("START TRANSACTION").await?;
        connection
            .execute(&format!(
                "INSERT INTO tailwater.apply_channel VALUES ({name}, 1, '', '', '', '') \
                 ON DUPLICATE KEY UPDATE incarnation=incarnation+1"
            ))
            .await?;
        connection.execute(&unlogged_statement(&name, mode)).await?;
        let row = connection
            .query(&format!(
                "SELECT incarnation, source, origin_gtids, target_gtids, filters FROM tailwater.apply_channel WHERE \
                 channel={name}"
            ))
            .await?;
        connection.execute("COMMIT").await?;
        let row = row.first().ok_or_else(|| {
            record_error(channel, "its row in tailwater.apply_channel was deleted during the takeover")
        })?;
        let text = |column: usize| row.get_str(column).unwrap_or_default().to_owned();
        let incarnation =
            text(0).parse().map_err(|_| record_error(channel, "its incarnation is not a number"))?;
        let (source, origin_gtids, target_gtids, filters) = (text(1), text(2), text(3), text(4));
        let mut store = Self { connection, channel: channel.to_owned(), mode, has_progress };
        let claim = Claim { channel: channel.to_owned(), incarnation };
        let mut record = ChannelRecord {
            applied: None,
            newest_gtids: Vec::new(),
            source,
            origin_gtids,
            target_gtids,
            filters,
            skipped: Vec::new(),
            intent_gtids: Vec::new(),
        };
        if has_progress {
            store.claim_worker_rows(&claim).await?;
            let of_channel = format!("WHERE channel={name}");
            record.applied = store.applied().await?;
            let sql = format!("SELECT gtid FROM tailwater.apply_progress {of_channel} AND gtid <> ''");
            record.newest_gtids = store.column(&sql).await?;
            let sql = format!("SELECT gtid FROM tailwater.apply_skipped {of_channel} AND tolerated=0");
            record.skipped = store.column(&sql).await?;
        }
        let sql = format!("SELECT gtid FROM tailwater.apply_intent WHERE channel={name}");
        record.intent_gtids = store.column(&sql).await?;
        Ok((store, claim, record))
    }

    /// Moves the workers' rows to the claim's incarnation. This waits for a transaction that has just changed
    /// one, and no earlier holder finds them afterwards.
    async fn claim_worker_rows(&mut self, claim: &Claim) -> Result<(), ApplyError> {
        let incarnation = claim.incarnation;
        let sql = format!(
            "UPDATE tailwater.apply_progress SET incarnation={} WHERE channel={} AND incarnation NOT IN (0, {incarnation})",
            claim.unless_taken_over(&incarnation.to_string()),
            portable_literal(&self.channel)
        );
        set_logging(&mut self.connection, self.mode == GtidMode::Own).await?;
        self.connection.execute(&sql).await?;
        set_logging(&mut self.connection, false).await?;
        Ok(())
    }

    /// Creates missing progress rows for the first `workers` workers, with the transactions applied so far.
    ///
    /// # Errors
    /// [`ApplyError::Session`]; after a takeover, an error that [`is_taken_over`] recognizes.
    pub(super) async fn create_worker_rows(
        &mut self,
        claim: &Claim,
        applied: &AppliedSet,
        workers: usize,
    ) -> Result<(), ApplyError> {
        let (name, incarnation) = (portable_literal(&self.channel), claim.incarnation);
        let sql = format!(
            "SELECT worker FROM tailwater.apply_progress WHERE channel={name} AND incarnation={incarnation}"
        );
        let there = self.column(&sql).await?;
        let mut applied_hex = b"x'".to_vec();
        hex(&applied.encode(), &mut applied_hex);
        let applied = claim.unless_taken_over(&format!("{}'", String::from_utf8_lossy(&applied_hex)));
        let missing = (0..workers).filter(|worker| !there.contains(&worker.to_string()));
        let rows: Vec<_> =
            missing.map(|worker| format!("({name}, {incarnation}, {worker}, {applied}, '', 0)")).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "INSERT INTO tailwater.apply_progress (channel, incarnation, worker, applied, gtid, source_time_us) VALUES {}",
            rows.join(", ")
        );
        set_logging(&mut self.connection, self.mode == GtidMode::Own).await?;
        self.connection.execute(&sql).await?;
        set_logging(&mut self.connection, false).await?;
        Ok(())
    }

    async fn applied(&mut self) -> Result<Option<AppliedSet>, ApplyError> {
        let name = portable_literal(&self.channel);
        let rows = self
            .connection
            .query(&format!("SELECT worker, applied FROM tailwater.apply_progress WHERE channel={name}"))
            .await?;
        let mut union: Option<AppliedSet> = None;
        for row in &rows.rows {
            let applied = AppliedSet::decode(row.get(1).unwrap_or_default())?;
            match &mut union {
                Some(union) => union.merge(&applied),
                None => union = Some(applied),
            }
        }
        Ok(union)
    }

    async fn column(&mut self, sql: &str) -> Result<Vec<String>, ApplyError> {
        let rows = self.connection.query(sql).await?;
        Ok(rows.rows.iter().map(|row| row.get_str(0).unwrap_or_default().to_owned()).collect())
    }

    /// Stores the position where a new channel starts, or where a channel resumes after a seek.
    pub(super) async fn save_start(
        &mut self,
        claim: &Claim,
        applied: &AppliedSet,
        source: &str,
        origin_gtids: &str,
        target_gtids: &str,
    ) -> Result<(), ApplyError> {
        let name = portable_literal(&self.channel);
        let note = claim.progress_statement(STATEMENTS_ROW, &applied.encode(), "", 0);
        let origin = format!(
            "UPDATE tailwater.apply_channel SET source={}, origin_gtids={}, target_gtids={} WHERE channel={name}",
            portable_literal(source),
            portable_literal(origin_gtids),
            portable_literal(target_gtids)
        );
        if self.mode != GtidMode::Log {
            // The target does not log this, and may log the progress, so they are separate transactions. This
            // one comes first: a new channel without progress starts again from here. A seek that is
            // interrupted between the two must be repeated.
            self.connection.execute(&origin).await?;
            // Even if they exist: MySQL logs the statement anyway. MariaDB does not; its replicas
            // must be copies of it.
            set_logging(&mut self.connection, true).await?;
            create(&mut self.connection, REPLICATED_TABLES).await?;
            if !std::mem::replace(&mut self.has_progress, true) {
                write_schema_version(&mut self.connection).await?;
            }
        }
        set_logging(&mut self.connection, self.mode == GtidMode::Own).await?;
        self.connection.execute("START TRANSACTION").await?;
        if self.mode == GtidMode::Log {
            self.connection.execute(&origin).await?;
        }
        self.connection
            .execute(&format!("DELETE FROM tailwater.apply_progress WHERE channel={name}"))
            .await?;
        self.save_progress(&note).await?;
        self.connection.execute("COMMIT").await?;
        set_logging(&mut self.connection, false).await?;
        Ok(())
    }

    /// Saves applied spans that no commit of a worker contains: skipped transactions.
    ///
    /// # Errors
    /// [`ApplyError::TakenOver`]; [`ApplyError::Session`].
    pub(super) async fn save_skipped(&mut self, claim: &Claim, applied: &[u8]) -> Result<(), ApplyError> {
        set_logging(&mut self.connection, self.mode == GtidMode::Own).await?;
        self.save_progress(&claim.progress_statement(SKIPPED_ROW, applied, "", 0)).await?;
        set_logging(&mut self.connection, false).await?;
        Ok(())
    }

    async fn save_progress(&mut self, statement: &[u8]) -> Result<(), ApplyError> {
        match self.connection.execute_bytes(statement).await {
            Err(SessionError::Server { error, .. }) if is_taken_over(&error) => {
                Err(ApplyError::TakenOver { channel: self.channel.clone() })
            }
            other => Ok(other.map(drop)?),
        }
    }

    /// Deletes the intents: after a seek the statements may have to run again. A channel that starts from
    /// scratch keeps them: a crash may have removed all other records of the channel from the target.
    pub(super) async fn delete_intents(&mut self) -> Result<(), ApplyError> {
        let name = portable_literal(&self.channel);
        self.connection.execute(&format!("DELETE FROM tailwater.apply_intent WHERE channel={name}")).await?;
        Ok(())
    }

    /// Another channel that applies the same source to this target. Neither channel knows all GTIDs of the
    /// target.
    pub(super) async fn channel_with_same_source(&mut self) -> Result<Option<String>, SessionError> {
        let name = portable_literal(&self.channel);
        let sql = format!(
            "SELECT other.channel FROM tailwater.apply_channel other JOIN tailwater.apply_channel own ON \
             own.source=other.source AND own.channel<>other.channel WHERE own.channel={name} AND own.source<>'' LIMIT 1"
        );
        Ok(self.connection.query(&sql).await?.scalar().map(ToOwned::to_owned))
    }

    /// Stores the versions of the filters.
    pub(super) async fn save_filters(&mut self, json: &str) -> Result<(), ApplyError> {
        let name = portable_literal(&self.channel);
        let json = portable_literal(json);
        self.connection
            .execute(&format!("UPDATE tailwater.apply_channel SET filters={json} WHERE channel={name}"))
            .await?;
        Ok(())
    }

    /// Records that an operator skips a transaction.
    ///
    /// # Errors
    /// [`ApplyError::Start`] if the channel has never run; [`ApplyError::Session`].
    pub(super) async fn skip(&mut self, gtid: &str) -> Result<(), ApplyError> {
        if !self.has_progress {
            let reason = "it has never run, so it has no start position yet; start it first".to_owned();
            return Err(ApplyError::Start { reason });
        }
        self.connection
            .execute(&format!(
                "INSERT IGNORE INTO tailwater.apply_skipped (channel, gtid) VALUES ({}, {})",
                portable_literal(&self.channel),
                portable_literal(gtid)
            ))
            .await?;
        Ok(())
    }

    /// The connection, for other statements.
    pub(super) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// The intents of `channel`: its last statements that commit implicitly, which may have run.
///
/// # Errors
/// [`SessionError`] if the connection fails.
pub(super) async fn load_intents(
    connection: &mut Connection,
    channel: &str,
) -> Result<Intents, SessionError> {
    let sql = format!(
        "SELECT position, fingerprint FROM tailwater.apply_intent WHERE channel={}",
        portable_literal(channel)
    );
    let rows = connection.query(&sql).await?;
    let text = |row: &TextRow, column| row.get_str(column).unwrap_or_default().to_owned();
    Ok(rows.rows.iter().map(|row| (text(row, 0), text(row, 1))).collect())
}

/// Creates and upgrades the tables in schema `tailwater`. Returns whether the tables that are written
/// together with data exist.
///
/// # Errors
/// [`ApplyError::NewerSchema`] if a newer Tailwater has upgraded them; [`ApplyError::Session`].
async fn prepare_tables(
    connection: &mut Connection,
    channel: &str,
    mode: GtidMode,
) -> Result<bool, ApplyError> {
    let version = schema_version(connection).await?;
    if let Some(found) = version.filter(|found| *found > SCHEMA_VERSION) {
        let channel = channel.to_owned();
        return Err(ApplyError::NewerSchema { channel, found, known: SCHEMA_VERSION });
    }
    let mut has_progress = has_tables(connection, &["apply_progress", "apply_skipped"]).await?;
    if version.is_none()
        || !has_progress
        || !has_tables(connection, &["apply_channel", "apply_intent", "apply_unlogged", "check_marks"])
            .await?
    {
        create(connection, LOCAL_TABLES).await?;
        // Logged tables are created only once the start position is known, as that depends on the
        // target's GTIDs.
        if mode == GtidMode::Log || has_progress {
            create(connection, REPLICATED_TABLES).await?;
            write_schema_version(connection).await?;
            has_progress = true;
        }
    }
    if has_progress && version != Some(SCHEMA_VERSION) {
        migrate_to_incarnations(connection, mode).await?;
    }
    Ok(has_progress)
}

/// The version of the tables on the target; `None` if there are none, or no version is stored.
async fn schema_version(connection: &mut Connection) -> Result<Option<u32>, SessionError> {
    let asked = connection.query("SELECT MAX(version) FROM tailwater.apply_version").await;
    match asked {
        Ok(rows) => Ok(rows.scalar().and_then(|version| version.parse().ok())),
        Err(SessionError::Server { error, .. })
            if matches!(error.number, UNKNOWN_DATABASE | NO_SUCH_TABLE) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Creates missing tables. MariaDB keeps views, accounts and other objects outside InnoDB, where they survive
/// a crash that loses InnoDB's newest commits. The intents must survive it too. MySQL has all objects in
/// InnoDB.
async fn create(connection: &mut Connection, tables: &[&str]) -> Result<(), SessionError> {
    let intent_engine = match connection.server().flavour {
        Flavour::MySql => "InnoDB",
        Flavour::MariaDb => "Aria TRANSACTIONAL=1",
    };
    connection.execute(DATABASE).await?;
    for statement in tables {
        let engine = if statement.ends_with('=') { intent_engine } else { "" };
        connection.execute(&format!("{statement}{engine}")).await?;
    }
    Ok(())
}

/// Adds incarnations to the progress table of an older Tailwater; logged in the target's binlog if its
/// creation was.
async fn migrate_to_incarnations(connection: &mut Connection, mode: GtidMode) -> Result<(), SessionError> {
    let sql = "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema='tailwater' AND \
               table_name='apply_progress' AND column_name='incarnation'";
    set_logging(connection, mode != GtidMode::Log).await?;
    if connection.query(sql).await?.scalar() == Some("0") {
        connection.execute(MIGRATE_TO_INCARNATIONS).await?;
    }
    write_schema_version(connection).await?;
    set_logging(connection, false).await
}

/// Stores the version. The TRUNCATE is logged as a statement, so it works on replicas of the target with
/// another row.
async fn write_schema_version(connection: &mut Connection) -> Result<(), SessionError> {
    connection.execute("TRUNCATE TABLE tailwater.apply_version").await?;
    connection.execute(&format!("REPLACE INTO tailwater.apply_version VALUES ({SCHEMA_VERSION})")).await?;
    Ok(())
}

/// Whether all these tables exist: an account that may not create them can still use them.
async fn has_tables(connection: &mut Connection, tables: &[&str]) -> Result<bool, SessionError> {
    let names: Vec<String> = tables.iter().map(|table| portable_literal(table)).collect();
    let sql = format!(
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='tailwater' AND table_name IN ({})",
        names.join(", ")
    );
    let rows = connection.query(&sql).await?;
    Ok(rows.scalar() == Some(tables.len().to_string().as_str()))
}

/// Records whether the target logs the channel. A dump of the server needs this, because its binlog and GTIDs
/// then lack commits.
fn unlogged_statement(name: &str, mode: GtidMode) -> String {
    match mode {
        GtidMode::Log => format!("INSERT IGNORE INTO tailwater.apply_unlogged VALUES ({name})"),
        GtidMode::Preserve | GtidMode::Own => {
            format!("DELETE FROM tailwater.apply_unlogged WHERE channel={name}")
        }
    }
}

async fn set_logging(connection: &mut Connection, on: bool) -> Result<(), SessionError> {
    connection.execute(&format!("SET SESSION sql_log_bin={}", u8::from(on))).await?;
    Ok(())
}

fn record_error(channel: &str, reason: &str) -> ApplyError {
    ApplyError::ProgressRecord { channel: channel.to_owned(), reason: reason.to_owned() }
}

/// The settings of a channel's session, by GTID mode.
pub(super) fn session_statement(flavour: Flavour, mode: GtidMode) -> String {
    // Fewer gap locks. Rows come with their keys, so nothing depends on the isolation of a scan.
    session_statement_at(flavour, mode, "'READ-COMMITTED'")
}

/// The settings of the session for statements of the source. Like a replication thread it uses the target's
/// global isolation level, as the effect of some statements depends on it.
pub(super) fn source_session_statement(flavour: Flavour, mode: GtidMode) -> String {
    let isolation = match flavour {
        Flavour::MySql => "@@global.transaction_isolation",
        Flavour::MariaDb => "@@global.tx_isolation",
    };
    session_statement_at(flavour, mode, isolation)
}

fn session_statement_at(flavour: Flavour, mode: GtidMode, isolation: &str) -> String {
    let mut statement = format!(
        "SET SESSION sql_mode='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,STRICT_ALL_TABLES', autocommit=1, {}={isolation}",
        match flavour {
            Flavour::MySql => "transaction_isolation",
            Flavour::MariaDb => "tx_isolation",
        }
    );
    if flavour == Flavour::MariaDb {
        // A replication thread has no time limit for a long definition either.
        statement.push_str(", max_statement_time=0");
    }
    if mode == GtidMode::Log {
        statement.push_str(", sql_log_bin=0");
    }
    statement
}
