//! The record of a load, in tables on the target: the phase of the load, and which data files are loaded.

use std::collections::{HashMap, HashSet};

use tailwater_session::{Connection, SessionError};

use tailwater_tables::error::BulkError;
use tailwater_tables::schema::TableName;
use tailwater_wire::sql_quote::string_literal;

const DUPLICATE_KEY: u16 = 1062;

/// Server error for a column that exists already.
const DUPLICATE_COLUMN: u16 = 1060;

/// In the load record, this value plus a file's number means that the load of the file has started. It is
/// used for tables whose engine has no transactions.
pub(crate) const CHUNK_STARTED: u32 = 1 << 31;

/// The chunk number that means that a whole table is copied.
pub(crate) const WHOLE_TABLE: u32 = u32::MAX;

/// The phase of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LoadPhase {
    /// The load creates tables.
    Tables,
    /// All tables exist; the load writes rows.
    Rows,
    /// All rows are loaded; the load creates the remaining objects.
    Objects,
    /// The load is complete.
    Done,
}

impl LoadPhase {
    const ALL: [Self; 4] = [Self::Tables, Self::Rows, Self::Objects, Self::Done];

    fn name(self) -> &'static str {
        match self {
            Self::Tables => "tables",
            Self::Rows => "rows",
            Self::Objects => "objects",
            Self::Done => "done",
        }
    }
}

/// What an earlier load of the same dump has recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EarlierLoad {
    /// The phase that the earlier load reached.
    pub(crate) phase: LoadPhase,
    /// Whether the earlier load was allowed to load into existing tables; `None` if the version of
    /// Tailwater that ran it did not record that.
    pub(crate) merged: Option<bool>,
}

/// The record of one load on the target.
#[derive(Debug, Clone)]
pub(crate) struct LoadRecord {
    dump: String,
}

impl LoadRecord {
    /// Returns access to the load record of the dump with this identifier.
    pub(crate) fn new(dump: &str) -> Self {
        Self { dump: string_literal(dump) }
    }

    /// Takes a lock for this dump on the target, so that no other process loads the same dump. The lock lasts
    /// as long as the connection.
    pub(crate) async fn lock(&self, connection: &mut Connection) -> Result<(), BulkError> {
        // How long to wait for the session of a killed load, which may still hold the lock.
        const PATIENCE_SECONDS: u32 = 20;
        let sql = format!("SELECT GET_LOCK(CONCAT('tailwater.load.', {}), {PATIENCE_SECONDS})", self.dump);
        match connection.query(&sql).await?.scalar() {
            Some("1") => Ok(()),
            _ => Err(BulkError::LoadInProgress { server: connection.endpoint().into() }),
        }
    }

    /// Returns the record of an earlier load; `None` if there is none. Creates no tables on the target, so
    /// that a refused load changes nothing there.
    pub(crate) async fn earlier(
        &self,
        connection: &mut Connection,
    ) -> Result<Option<EarlierLoad>, BulkError> {
        let there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'tailwater' AND \
                     table_name IN ('loads', 'load_chunks')";
        if connection.query(there).await?.scalar() != Some("2") {
            return Ok(None);
        }
        let merged = if has_merge_column(connection).await? { "merged" } else { "NULL" };
        let sql = format!("SELECT phase, {merged} FROM tailwater.loads WHERE dump = {}", self.dump);
        let found = connection.query(&sql).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let name = row.get_str(0).unwrap_or_default();
        match LoadPhase::ALL.into_iter().find(|phase| phase.name() == name) {
            Some(phase) => Ok(Some(EarlierLoad { phase, merged: row.get_u64(1).map(|merged| merged != 0) })),
            None => {
                let reason = format!("tailwater.loads has the phase {name:?}");
                Err(SessionError::UnexpectedResult { doing: "reading the phase of a load", reason }.into())
            }
        }
    }

