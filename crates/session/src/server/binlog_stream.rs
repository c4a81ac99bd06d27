//! A binlog stream to a client. Sends events in large writes and receives acknowledgements.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tailwater_wire::WireError;
use tailwater_wire::protocol::capabilities::Capabilities;
use tailwater_wire::protocol::command::COM_QUIT;
use tailwater_wire::protocol::ok_err_eof_packets::EofPacket;
use tailwater_wire::protocol::packet::{PACKET_HEADER_BYTES, PacketHeader};
use tailwater_wire::protocol::{ServerStatus, semi_sync};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::error::SessionError;
use crate::packet_stream::PacketStream;
use crate::server::client_session::{error_payload, is_gone};
use crate::server::connection_admission::AdmissionSlot;
use crate::server::event_packets::{EventFraming, SharedPackets};
use crate::socket::Socket;

const SENDING: &str = "sending events to a client";
const RECEIVING: &str = "receiving a client's acknowledgements";

/// The maximum size of a packet from a client during the stream: an acknowledgement.
const CLIENT_PACKET_BYTES_MAX: usize = 1 + 8 + semi_sync::FILE_NAME_BYTES_MAX + 1;

/// A buffer with more bytes than this is freed after use, because there may be many clients, and most of them
/// are idle.
const KEPT_BYTES_MAX: usize = 512 << 10;

#[derive(Debug)]
enum SocketWriter {
    Tcp(OwnedWriteHalf),
    Other(WriteHalf<Socket>),
}

#[derive(Debug)]
enum SocketReader {
    Tcp(OwnedReadHalf),
    Other(ReadHalf<Socket>),
}

impl SocketWriter {
    fn get(&mut self) -> &mut (dyn AsyncWrite + Unpin + Send) {
        match self {
            Self::Tcp(half) => half,
            Self::Other(half) => half,
        }
    }
}

impl SocketReader {
    fn get(&mut self) -> &mut (dyn AsyncRead + Unpin + Send) {
        match self {
            Self::Tcp(half) => half,
            Self::Other(half) => half,
        }
    }
}

/// Splits a connection into the sender of events and the receiver of acknowledgements.
pub(super) fn split(
    stream: PacketStream,
    peer: SocketAddr,
    place: AdmissionSlot,
    semi_sync: bool,
) -> (EventSender, EventReceiver) {
    let place = Arc::new(place);
    let (sequence, write_timeout) = (stream.sequence(), stream.write_timeout);
    let (socket, buffer) = stream.into_parts();
    let (reader, writer) = match socket {
        Socket::Tcp(stream) => {
            let (reader, writer) = stream.into_split();
            (SocketReader::Tcp(reader), SocketWriter::Tcp(writer))
        }
        socket => {
            let (reader, writer) = tokio::io::split(socket);
            (SocketReader::Other(reader), SocketWriter::Other(writer))
        }
    };
    let sender = EventSender {
        writer,
        framing: EventFraming::new(semi_sync, sequence),
        out: Vec::new(),
        sent: 0,
        write_timeout,
        peer,
        _place: Arc::clone(&place),
    };
    (sender, EventReceiver { reader, buffer, peer, _place: place })
}

/// Sends events to a client. Events are buffered in memory without a limit until [`EventSender::flush`] sends
/// them. Call `flush` when [`EventSender::buffered`] exceeds about 256 KiB, and when there are no more events
/// for now.
///
/// To send an event, call [`EventSender::begin_event`] with its length, then [`EventSender::push`] with its
/// bytes in any number of chunks. So an event need not be in memory as a whole. If the number of bytes
/// differs from the announced length, every later [`EventSender::flush`] returns [`SessionError::OutOfStep`].
#[derive(Debug)]
pub struct EventSender {
    writer: SocketWriter,
    framing: EventFraming,
    out: Vec<u8>,
    /// How many bytes of `out` are already written to the socket.
    sent: usize,
    write_timeout: Option<Duration>,
    peer: SocketAddr,
    _place: Arc<AdmissionSlot>,
}

