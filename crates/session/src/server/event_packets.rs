//! Splits a stream of binlog events into packets. It does no I/O: it writes to a buffer.

use tailwater_wire::protocol::ok_err_eof_packets::OK;
use tailwater_wire::protocol::packet::{PACKET_PAYLOAD_BYTES_MAX, PacketHeader};
use tailwater_wire::protocol::semi_sync::SemiSyncHeader;

/// The offset of the sequence number in the header of a packet.
const SEQUENCE_OFFSET: usize = 3;

/// Whole events as packets, for many streams without semi-sync. The packets are built once; each stream gets
/// a copy with its own sequence numbers.
///
/// A copy is cheaper than a vectored write of the shared bytes. The packets of a binlog are short, so the
/// system call would need two buffers for every hundred bytes.
#[derive(Debug, Default)]
pub struct SharedPackets {
    bytes: Vec<u8>,
    /// The offset of each packet's header in `bytes`.
    starts: Vec<u32>,
}

impl SharedPackets {
    /// Adds a whole event. Returns false, and adds nothing, if the event needs more than one packet or if all
    /// packets together would have more than 1 GiB.
    pub fn push_event(&mut self, event: &[u8]) -> bool {
        const BYTES_MAX: usize = 1 << 30;
        let payload_bytes = 1 + event.len();
        if payload_bytes >= PACKET_PAYLOAD_BYTES_MAX || self.bytes.len() + payload_bytes > BYTES_MAX {
            return false;
        }
        self.starts.push(self.bytes.len() as u32);
        self.bytes.extend_from_slice(&PacketHeader { payload_bytes, sequence: 0 }.to_bytes());
        self.bytes.push(OK);
        self.bytes.extend_from_slice(event);
        true
    }

    /// Removes all packets from number `count` on.
    pub fn truncate(&mut self, count: usize) {
        if let Some(start) = self.starts.get(count) {
            self.bytes.truncate(*start as usize);
            self.starts.truncate(count);
        }
    }

    /// Returns the number of packets, which is the number of events.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// Returns the memory that the packets take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.starts.capacity() * size_of::<u32>()
    }

    /// Frees memory that the packets do not need.
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.starts.shrink_to_fit();
    }
}

/// The packet and the event that are being written.
#[derive(Debug)]
pub(super) struct EventFraming {
    semi_sync: bool,
    /// The sequence number of the next packet.
    sequence: u8,
    /// The number of bytes of the current event that will be in later packets.
    beyond_packet: u64,
    /// The number of bytes that the current packet still needs.
    packet_left: usize,
    /// Whether another packet must follow, because the current packet has the maximum length. The next packet
    /// may be empty.
    continued: bool,
    /// Whether the current event requests an acknowledgement.
    wants_ack: bool,
    /// Whether the length of an event differed from the announced length. If so, nothing more may be sent.
    broken: bool,
}

impl EventFraming {
    /// Starts with sequence number `sequence`.
    pub(super) fn new(semi_sync: bool, sequence: u8) -> Self {
        Self {
            semi_sync,
            sequence,
            beyond_packet: 0,
            packet_left: 0,
            continued: false,
            wants_ack: false,
            broken: false,
        }
    }

