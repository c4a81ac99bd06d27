//! What the log holds of what a target has: under which GTIDs, and whether all of it still stands where it stood.

use std::collections::BTreeSet;

use tailwater_log::{LogHandle, LogPosition};
use tailwater_wire::gtid::{GtidSet, MariadbBinlogState, MariadbGtid};

use super::target_gtids::FIRST_EVENT_OFFSET;
use crate::error::ApplyError;
use crate::progress::AppliedSet;
use crate::transaction::LogSpan;

/// What a walk over all that a target has found in the log.
pub(super) struct AppliedScan {
    /// Every transaction of the log before the low watermark, and what the target had of the log's domains and servers before that.
    pub(super) before: GtidSet,
    /// Every transaction of the log that is applied, and the origin.
    pub(super) applied: GtidSet,
    /// The first place up to which the target has applied, and where the log has no transaction's end.
    pub(super) misplaced: Option<LogPosition>,
}

impl AppliedScan {
    /// Walks from the beginning of the low watermark's segment to the end of what is applied. `origin` is what the target had before the
    /// log.
    ///
    /// What a power cut takes from a log is the end of its newest segment. Either the same source sends the same bytes again to the same
    /// places, or the log goes on in another segment, and this one ends before what the target has of it. So places are enough to
    /// find out, also where transactions have no GTIDs.
    ///
    /// # Errors
    /// [`ApplyError::Log`].
    pub(super) fn of(log: &LogHandle, applied: &AppliedSet, origin: &GtidSet) -> Result<Self, ApplyError> {
        let low = applied.low();
        let segment = LogPosition { offset: FIRST_EVENT_OFFSET, ..low };
        let mut before = log.gtids_before(low.segment)?.unwrap_or_else(|| GtidSet::empty(origin.flavour()));
        let mut all = before.clone();
        let edges = applied.gaps().flat_map(|gap| [gap.start, gap.end]).chain([low, applied.high()]);
        // A segment's beginning is a place that no crash takes away.
        let mut missing: BTreeSet<_> = edges.filter(|edge| edge.offset != FIRST_EVENT_OFFSET).collect();
        let mut reader = log.reader(segment)?;
        let mut start = low;
        while let Some(entry) = reader.try_next()? {
            if entry.position >= applied.high() {
                break;
            }
            missing.remove(&entry.position);
            missing.remove(&entry.end());
            let is_before = entry.position < low;
            let mut is_applied = is_before;
            if !is_before && entry.is_transaction() {
                is_applied = applied.contains(&LogSpan { start, end: entry.end() });
                start = entry.end();
            }
            // A log holds one family's GTIDs, here and below.
            if let Some(gtid) = entry.gtid.as_ref().filter(|_| is_applied) {
                let _ = all.insert(gtid);
            }
            if let Some(gtid) = entry.gtid.as_ref().filter(|_| is_before) {
                let _ = before.insert(gtid);
            }
        }
        let with_origin = |gtids: GtidSet| gtids.union(origin).unwrap_or(gtids);
        let before = match (with_origin(before), log.gtid_set()) {
            // Domains that the log does not know are another source's.
            (GtidSet::MariaDb(gtids), Some(GtidSet::MariaDb(logged))) => {
                let is_logged = |gtid: &MariadbGtid| logged.last(gtid.domain).is_some();
                GtidSet::MariaDb(MariadbBinlogState::from_gtids(gtids.iter().filter(is_logged)))
            }
            (gtids, _) => gtids,
        };
        Ok(Self { before, applied: with_origin(all), misplaced: missing.first().copied() })
    }
}
