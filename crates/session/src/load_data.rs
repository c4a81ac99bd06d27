//! `LOAD DATA LOCAL INFILE`: rows that go to the server behind a statement of ours.
//!
//! The protocol lets a server ask for any file of the client's machine, as the answer to any statement. Here it gets none:
//! only [`Connection::load_data`] answers such a request, and only with the rows that it was handed together with the
//! statement, whatever name the server asks for.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::connection::{Connection, OkInfo, Opening};
use crate::error::{ServerError, SessionError};

const DOING: &str = "loading rows";

/// The longest packet of rows: servers read them one by one into a buffer, and none may exceed their
/// `max_allowed_packet` (1 KiB at least, 16 MiB and more by default).
pub const PACKET_BYTES_MAX: usize = 64 << 10;

/// What is sent at once.
const SENT_BYTES: usize = 256 << 10;

/// What rows come in. The end is said: a sender that just goes away is never taken for the end of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadPiece {
    /// The next bytes, cut anywhere.
    Bytes(Bytes),
    /// That was all.
    End,
}

impl Connection {
    /// Runs a `LOAD DATA LOCAL INFILE` statement with `rows` for the file; which name the statement has for it does not
    /// matter. The channel's bound bounds the memory: nothing is taken out of it that the server does not take.
    ///
    /// The server says what is wrong with a row only when it has all of them. Run it in a transaction: a connection that
    /// breaks in the middle may otherwise leave the rows before it in the table.
    ///
    /// # Errors
    /// [`SessionError::LocalInfileOff`] if the server takes no such statements, [`SessionError::Server`] if the statement
    /// fails: the connection stays in order. [`SessionError::UnexpectedResult`] if the statement is another one.
    /// [`SessionError::LoadBody`] if the channel closes before [`LoadPiece::End`], and anything that breaks the connection.
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
                return Err(not_asked("it is no LOAD DATA LOCAL statement"));
            }
            // Its rows stay unread, so the connection is out of step from here on.
            Ok(Opening::Columns(_)) => return Err(not_asked("it gives rows")),
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
                // An empty packet would tell the server that all is well.
                None => return Err(SessionError::LoadBody),
            }
        }
        self.stream.queue_packet(&[]);
        self.stream.send_queued(DOING).await
    }
}

fn not_asked(reason: &str) -> SessionError {
    let reason = format!("the server did not ask for the rows of the statement: {reason}");
    SessionError::UnexpectedResult { doing: DOING, reason }
}

/// Whether it is the option that forbids it: MySQL's own error, MariaDB's own, and what both said before they had them.
fn is_local_infile_off(error: &ServerError) -> bool {
    matches!(error.number, 3948 | 4166 | 1148)
}
