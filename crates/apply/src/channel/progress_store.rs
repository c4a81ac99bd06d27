//! Stores the progress of a channel on its target: in schema `tailwater`, and in the same transactions as the
//! data.
//!
//! Each worker has its own row, so that no worker waits for another. A row contains all transactions that
//! were known to be committed when it was written, and the worker's own batch. So the union of all rows is
//! exactly the set of applied transactions. This holds even if the target loses its newest commits in a crash
//! (`innodb_flush_log_at_trx_commit=0`), because it loses the data together with the progress.
//!
//! Opening the store takes the channel over. The takeover waits until running transactions have committed.
//! After the takeover, no earlier process can commit. If a connection breaks during a commit, the channel
//! takes itself over again and then reads whether the commit succeeded. Workers update their row by a [row
//! event](super::worker_progress_row). The key of the row contains the channel's incarnation, so after a
//! takeover an earlier worker finds no row. If an SQL statement writes the progress, the row has incarnation
//! 0. The statement then checks that no other process has taken the channel over.
//!
//! The target logs the progress if it logs the data, so that replicas of the target have the progress too.
//! The target never logs changes of the other tables in schema `tailwater`.

use std::collections::HashMap;

use tailwater_session::{Connection, ServerError, SessionError, TextRow};
use tailwater_wire::Flavour;

use super::channel_options::GtidMode;
use super::hex_literal::hex;
use super::worker_progress_row::ProgressRow;
use crate::applied_transactions::AppliedSet;
use crate::error::ApplyError;
use tailwater_wire::sql_quote::portable_literal;

/// The version of the tables in schema `tailwater`. It rises with each change of the tables that an older
/// Tailwater could not read, or would overwrite wrongly. [`ChannelStore::take_over`] then migrates older
/// tables.
///
/// Version 2: rows of `apply_progress` have an incarnation.
const SCHEMA_VERSION: u32 = 2;

/// Migrates the tables from version 1 to version 2.
const MIGRATE_TO_INCARNATIONS: &str = "ALTER TABLE tailwater.apply_progress \
     ADD COLUMN incarnation BIGINT UNSIGNED NOT NULL DEFAULT 0 AFTER channel, \
     DROP PRIMARY KEY, ADD PRIMARY KEY (channel, incarnation, worker)";

const DATABASE: &str = "CREATE DATABASE IF NOT EXISTS tailwater";

/// The tables that the target has but its replicas do not: the target never logs changes of these tables.
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

/// The tables that are written together with data. If the target logs the data, it also logs these tables,
/// because its replicas need them too.
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
    // `tailwater check --wait mark` creates the same table on the source. DDL statements in this schema are
    // not applied.
    "CREATE TABLE IF NOT EXISTS tailwater.check_marks (\
       name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, \
       number BIGINT UNSIGNED NOT NULL\
     ) ENGINE=InnoDB COMMENT='How far a check is that waits for marks'",
];

/// The error `ER_BAD_DB_ERROR`.
const UNKNOWN_DATABASE: u16 = 1049;
/// The error `ER_NO_SUCH_TABLE`.
const NO_SUCH_TABLE: u16 = 1146;

/// The number of the row for progress that belongs to no worker: the start position, and the progress of
/// statements. With `gtid = preserve`, this is the only progress row that the target does not log, so
/// replicas of the target do not have this row.
pub(super) const STATEMENTS_ROW: usize = 1_000_000;

/// The number of the row for skipped transactions. It is a separate row, because a worker that runs
/// statements overwrites its own row with the transactions that were applied earlier.
const SKIPPED_ROW: usize = STATEMENTS_ROW + 1;

/// The statements that commit implicitly and may have run. The key is the log position of the transaction.
/// The value is the fingerprint from before the statement.
pub(super) type Intents = HashMap<String, String>;

/// What the target has recorded about a channel, at the time of the takeover.
#[derive(Debug)]
pub(super) struct ChannelRecord {
    /// The union of the progress in all workers' rows; `None` if the channel is new on the target.
    pub(super) applied: Option<AppliedSet>,
    /// The GTID of the newest transaction in each row.
    pub(super) newest_gtids: Vec<String>,
    /// The source of the log when the channel was created; empty for a new channel.
    pub(super) source: String,
    /// The GTIDs that the target had when the channel was created, in the source's notation.
    pub(super) origin_gtids: String,
    /// The target's own GTIDs when the channel was created or last moved by a seek, in the target's notation.
    pub(super) target_gtids: String,
    /// The versions of the filters, as JSON; empty if there are none.
    pub(super) filters: String,
    /// The GTIDs of the transactions that an operator skips.
    pub(super) skipped: Vec<String>,
    /// The GTIDs of the transactions with a statement that commits implicitly and may have run.
    pub(super) intent_gtids: Vec<String>,
}

