//! Packet framing: a 3-byte length and a 1-byte sequence number precede every payload. A payload of 16 MiB -
//! 1 bytes or more is split into several packets. All of them except the last have exactly this length.

use crate::WireError;

/// The length of a packet header, in bytes.
pub const PACKET_HEADER_BYTES: usize = 4;

/// The maximum payload of one packet, in bytes. After a packet with this length, the next packet continues
/// the payload.
pub const PACKET_PAYLOAD_BYTES_MAX: usize = 0xff_ffff;

/// The header of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    /// The length of this packet's payload, 0..=[`PACKET_PAYLOAD_BYTES_MAX`].
    pub payload_bytes: usize,
    /// The number of the packet in its exchange. It starts at 0 and wraps after 255.
    pub sequence: u8,
}

impl PacketHeader {
    /// Parses the header at the start of `bytes`. Returns `None` if there are fewer than
    /// [`PACKET_HEADER_BYTES`] bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [low, middle, high, sequence, ..] = *bytes else { return None };
        Some(Self { payload_bytes: u32::from_le_bytes([low, middle, high, 0]) as usize, sequence })
    }

    /// Returns the header as bytes.
    pub fn to_bytes(self) -> [u8; PACKET_HEADER_BYTES] {
        let [low, middle, high, _] = (self.payload_bytes as u32).to_le_bytes();
        [low, middle, high, self.sequence]
    }

    /// Returns whether the payload continues in the next packet.
    #[inline]
    pub fn is_continued(self) -> bool {
        self.payload_bytes == PACKET_PAYLOAD_BYTES_MAX
    }
}

/// Whether a buffer holds a complete payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The payload is incomplete. At least `needed` more bytes must be read.
    Incomplete {
        /// The minimum number of missing bytes, at least 1.
        needed: usize,
    },
    /// The payload is complete. It may consist of several packets.
    Complete {
        /// The length of the payload in bytes, without packet headers.
        payload_bytes: usize,
        /// The length of the packets in the buffer in bytes, headers included.
        frame_bytes: usize,
        /// The sequence number of the last packet.
        last_sequence: u8,
    },
}

/// Finds a complete payload at the start of `bytes`. The first packet must have the sequence number
/// `sequence`.
///
/// # Errors
/// [`WireError::Malformed`] if a packet has an unexpected sequence number; [`WireError::TooLarge`] as soon as
/// the headers announce more than `payload_bytes_max` bytes.
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
            let reason = format!("packet number {} was received, but {due} was expected", header.sequence);
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

/// Returns the payload of a complete frame, without its packet headers.
///
/// # Errors
/// [`WireError::Truncated`] if `frame_bytes` is not a complete frame.
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

/// Appends `payload` to `out` as one or more packets. The first packet has the number `sequence`. Returns the
/// number for the next packet.
pub fn put_packets(out: &mut Vec<u8>, sequence: u8, payload: &[u8]) -> u8 {
    let mut sequence = sequence;
    let mut rest = payload;
    loop {
        let (part, after) = rest.split_at(rest.len().min(PACKET_PAYLOAD_BYTES_MAX));
        let header = PacketHeader { payload_bytes: part.len(), sequence };
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(part);
        sequence = sequence.wrapping_add(1);
        // If the payload fills its last packet completely, an empty packet must follow.
        if !header.is_continued() {
            return sequence;
        }
        rest = after;
    }
}

/// Splits a payload of known length into packets. The payload arrives in pieces and is never in memory as a
/// whole.
#[derive(Debug)]
pub struct PacketSplitter {
    sequence: u8,
    /// The number of bytes of the payload that the caller has not added yet.
    missing: usize,
    /// The number of bytes that the current packet still needs.
    packet_missing: usize,
    /// Whether another packet must start. This is so at the beginning, and after a full packet.
    continued: bool,
}

impl PacketSplitter {
    /// Creates a splitter for a payload of `payload_bytes` bytes. The first packet has the number `sequence`.
    pub fn new(sequence: u8, payload_bytes: usize) -> Self {
        Self { sequence, missing: payload_bytes, packet_missing: 0, continued: true }
    }

    /// Appends the next bytes of the payload to `out`, with a header at the start of each packet.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if there are more bytes than `payload_bytes`.
    pub fn put(&mut self, out: &mut Vec<u8>, mut piece: &[u8]) -> Result<(), WireError> {
        if piece.len() > self.missing {
            let reason =
                format!("the payload has {} bytes more than its stated length", piece.len() - self.missing);
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

    /// Ends the payload. Returns the sequence number for the next packet.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if bytes are missing.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<u8, WireError> {
        if self.missing > 0 {
            let reason = format!("the payload has {} bytes less than its stated length", self.missing);
            return Err(WireError::malformed("payload in pieces", reason));
        }
        // If the payload fills its last packet completely, an empty packet must follow.
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
        let mut pieced = PacketSplitter::new(sequence, payload.len());
        for piece in payload.chunks(piece_bytes) {
            pieced.put(&mut out, piece).unwrap();
        }
        let next = pieced.finish(&mut out).unwrap();
        (out, next)
    }

    #[test]
    fn pieces_must_add_up_to_the_stated_length() {
        let mut out = Vec::new();
        let mut pieced = PacketSplitter::new(0, 3);
        assert!(matches!(pieced.put(&mut out, b"four"), Err(WireError::Malformed { .. })));
        pieced.put(&mut out, b"tw").unwrap();
        assert!(matches!(pieced.finish(&mut out), Err(WireError::Malformed { .. })));
    }

    #[test]
    fn an_empty_packet_follows_a_payload_that_fills_its_packet() {
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
    fn a_stated_length_beyond_the_limit_is_refused_before_its_bytes() {
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
        fn payloads_round_trip(payload: Vec<u8>, sequence: u8, following: Vec<u8>) {
            let mut out = Vec::new();
            let next = put_packets(&mut out, sequence, &payload);
            prop_assert_eq!(in_pieces(sequence, &payload, 7), (out.clone(), next));
            let whole = out.len();
            out.extend_from_slice(&following);
            let complete = Frame::Complete {
                payload_bytes: payload.len(), frame_bytes: whole, last_sequence: sequence,
            };
            prop_assert_eq!(frame(&out, sequence, payload.len()), Ok(complete));
            prop_assert_eq!(join(&out[..whole]).unwrap(), payload);
        }
    }
}
