//! `TRANSACTION_PAYLOAD_EVENT`: all events of a transaction, compressed into one event (MySQL 8.0.20 and
//! later).
//!
//! [`TransactionPayload`] is the head of the event. [`PayloadDecoder`] returns the events inside one by one
//! and holds only one of them in memory.

use zstd::stream::raw::{Decoder as Zstd, Operation};
use zstd::zstd_safe::DParameter;

use super::event_header::{EVENT_HEADER_BYTES, EventHeader};
use crate::WireError;
use crate::byte_cursor::{ByteCursor, put_lenenc_int};

const WHAT: &str = "transaction payload event";

/// How a payload is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadCompression {
    /// Compressed with zstd.
    Zstd,
    /// Not compressed.
    None,
}

/// A transaction payload event without its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionPayload<'a> {
    /// How the payload is compressed.
    pub compression: PayloadCompression,
    /// Total length of the decompressed events in bytes, if the event states this length.
    pub uncompressed_bytes: Option<u64>,
    /// Length of the payload in the event, in bytes.
    pub payload_bytes: u64,
    /// The payload, or the part of it that the parsed bytes hold.
    pub payload: &'a [u8],
}

impl<'a> TransactionPayload<'a> {
    const FIELD_END: u64 = 0;
    const FIELD_PAYLOAD_BYTES: u64 = 1;
    const FIELD_COMPRESSION: u64 = 2;
    const FIELD_UNCOMPRESSED_BYTES: u64 = 3;

    /// Parses the body without its checksum. If the body ends within the payload, `payload` is incomplete.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the body ends within the head; [`WireError::Malformed`] if the head lacks
    /// a field; [`WireError::Unsupported`] for another compression.
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new(WHAT, body);
        let (mut payload_bytes, mut compression, mut uncompressed_bytes) = (None, None, None);
        loop {
            let field = cursor.lenenc_int()?;
            if field == Self::FIELD_END {
                break;
            }
            // Each field states its length, so that readers can skip fields that they do not know.
            let mut value = ByteCursor::new(WHAT, cursor.lenenc_bytes()?);
            match field {
                Self::FIELD_PAYLOAD_BYTES => payload_bytes = Some(value.lenenc_int()?),
                Self::FIELD_COMPRESSION => {
                    compression = Some(match value.lenenc_int()? {
                        0 => PayloadCompression::Zstd,
                        255 => PayloadCompression::None,
                        other => {
                            return Err(WireError::unsupported(
                                WHAT,
                                format!("the compression type {other} is unknown"),
                            ));
                        }
                    });
                }
                Self::FIELD_UNCOMPRESSED_BYTES => uncompressed_bytes = Some(value.lenenc_int()?),
                _ => {}
            }
        }
        let (Some(payload_bytes), Some(compression)) = (payload_bytes, compression) else {
            return Err(WireError::malformed(WHAT, "the payload size or the compression type is missing"));
        };
        if compression == PayloadCompression::None {
            uncompressed_bytes = Some(payload_bytes);
        }
        let payload = cursor.rest();
        let at_hand = usize::try_from(payload_bytes).unwrap_or(usize::MAX).min(payload.len());
        Ok(Self { compression, uncompressed_bytes, payload_bytes, payload: &payload[..at_hand] })
    }

    /// Returns the bytes of the head, which precedes the payload.
    pub fn to_head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        let mut put = |field, value| {
            let mut bytes = Vec::new();
            put_lenenc_int(&mut bytes, value);
            put_lenenc_int(&mut head, field);
            put_lenenc_int(&mut head, bytes.len() as u64);
            head.extend_from_slice(&bytes);
        };
        match self.compression {
            PayloadCompression::Zstd => put(Self::FIELD_COMPRESSION, 0),
            PayloadCompression::None => put(Self::FIELD_COMPRESSION, 255),
        }
        if let (PayloadCompression::Zstd, Some(bytes)) = (self.compression, self.uncompressed_bytes) {
            put(Self::FIELD_UNCOMPRESSED_BYTES, bytes);
        }
        put(Self::FIELD_PAYLOAD_BYTES, self.payload_bytes);
        put_lenenc_int(&mut head, Self::FIELD_END);
        head
    }

    /// Returns the events inside the payload. The payload must be complete.
    ///
    /// # Errors
    /// As [`PayloadDecoder::new`].
    pub fn events(&self, limits: PayloadLimits) -> Result<PayloadEvents<'a>, WireError> {
        Ok(PayloadEvents { decoder: PayloadDecoder::new(self, limits)?, rest: self.payload })
    }
}