/// The right to commit for a channel. A takeover by another process ends this right. Each worker has a copy.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    channel: String,
    incarnation: u64,
}

impl Claim {
    /// Returns the row into which a worker writes its progress by a row event.
    ///
    /// # Errors
    /// As [`ProgressRow::new`].
    pub(super) fn progress_row(&self, flavour: Flavour, worker: usize) -> Result<ProgressRow, ApplyError> {
        ProgressRow::new(flavour, &self.channel, self.incarnation, worker)
    }

    /// Returns the statement that records that differences were tolerated in a transaction. It is part of
    /// that transaction.
    pub(super) fn tolerated_statement(&self, gtid: &str) -> String {
        format!(
            "INSERT IGNORE INTO tailwater.apply_skipped (channel, gtid, tolerated) VALUES ({}, {}, 1)",
            portable_literal(&self.channel),
            portable_literal(gtid)
        )
    }

    /// Returns the statement that writes progress. It is part of the same transaction as the data. It fails
    /// (error 1048) if another process has taken over the channel.
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

    /// Returns an SQL expression whose result is `value`, or NULL if another process has taken over the
    /// channel.
    pub(super) fn unless_taken_over(&self, value: &str) -> String {
        format!("IF({}, {value}, NULL)", self.holds())
    }

    /// Checks that no other process has taken over the channel.
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

/// Returns whether a statement of a [`Claim`] failed because of a takeover. Such a statement tries to write
/// NULL into a NOT NULL column.
pub(super) fn is_taken_over(error: &ServerError) -> bool {
    let columns = ["'applied'", "'fingerprint'", "'incarnation'"];
    error.number == 1048 && columns.iter().any(|column| error.message.expose().contains(column))
}

/// The rows of a channel on its target.
#[derive(Debug)]
pub(super) struct ChannelStore {
    connection: Connection,
    channel: String,
    mode: GtidMode,
    /// Whether the tables that are written together with data exist.
    has_progress: bool,
}

impl ChannelStore {
    /// Takes the channel over with `connection`. The session of `connection` must not write to the binlog.
    ///
    /// # Errors
    /// [`ApplyError::Session`]; [`ApplyError::NewerSchema`]; [`ApplyError::ProgressRecord`] or
    /// [`ApplyError::Progress`] if the stored data are invalid.
    pub(super) async fn take_over(
        mut connection: Connection,
        channel: &str,
        mode: GtidMode,
    ) -> Result<(Self, Claim, ChannelRecord), ApplyError> {
        let has_progress = prepare_tables(&mut connection, channel, mode).await?;
        let name = portable_literal(channel);
        // Read and raise the incarnation in one transaction, so that two simultaneous takeovers do not get
        // the same number.
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
            record_error(
                channel,
                "the channel's row in tailwater.apply_channel was deleted during the takeover",
            )
        })?;
        let text = |column: usize| row.get_str(column).unwrap_or_default().to_owned();
        let incarnation = text(0).parse().map_err(|_| {
            record_error(
                channel,
                "the incarnation in the channel's row in tailwater.apply_channel is not a number",
            )
        })?;
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

    /// Sets the incarnation of the workers' rows to that of `claim`. The update waits for running
    /// transactions that have changed such a row. After the update, a worker of an earlier incarnation finds
    /// no row.
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

    /// Creates the missing progress rows of the first `workers` workers, with the transactions applied so
    /// far.
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
            // The origin (the target's GTIDs from before the channel) and the progress are stored in separate
            // transactions, because the target never logs the origin but may log the progress. The origin
            // comes first: if the progress is missing after a crash, a new channel starts again from the
            // origin. A seek that is interrupted between these two transactions must be repeated.
            self.connection.execute(&origin).await?;
            // Run CREATE TABLE IF NOT EXISTS even if the tables exist: MySQL writes the statement to its
            // binlog in that case too, so that its replicas create the tables. MariaDB writes nothing, so
            // replicas of a MariaDB target must be copies of the target.
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

