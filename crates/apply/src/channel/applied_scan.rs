//! Reads from the log the GTIDs that a target has applied, and checks that those transactions are still at
//! their positions.

use std::collections::BTreeSet;

use tailwater_log::{LogHandle, LogPosition};
use tailwater_wire::gtid::{GtidSet, MariadbBinlogState, MariadbGtid};

use super::target_gtids::FIRST_EVENT_OFFSET;
use crate::error::ApplyError;
use crate::log_span::LogSpan;
use crate::progress::AppliedSet;

/// The result of the scan.
pub(super) struct AppliedScan {
    /// All transactions before the low watermark, and what the target had before the log, in the log's
    /// domains.
    pub(super) before: GtidSet,
    /// All transactions of the log that are applied, and the origin.
    pub(super) applied: GtidSet,
    /// The first position up to which the target has applied, and where no transaction of the log ends.
    pub(super) misplaced: Option<LogPosition>,
}

impl AppliedScan {
    /// Scans from the start of the low watermark's segment to the highest applied position. `origin` is what
    /// the target had before the log.
    ///
    /// A power failure can remove the end of the newest segment. Then the same source sends the same bytes
    /// again to the same positions, or the log continues in another segment, and this one ends before the
    /// transactions that the target has from it. So positions are enough to detect it, also for transactions
    /// without GTIDs.
    ///
    /// # Errors
    /// [`ApplyError::Log`].
    pub(super) fn run(log: &LogHandle, applied: &AppliedSet, origin: &GtidSet) -> Result<Self, ApplyError> {
        let low = applied.low();
        let segment = LogPosition { offset: FIRST_EVENT_OFFSET, ..low };
        let mut before = log.gtids_before(low.segment)?.unwrap_or_else(|| GtidSet::empty(origin.flavour()));
        let mut all = before.clone();
        let edges = applied.gaps().flat_map(|gap| [gap.start, gap.end]).chain([low, applied.high()]);
        // No crash removes the start of a segment.
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
            // A log holds the GTIDs of one flavour, here and below.
            if let Some(gtid) = entry.gtid.as_ref().filter(|_| is_applied) {
                let _ = all.insert(gtid);
            }
            if let Some(gtid) = entry.gtid.as_ref().filter(|_| is_before) {
                let _ = before.insert(gtid);
            }
        }
        let with_origin = |gtids: GtidSet| gtids.union(origin).unwrap_or(gtids);
        let before = match (with_origin(before), log.gtid_set()) {
            // Domains that the log does not know belong to other sources.
            (GtidSet::MariaDb(gtids), Some(GtidSet::MariaDb(logged))) => {
                let is_logged = |gtid: &MariadbGtid| logged.last(gtid.domain).is_some();
                GtidSet::MariaDb(MariadbBinlogState::from_gtids(gtids.iter().filter(is_logged)))
            }
            (gtids, _) => gtids,
        };
        Ok(Self { before, applied: with_origin(all), misplaced: missing.first().copied() })
    }
}
