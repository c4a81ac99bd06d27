//! Packet framing: every payload travels behind a 3-byte length and a 1-byte sequence number; a payload of 16 MiB - 1
//! bytes or more travels as several packets, of which only the last is shorter than that.

use crate::WireError;

/// Bytes before each payload.
pub const PACKET_HEADER_BYTES: usize = 4;

/// The longest payload of one packet. A packet this long says that the next one continues it.
pub const PACKET_PAYLOAD_BYTES_MAX: usize = 0xff_ffff;

/// What stands before each packet's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    /// The length of this packet's payload, 0..=[`PACKET_PAYLOAD_BYTES_MAX`].
    pub payload_bytes: usize,
    /// Counts the packets of an exchange, from 0, wrapping.
    pub sequence: u8,
}

impl PacketHeader {
    /// Reads the header at the front of `bytes`, or `None` while fewer than [`PACKET_HEADER_BYTES`] are there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [low, middle, high, sequence, ..] = *bytes else { return None };
        Some(Self { payload_bytes: u32::from_le_bytes([low, middle, high, 0]) as usize, sequence })
    }

    /// The header's bytes.
    pub fn to_bytes(self) -> [u8; PACKET_HEADER_BYTES] {
        let [low, middle, high, _] = (self.payload_bytes as u32).to_le_bytes();
        [low, middle, high, self.sequence]
    }

    /// Whether the payload goes on in the next packet.
    #[inline]
    pub fn is_continued(self) -> bool {
        self.payload_bytes == PACKET_PAYLOAD_BYTES_MAX
    }
}

/// What stands at the front of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The bytes so far are no whole payload; at least `needed` more must be read.
    Incomplete {
        /// A lower bound of what is missing, in bytes, at least 1.
        needed: usize,
    },
    /// A whole payload, possibly of several packets.
    Complete {
        /// How long the payload is without any packet headers.
        payload_bytes: usize,
        /// How many bytes the packets take in the buffer, their headers included.
        frame_bytes: usize,
        /// The sequence number of the last packet.
        last_sequence: u8,
    },
}

/// Looks for a whole payload at the front of `bytes` whose first packet must carry the number `sequence`.
///
/// # Errors
/// [`WireError::Malformed`] if a packet carries another number than the one that is due;
/// [`WireError::TooLarge`] as soon as the headers promise more than `payload_bytes_max`.
pub fn frame(bytes: &[u8], sequence: u8, payload_bytes_max: usize) -> Result<Frame, WireError> {
    let mut position = 0;
    let mut payload_bytes = 0;
    let mut due = sequence;
    loop {
        let rest = &bytes[position..];
        let Some(header) = PacketHeader::parse(rest) else {
            return Ok(Frame::Incomplete { needed: PACKET_HEADER_BYTES - rest.len() });
        };
        if header.sequence != due {
            let reason = format!("packet number {} came where {due} was due", header.sequence);
            return Err(WireError::malformed("packet header", reason));
        }
        payload_bytes += header.payload_bytes;
        if payload_bytes > payload_bytes_max {
            return Err(WireError::TooLarge {
                what: "packet",
                size: payload_bytes as u64,
                size_max: payload_bytes_max as u64,
            });
        }
        let packet_bytes = PACKET_HEADER_BYTES + header.payload_bytes;
        if rest.len() < packet_bytes {
            return Ok(Frame::Incomplete { needed: packet_bytes - rest.len() });
        }
        position += packet_bytes;
        if !header.is_continued() {
            return Ok(Frame::Complete { payload_bytes, frame_bytes: position, last_sequence: due });
        }
        due = due.wrapping_add(1);
    }
}

/// Copies the payload of a complete frame together, without its packet headers.
///
/// # Errors
/// [`WireError::Truncated`] if `frame_bytes` is not a whole frame.
pub fn join(mut frame_bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut payload = Vec::with_capacity(frame_bytes.len());
    while let Some(header) = PacketHeader::parse(frame_bytes) {
        let rest = &frame_bytes[PACKET_HEADER_BYTES..];
        let Some(part) = rest.get(..header.payload_bytes) else {
            let needed = header.payload_bytes - rest.len();
            return Err(WireError::Truncated { what: "packet", offset: payload.len(), needed });
        };
        payload.extend_from_slice(part);
        frame_bytes = &rest[header.payload_bytes..];
    }
    Ok(payload)
}

/// Appends `payload` to `out` as one or more packets, the first numbered `sequence`; returns the number that follows
/// the last.
pub fn put_packets(out: &mut Vec<u8>, sequence: u8, payload: &[u8]) -> u8 {
    let mut sequence = sequence;
    let mut rest = payload;
    loop {
        let (part, after) = rest.split_at(rest.len().min(PACKET_PAYLOAD_BYTES_MAX));
        let header = PacketHeader { payload_bytes: part.len(), sequence };
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(part);
        sequence = sequence.wrapping_add(1);
        // A payload that fills its last packet is closed by an empty one.
        if !header.is_continued() {
            return sequence;
        }
        rest = after;
    }
}

/// A payload of a known length whose bytes come in pieces: as packets, without ever being whole in memory.
#[derive(Debug)]
pub struct PiecedPayload {
    sequence: u8,
    /// Bytes of the payload that have not come yet.
    missing: usize,
    /// Of them, those that belong into the packet that was begun last.
    packet_missing: usize,
    /// Whether another packet must follow that one: before the first, and behind a full one.
    continued: bool,
}