impl EventSender {
    /// The client's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sets how long the client may accept no bytes; `None` for no limit. The initial value is
    /// [`crate::server::ConnectionLimits::write_timeout`].
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.write_timeout = timeout;
    }

    /// Starts an event of `length` bytes, including its header and checksum. With `wants_ack`, the event
    /// requests an acknowledgement, but only in a stream with semi-sync.
    pub fn begin_event(&mut self, length: u64, wants_ack: bool) {
        self.framing.begin(&mut self.out, length, wants_ack);
    }

    /// Adds bytes of the current event. The last byte completes the event.
    pub fn push(&mut self, chunk: &[u8]) {
        self.framing.push(&mut self.out, chunk);
    }

    /// Adds a whole event.
    pub fn push_event(&mut self, event: &[u8], wants_ack: bool) {
        self.begin_event(event.len() as u64, wants_ack);
        self.push(event);
    }

    /// Adds the whole events of `packets`, from packet number `first` on. Only for a stream without
    /// semi-sync, and only between two events; otherwise every later [`EventSender::flush`] returns
    /// [`SessionError::OutOfStep`].
    pub fn push_shared(&mut self, packets: &SharedPackets, first: usize) {
        self.framing.push_shared(&mut self.out, packets, first);
    }

    /// The number of bytes that the next [`EventSender::flush`] sends.
    pub fn buffered(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends the buffered bytes, even if the last event is incomplete. Cancel-safe: the next call continues
    /// where a cancelled call stopped.
    ///
    /// # Errors
    /// [`SessionError::Timeout`] if the client accepts no bytes within the write timeout;
    /// [`SessionError::Io`] if it has disconnected; [`SessionError::OutOfStep`] if an event did not have its
    /// announced length.
    pub async fn flush(&mut self) -> Result<(), SessionError> {
        if self.framing.is_broken() {
            return Err(SessionError::OutOfStep);
        }
        let limit = self.write_timeout;
        while self.sent < self.out.len() {
            // The time limit restarts whenever the client accepts bytes, so that a slow client is not
            // disconnected.
            let count = within(limit, self.writer.get().write(&self.out[self.sent..])).await?;
            if count == 0 {
                let source = io::Error::from(io::ErrorKind::WriteZero);
                return Err(SessionError::Io { doing: SENDING, source });
            }
            self.sent += count;
        }
        self.out.clear();
        self.sent = 0;
        if self.out.capacity() > KEPT_BYTES_MAX {
            self.out = Vec::new();
        }
        within(limit, self.writer.get().flush()).await
    }

    /// Sends the buffered bytes and ends the stream with an error, such as 1236 (`HY000`).
    ///
    /// # Errors
    /// The same as for [`EventSender::flush`]; [`SessionError::OutOfStep`] if the last event is incomplete.
    pub async fn finish_error(
        &mut self,
        number: u16,
        sql_state: &str,
        message: &str,
    ) -> Result<(), SessionError> {
        self.finish(&error_payload(number, sql_state, message)).await
    }

    /// Sends the buffered bytes and ends the stream with EOF, for a client that does not wait for more
    /// events.
    ///
    /// # Errors
    /// The same as for [`EventSender::flush`]; [`SessionError::OutOfStep`] if the last event is incomplete.
    pub async fn finish_eof(&mut self) -> Result<(), SessionError> {
        let mut payload = Vec::new();
        // Send the old form of the EOF packet, whatever capabilities were negotiated. Both servers end a
        // binlog stream in this form.
        let eof = EofPacket { warnings: 0, status: ServerStatus::AUTOCOMMIT };
        eof.encode(Capabilities::default(), &mut payload);
        self.finish(&payload).await
    }

    async fn finish(&mut self, payload: &[u8]) -> Result<(), SessionError> {
        if !self.framing.is_between_events() {
            return Err(SessionError::OutOfStep);
        }
        self.framing.put_last(&mut self.out, payload);
        self.flush().await?;
        let limit = self.write_timeout;
        // Ignore an error, because the client has already received everything.
        let _ = within(limit, self.writer.get().shutdown()).await;
        Ok(())
    }
}

/// Runs a write, and fails if it exceeds the time limit.
async fn within<T>(
    limit: Option<Duration>,
    write: impl Future<Output = io::Result<T>>,
) -> Result<T, SessionError> {
    let result = match limit {
        None => write.await,
        Some(seconds) => match tokio::time::timeout(seconds, write).await {
            Ok(result) => result,
            Err(_) => return Err(SessionError::Timeout { doing: SENDING, seconds }),
        },
    };
    result.map_err(|source| SessionError::Io { doing: SENDING, source })
}

/// Receives the acknowledgements of a client during a stream, and detects that the client has disconnected.
#[derive(Debug)]
pub struct EventReceiver {
    reader: SocketReader,
    buffer: BytesMut,
    peer: SocketAddr,
    _place: Arc<AdmissionSlot>,
}

impl EventReceiver {
    /// The client's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Receives the client's next packet, which the caller parses with [`semi_sync::Ack::parse`]. `None` if
    /// the client has disconnected. Cancel-safe: no bytes are lost. There is no time limit, because a client
    /// sends only acknowledgements, and possibly none.
    ///
    /// # Errors
    /// [`SessionError::Protocol`] for a packet longer than any acknowledgement; [`SessionError::Io`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, SessionError> {
        loop {
            if let Some(payload) = self.take_packet()? {
                return Ok((payload.first() != Some(&COM_QUIT) || payload.len() > 1).then_some(payload));
            }
            self.buffer.reserve(PACKET_HEADER_BYTES + CLIENT_PACKET_BYTES_MAX);
            match self.reader.get().read_buf(&mut self.buffer).await {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if is_gone(&error) => return Ok(None),
                Err(source) => return Err(SessionError::Io { doing: RECEIVING, source }),
            }
        }
    }

    /// Takes a complete packet from the buffer. Ignores the packet's sequence number, because replicas
    /// restart the numbers with each acknowledgement.
    fn take_packet(&mut self) -> Result<Option<Bytes>, SessionError> {
        let Some(header) = PacketHeader::parse(&self.buffer) else { return Ok(None) };
        if header.payload_bytes > CLIENT_PACKET_BYTES_MAX {
            let source = WireError::TooLarge {
                what: "packet from a client that receives a binlog stream",
                size: header.payload_bytes as u64,
                size_max: CLIENT_PACKET_BYTES_MAX as u64,
            };
            return Err(SessionError::Protocol { doing: RECEIVING, source });
        }
        let packet_bytes = PACKET_HEADER_BYTES + header.payload_bytes;
        if self.buffer.len() < packet_bytes {
            return Ok(None);
        }
        let mut packet = self.buffer.split_to(packet_bytes).freeze();
        Ok(Some(packet.split_off(PACKET_HEADER_BYTES)))
    }
}