    /// Whether all events are complete and had their announced lengths.
    pub(super) fn is_between_events(&self) -> bool {
        !self.broken && self.packet_left == 0 && self.beyond_packet == 0 && !self.continued
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Starts an event of `length` bytes.
    pub(super) fn begin(&mut self, out: &mut Vec<u8>, length: u64, wants_ack: bool) {
        if !self.is_between_events() {
            self.broken = true;
            return;
        }
        self.wants_ack = wants_ack;
        let header = SemiSyncHeader { ack_requested: wants_ack }.to_bytes();
        let prefix: &[u8] = if self.semi_sync { &[OK, header[0], header[1]] } else { &[OK] };
        self.beyond_packet = prefix.len() as u64 + length;
        self.begin_packet(out);
        out.extend_from_slice(prefix);
        self.packet_left -= prefix.len();
        self.end_packet(out);
    }

    /// Adds bytes of the current event.
    pub(super) fn push(&mut self, out: &mut Vec<u8>, mut chunk: &[u8]) {
        while !chunk.is_empty() {
            if self.broken || self.packet_left == 0 {
                self.broken = true;
                return;
            }
            let (part, rest) = chunk.split_at(chunk.len().min(self.packet_left));
            out.extend_from_slice(part);
            self.packet_left -= part.len();
            chunk = rest;
            self.end_packet(out);
        }
    }

    /// Adds a copy of the packets from number `first` on, with the sequence numbers of this stream.
    pub(super) fn push_shared(&mut self, out: &mut Vec<u8>, packets: &SharedPackets, first: usize) {
        // The packets have no semi-sync headers.
        if self.semi_sync || !self.is_between_events() {
            self.broken = true;
            return;
        }
        let Some(starts @ [begin, ..]) = packets.starts.get(first..) else { return };
        let copy = out.len();
        out.extend_from_slice(&packets.bytes[*begin as usize..]);
        for start in starts {
            out[copy + (start - begin) as usize + SEQUENCE_OFFSET] = self.sequence;
            self.sequence = self.sequence.wrapping_add(1);
        }
    }

    /// Adds a packet that is not an event, as the last packet of the stream.
    pub(super) fn put_last(&mut self, out: &mut Vec<u8>, payload: &[u8]) {
        self.beyond_packet = payload.len() as u64;
        self.begin_packet(out);
        out.extend_from_slice(payload);
        self.packet_left = 0;
    }

    fn begin_packet(&mut self, out: &mut Vec<u8>) {
        let payload_bytes = self.beyond_packet.min(PACKET_PAYLOAD_BYTES_MAX as u64) as usize;
        let header = PacketHeader { payload_bytes, sequence: self.sequence };
        out.extend_from_slice(&header.to_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        self.beyond_packet -= payload_bytes as u64;
        self.packet_left = payload_bytes;
        self.continued = header.is_continued();
    }

    /// Starts the event's next packet if the current packet has the maximum length. Otherwise ends the event.
    fn end_packet(&mut self, out: &mut Vec<u8>) {
        if self.packet_left > 0 {
            return;
        }
        if self.continued {
            // If an event fills its last packet to the maximum length, an empty packet follows.
            self.begin_packet(out);
            if self.packet_left > 0 {
                return;
            }
        }
        // After an event that requests an acknowledgement, the sequence numbers restart, as in MySQL and
        // MariaDB. The acknowledgement is packet number 0 and may come at any time.
        if self.semi_sync && self.wants_ack {
            self.sequence = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use tailwater_wire::protocol::packet::{PACKET_HEADER_BYTES, put_packets};

    use super::*;

    const MAX: usize = PACKET_PAYLOAD_BYTES_MAX;

    /// Returns bytes with a pattern that does not repeat at powers of two, so that a test detects shifted
    /// bytes.
    fn event(length: usize) -> Vec<u8> {
        let pattern: Vec<u8> = (0..251).collect();
        let mut event = pattern.repeat(length / pattern.len() + 1);
        event.truncate(length);
        event
    }

    /// Returns the packets of one event that is passed in chunks of `chunk` bytes.
    fn framed(framing: &mut EventFraming, event: &[u8], chunk: usize, wants_ack: bool) -> Vec<u8> {
        let mut out = Vec::new();
        framing.begin(&mut out, event.len() as u64, wants_ack);
        for chunk in event.chunks(chunk) {
            assert!(!framing.is_between_events());
            framing.push(&mut out, chunk);
        }
        assert!(framing.is_between_events());
        out
    }

    #[test]
    fn packets_equal_those_of_the_undivided_payload() {
        for semi_sync in [false, true] {
            let prefix: &[u8] = if semi_sync { &[0, 0xef, 0] } else { &[0] };
            let first = MAX - prefix.len();
            for length in
                [0, 1, 19, 5000, first - 1, first, first + 1, first + MAX - 1, first + MAX, 40 << 20]
            {
                let event = event(length);
                let mut expected = Vec::new();
                let next = put_packets(&mut expected, 250, &[prefix, &event].concat());
                for chunk in [999_983, usize::MAX] {
                    let mut framing = EventFraming::new(semi_sync, 250);
                    assert!(
                        framed(&mut framing, &event, chunk, false) == expected,
                        "an event of {length} bytes in chunks of {chunk} bytes was split into the wrong packets"
                    );
                    assert_eq!(framing.sequence, next);
                }
            }
        }
    }

    #[test]
    fn an_event_that_requests_an_acknowledgement_restarts_the_sequence_numbers() {
        let mut framing = EventFraming::new(true, 1);
        assert_eq!(framed(&mut framing, b"a", 1, false)[3], 1);
        let out = framed(&mut framing, b"b", 1, true);
        assert_eq!(out, b"\x04\0\0\x02\0\xef\x01b");
        assert_eq!(framed(&mut framing, b"c", 1, false)[3], 1);
        assert_eq!(framed(&mut framing, b"d", 1, false)[3], 2);
        // The packets of one event have consecutive sequence numbers.
        let out = framed(&mut framing, &event(MAX), 1 << 20, true);
        assert_eq!((out[3], out[PACKET_HEADER_BYTES + MAX + 3]), (3, 4));
        assert_eq!(framed(&mut framing, b"e", 1, false)[3], 1);
        // Without semi-sync no event requests an acknowledgement, so the sequence numbers do not restart.
        let mut framing = EventFraming::new(false, 1);
        framed(&mut framing, b"a", 1, true);
        assert_eq!(framed(&mut framing, b"b", 1, true), b"\x02\0\0\x02\0b");
    }

    #[test]
    fn shared_packets_equal_the_packets_of_each_stream() {
        let events: Vec<Vec<u8>> = (0..600).map(|number| event(19 + number % 97)).collect();
        let mut shared = SharedPackets::default();
        assert!(events.iter().all(|event| shared.push_event(event)));
        assert!(!shared.push_event(&event(MAX)), "an event of two packets was accepted");
        assert_eq!(shared.count(), events.len());
        for (sequence, first) in [(1, 0), (200, 0), (255, 300), (7, 599), (9, 600)] {
            let (mut framing, mut reference) =
                (EventFraming::new(false, sequence), EventFraming::new(false, sequence));
            let mut out = framed(&mut framing, b"before", 6, false);
            let mut expected = framed(&mut reference, b"before", 6, false);
            framing.push_shared(&mut out, &shared, first);
            out.extend(framed(&mut framing, b"after", 5, false));
            for event in events[first..].iter().map(Vec::as_slice).chain([&b"after"[..]]) {
                expected.extend(framed(&mut reference, event, event.len(), false));
            }
            assert!(out == expected, "the packets from number {first} on differ");
            assert!(!framing.is_broken());
        }
        // Shared packets have no semi-sync headers, and fit only between two events.
        let mut framing = EventFraming::new(true, 1);
        framing.push_shared(&mut Vec::new(), &shared, 0);
        assert!(framing.is_broken());
        let mut framing = EventFraming::new(false, 1);
        framing.begin(&mut Vec::new(), 2, false);
        framing.push_shared(&mut Vec::new(), &shared, 0);
        assert!(framing.is_broken());
    }

    #[test]
    fn an_event_with_a_wrong_length_is_detected() {
        let mut out = Vec::new();
        let mut framing = EventFraming::new(false, 1);
        framing.begin(&mut out, 2, false);
        framing.push(&mut out, b"abc");
        assert!(framing.is_broken());
        let mut framing = EventFraming::new(false, 1);
        framing.begin(&mut out, 2, false);
        framing.push(&mut out, b"a");
        framing.begin(&mut out, 2, false);
        assert!(framing.is_broken() && !framing.is_between_events());
        let mut framing = EventFraming::new(false, 1);
        framing.push(&mut out, b"a");
        assert!(framing.is_broken());
    }
}
