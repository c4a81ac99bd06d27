//! Streams of events: what the transaction tracker makes of them.

use super::split_mode;
use crate::event::{
    BINLOG_MAGIC, ChecksumAlgorithm, EVENT_HEADER_BYTES, EventBuilder, EventHeader, EventType,
    FormatDescription,
};
use crate::transaction::{Step, TransactionTracker};
use crate::{Flavour, ServerId};

pub(super) fn check(data: &[u8]) {
    match split_mode(data, 8) {
        Some((mode @ 0..=3, events)) => described(mode, events),
        Some((mode, file)) => {
            binlog_file(if mode & 1 == 0 { Flavour::MySql } else { Flavour::MariaDb }, file)
        }
        None => {}
    }
}

/// Type, flags and length of the body of each event, and the body.
fn described(choice: u8, mut rest: &[u8]) {
    let format = super::events::format(choice);
    let flavour = format.flavour();
    let mut builder = EventBuilder::new(ServerId(1), format.checksum.unwrap_or(ChecksumAlgorithm::Off));
    let mut tracker = TransactionTracker::new(flavour);
    while let Some((&[event_type, flags_low, flags_high, length_low, length_high], behind)) =
        rest.split_first_chunk()
    {
        let length = usize::from(u16::from_le_bytes([length_low, length_high])).min(behind.len());
        let (body, next) = behind.split_at(length);
        let flags = u16::from_le_bytes([flags_low, flags_high]);
        let event = builder.event(EventType(event_type), flags, body).expect("a short event");
        observe(&mut tracker, &event, &format);
        rest = next;
    }
}

/// A whole binlog file, which brings its own format description.
fn binlog_file(flavour: Flavour, file: &[u8]) {
    let Some(mut rest) = file.strip_prefix(&BINLOG_MAGIC) else { return };
    let mut format = FormatDescription::assumed(flavour, ChecksumAlgorithm::Off);
    let mut tracker = TransactionTracker::new(flavour);
    while let Ok(header) = EventHeader::parse(rest) {
        let Some((event, next)) = rest.split_at_checked(header.event_length as usize) else { return };
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            match FormatDescription::parse(&event[EVENT_HEADER_BYTES..]) {
                Ok(own) => format = own,
                Err(_) => return,
            }
        }
        observe(&mut tracker, event, &format);
        rest = next;
    }
}

/// The step and the tracker's state always agree, and a prefix is enough to know the step.
fn observe(tracker: &mut TransactionTracker, event: &[u8], format: &FormatDescription) {
    let header = EventHeader::parse(event).expect("an event has a header");
    let body = &event[EVENT_HEADER_BYTES..];
    let mut on_prefix = tracker.clone();
    let before = tracker.in_transaction();
    let step = tracker.observe(&header, body, format);
    let after = tracker.in_transaction();
    match &step {
        Ok(Step::Outside) => assert_eq!(before, after),
        Ok(Step::Begin(start)) => {
            assert!(!before && after);
            if let Some(gtid) = &start.gtid {
                assert!(crate::gtid::Gtid::parse(gtid.flavour(), &gtid.to_string()).as_ref() == Ok(gtid));
            }
        }
        Ok(Step::Inside) => assert!(before && after),
        Ok(Step::End) | Ok(Step::Abandoned) => assert!(before && !after),
        Err(_) => tracker.reset(),
    }
    let prefix = &body[..body.len().min(TransactionTracker::PREFIX_BYTES)];
    assert_eq!(on_prefix.observe(&header, prefix, format), step);
}
