//! Reads the progress that channels have stored on a target, for `tailwater check`.

use tailwater_apply::applied_transactions::AppliedSet;
use tailwater_check::table_check::channel_progress::{AppliedRange, ChannelProgressReader};
use tailwater_log::LogPosition;

/// Reads the progress rows that channels of this version and of older versions store on their targets.
#[derive(Debug, Clone, Copy)]
pub struct AppliedProgress;

impl ChannelProgressReader for AppliedProgress {
    fn reach(&self, rows: &[&[u8]]) -> Result<AppliedRange, String> {
        let mut all = AppliedSet::new(LogPosition::ZERO);
        for row in rows {
            all.merge(&AppliedSet::decode(row).map_err(|error| error.to_string())?);
        }
        let place = |position: LogPosition| (position.segment, position.offset);
        Ok(AppliedRange { low: place(all.low()), high: place(all.high()) })
    }
}

#[cfg(test)]
mod tests {
    use tailwater_apply::source_transaction::LogSpan;

    use super::*;

    #[test]
    fn the_progress_rows_of_all_workers_are_combined() {
        let at = |offset| LogPosition { segment: 2, offset };
        let mut one = AppliedSet::new(at(10));
        one.add(LogSpan { start: at(20), end: at(30) });
        let mut other = AppliedSet::new(at(4));
        let rows = |one: &AppliedSet, other: &AppliedSet| {
            let rows = [one.encode(), other.encode()];
            AppliedProgress.reach(&rows.each_ref().map(Vec::as_slice))
        };
        assert_eq!(rows(&one, &other), Ok(AppliedRange { low: (2, 10), high: (2, 30) }));
        other.add(LogSpan { start: at(10), end: at(20) });
        assert_eq!(rows(&one, &other), Ok(AppliedRange { low: (2, 30), high: (2, 30) }));
        assert!(AppliedProgress.reach(&[b"no progress"]).is_err());
    }
}
