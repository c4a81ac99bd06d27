//! Metadata locks on tables that are still to be read: a change of a definition under an open snapshot would make the rest
//! of the table unreadable. Locks are let go as tables finish, so that a long dump blocks changes only of what it still needs.
//!
//! Every connection that reads holds its own. If one held for all, who wants to change a definition would wait for that one,
//! and the others, which want to read the table, behind him: for ever, as no server sees that the two wait for each other.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use tailwater_session::{Connection, SessionError};

use crate::error::BulkError;
use crate::schema::TableName;
use crate::sql::qualified;

/// Which tables of a snapshot are finished, for all of its connections.
#[derive(Debug, Default)]
pub struct FinishedTables(Mutex<HashSet<TableName>>);

impl FinishedTables {
    /// A table is finished.
    pub fn add(&self, table: &TableName) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(table.clone());
    }

    fn contains(&self, table: &TableName) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(table)
    }
}

/// A connection in a transaction with a snapshot, which holds the tables that it may read. Savepoints let go what was locked
/// behind them: the table that is to finish first is locked last.
#[derive(Debug)]
pub struct SnapshotReader {
    /// The connection.
    pub connection: Connection,
    /// In the order in which they were locked, and whether a savepoint precedes it.
    held: Vec<(TableName, bool)>,
}

impl SnapshotReader {
    /// Locks tables that will finish in about this order; all of them until the end unless the connection `lets_go` of what
    /// was locked after a savepoint. An engine that joins a transaction and has no savepoints (Aria) leaves the
    /// connection without them from there on: such tables come first in `tables`, and are locked last.
    ///
    /// # Errors
    /// [`BulkError::Session`], also if a table is gone, or somebody waits for it to change it.
    pub(super) async fn hold(
        mut connection: Connection,
        tables: &[TableName],
        lets_go: bool,
    ) -> Result<Self, BulkError> {
        let mut held = Vec::with_capacity(tables.len());
        let mut takes_savepoints = lets_go;
        for (number, table) in tables.iter().rev().enumerate() {
            if takes_savepoints {
                takes_savepoints = set_savepoint(&mut connection, number).await?;
            }
            let name = qualified(&table.schema, &table.name);
            // A row is asked for: only then does the engine say that the table was changed behind the snapshot.
            connection.query(&format!("SELECT 1 FROM {name} LIMIT 1")).await?;
            held.push((table.clone(), takes_savepoints));
        }
        Ok(Self { connection, held })
    }

    /// Lets go the tables that are finished, of each as soon as all that were to finish before it are finished, too.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn release(&mut self, finished: &FinishedTables) -> Result<(), BulkError> {
        let is_finished = |(table, _): &&(TableName, bool)| finished.contains(table);
        let first = self.held.len() - self.held.iter().rev().take_while(is_finished).count();
        // What was locked before the first savepoint stays until the one before it can go.
        let Some(offset) = self.held[first..].iter().position(|(_, has_savepoint)| *has_savepoint) else {
            return Ok(());
        };
        let number = first + offset;
        self.held.truncate(number);
        self.connection.execute(&format!("ROLLBACK TO SAVEPOINT tailwater_{number}")).await?;
        Ok(())
    }

    /// Which tables are held.
    pub fn tables(&self) -> impl Iterator<Item = &TableName> {
        self.held.iter().map(|(table, _)| table)
    }
}

/// Sets the savepoint of that number; false if an engine that is part of the transaction has none (`ER_CHECK_NOT_IMPLEMENTED`).
async fn set_savepoint(connection: &mut Connection, number: usize) -> Result<bool, BulkError> {
    const NOT_SUPPORTED: u16 = 1178;
    match connection.execute(&format!("SAVEPOINT tailwater_{number}")).await {
        Ok(_) => Ok(true),
        Err(SessionError::Server { error, .. }) if error.number == NOT_SUPPORTED => Ok(false),
        Err(error) => Err(error.into()),
    }
}