/// Limits on the decompressed payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadLimits {
    /// The maximum length of one event inside the payload, in bytes. It also bounds the memory.
    pub event_bytes_max: u64,
    /// The maximum total length of all events inside the payload, in bytes. The total length that the head
    /// states is another limit.
    pub total_bytes_max: u64,
}

impl Default for PayloadLimits {
    /// Returns limits of 1 GiB for one event, which is the maximum of `max_allowed_packet`, and 1 TiB for all
    /// events together.
    fn default() -> Self {
        Self { event_bytes_max: 1 << 30, total_bytes_max: 1 << 40 }
    }
}

/// Returns the events of a complete payload.
#[derive(Debug)]
pub struct PayloadEvents<'a> {
    decoder: PayloadDecoder,
    rest: &'a [u8],
}

impl PayloadEvents<'_> {
    /// Returns the next event, with its header, or `None` after the last event. Events inside a payload have
    /// no checksum.
    ///
    /// # Errors
    /// As [`PayloadDecoder::next_event`] and [`PayloadDecoder::finish`].
    pub fn next_event(&mut self) -> Result<Option<&[u8]>, WireError> {
        if !self.decoder.advance(&mut self.rest)? {
            self.decoder.finish()?;
            return Ok(None);
        }
        Ok(Some(self.decoder.event()))
    }
}

/// Returns the events of a payload that arrives in chunks of any size.
pub struct PayloadDecoder {
    /// `None` if the payload is not compressed.
    zstd: Option<Zstd<'static>>,
    /// Whether zstd is between two frames. The payload may end only between two frames.
    at_frame_end: bool,
    /// The current event. Its memory grows with the bytes received, not with the stated length.
    event: Vec<u8>,
    /// The full length of `event`. `None` until the event's header is complete.
    event_length: Option<usize>,
    limits: PayloadLimits,
    payload_left: u64,
    uncompressed_bytes: Option<u64>,
    made: u64,
}

impl std::fmt::Debug for PayloadDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PayloadDecoder")
            .field("made", &self.made)
            .field("payload_left", &self.payload_left)
            .finish_non_exhaustive()
    }
}

impl PayloadDecoder {
    /// The maximum window size of a zstd stream, as an exponent of two. This is the window at the highest
    /// level of MySQL's `binlog_transaction_compression_level_zstd`. It bounds the decoder's memory.
    const WINDOW_LOG_MAX: u32 = 27;

    /// The number of bytes by which the buffer of an event grows. So the memory depends on the received
    /// bytes, not on the stated length.
    const STEP_BYTES: usize = 256 * 1024;

    /// Creates a decoder for the payload that `head` describes.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] if the stated length exceeds `limits`.
    pub fn new(head: &TransactionPayload<'_>, limits: PayloadLimits) -> Result<Self, WireError> {
        if let Some(size) = head.uncompressed_bytes
            && size > limits.total_bytes_max
        {
            return Err(WireError::TooLarge {
                what: "transaction payload",
                size,
                size_max: limits.total_bytes_max,
            });
        }
        let zstd = match head.compression {
            PayloadCompression::None => None,
            PayloadCompression::Zstd => {
                let mut zstd = Zstd::new().map_err(|error| not_zstd(&error))?;
                zstd.set_parameter(DParameter::WindowLogMax(Self::WINDOW_LOG_MAX))
                    .map_err(|error| not_zstd(&error))?;
                Some(zstd)
            }
        };
        Ok(Self {
            zstd,
            at_frame_end: true,
            event: Vec::new(),
            event_length: None,
            limits,
            payload_left: head.payload_bytes,
            uncompressed_bytes: head.uncompressed_bytes,
            made: 0,
        })
    }

