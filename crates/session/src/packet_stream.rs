//! Whole packets over a socket, with a read-ahead buffer whose slices go to the caller without a copy.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tailwater_wire::WireError;
use tailwater_wire::protocol::command::ClientCommand;
use tailwater_wire::protocol::packet::{self, Frame, PACKET_HEADER_BYTES, PacketHeader, PiecedPayload};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::error::SessionError;
use crate::socket::Socket;

/// How much room each read of an ordinary exchange gets at least, unless told otherwise.
const READ_AHEAD_BYTES: usize = 16 << 10;

/// How much the buffer grows at once at most: a long packet is believed as its bytes come, not as its header says.
const GROW_BYTES_MAX: usize = 1 << 20;

/// What comes in pieces is sent when so many bytes are together.
const SENT_BYTES: usize = 256 << 10;

/// A socket with its buffers and the packet counter.
#[derive(Debug)]
pub(crate) struct PacketStream {
    socket: Socket,
    buffer: BytesMut,
    out: Vec<u8>,
    sequence: u8,
    /// How much room each read of an ordinary exchange gets at least.
    pub(crate) read_ahead_bytes: usize,
    pub(crate) read_timeout: Option<Duration>,
    pub(crate) write_timeout: Option<Duration>,
}

impl PacketStream {
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            socket,
            buffer: BytesMut::new(),
            out: Vec::new(),
            sequence: 0,
            read_ahead_bytes: READ_AHEAD_BYTES,
            read_timeout: None,
            write_timeout: None,
        }
    }

    pub(crate) fn is_private(&self) -> bool {
        self.socket.is_private()
    }

    /// Replaces the socket by what `wrap` makes of it, as TLS does.
    ///
    /// # Errors
    /// [`SessionError::Protocol`] if bytes were already received: whatever came before TLS was not protected by it.
    pub(crate) fn into_socket(self, doing: &'static str) -> Result<(Socket, u8), SessionError> {
        if !self.buffer.is_empty() {
            let source = WireError::malformed("start of TLS", "bytes came before it");
            return Err(SessionError::Protocol { doing, source });
        }
        Ok((self.socket, self.sequence))
    }

    /// A stream whose next packet is numbered `sequence`.
    pub(crate) fn resume(socket: Socket, sequence: u8) -> Self {
        Self { sequence, ..Self::new(socket) }
    }

    /// The bytes received and not yet consumed.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer
    }

    /// Takes `count` received bytes. The caller looked at [`PacketStream::buffered`] before.
    pub(crate) fn take(&mut self, count: usize) -> Bytes {
        self.buffer.split_to(count.min(self.buffer.len())).freeze()
    }

    /// Receives until at least `wanted` bytes are buffered; each read takes as much as is there, at least
    /// `read_ahead` if it comes. May be cancelled: nothing received is lost.
    pub(crate) async fn fill(
        &mut self,
        doing: &'static str,
        wanted: usize,
        read_ahead: usize,
    ) -> Result<(), SessionError> {
        while self.buffer.len() < wanted {
            self.make_room(wanted, read_ahead);
            let read = self.socket.read_buf(&mut self.buffer);
            let count = match self.read_timeout {
                None => read.await,
                Some(seconds) => match tokio::time::timeout(seconds, read).await {
                    Ok(result) => result,
                    Err(_) => return Err(SessionError::Timeout { doing, seconds }),
                },
            };
            match count {
                Ok(0) => return Err(SessionError::Closed { doing }),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(SessionError::Closed { doing });
                }
                Err(source) => return Err(SessionError::Io { doing, source }),
            }
        }
        Ok(())
    }

    /// Receives what is already there, without waiting for the other side.
    pub(crate) async fn pull(&mut self, doing: &'static str, read_ahead: usize) -> Result<(), SessionError> {
        // Lets the runtime ask the system what has arrived: after a short read it believes that nothing has.
        tokio::task::yield_now().await;
        self.make_room(0, read_ahead);
        let mut read = pin!(self.socket.read_buf(&mut self.buffer));
        match poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
            // The end of the stream shows again when somebody waits for more.
            Poll::Pending | Poll::Ready(Ok(_)) => Ok(()),
            Poll::Ready(Err(source)) => Err(SessionError::Io { doing, source }),
        }
    }

    fn make_room(&mut self, wanted: usize, read_ahead: usize) {
        let spare = self.buffer.capacity() - self.buffer.len();
        let missing = wanted.saturating_sub(self.buffer.len()).min(GROW_BYTES_MAX);
        // A nearly full buffer would make for many small reads.
        if spare < missing.max(read_ahead / 8) {
            self.buffer.reserve(missing.max(read_ahead));
        }
    }

    /// Receives one whole payload and counts its packets.
    pub(crate) async fn read_packet(
        &mut self,
        doing: &'static str,
        payload_bytes_max: usize,
    ) -> Result<Bytes, SessionError> {
        loop {
            match packet::frame(&self.buffer, self.sequence, payload_bytes_max) {
                Ok(Frame::Incomplete { needed }) => {
                    self.fill(doing, self.buffer.len() + needed, self.read_ahead_bytes).await?;
                }
                Ok(Frame::Complete { payload_bytes, frame_bytes, last_sequence }) => {
                    self.sequence = last_sequence.wrapping_add(1);
                    let mut frame = self.take(frame_bytes);
                    if frame_bytes == PACKET_HEADER_BYTES + payload_bytes {
                        return Ok(frame.split_off(PACKET_HEADER_BYTES));
                    }
                    let payload = packet::join(&frame);
                    return payload
                        .map(Bytes::from)
                        .map_err(|source| SessionError::Protocol { doing, source });
                }
                Err(source) => return Err(SessionError::Protocol { doing, source }),
            }
        }
    }

    /// Takes the whole packets at the front whose payloads are as `wanted` says, with their headers, and counts them; none of a
    /// payload of several packets. Does not wait.
    pub(crate) fn take_packets(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Bytes {
        let mut taken = 0;
        while let Some(header) = PacketHeader::parse(&self.buffer[taken..]) {
            let end = taken + PACKET_HEADER_BYTES + header.payload_bytes;
            let payload = self.buffer.get(taken + PACKET_HEADER_BYTES..end);
            let is_alone = header.sequence == self.sequence && !header.is_continued();
            if !is_alone || !payload.is_some_and(&wanted) {
                break;
            }
            self.sequence = self.sequence.wrapping_add(1);
            taken = end;
        }
        self.take(taken)
    }

    /// Sends one payload, numbered on from the last packet of the exchange.
    pub(crate) async fn write_packet(
        &mut self,
        doing: &'static str,
        payload: &[u8],
    ) -> Result<(), SessionError> {
        self.out.clear();
        self.sequence = packet::put_packets(&mut self.out, self.sequence, payload);
        self.flush(doing).await
    }

    /// Sends one payload as packet number 0, without touching the numbers of what the server sends.
    pub(crate) async fn write_packet_aside(
        &mut self,
        doing: &'static str,
        payload: &[u8],
    ) -> Result<(), SessionError> {
        self.out.clear();
        packet::put_packets(&mut self.out, 0, payload);
        self.flush(doing).await
    }

    /// Appends one payload to what [`PacketStream::send_queued`] will send, numbered on.
    pub(crate) fn queue_packet(&mut self, payload: &[u8]) {
        self.sequence = packet::put_packets(&mut self.out, self.sequence, payload);
    }

    /// How many bytes are queued.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.out.len()
    }

    /// Sends what is queued.
    pub(crate) async fn send_queued(&mut self, doing: &'static str) -> Result<(), SessionError> {
        let result = self.flush(doing).await;
        self.out.clear();
        result
    }

    /// Forgets what was queued or sent before.
    pub(crate) fn clear_queue(&mut self) {
        self.out.clear();
    }

    /// Gives back the room that a long packet needed, if there is nothing in it: an idle connection must not keep it.
    pub(crate) fn give_back_room(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    /// Expects the next packet to begin a new exchange, as a client's command does.
    pub(crate) fn begin_exchange(&mut self) {
        self.sequence = 0;
    }

    /// Receives one whole payload of one packet and not a byte behind it: what follows may be meant for TLS.
    pub(crate) async fn read_packet_alone(
        &mut self,
        doing: &'static str,
        payload_bytes_max: usize,
    ) -> Result<Bytes, SessionError> {
        loop {
            match packet::frame(&self.buffer, self.sequence, payload_bytes_max) {
                Ok(Frame::Incomplete { needed }) => {
                    self.buffer.reserve(needed);
                    let mut front = (&mut self.socket).take(needed as u64);
                    match front.read_buf(&mut self.buffer).await {
                        Ok(0) => return Err(SessionError::Closed { doing }),
                        Ok(_) => {}
                        Err(source) => return Err(SessionError::Io { doing, source }),
                    }
                }
                Ok(Frame::Complete { .. }) => return self.read_packet(doing, payload_bytes_max).await,
                Err(source) => return Err(SessionError::Protocol { doing, source }),
            }
        }
    }

    /// The socket, and what was received and not yet consumed.
    pub(crate) fn into_parts(self) -> (Socket, BytesMut) {
        (self.socket, self.buffer)
    }

    /// The number of the next packet.
    pub(crate) fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Begins a new exchange with a command.
    pub(crate) async fn send(
        &mut self,
        doing: &'static str,
        command: &ClientCommand<'_>,
    ) -> Result<(), SessionError> {
        let mut payload = Vec::new();
        command.encode(&mut payload).map_err(|source| SessionError::Protocol { doing, source })?;
        self.sequence = 0;
        self.write_packet(doing, &payload).await
    }

    /// Begins a new exchange with a payload: `head`, and `bytes` more that come in pieces. No more than a few of them are in
    /// memory at a time.
    pub(crate) async fn send_pieces(
        &mut self,
        doing: &'static str,
        head: &[u8],
        bytes: usize,
        pieces: impl Iterator<Item: AsRef<[u8]>>,
    ) -> Result<(), SessionError> {
        let wrong = |source| SessionError::Protocol { doing, source };
        self.out.clear();
        let mut payload = PiecedPayload::new(0, head.len() + bytes);
        payload.put(&mut self.out, head).map_err(wrong)?;
        for piece in pieces {
            for part in piece.as_ref().chunks(SENT_BYTES) {
                payload.put(&mut self.out, part).map_err(wrong)?;
                if self.out.len() >= SENT_BYTES {
                    self.flush(doing).await?;
                    self.out.clear();
                }
            }
        }
        self.sequence = payload.finish(&mut self.out).map_err(wrong)?;
        self.flush(doing).await
    }

    async fn flush(&mut self, doing: &'static str) -> Result<(), SessionError> {
        let socket = &mut self.socket;
        let write = async {
            socket.write_all(&self.out).await?;
            socket.flush().await
        };
        let result = match self.write_timeout {
            None => write.await,
            Some(seconds) => match tokio::time::timeout(seconds, write).await {
                Ok(result) => result,
                Err(_) => return Err(SessionError::Timeout { doing, seconds }),
            },
        };
        // One giant statement must not pin its memory for as long as the connection lives.
        if self.out.capacity() > GROW_BYTES_MAX {
            self.out = Vec::new();
        }
        result.map_err(|source| SessionError::Io { doing, source })
    }
}
