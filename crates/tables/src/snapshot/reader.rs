//! Metadata locks on tables that are still to be read. If a definition changed under an open snapshot, the
//! rest of the table would become unreadable. Locks are released as tables finish, so that a long dump blocks
//! changes only for the tables that it still needs.
//!
//! Every reading connection takes its own locks. If one connection locked the table for all, a session that
//! alters it would wait for that connection. The other readers of the table would then wait for the altering
//! session, forever, because no server detects this deadlock.

use std::collections::HashSet;

use parking_lot::Mutex;
use tailwater_session::{Connection, SessionError};

use crate::error::BulkError;
use crate::schema::TableName;
use tailwater_wire::sql_quote::qualified_name;

/// The finished tables of a snapshot, shared by all its connections.
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

/// A connection in a transaction with a snapshot, with metadata locks on the tables that it may read. A
/// rollback to a savepoint releases the locks taken after it, so the table that finishes first is locked
/// last.
#[derive(Debug)]
pub struct SnapshotReader {
    /// The connection.
    pub connection: Connection,
    /// The tables in locking order, and whether a savepoint precedes each.
    held: Vec<(TableName, bool)>,
}

impl SnapshotReader {
    /// Locks tables that will finish in about this order. With `releases_locks`, the connection releases
    /// locks that it took after a savepoint; otherwise it keeps all until the end. An engine that joins a
    /// transaction and has no savepoints (Aria) leaves the connection without savepoints from there on. Such
    /// tables come first in `tables` and are locked last.
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
            // Only a read of a row makes the engine report that the table was changed after the snapshot.
            connection.query(&format!("SELECT 1 FROM {name} LIMIT 1")).await?;
            held.push((table.clone(), takes_savepoints));
        }
        Ok(Self { connection, held })
    }

    /// Releases the locks on finished tables. A table's lock is released once all tables that were locked
    /// after it are finished.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn release(&mut self, finished: &FinishedTables) -> Result<(), BulkError> {
        let is_finished = |(table, _): &&(TableName, bool)| finished.contains(table);
        let first = self.held.len() - self.held.iter().rev().take_while(is_finished).count();
        // Locks taken before the first savepoint stay until the preceding one can be released.
        let Some(offset) = self.held[first..].iter().position(|(_, has_savepoint)| *has_savepoint) else {
            return Ok(());
        };
        let number = first + offset;
        self.held.truncate(number);
        self.connection.execute(&format!("ROLLBACK TO SAVEPOINT tailwater_{number}")).await?;
        Ok(())
    }

    /// The locked tables.
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
