//! Metadata locks on tables that are still to be read: a change of a definition under an open snapshot would make the rest
//! of the table unreadable. Locks are let go as tables finish, so that a long dump blocks changes only of what it still needs.

use tailwater_session::Connection;

use crate::error::BulkError;
use crate::schema::TableName;
use crate::sql::qualified;

/// A transaction that holds them. Savepoints let go what was locked behind them: the table that is to finish first is locked
/// last.
#[derive(Debug)]
pub struct TableHold {
    connection: Connection,
    /// In the order in which they were locked.
    held: Vec<HeldTable>,
    lets_go: bool,
}

#[derive(Debug)]
struct HeldTable {
    table: TableName,
    finished: bool,
}

impl TableHold {
    /// Locks tables that will finish in about this order; all of them until the end unless the connection `lets_go` of what
    /// was locked behind a savepoint.
    ///
    /// # Errors
    /// [`BulkError::Session`], also if a table is gone.
    pub async fn take(
        mut connection: Connection,
        tables: &[TableName],
        lets_go: bool,
    ) -> Result<Self, BulkError> {
        connection.execute("START TRANSACTION READ ONLY").await?;
        let mut held = Vec::with_capacity(tables.len());
        for (number, table) in tables.iter().rev().enumerate() {
            if lets_go {
                connection.execute(&format!("SAVEPOINT tailwater_{number}")).await?;
            }
            let name = qualified(&table.schema, &table.name);
            connection.execute(&format!("SELECT 1 FROM {name} LIMIT 0")).await?;
            held.push(HeldTable { table: table.clone(), finished: false });
        }
        Ok(Self { connection, held, lets_go })
    }

    /// Lets a table go, as soon as all that were to finish before it are finished, too.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn finished(&mut self, table: &TableName) -> Result<(), BulkError> {
        if let Some(held) = self.held.iter_mut().find(|held| held.table == *table) {
            held.finished = true;
        }
        if !self.lets_go {
            return Ok(());
        }
        let before = self.held.len();
        while self.held.last().is_some_and(|held| held.finished) {
            self.held.pop();
        }
        if self.held.len() < before {
            let number = self.held.len();
            self.connection.execute(&format!("ROLLBACK TO SAVEPOINT tailwater_{number}")).await?;
        }
        Ok(())
    }

    /// Which tables are held.
    pub fn tables(&self) -> impl Iterator<Item = &TableName> {
        self.held.iter().map(|held| &held.table)
    }
}
