//! Takes metadata locks on tables that are still to be read. If a definition changed while a snapshot is
//! open, the rest of the table would become unreadable. Locks are released as tables finish. So a long dump
//! blocks definition changes only for the tables that it still has to read.
//!
//! Every reading connection takes its own locks. Suppose that a single connection locked a table for all of
//! them. A session that alters the table would wait for that connection, and the other readers of the table
//! would wait for the altering session. This would last forever, because no server detects such a deadlock.

use std::collections::HashSet;

use parking_lot::Mutex;
use tailwater_session::{Connection, SessionError};

use crate::error::BulkError;
use crate::schema::TableName;
use tailwater_wire::sql_quote::qualified_name;

/// The finished tables of a snapshot, which all its connections share.
#[derive(Debug, Default)]
pub struct FinishedTables(Mutex<HashSet<TableName>>);

impl FinishedTables {
    /// Marks a table as finished.
    pub fn add(&self, table: &TableName) {
        self.0.lock().insert(table.clone());
    }

    fn contains(&self, table: &TableName) -> bool {
        self.0.lock().contains(table)
    }
}

/// A connection in a transaction with a snapshot. It has metadata locks on the tables that it may read. A
/// rollback to a savepoint releases the locks that were taken after it, so the table that finishes first is
/// locked last.
#[derive(Debug)]
pub struct SnapshotReader {
    /// The connection to the server.
    pub connection: Connection,
    /// The locked tables in locking order, and for each whether a savepoint was set before its lock.
    held: Vec<(TableName, bool)>,
}

impl SnapshotReader {
    /// Locks the tables, which will finish in about the given order. With `releases_locks`, the connection
    /// can release locks that it took after a savepoint; otherwise it keeps all locks until the end.
    ///
    /// After a table whose engine joins a transaction and has no savepoints (Aria), the connection can set no
    /// more savepoints. Such tables come first in `tables` and are locked last.
    ///
    /// # Errors
    /// [`BulkError::Session`], also if a table does not exist any more or an altering session waits for it.
    pub(super) async fn lock_tables(
        mut connection: Connection,
        tables: &[TableName],
        releases_locks: bool,
    ) -> Result<Self, BulkError> {
        let mut held = Vec::with_capacity(tables.len());
        let mut takes_savepoints = releases_locks;
        for (number, table) in tables.iter().rev().enumerate() {
            if takes_savepoints {
                takes_savepoints = set_savepoint(&mut connection, number).await?;
            }
            let name = qualified_name(&table.schema, &table.name);
            // A row is read because only then does the engine report that the table was changed after the
            // snapshot.
            connection.query(&format!("SELECT 1 FROM {name} LIMIT 1")).await?;
            held.push((table.clone(), takes_savepoints));
        }
        Ok(Self { connection, held })
    }

    /// Releases the locks on finished tables. The lock on a table is released once all tables that were
    /// locked after it are finished.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn release(&mut self, finished: &FinishedTables) -> Result<(), BulkError> {
        let is_finished = |(table, _): &&(TableName, bool)| finished.contains(table);
        let first = self.held.len() - self.held.iter().rev().take_while(is_finished).count();
        // A lock without a savepoint before it is kept until the connection can roll back to an earlier
        // savepoint.
        let Some(offset) = self.held[first..].iter().position(|(_, has_savepoint)| *has_savepoint) else {
            return Ok(());
        };
        let number = first + offset;
        self.held.truncate(number);
        self.connection.execute(&format!("ROLLBACK TO SAVEPOINT tailwater_{number}")).await?;
        Ok(())
    }

    /// Returns the tables that are still locked.
    pub fn tables(&self) -> impl Iterator<Item = &TableName> {
        self.held.iter().map(|(table, _)| table)
    }
}

/// Sets the savepoint with this number. Returns false if an engine in the transaction has no savepoints
/// (`ER_CHECK_NOT_IMPLEMENTED`).
async fn set_savepoint(connection: &mut Connection, number: usize) -> Result<bool, BulkError> {
    const NOT_SUPPORTED: u16 = 1178;
    match connection.execute(&format!("SAVEPOINT tailwater_{number}")).await {
        Ok(_) => Ok(true),
        Err(SessionError::Server { error, .. }) if error.number == NOT_SUPPORTED => Ok(false),
        Err(error) => Err(error.into()),
    }
}
