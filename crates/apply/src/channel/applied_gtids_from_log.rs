//! Reads from the log the GTIDs of the transactions that a target has applied. Also checks that these
//! transactions are still at the same positions in the log.

use std::collections::BTreeSet;

use tailwater_log::{LogHandle, LogPosition};
use tailwater_wire::gtid::{GtidSet, MariadbBinlogState, MariadbGtid};

use super::target_gtid_queries::FIRST_EVENT_OFFSET;
use crate::applied_transactions::AppliedSet;
use crate::error::ApplyError;
use crate::log_position_range::LogSpan;

/// The result of scanning the log.
pub(super) struct AppliedScan {
    /// The GTIDs of all transactions before the low watermark, and of the transactions that the target had
    /// before the channel. On MariaDB, only the GTIDs of domains that the log contains.
    pub(super) before: GtidSet,
    /// The GTIDs of all transactions of the log that are applied, and of those that the target had before the
    /// channel.
    pub(super) applied: GtidSet,
    /// The lowest position at which the log should contain the start or end of an applied transaction,
    /// according to the target's progress, but does not. `None` if all positions match.
    pub(super) misplaced: Option<LogPosition>,
}

impl AppliedScan {
    /// Scans the log from the start of the low watermark's segment to the highest applied position. `origin`
    /// is the GTID set that the target had before the channel.
    ///
    /// A power failure can remove the end of the newest segment. Then there are two cases. In the first case,
    /// the same source sends the same bytes to the same positions again. In the second case, the log
    /// continues in another segment, and the truncated segment lacks transactions that the target has
    /// applied. Comparing positions detects the second case, also for transactions without GTIDs.
    ///
    /// # Errors
    /// [`ApplyError::Log`].
    pub(super) fn run(log: &LogHandle, applied: &AppliedSet, origin: &GtidSet) -> Result<Self, ApplyError> {
        let low = applied.low();
        let segment = LogPosition { offset: FIRST_EVENT_OFFSET, ..low };
        let mut before = log.gtids_before(low.segment)?.unwrap_or_else(|| GtidSet::empty(origin.flavour()));
        let mut all = before.clone();
        let edges = applied.gaps().flat_map(|gap| [gap.start, gap.end]).chain([low, applied.high()]);
        // A crash never removes the start of a segment, so the position of the segment's first event needs no
        // check.
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
            // All GTIDs of a log are of one flavour, so inserting a GTID into `all` or `before` cannot fail.
            if let Some(gtid) = entry.gtid.as_ref().filter(|_| is_applied) {
                let _ = all.insert(gtid);
            }
            if let Some(gtid) = entry.gtid.as_ref().filter(|_| is_before) {
                let _ = before.insert(gtid);
            }
        }
        let with_origin = |gtids: GtidSet| gtids.union(origin).unwrap_or(gtids);
        let before = match (with_origin(before), log.gtid_set()) {
            // Domains that the log does not contain belong to other sources.
            (GtidSet::MariaDb(gtids), Some(GtidSet::MariaDb(logged))) => {
                let is_logged = |gtid: &MariadbGtid| logged.last(gtid.domain).is_some();
                GtidSet::MariaDb(MariadbBinlogState::from_gtids(gtids.iter().filter(is_logged)))
            }
            (gtids, _) => gtids,
        };
        Ok(Self { before, applied: with_origin(all), misplaced: missing.first().copied() })
    }
}
