//! Sends many rows of values for one statement that a MariaDB server has prepared (`COM_STMT_BULK_EXECUTE`).
//! Values are sent in binary form, each after its length. So neither the client nor the server has to escape
//! or scan them.

use tailwater_wire::protocol::MariadbCapabilities;
use tailwater_wire::protocol::bulk_execute::{PrepareOk, put_head};
use tailwater_wire::protocol::command::COM_STMT_BULK_EXECUTE;

use crate::connection::{Connection, OkInfo};
use crate::error::SessionError;

const DOING: &str = "running a statement for many rows";

/// A statement that a server has prepared for this connection. The server frees it when the connection ends,
/// or earlier at [`Connection::close_bulk`].
#[derive(Debug)]
pub struct BulkStatement {
    prepared: PrepareOk,
    head: Vec<u8>,
}

impl BulkStatement {
    /// The number of values per row.
    pub fn parameters(&self) -> usize {
        usize::from(self.prepared.parameters)
    }
}

impl Connection {
    /// Whether the server supports [`Connection::prepare_bulk`]. Only MariaDB supports it.
    pub fn takes_bulk(&self) -> bool {
        self.mariadb_capabilities.has(MariadbCapabilities::STMT_BULK_OPERATIONS)
    }

    /// Prepares a statement that changes rows, with a `?` for each value.
    ///
    /// # Errors
    /// [`SessionError::Server`] if the server rejects the statement; the connection stays usable. Any other
    /// error breaks the connection.
    pub async fn prepare_bulk(&mut self, sql: &str) -> Result<BulkStatement, SessionError> {
        let (prepared, _) = self.prepare(sql).await?;
        let mut head = vec![COM_STMT_BULK_EXECUTE];
        put_head(&mut head, prepared);
        Ok(BulkStatement { prepared, head })
    }

    /// Runs a statement once for each row of values. `rows` contains the values of all rows one after the
    /// other, as [`put_value`](tailwater_wire::protocol::bulk_execute::put_value) encodes them. For the
    /// server, all rows together are one statement.
    ///
    /// # Errors
    /// [`SessionError::Server`] if the statement fails, for example because the rows exceed
    /// `max_allowed_packet` bytes. Any other error breaks the connection.
    pub async fn execute_bulk(
        &mut self,
        statement: &BulkStatement,
        rows: &[u8],
    ) -> Result<OkInfo, SessionError> {
        self.begin()?;
        self.statement.clear();
        self.stream.send_pieces(DOING, &statement.head, rows.len(), std::iter::once(rows)).await?;
        let ok = self.read_ok(DOING).await?;
        self.finish(ok.status).await?;
        Ok(ok)
    }

    /// Frees a prepared statement on the server.
    ///
    /// # Errors
    /// Any error breaks the connection.
    pub async fn close_bulk(&mut self, statement: BulkStatement) -> Result<(), SessionError> {
        self.close_statement(statement.prepared.id).await
    }
}
