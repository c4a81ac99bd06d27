//! Checks of the transaction tracker on streams of events.

use super::input_to_event_stream::for_each_event;
use crate::binlog_event::{EVENT_HEADER_BYTES, EventHeader, FormatDescription};
use crate::gtid::Gtid;
use crate::transaction_boundary::{TransactionStep, TransactionTracker};

pub(super) fn check(data: &[u8]) {
    let mut tracker: Option<TransactionTracker> = None;
    for_each_event(data, |flavour, format, event| {
        observe(tracker.get_or_insert_with(|| TransactionTracker::new(flavour)), event, format);
    });
}

/// Checks that the step returned by the tracker agrees with its state, and that a prefix of the event is
/// enough for the tracker.
fn observe(tracker: &mut TransactionTracker, event: &[u8], format: &FormatDescription) {
    let header = EventHeader::parse(event).expect("an event has a header");
    let body = &event[EVENT_HEADER_BYTES..];
    let mut on_prefix = tracker.clone();
    let before = tracker.in_transaction();
    let step = tracker.observe(&header, body, format);
    let after = tracker.in_transaction();
    match &step {
        Ok(TransactionStep::Outside) => assert_eq!(before, after),
        Ok(TransactionStep::Begin(start)) => {
            assert!(!before && after);
            if let Some(gtid) = &start.gtid {
                assert_eq!(Gtid::parse(gtid.flavour(), &gtid.to_string()).as_ref(), Ok(gtid));
            }
        }
        Ok(TransactionStep::Inside) => assert!(before && after),
        Ok(TransactionStep::End | TransactionStep::Abandoned) => assert!(before && !after),
        Err(_) => {
            tracker.reset();
            assert!(!tracker.in_transaction());
        }
    }
    let prefix = &body[..body.len().min(TransactionTracker::PREFIX_BYTES)];
    assert_eq!(on_prefix.observe(&header, prefix, format), step);
}
