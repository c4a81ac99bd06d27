//! Prepared statements whose rows come in the binary protocol. The server then does not convert values to
//! text. This conversion is slow, especially for floating-point numbers.

use tailwater_wire::WireError;
use tailwater_wire::protocol::ColumnDefinition;
use tailwater_wire::protocol::binary_row::ValueRows;
use tailwater_wire::protocol::bulk_execute::PrepareOk;
use tailwater_wire::protocol::command::{COM_STMT_CLOSE, COM_STMT_EXECUTE, COM_STMT_PREPARE, ClientCommand};
use tailwater_wire::protocol::ok_err_eof_packets::ERR;
use tracing::debug;

use crate::connection::{Connection, Opening};
use crate::error::{SessionError, StatementPrefix};
use crate::text_result_rows::{BinaryRows, RowStream};

const PREPARING: &str = "preparing a statement";
const RUNNING: &str = "running a prepared statement";
const CLOSING: &str = "closing a prepared statement";

/// The flags and the iteration count of COM_STMT_EXECUTE. The flags request no cursor, so all rows come at
/// once. The iteration count is always 1.
const NO_CURSOR_ONCE: [u8; 5] = [0, 1, 0, 0, 0];

/// Whether the error number means that the server cannot prepare the statement, or has reached its maximum
/// number of prepared statements.
fn is_unpreparable(number: u16) -> bool {
    const ER_UNSUPPORTED_PS: u16 = 1295;
    const ER_MAX_PREPARED_STMT_COUNT_REACHED: u16 = 1461;
    matches!(number, ER_UNSUPPORTED_PS | ER_MAX_PREPARED_STMT_COUNT_REACHED)
}

impl Connection {
    /// Runs one statement that returns rows, as [`Connection::query_stream`] does. A floating-point number
    /// gets as many digits as are necessary to identify its value, even if the server would print fewer. The
    /// server also needs less time than for text.
    ///
    /// # Errors
    /// [`SessionError::Server`] if the statement fails; any error that breaks the connection.
    pub async fn query_values(&mut self, sql: &str) -> Result<RowStream<'_>, SessionError> {
        let (prepared, columns) = match self.prepare(sql).await {
            Ok(prepared) => prepared,
            Err(SessionError::Server { error, .. }) if is_unpreparable(error.number) => {
                debug!(
                    number = error.number,
                    "the server cannot prepare the statement; running it in the text protocol"
                );
                return self.query_stream(sql).await;
            }
            Err(error) => return Err(error),
        };
        if prepared.parameters > 0 || columns.is_empty() || ValueRows::new(&columns).is_none() {
            self.close_statement(prepared.id).await?;
            return self.query_stream(sql).await;
        }
        let columns = match self.run(prepared.id).await {
            Err(error @ SessionError::Server { .. }) => {
                self.close_statement(prepared.id).await?;
                return Err(error);
            }
            run => run?,
        };
        let Some(rows) = ValueRows::new(&columns) else {
            let source = WireError::malformed(
                "column definition",
                "the result has columns of other types than the prepared statement".to_owned(),
            );
            return Err(SessionError::Protocol { doing: RUNNING, source });
        };
        Ok(RowStream::with_binary_rows(self, columns, BinaryRows { statement: prepared.id, rows }))
    }

    async fn run(&mut self, statement: u32) -> Result<Vec<ColumnDefinition>, SessionError> {
        self.begin()?;
        let body = [&statement.to_le_bytes()[..], &NO_CURSOR_ONCE].concat();
        self.stream.send(RUNNING, &ClientCommand::Other { command: COM_STMT_EXECUTE, body: &body }).await?;
        match self.read_opening().await? {
            Opening::Columns(columns) => Ok(columns),
            Opening::LocalInfile(file) => Err(SessionError::LocalInfile { file }),
            Opening::Ok(_) => {
                let source = WireError::malformed(
                    "result",
                    "the result has no columns, although the prepared statement has some".to_owned(),
                );
                Err(SessionError::Protocol { doing: RUNNING, source })
            }
        }
    }

    /// Prepares a statement. Returns it with the definitions of its result columns.
    pub(crate) async fn prepare(
        &mut self,
        sql: &str,
    ) -> Result<(PrepareOk, Vec<ColumnDefinition>), SessionError> {
        self.begin()?;
        self.statement.clear();
        self.statement.extend_from_slice(StatementPrefix::cut(sql.as_bytes()));
        self.stream
            .send(PREPARING, &ClientCommand::Other { command: COM_STMT_PREPARE, body: sql.as_bytes() })
            .await?;
        let payload = self.stream.read_packet(PREPARING, self.rows_bytes_max).await?;
        if payload.first() == Some(&ERR) {
            return Err(self.server_error(PREPARING, &payload));
        }
        let prepared = PrepareOk::parse(&payload)
            .map_err(|source| SessionError::Protocol { doing: PREPARING, source })?;
        let mut columns = Vec::new();
        // The server sends the definitions of the parameters first, and then the definitions of the columns.
        for definitions in [prepared.parameters, prepared.columns] {
            if definitions > 0 {
                columns = self.read_columns(usize::from(definitions)).await?;
            }
        }
        self.end_unanswered();
        if prepared.columns == 0 {
            columns.clear();
        }
        Ok((prepared, columns))
    }

    /// Closes a prepared statement.
    pub(crate) async fn close_statement(&mut self, statement: u32) -> Result<(), SessionError> {
        self.begin()?;
        let id = statement.to_le_bytes();
        self.stream.send(CLOSING, &ClientCommand::Other { command: COM_STMT_CLOSE, body: &id }).await?;
        self.end_unanswered();
        Ok(())
    }
}
