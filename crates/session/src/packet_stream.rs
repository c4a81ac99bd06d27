//! Sends and receives packets over a socket. The caller gets slices of the read-ahead buffer, without a copy.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tailwater_wire::WireError;
use tailwater_wire::protocol::command::ClientCommand;
use tailwater_wire::protocol::packet::{self, Frame, PACKET_HEADER_BYTES, PacketHeader, PacketSplitter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::error::SessionError;
use crate::socket::Socket;

/// The minimum free space in the buffer for a read, in bytes, unless the caller sets another value.
const READ_AHEAD_BYTES: usize = 16 << 10;

/// The maximum number of bytes by which the buffer grows at once. A packet's header may announce any length,
/// so the buffer grows only as bytes arrive.
const GROW_BYTES_MAX: usize = 1 << 20;

/// The number of bytes in each write, if a statement is sent in pieces.
const SENT_BYTES: usize = 256 << 10;

/// A socket with its buffers and sequence number.
#[derive(Debug)]
pub(crate) struct PacketStream {
    socket: Socket,
    buffer: BytesMut,
    out: Vec<u8>,
    sequence: u8,
    /// The minimum free space in the buffer for a read, in bytes.
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

    /// Takes the socket out of the stream, with the next sequence number, to start TLS on it.
    ///
    /// # Errors
    /// [`SessionError::Protocol`] if bytes are buffered. They arrived before TLS, so TLS did not protect
    /// them.
    pub(crate) fn into_socket(self, doing: &'static str) -> Result<(Socket, u8), SessionError> {
        if !self.buffer.is_empty() {
            let source =
                WireError::malformed("start of TLS", "the other side sent bytes before TLS protected them");
            return Err(SessionError::Protocol { doing, source });
        }
        Ok((self.socket, self.sequence))
    }

    /// Creates a stream over `socket` that continues with sequence number `sequence`.
    pub(crate) fn resume(socket: Socket, sequence: u8) -> Self {
        Self { sequence, ..Self::new(socket) }
    }

    /// The received bytes that are not consumed yet.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer
    }

    /// Consumes `count` bytes of [`PacketStream::buffered`].
    pub(crate) fn take(&mut self, count: usize) -> Bytes {
        self.buffer.split_to(count.min(self.buffer.len())).freeze()
    }

    /// Receives until at least `wanted` bytes are buffered. Each read takes all available bytes. Before a
    /// read, the buffer has space for at least `read_ahead` bytes. Cancel-safe: no bytes are lost.
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

    /// Receives the bytes that have already arrived, without waiting.
    pub(crate) async fn pull(&mut self, doing: &'static str, read_ahead: usize) -> Result<(), SessionError> {
        // After a short read, the runtime assumes that no more bytes have arrived. Yielding makes the runtime
        // ask the operating system again.
        tokio::task::yield_now().await;
        self.make_room(0, read_ahead);
        let mut read = pin!(self.socket.read_buf(&mut self.buffer));
        match poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
            // Ignore the end of the stream here: the next read that waits reports it.
            Poll::Pending | Poll::Ready(Ok(_)) => Ok(()),
            Poll::Ready(Err(source)) => Err(SessionError::Io { doing, source }),
        }
    }

    /// Waits for bytes, and discards all that have arrived, up to `bytes_max`. Returns their number.
    pub(crate) async fn discard(
        &mut self,
        doing: &'static str,
        bytes_max: usize,
    ) -> Result<usize, SessionError> {
        if self.buffer.is_empty() {
            self.buffer.reserve(bytes_max);
            let read = self.socket.read_buf(&mut self.buffer).await;
            if read.map_err(|source| SessionError::Io { doing, source })? == 0 {
                return Err(SessionError::Closed { doing });
            }
        }
        let count = self.buffer.len();
        self.buffer.clear();
        Ok(count)
    }

    fn make_room(&mut self, wanted: usize, read_ahead: usize) {
        let spare = self.buffer.capacity() - self.buffer.len();
        let missing = wanted.saturating_sub(self.buffer.len()).min(GROW_BYTES_MAX);
        // Enlarge a nearly full buffer, because reading into it would cause many small reads.
        if spare < missing.max(read_ahead / 8) {
            self.buffer.reserve(missing.max(read_ahead));
        }
    }

    /// Receives one complete payload and counts its packets.
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

    /// Takes the complete packets at the front of the buffer whose payloads satisfy `wanted`, including their
    /// headers. Counts these packets in the sequence number. Stops at a payload of several packets. Does not
    /// wait.
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

    /// Sends one payload with the next sequence number.
    pub(crate) async fn write_packet(
        &mut self,
        doing: &'static str,
        payload: &[u8],
    ) -> Result<(), SessionError> {
        self.out.clear();
        self.sequence = packet::put_packets(&mut self.out, self.sequence, payload);
        self.flush(doing).await
    }

    /// Sends one payload as packet number 0. Does not change the sequence number that the next received
    /// packet must have.
    pub(crate) async fn write_packet_aside(
        &mut self,
        doing: &'static str,
        payload: &[u8],
    ) -> Result<(), SessionError> {
        self.out.clear();
        packet::put_packets(&mut self.out, 0, payload);
        self.flush(doing).await
    }

    /// Queues one payload with the next sequence number for [`PacketStream::send_queued`].
    pub(crate) fn queue_packet(&mut self, payload: &[u8]) {
        self.sequence = packet::put_packets(&mut self.out, self.sequence, payload);
    }

    /// The number of queued bytes.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.out.len()
    }

    /// Sends the queued bytes.
    pub(crate) async fn send_queued(&mut self, doing: &'static str) -> Result<(), SessionError> {
        let result = self.flush(doing).await;
        self.out.clear();
        result
    }

    /// Clears the queue.
    pub(crate) fn clear_queue(&mut self) {
        self.out.clear();
    }

    /// If the buffer is empty, frees the memory that a long packet needed. So an idle connection does not
    /// hold this memory.
    pub(crate) fn give_back_room(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    /// Resets the sequence number: the next packet that is received begins a new command.
    pub(crate) fn begin_exchange(&mut self) {
        self.sequence = 0;
    }

    /// Receives one complete payload of a single packet. Does not receive a byte after the packet, because
    /// the next byte may belong to the TLS handshake.
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

    /// The socket, and the received bytes that are not consumed yet.
    pub(crate) fn into_parts(self) -> (Socket, BytesMut) {
        (self.socket, self.buffer)
    }

    /// The next sequence number.
    pub(crate) fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Sends a command with sequence number 0.
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

    /// Sends a payload with sequence number 0. The payload consists of `head` and of `bytes` further bytes,
    /// which the caller passes in pieces. Only a few pieces are in memory at a time.
    pub(crate) async fn send_pieces(
        &mut self,
        doing: &'static str,
        head: &[u8],
        bytes: usize,
        pieces: impl Iterator<Item: AsRef<[u8]>>,
    ) -> Result<(), SessionError> {
        let wrong = |source| SessionError::Protocol { doing, source };
        self.out.clear();
        let mut payload = PacketSplitter::new(0, head.len() + bytes);
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
        // Free the memory of a very long statement. Otherwise this memory would be in use until the
        // connection ends.
        if self.out.capacity() > GROW_BYTES_MAX {
            self.out = Vec::new();
        }
        result.map_err(|source| SessionError::Io { doing, source })
    }
}