    /// Starts the record from scratch. Deletes everything that an earlier load of this dump recorded.
    pub(crate) async fn begin(&self, connection: &mut Connection, merged: bool) -> Result<(), BulkError> {
        connection.execute("CREATE DATABASE IF NOT EXISTS tailwater").await?;
        let tables = [
            "CREATE TABLE IF NOT EXISTS tailwater.loads (\
             dump VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, \
             phase VARCHAR(16) CHARACTER SET ascii NOT NULL, begun_at DATETIME NOT NULL, merged BOOLEAN) ENGINE=InnoDB",
            "CREATE TABLE IF NOT EXISTS tailwater.load_chunks (\
             dump VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
             schema_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
             table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
             chunk INT UNSIGNED NOT NULL, PRIMARY KEY (dump, schema_name, table_name, chunk)) ENGINE=InnoDB",
        ];
        for table in tables {
            connection.execute(table).await?;
        }
        self.prepare_indexes(connection).await?;
        if !has_merge_column(connection).await? {
            match connection.execute("ALTER TABLE tailwater.loads ADD COLUMN merged BOOLEAN").await {
                Ok(_) => {}
                // Another load has added the column in the meantime, so the error is ignored.
                Err(SessionError::Server { error, .. }) if error.number == DUPLICATE_COLUMN => {}
                Err(error) => return Err(error.into()),
            }
        }
        connection.execute("START TRANSACTION").await?;
        for table in ["load_chunks", "load_indexes"] {
            connection.execute(&format!("DELETE FROM tailwater.{table} WHERE dump = {}", self.dump)).await?;
        }
        let phase = string_literal(LoadPhase::Tables.name());
        let sql = format!(
            "REPLACE INTO tailwater.loads (dump, phase, begun_at, merged) VALUES ({}, {phase}, UTC_TIMESTAMP(), {merged})",
            self.dump
        );
        connection.execute(&sql).await?;
        connection.execute("COMMIT").await?;
        Ok(())
    }

    /// Creates the table that records deferred indexes. Earlier versions did not have this table.
    pub(crate) async fn prepare_indexes(&self, connection: &mut Connection) -> Result<(), BulkError> {
        let table = "CREATE TABLE IF NOT EXISTS tailwater.load_indexes (\
                     dump VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
                     schema_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
                     table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
                     definitions LONGTEXT CHARACTER SET utf8mb4 NOT NULL, \
                     PRIMARY KEY (dump, schema_name, table_name)) ENGINE=InnoDB";
        connection.execute(table).await?;
        Ok(())
    }

    /// Records the deferred indexes of a table. Changes nothing if they are already recorded.
    pub(crate) async fn record_indexes(
        &self,
        connection: &mut Connection,
        table: &TableName,
        definitions: &str,
    ) -> Result<(), BulkError> {
        let sql = format!(
            "INSERT IGNORE INTO tailwater.load_indexes VALUES ({}, {}, {}, {})",
            self.dump,
            string_literal(&table.schema),
            string_literal(&table.name),
            string_literal(definitions)
        );
        connection.execute(&sql).await?;
        Ok(())
    }

    /// Returns the recorded deferred indexes of a table.
    pub(crate) async fn indexes(
        &self,
        connection: &mut Connection,
        table: &TableName,
    ) -> Result<Option<String>, BulkError> {
        let sql = format!("SELECT definitions FROM tailwater.load_indexes WHERE {}", self.of_table(table));
        Ok(connection.query(&sql).await?.scalar().map(str::to_owned))
    }

    /// Returns the number of deferred indexes of each table.
    pub(crate) async fn deferred_index_counts(
        &self,
        connection: &mut Connection,
    ) -> Result<HashMap<TableName, usize>, BulkError> {
        let sql = format!(
            "SELECT schema_name, table_name, CHAR_LENGTH(definitions) - CHAR_LENGTH(REPLACE(definitions, '\\n', '')) + 1 \
             FROM tailwater.load_indexes WHERE dump = {}",
            self.dump
        );
        let mut waiting = HashMap::new();
        let mut rows = connection.query_stream(&sql).await?;
        while let Some(row) = rows.next().await? {
            let text = |column| row.get_str(column).unwrap_or_default();
            let count = row.get_u64(2).and_then(|count| usize::try_from(count).ok()).unwrap_or(1);
            waiting.insert(TableName::new(text(0), text(1)), count);
        }
        Ok(waiting)
    }

    /// Deletes the record of a table's deferred indexes.
    pub(crate) async fn delete_indexes(
        &self,
        connection: &mut Connection,
        table: &TableName,
    ) -> Result<(), BulkError> {
        let sql = format!("DELETE FROM tailwater.load_indexes WHERE {}", self.of_table(table));
        connection.execute(&sql).await?;
        Ok(())
    }

    fn of_table(&self, table: &TableName) -> String {
        let (schema, name) = (string_literal(&table.schema), string_literal(&table.name));
        format!("dump = {} AND schema_name = {schema} AND table_name = {name}", self.dump)
    }

    /// Records that the load has reached a phase.
    pub(crate) async fn reach(&self, connection: &mut Connection, phase: LoadPhase) -> Result<(), BulkError> {
        let phase = string_literal(phase.name());
        let sql = format!("UPDATE tailwater.loads SET phase = {phase} WHERE dump = {}", self.dump);
        connection.execute(&sql).await?;
        Ok(())
    }

    /// Returns the files that are recorded as loaded.
    pub(crate) async fn chunks(
        &self,
        connection: &mut Connection,
    ) -> Result<HashSet<(TableName, u32)>, BulkError> {
        let sql = format!(
            "SELECT schema_name, table_name, chunk FROM tailwater.load_chunks WHERE dump = {}",
            self.dump
        );
        let mut found = HashSet::new();
        let mut rows = connection.query_stream(&sql).await?;
        while let Some(row) = rows.next().await? {
            let text = |column| row.get_str(column).unwrap_or_default();
            let chunk = row.get_u64(2).and_then(|chunk| u32::try_from(chunk).ok()).unwrap_or(u32::MAX);
            found.insert((TableName::new(text(0), text(1)), chunk));
        }
        Ok(found)
    }

    /// Returns the tables that an earlier copy has finished.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub(crate) async fn finished_tables(
        &self,
        connection: &mut Connection,
    ) -> Result<HashSet<TableName>, BulkError> {
        let chunks = self.chunks(connection).await?;
        Ok(chunks.into_iter().filter(|(_, chunk)| *chunk == WHOLE_TABLE).map(|(table, _)| table).collect())
    }

    /// Records in the open transaction that a file is loaded. Returns false if the file was already recorded;
    /// then the transaction must not be committed.
    ///
    /// It must be called before the rows are loaded. The statement waits for the session of an earlier load
    /// that may still be committing the same rows.
    pub(crate) async fn record_chunk(
        &self,
        connection: &mut Connection,
        table: &TableName,
        chunk: u32,
    ) -> Result<bool, SessionError> {
        let sql = format!(
            "INSERT INTO tailwater.load_chunks VALUES ({}, {}, {}, {chunk})",
            self.dump,
            string_literal(&table.schema),
            string_literal(&table.name)
        );
        match connection.execute(&sql).await {
            Ok(_) => Ok(true),
            Err(SessionError::Server { error, .. }) if error.number == DUPLICATE_KEY => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the statement with which an operator can delete what [`Self::record_chunk`] recorded.
    pub(crate) fn delete_chunk_statement(&self, table: &TableName, chunk: u32) -> String {
        format!("DELETE FROM tailwater.load_chunks WHERE {} AND chunk = {chunk}", self.of_table(table))
    }

    /// Deletes the records of all files of a table.
    pub(crate) async fn delete_table(
        &self,
        connection: &mut Connection,
        table: &TableName,
    ) -> Result<(), BulkError> {
        let sql = format!("DELETE FROM tailwater.load_chunks WHERE {}", self.of_table(table));
        connection.execute(&sql).await?;
        Ok(())
    }
}

/// Returns whether `tailwater.loads` has the column for [`EarlierLoad::merged`]. Earlier versions
/// created the table without this column.
async fn has_merge_column(connection: &mut Connection) -> Result<bool, BulkError> {
    let sql = "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = 'tailwater' AND table_name = 'loads' \
               AND column_name = 'merged'";
    Ok(connection.query(sql).await?.scalar() == Some("1"))
}
