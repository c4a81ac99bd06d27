//! One look at a log, as the rules for the beginning of a stream want it.

use std::collections::HashMap;

use tailwater_log::{LogHandle, LogPosition};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use super::catalog::{Catalog, FIRST_EVENT, SegmentView};
use super::refusal::Refusal;
use super::start::History;

/// A log at one moment.
#[derive(Debug)]
pub(crate) struct LogView {
    log: LogHandle,
    flavour: Flavour,
    catalog: Catalog,
    gtids: GtidSet,
    source_uuid: Option<[u8; 16]>,
}

/// Lengths of the format description events at the heads of segments that begin in mid-file. They never change.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    bytes: HashMap<u64, u64>,
}

impl Heads {
    fn bytes_of(&mut self, log: &LogHandle, segment: u64) -> u64 {
        if let Some(bytes) = self.bytes.get(&segment) {
            return *bytes;
        }
        let mut read = || {
            let mut reader = log.reader(LogPosition { segment, offset: FIRST_EVENT }).ok()?;
            reader.try_next().ok()??;
            Some(u64::from(reader.next_event().ok()??.event_length))
        };
        // Not there yet, or gone just now: nothing in the segment can be asked for then.
        let Some(bytes) = read() else { return 0 };
        self.bytes.insert(segment, bytes);
        bytes
    }
}

impl LogView {
    /// What a log has now; `None` while it has nothing.
    pub(crate) fn of(log: &LogHandle, heads: &mut Heads) -> Option<Self> {
        let segments = log.segments();
        let newest = segments.last()?;
        let source = newest.source.clone();
        let views: Vec<SegmentView> = segments
            .iter()
            .map(|segment| {
                let head_bytes = match segment.source_offset {
                    FIRST_EVENT => 0,
                    _ => heads.bytes_of(log, segment.number),
                };
                SegmentView::new(segment, segment.epoch, head_bytes)
            })
            .collect();
        heads.bytes.retain(|number, _| segments.first().is_some_and(|first| *number >= first.number));
        Some(Self {
            log: log.clone(),
            flavour: source.flavour,
            catalog: Catalog::new(views),
            gtids: log.gtid_set().unwrap_or_else(|| GtidSet::empty(source.flavour)),
            source_uuid: source.server_uuid.as_deref().and_then(parse_uuid),
        })
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let mut uuid = [0; 16];
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    if pairs.len() != uuid.len() {
        return None;
    }
    for (byte, pair) in uuid.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(uuid)
}

impl History for LogView {
    fn flavour(&self) -> Flavour {
        self.flavour
    }

    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn gtids(&self) -> GtidSet {
        self.gtids.clone()
    }

    fn gtids_before(&self, segment: u64) -> Result<Option<GtidSet>, Refusal> {
        self.log.gtids_before(segment).map_err(|error| Refusal::dump(error.to_string()))
    }

    fn source_uuid(&self) -> Option<[u8; 16]> {
        self.source_uuid
    }
}