impl PiecedPayload {
    /// A payload of `payload_bytes`, whose first packet is numbered `sequence`.
    pub fn new(sequence: u8, payload_bytes: usize) -> Self {
        Self { sequence, missing: payload_bytes, packet_missing: 0, continued: true }
    }

    /// Appends the next bytes to `out`, with packet headers where they are due.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if there are more than was said.
    pub fn put(&mut self, out: &mut Vec<u8>, mut piece: &[u8]) -> Result<(), WireError> {
        if piece.len() > self.missing {
            let reason = format!("{} bytes more than was said", piece.len() - self.missing);
            return Err(WireError::malformed("payload in pieces", reason));
        }
        while !piece.is_empty() {
            if self.packet_missing == 0 {
                self.begin_packet(out);
            }
            let (part, rest) = piece.split_at(piece.len().min(self.packet_missing));
            out.extend_from_slice(part);
            self.missing -= part.len();
            self.packet_missing -= part.len();
            piece = rest;
        }
        Ok(())
    }

    /// Ends the payload, and gives the number that follows its last packet's.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if bytes are missing.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<u8, WireError> {
        if self.missing > 0 {
            let reason = format!("{} bytes less than was said", self.missing);
            return Err(WireError::malformed("payload in pieces", reason));
        }
        // A payload that fills its last packet is closed by an empty one.
        if self.continued {
            self.begin_packet(out);
        }
        Ok(self.sequence)
    }

    fn begin_packet(&mut self, out: &mut Vec<u8>) {
        let payload_bytes = self.missing.min(PACKET_PAYLOAD_BYTES_MAX);
        let header = PacketHeader { payload_bytes, sequence: self.sequence };
        out.extend_from_slice(&header.to_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        (self.packet_missing, self.continued) = (payload_bytes, header.is_continued());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_pieces(sequence: u8, payload: &[u8], piece_bytes: usize) -> (Vec<u8>, u8) {
        let mut out = Vec::new();
        let mut pieced = PiecedPayload::new(sequence, payload.len());
        for piece in payload.chunks(piece_bytes) {
            pieced.put(&mut out, piece).unwrap();
        }
        let next = pieced.finish(&mut out).unwrap();
        (out, next)
    }

    #[test]
    fn pieces_come_to_what_was_said() {
        let mut out = Vec::new();
        let mut pieced = PiecedPayload::new(0, 3);
        assert!(matches!(pieced.put(&mut out, b"four"), Err(WireError::Malformed { .. })));
        pieced.put(&mut out, b"tw").unwrap();
        assert!(matches!(pieced.finish(&mut out), Err(WireError::Malformed { .. })));
    }

    #[test]
    fn a_payload_that_fills_its_packet_is_closed_by_an_empty_one() {
        for (length, packets) in [
            (0, 1),
            (PACKET_PAYLOAD_BYTES_MAX - 1, 1),
            (PACKET_PAYLOAD_BYTES_MAX, 2),
            (PACKET_PAYLOAD_BYTES_MAX + 1, 2),
            (2 * PACKET_PAYLOAD_BYTES_MAX, 3),
        ] {
            let payload: Vec<u8> = (0..length).map(|index| index as u8).collect();
            let mut out = Vec::new();
            assert_eq!(put_packets(&mut out, 254, &payload), 254u8.wrapping_add(packets));
            assert_eq!(in_pieces(254, &payload, 1 << 20), (out.clone(), 254u8.wrapping_add(packets)));
            assert_eq!(out.len(), length + usize::from(packets) * PACKET_HEADER_BYTES);
            let complete = Frame::Complete {
                payload_bytes: length,
                frame_bytes: out.len(),
                last_sequence: 254u8.wrapping_add(packets - 1),
            };
            assert_eq!(frame(&out, 254, usize::MAX), Ok(complete));
            assert_eq!(join(&out).unwrap(), payload);
            let short = frame(&out[..out.len() - 1], 254, usize::MAX);
            assert_eq!(short, Ok(Frame::Incomplete { needed: 1 }));
        }
    }

    #[test]
    fn a_promise_beyond_the_limit_is_refused_before_its_bytes_come() {
        assert!(matches!(frame(&[1, 1, 0, 0], 0, 256), Err(WireError::TooLarge { size: 257, .. })));
        assert_eq!(frame(&[0, 1, 0, 0], 0, 256), Ok(Frame::Incomplete { needed: 256 }));
    }

    #[test]
    fn a_jump_of_the_sequence_is_refused() {
        assert!(matches!(frame(&[0, 0, 0, 3], 2, 256), Err(WireError::Malformed { .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_frame_without_panic(bytes: Vec<u8>, sequence: u8, limit in 0usize..100) {
            if let Ok(Frame::Complete { payload_bytes, frame_bytes, .. }) = frame(&bytes, sequence, limit) {
                prop_assert!(payload_bytes <= limit);
                prop_assert_eq!(join(&bytes[..frame_bytes]).unwrap().len(), payload_bytes);
            }
            let _ = join(&bytes);
        }

        #[test]
        fn payloads_round_trip(payload: Vec<u8>, sequence: u8, behind: Vec<u8>) {
            let mut out = Vec::new();
            let next = put_packets(&mut out, sequence, &payload);
            prop_assert_eq!(in_pieces(sequence, &payload, 7), (out.clone(), next));
            let whole = out.len();
            out.extend_from_slice(&behind);
            let complete = Frame::Complete {
                payload_bytes: payload.len(), frame_bytes: whole, last_sequence: sequence,
            };
            prop_assert_eq!(frame(&out, sequence, payload.len()), Ok(complete));
            prop_assert_eq!(join(&out[..whole]).unwrap(), payload);
        }
    }
}
