//! Sends rows to the server with `LOAD DATA LOCAL INFILE`.
//!
//! The protocol lets a server request any file of the client's machine in answer to any statement. This
//! client never sends such a file. Only [`Connection::load_data`] answers such a request. It always sends the
//! rows that its caller passed, whatever file name the server requests.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::connection::{Connection, OkInfo, Opening};
use crate::error::{ServerError, SessionError};

const DOING: &str = "loading rows";

/// The maximum size of a packet of rows, in bytes. A server reads each packet into a buffer, and refuses
/// packets that are larger than its `max_allowed_packet` (at least 1 KiB, by default 16 MiB or more).
pub const PACKET_BYTES_MAX: usize = 64 << 10;

/// The size of one write to the socket, in bytes.
const SENT_BYTES: usize = 256 << 10;

/// The input of [`Connection::load_data`]. The sender marks the end with [`LoadPiece::End`]. If the sender
/// stops without this piece, the load fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadPiece {
    /// The next bytes of the rows. A row may continue in the next piece.
    Bytes(Bytes),
    /// The end of the rows.
    End,
}

impl Connection {
    /// Runs a `LOAD DATA LOCAL INFILE` statement with `rows` as the content of the file. The file name in the
    /// statement is ignored. The capacity of the channel limits the memory, because this call takes a piece
    /// from the channel only when it can send the piece.
    ///
    /// The server reports an invalid row only after it has received all rows. Run the statement in a
    /// transaction. Otherwise a connection that breaks may leave the first rows in the table.
    ///
    /// # Errors
    /// [`SessionError::LocalInfileOff`] if the server does not accept such statements,
    /// [`SessionError::Server`] if the statement fails; the connection stays usable.
    /// [`SessionError::UnexpectedResult`] if `statement` is not a `LOAD DATA LOCAL` statement.
    /// [`SessionError::LoadBody`] if the channel closes before [`LoadPiece::End`]. Any error that breaks the
    /// connection.
    pub async fn load_data(
        &mut self,
        statement: &[u8],
        rows: &mut mpsc::Receiver<LoadPiece>,
    ) -> Result<OkInfo, SessionError> {
        let opening = self.open_statement(statement.len(), std::iter::once(statement)).await;
        let answer = match opening {
            Err(SessionError::Server { error, .. }) if is_local_infile_off(&error) => {
                return Err(SessionError::LocalInfileOff { endpoint: self.endpoint().to_owned(), error });
            }
            Err(error) => return Err(error),
            Ok(Opening::LocalInfile(_)) => {
                self.send_rows(rows).await?;
                self.read_ok(DOING).await?
            }
            Ok(Opening::Ok(ok)) => {
                self.finish(ok.status).await?;
                return Err(rows_not_requested("the statement is not a LOAD DATA LOCAL statement"));
            }
            // The rows of this result are not read, so the connection is unusable after this error.
            Ok(Opening::Columns(_)) => return Err(rows_not_requested("the statement returns rows")),
        };
        Ok(answer)
    }

    async fn send_rows(&mut self, rows: &mut mpsc::Receiver<LoadPiece>) -> Result<(), SessionError> {
        self.stream.clear_queue();
        loop {
            match rows.recv().await {
                Some(LoadPiece::Bytes(bytes)) => {
                    for part in bytes.chunks(PACKET_BYTES_MAX) {
                        self.stream.queue_packet(part);
                        if self.stream.queued_bytes() >= SENT_BYTES {
                            self.stream.send_queued(DOING).await?;
                        }
                    }
                }
                Some(LoadPiece::End) => break,
                // Do not send the empty packet: it would end the rows on the server without an error.
                None => return Err(SessionError::LoadBody),
            }
        }
        self.stream.queue_packet(&[]);
        self.stream.send_queued(DOING).await
    }
}

fn rows_not_requested(reason: &str) -> SessionError {
    let reason = format!("the server did not request the rows of the statement: {reason}");
    SessionError::UnexpectedResult { doing: DOING, reason }
}

/// Whether the error means that `local_infile` is off on the server. MySQL and MariaDB have different error
/// numbers for it, and older versions of both use a third error number.
fn is_local_infile_off(error: &ServerError) -> bool {
    matches!(error.number, 3948 | 4166 | 1148)
}
