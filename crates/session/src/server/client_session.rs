//! The session of a client that is logged in: receives its commands and sends the answers.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use tailwater_wire::WireError;
use tailwater_wire::byte_cursor::put_lenenc_int;
use tailwater_wire::protocol::command::COM_QUIT;
use tailwater_wire::protocol::ok_err_eof_packets::{EofPacket, ErrPacket, OK, OkPacket};
use tailwater_wire::protocol::resultset::{COLUMNS_MAX, encode_text_row};
use tailwater_wire::protocol::{
    COLLATION_BINARY, COLLATION_UTF8MB4, Capabilities, ColumnDefinition, ServerStatus,
};

use crate::error::SessionError;
use crate::packet_stream::PacketStream;
use crate::server::binlog_stream::{self, EventReceiver, EventSender};
use crate::server::client_limits::ConnectionLimits;
use crate::server::connection_admission::AdmissionSlot;
use crate::server::login_handshake::ClientLogin;

const WAITING: &str = "waiting for a client's command";
const ANSWERING: &str = "answering a client";

/// The size of each write of a result, in bytes.
const SEND_BYTES: usize = 64 << 10;

/// After a command with more bytes than this, the session frees the memory that held the command.
const LONG_COMMAND_BYTES: usize = 64 << 10;

const TYPE_LONGLONG: u8 = 8;
const TYPE_VAR_STRING: u8 = 253;
const FLAG_BINARY: u16 = 128;

/// The definition of a text column in utf8mb4.
pub fn text_column(name: impl Into<String>) -> ColumnDefinition {
    ColumnDefinition {
        name: name.into(),
        collation: u16::from(COLLATION_UTF8MB4),
        length_max: 4096,
        column_type: TYPE_VAR_STRING,
        decimals: 31,
        ..ColumnDefinition::default()
    }
}

/// The definition of an integer column.
pub fn integer_column(name: impl Into<String>) -> ColumnDefinition {
    ColumnDefinition {
        name: name.into(),
        collation: u16::from(COLLATION_BINARY),
        length_max: 21,
        column_type: TYPE_LONGLONG,
        flags: FLAG_BINARY,
        ..ColumnDefinition::default()
    }
}

/// A logged-in client. Dropping it closes the connection.
///
/// A session handles one command at a time: call [`ClientSession::read_command`], then send exactly one
/// answer. If the sending of an answer is cancelled, a part of the answer may have been sent, so drop the
/// session.
#[derive(Debug)]
pub struct ClientSession {
    stream: PacketStream,
    capabilities: Capabilities,
    user: String,
    peer: SocketAddr,
    tls: bool,
    connection_id: u32,
    attributes: Vec<(String, String)>,
    command_bytes_max: usize,
    slot: AdmissionSlot,
}

impl ClientSession {
    pub(super) fn new(
        login: ClientLogin,
        peer: SocketAddr,
        connection_id: u32,
        slot: AdmissionSlot,
        limits: &ConnectionLimits,
    ) -> Self {
        let ClientLogin { mut stream, capabilities, tls, user, attributes, .. } = login;
        stream.read_timeout = limits.idle_timeout;
        stream.write_timeout = limits.write_timeout;
        let command_bytes_max = limits.command_bytes_max;
        Self { stream, capabilities, user, peer, tls, connection_id, attributes, command_bytes_max, slot }
    }

    /// The user that is logged in.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The client's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the connection uses TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The connection id in the greeting, for `KILL`.
    pub fn connection_id(&self) -> u32 {
        self.connection_id
    }

    /// The client's connection attributes: up to 32 names and values of up to 256 characters. The client
    /// chose this text, so escape it before it goes to a terminal or a web page.
    pub fn client_attributes(&self) -> &[(String, String)] {
        &self.attributes
    }

    /// The client's program name, if it sent one.
    pub fn program_name(&self) -> Option<&str> {
        let program = self.attributes.iter().find(|(name, _)| name == "program_name");
        program.map(|(_, value)| value.as_str())
    }

    /// Sets the maximum time between two commands; `None` for no limit.
    pub fn set_idle_timeout(&mut self, timeout: Option<Duration>) {
        self.stream.read_timeout = timeout;
    }

