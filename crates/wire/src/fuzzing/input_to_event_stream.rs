//! Turns the input of a fuzz target into a stream of events.

use super::split_mode;
use crate::binlog_event::{
    BINLOG_MAGIC, ChecksumAlgorithm, EVENT_HEADER_BYTES, EventBuilder, EventHeader, EventType,
    FormatDescription,
};
use crate::{Flavour, ServerId};

/// Calls `visit` with the flavour, the current format, and each complete event.
///
/// The first byte selects the form of the rest. One form is a raw binlog file. The other form is a
/// description of events, with which the fuzzer need not guess lengths and checksums.
pub(super) fn for_each_event(data: &[u8], mut visit: impl FnMut(Flavour, &FormatDescription, &[u8])) {
    match split_mode(data, 8) {
        Some((mode @ 0..=3, events)) => described(mode, events, visit),
        Some((mode, file)) => {
            let flavour = if mode & 1 == 0 { Flavour::MySql } else { Flavour::MariaDb };
            binlog_file(flavour, file, &mut visit);
        }
        None => {}
    }
}

/// Reads descriptions of events. Each consists of the type, the flags, the length of the body, and the body.
fn described(choice: u8, mut rest: &[u8], mut visit: impl FnMut(Flavour, &FormatDescription, &[u8])) {
    let format = super::binlog_events::format(choice);
    let flavour = format.flavour();
    let mut builder = EventBuilder::new(ServerId(1), ChecksumAlgorithm::Off);
    let head = builder.format_description(&format, 0).expect("the event is short enough to be built");
    visit(flavour, &format, &head);
    while let Some((&[event_type, flags_low, flags_high, length_low, length_high], remaining)) =
        rest.split_first_chunk()
    {
        let length = usize::from(u16::from_le_bytes([length_low, length_high])).min(remaining.len());
        let (body, next) = remaining.split_at(length);
        let flags = u16::from_le_bytes([flags_low, flags_high]);
        let event =
            builder.event(EventType(event_type), flags, body).expect("the event is short enough to be built");
        visit(flavour, &format, &event);
        rest = next;
    }
}

/// Reads a binlog file, which has its own format description event.
fn binlog_file(flavour: Flavour, file: &[u8], visit: &mut impl FnMut(Flavour, &FormatDescription, &[u8])) {
    let Some(mut rest) = file.strip_prefix(&BINLOG_MAGIC) else { return };
    let mut format = FormatDescription::assumed(flavour, ChecksumAlgorithm::Off);
    while let Ok(header) = EventHeader::parse(rest) {
        let Some((event, next)) = rest.split_at_checked(header.event_length as usize) else { return };
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            match FormatDescription::parse(&event[EVENT_HEADER_BYTES..]) {
                Ok(own) => format = own,
                Err(_) => return,
            }
        }
        visit(flavour, &format, event);
        rest = next;
    }
}