    /// Saves the log spans of skipped transactions, because no commit of a worker contains these spans.
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

    /// Deletes the intents (the records of statements that may have run). A seek deletes them, because the
    /// statements may have to run again after the seek. A channel that starts from scratch keeps the intents,
    /// because a crash may have removed all its other records from the target.
    pub(super) async fn delete_intents(&mut self) -> Result<(), ApplyError> {
        let name = portable_literal(&self.channel);
        self.connection.execute(&format!("DELETE FROM tailwater.apply_intent WHERE channel={name}")).await?;
        Ok(())
    }

    /// Returns another channel that applies the same source to this target, if there is one. With two such
    /// channels, neither knows all GTIDs of the target.
    pub(super) async fn channel_with_same_source(&mut self) -> Result<Option<String>, SessionError> {
        let name = portable_literal(&self.channel);
        let sql = format!(
            "SELECT other.channel FROM tailwater.apply_channel other JOIN tailwater.apply_channel own ON \
             own.source=other.source AND own.channel<>other.channel WHERE own.channel={name} AND own.source<>'' LIMIT 1"
        );
        Ok(self.connection.query(&sql).await?.scalar().map(ToOwned::to_owned))
    }

    /// Stores all versions of the filters.
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
            let reason =
                "the channel has never run, so it has no start position yet; start the channel first"
                    .to_owned();
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

    /// Returns the connection, for other statements.
    pub(super) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// Returns the intents of `channel`: the records of the last statements that commit implicitly and may have
/// run.
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
/// [`ApplyError::NewerSchema`] if a newer Tailwater has upgraded the tables; [`ApplyError::Session`].
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
        // Tables that the target logs are created only after the start position is known, because the start
        // position depends on the target's GTIDs.
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

/// Returns the version of the tables on the target; `None` if there are no tables or no version is stored.
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

/// Creates missing tables. The table of intents uses InnoDB on MySQL and Aria on MariaDB. The reason is that
/// MariaDB stores views, accounts and other objects outside InnoDB. These objects survive a crash that loses
/// InnoDB's newest commits, so the intents must survive such a crash too.
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

/// Adds the incarnation column to the progress table of an older Tailwater. The target logs the change if it
/// logged the creation of the table.
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

/// Stores the version of the tables. TRUNCATE is logged as a statement, so it also works on a replica that
/// has another row in the version table than the target.
async fn write_schema_version(connection: &mut Connection) -> Result<(), SessionError> {
    connection.execute("TRUNCATE TABLE tailwater.apply_version").await?;
    connection.execute(&format!("REPLACE INTO tailwater.apply_version VALUES ({SCHEMA_VERSION})")).await?;
    Ok(())
}

/// Returns whether all these tables exist. An account without the privilege to create the tables can still
/// use existing tables.
async fn has_tables(connection: &mut Connection, tables: &[&str]) -> Result<bool, SessionError> {
    let names: Vec<String> = tables.iter().map(|table| portable_literal(table)).collect();
    let sql = format!(
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='tailwater' AND table_name IN ({})",
        names.join(", ")
    );
    let rows = connection.query(&sql).await?;
    Ok(rows.scalar() == Some(tables.len().to_string().as_str()))
}

/// Returns the statement that records whether the target logs the channel's changes. A dump of the target
/// needs this record: if the target does not log the changes, its binlog and GTIDs lack commits.
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

/// Returns the statement that sets the variables of a channel's session for a GTID mode.
pub(super) fn session_statement(flavour: Flavour, mode: GtidMode) -> String {
    // This isolation level takes fewer gap locks. The applier finds rows by their keys, so it does not depend
    // on the isolation of scans.
    session_statement_at(flavour, mode, "'READ-COMMITTED'")
}

/// Returns the statement that sets the variables of the session for statements of the source. Like a
/// replication thread, it uses the target's global isolation level, because the effect of some statements
/// depends on it.
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
        // A replication thread has no time limit for a long DDL statement, so this session has none either.
        statement.push_str(", max_statement_time=0");
    }
    if mode == GtidMode::Log {
        statement.push_str(", sql_log_bin=0");
    }
    statement
}