    /// Receives the client's next command, which the caller parses with
    /// [`tailwater_wire::protocol::command::ClientCommand::parse`]. `None` after COM_QUIT or if the client
    /// has disconnected. Cancel-safe: no bytes are lost.
    ///
    /// # Errors
    /// [`SessionError::Timeout`] after [`ConnectionLimits::idle_timeout`]; [`SessionError::Protocol`] for a
    /// command longer than [`ConnectionLimits::command_bytes_max`] or for invalid packets; in both cases the
    /// client has received an error, and the session has ended. [`SessionError::Io`].
    pub async fn read_command(&mut self) -> Result<Option<Bytes>, SessionError> {
        self.stream.begin_exchange();
        match self.stream.read_packet(WAITING, self.command_bytes_max).await {
            Ok(payload) if payload.first() == Some(&COM_QUIT) => Ok(None),
            Ok(payload) => {
                if payload.len() >= LONG_COMMAND_BYTES {
                    self.stream.give_back_room();
                }
                Ok(Some(payload))
            }
            Err(SessionError::Closed { .. }) => Ok(None),
            Err(SessionError::Io { source, .. }) if is_gone(&source) => Ok(None),
            Err(SessionError::Protocol { doing, source }) => {
                let (number, message) = match source {
                    WireError::TooLarge { .. } => {
                        (1153, "Got a packet bigger than 'max_allowed_packet' bytes")
                    }
                    _ => (1156, "Got packets out of order"),
                };
                // Ignore a failure to send the error packet. The caller gets the client's protocol error.
                let _ = self.write_error(number, "08S01", message).await;
                Err(SessionError::Protocol { doing, source })
            }
            Err(error) => Err(error),
        }
    }

    /// Answers with an OK packet, to which it adds the autocommit status flag.
    pub async fn write_ok(&mut self, ok: OkPacket) -> Result<(), SessionError> {
        let ok = OkPacket { status: ok.status | ServerStatus::AUTOCOMMIT, ..ok };
        let mut payload = Vec::new();
        ok.encode(OK, &mut payload);
        self.stream.write_packet(ANSWERING, &payload).await
    }

    /// Answers with an error packet. `number` and `sql_state` are those of MySQL and MariaDB, such as 1064
    /// and `42000`.
    pub async fn write_error(
        &mut self,
        number: u16,
        sql_state: &str,
        message: &str,
    ) -> Result<(), SessionError> {
        self.stream.write_packet(ANSWERING, &error_payload(number, sql_state, message)).await
    }

    /// Answers with an EOF packet, in the form that client and server negotiated.
    pub async fn write_eof(&mut self) -> Result<(), SessionError> {
        let payload = self.eof_payload();
        self.stream.write_packet(ANSWERING, &payload).await
    }

    /// Answers with rows of text values. `None` is NULL. Every row has one value per column, and there is at
    /// least one column. This method reads the iterator while it sends the rows, so the rows need not all be
    /// in memory.
    ///
    /// # Errors
    /// [`SessionError::OutOfStep`] if a row does not have one value per column; the session is then unusable.
    /// [`SessionError::Timeout`] or [`SessionError::Io`].
    pub async fn write_rows<Rows, Row, Value>(
        &mut self,
        columns: &[ColumnDefinition],
        rows: Rows,
    ) -> Result<(), SessionError>
    where
        Rows: IntoIterator<Item = Row>,
        Row: IntoIterator<Item = Option<Value>>,
        Value: AsRef<[u8]>,
    {
        if columns.is_empty() || columns.len() as u64 > COLUMNS_MAX {
            return Err(SessionError::OutOfStep);
        }
        self.stream.clear_queue();
        let mut payload = Vec::new();
        put_lenenc_int(&mut payload, columns.len() as u64);
        self.stream.queue_packet(&payload);
        for column in columns {
            payload.clear();
            column.encode(&mut payload);
            self.stream.queue_packet(&payload);
        }
        if !self.capabilities.has(Capabilities::DEPRECATE_EOF) {
            let eof = self.eof_payload();
            self.stream.queue_packet(&eof);
        }
        for row in rows {
            let values: Vec<Option<Value>> = row.into_iter().collect();
            if values.len() != columns.len() {
                return Err(SessionError::OutOfStep);
            }
            payload.clear();
            encode_text_row(values.iter().map(|value| value.as_ref().map(AsRef::as_ref)), &mut payload);
            drop(values);
            self.stream.queue_packet(&payload);
            if self.stream.queued_bytes() >= SEND_BYTES {
                self.stream.send_queued(ANSWERING).await?;
            }
        }
        let eof = self.eof_payload();
        self.stream.queue_packet(&eof);
        self.stream.send_queued(ANSWERING).await
    }

    /// Starts a binlog stream in answer to the last command. With `semi_sync`, each event has the semi-sync
    /// header, which can request an acknowledgement. Set `semi_sync` if and only if the client requested it.
    pub fn into_event_stream(self, semi_sync: bool) -> (EventSender, EventReceiver) {
        binlog_stream::split(self.stream, self.peer, self.slot, semi_sync)
    }

    fn eof_payload(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        EofPacket { warnings: 0, status: ServerStatus::AUTOCOMMIT }.encode(self.capabilities, &mut payload);
        payload
    }
}

pub(super) fn error_payload(number: u16, sql_state: &str, message: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    ErrPacket { number, sql_state: sql_state.to_owned(), message: message.to_owned() }.encode(&mut payload);
    payload
}

/// Whether the error means that the client closed the connection without COM_QUIT.
pub(super) fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut | UnexpectedEof)
}