    /// Returns the next event, with its header. Reads from the start of `chunk` and advances `chunk`. Returns
    /// `None` if the event continues in the next chunk. Call this method with the same chunk until it returns
    /// `None`.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the bytes are not a payload, or the payload is longer than stated;
    /// [`WireError::TooLarge`] beyond the limits.
    pub fn next_event<'d>(&'d mut self, chunk: &mut &[u8]) -> Result<Option<&'d [u8]>, WireError> {
        Ok(if self.advance(chunk)? { Some(&self.event) } else { None })
    }

    /// Returns the event that [`PayloadDecoder::advance`] completed.
    fn event(&self) -> &[u8] {
        &self.event
    }

    /// Reads from `chunk`, and returns whether an event is complete.
    fn advance(&mut self, chunk: &mut &[u8]) -> Result<bool, WireError> {
        if self.event_length == Some(self.event.len()) {
            self.event.clear();
            self.event_length = None;
        }
        loop {
            let target = self.event_length.unwrap_or(EVENT_HEADER_BYTES);
            if self.event.len() < target {
                let made = self.make((target - self.event.len()).min(Self::STEP_BYTES), chunk)?;
                // zstd made no output and has no input left. It holds back output only if the buffer was
                // full, so there is no more output.
                if made == 0 && chunk.is_empty() {
                    return Ok(false);
                }
                continue;
            }
            if self.event_length.is_some() {
                return Ok(true);
            }
            let length = EventHeader::parse(&self.event)?.event_length;
            if u64::from(length) > self.limits.event_bytes_max {
                return Err(WireError::TooLarge {
                    what: "event in a transaction payload",
                    size: u64::from(length),
                    size_max: self.limits.event_bytes_max,
                });
            }
            self.event_length = Some(length as usize);
        }
    }

    /// Appends up to `room` bytes to the event, and returns the number of bytes appended.
    fn make(&mut self, room: usize, chunk: &mut &[u8]) -> Result<usize, WireError> {
        let usable = usize::try_from(self.payload_left).unwrap_or(usize::MAX).min(chunk.len());
        if usable < chunk.len() && usable == 0 {
            return Err(WireError::malformed(WHAT, "the payload is longer than stated"));
        }
        let input = &chunk[..usable];
        let before = self.event.len();
        self.event.resize(before + room, 0);
        let (read, made) = match &mut self.zstd {
            None => {
                let count = room.min(input.len());
                self.event[before..before + count].copy_from_slice(&input[..count]);
                (count, count)
            }
            Some(zstd) => {
                let status = zstd
                    .run_on_buffers(input, &mut self.event[before..])
                    .map_err(|error| not_zstd(&error))?;
                if status.bytes_read > 0 || status.bytes_written > 0 {
                    self.at_frame_end = status.remaining == 0;
                }
                (status.bytes_read, status.bytes_written)
            }
        };
        self.event.truncate(before + made);
        *chunk = &chunk[read..];
        self.payload_left -= read as u64;
        self.made += made as u64;
        let bytes_max = self.uncompressed_bytes.unwrap_or(u64::MAX).min(self.limits.total_bytes_max);
        if self.made > bytes_max {
            return Err(WireError::TooLarge {
                what: "transaction payload",
                size: self.made,
                size_max: bytes_max,
            });
        }
        if made == 0 && read == 0 && !input.is_empty() {
            return Err(WireError::malformed(WHAT, "zstd makes no progress"));
        }
        Ok(made)
    }

    /// Checks after the last chunk that the payload is complete.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the payload is incomplete or shorter than stated.
    pub fn finish(&self) -> Result<(), WireError> {
        let at_event_end = self.event.len() == self.event_length.unwrap_or(0);
        if !at_event_end || !self.at_frame_end || self.payload_left != 0 {
            let reason =
                format!("the payload ends {} bytes too early, after {} bytes", self.payload_left, self.made);
            return Err(WireError::malformed(WHAT, reason));
        }
        if let Some(stated) = self.uncompressed_bytes
            && stated != self.made
        {
            return Err(WireError::malformed(
                WHAT,
                format!(
                    "the decompressed payload has {} bytes, but its stated length is {stated}",
                    self.made
                ),
            ));
        }
        Ok(())
    }
}

fn not_zstd(error: &std::io::Error) -> WireError {
    WireError::malformed(WHAT, format!("the payload is not a zstd stream: {error}"))
}
