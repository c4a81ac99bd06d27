//! The progress of Tailwater channels on the target. A check writes a mark, which is a row, on the source and
//! waits for it on the target. A channel may apply transactions in any order, so the arrival of the mark does
//! not prove that all transactions before it have arrived.
//!
//! The progress rows of the channel prove that. When the mark is visible on the target, the newest position
//! that the channel has applied is the mark's log position or a later one. As soon as all transactions up to
//! that newest position are applied, all transactions before the mark are applied too.

use std::collections::BTreeMap;
use std::fmt::Debug;

use tailwater_session::{Connection, SessionError};

use tailwater_tables::error::BulkError;

/// Error codes of a server that was never the target of a channel: unknown database, unknown table.
const NOT_THERE: [u16; 2] = [1049, 1146];

/// A position in a channel's log: segment number and offset.
pub type ChannelPosition = (u64, u64);

/// Decodes the progress rows that channels write on their target. The crate that writes the rows defines
/// their format.
pub trait ChannelProgressReader: Debug + Send + Sync {
    /// Returns the progress of a channel from all its rows in `tailwater.apply_progress`.
    ///
    /// # Errors
    /// The reason why the rows cannot be decoded.
    fn reach(&self, rows: &[&[u8]]) -> Result<AppliedRange, String>;
}

/// How far a channel has applied its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedRange {
    /// Everything up to this position is applied.
    pub low: ChannelPosition,
    /// Nothing after this position is applied.
    pub high: ChannelPosition,
}

/// Tracks which transactions before a mark may still be missing on the target.
#[derive(Debug, Default)]
pub(super) struct MarkProgress {
    /// For each channel, the newest position that it had applied when the mark became visible.
    wanted: Option<BTreeMap<String, ChannelPosition>>,
}

impl MarkProgress {
    /// Returns which transactions are still missing on a target that has the mark; `None` if none is missing.
    ///
    /// # Errors
    /// [`BulkError::SyncUnknown`] if channels apply to the target and their progress cannot be read;
    /// [`BulkError::Session`].
    pub(super) async fn missing(
        &mut self,
        target: &mut Connection,
        reader: Option<&dyn ChannelProgressReader>,
    ) -> Result<Option<String>, BulkError> {
        let reaches = reaches(target, reader).await?;
        let wanted = self.wanted.get_or_insert_with(|| {
            reaches.iter().map(|(channel, reach)| (channel.clone(), reach.high)).collect()
        });
        Ok(missing_range(wanted, &reaches))
    }
}

/// Describes the first channel that lacks transactions before the position in `wanted`. A channel that was
/// removed counts as complete.
fn missing_range(
    wanted: &BTreeMap<String, ChannelPosition>,
    reaches: &BTreeMap<String, AppliedRange>,
) -> Option<String> {
    wanted.iter().find_map(|(channel, (segment, offset))| {
        let AppliedRange { low, .. } = reaches.get(channel)?;
        (*low < (*segment, *offset)).then(|| {
            format!(
                "the check's mark has arrived, but channel {channel} has applied all transactions of its log only up to {}:{}, not up to \
                 {segment}:{offset}",
                low.0, low.1
            )
        })
    })
}

async fn reaches(
    target: &mut Connection,
    reader: Option<&dyn ChannelProgressReader>,
) -> Result<BTreeMap<String, AppliedRange>, BulkError> {
    let sql = "SELECT channel, applied FROM tailwater.apply_progress";
    let answer = match target.query(sql).await {
        Ok(answer) => answer,
        Err(SessionError::Server { error, .. }) if NOT_THERE.contains(&error.number) => {
            return Ok(BTreeMap::new());
        }
        Err(error) => return Err(error.into()),
    };
    let mut rows: BTreeMap<_, Vec<&[u8]>> = BTreeMap::new();
    for row in &answer.rows {
        let channel = String::from_utf8_lossy(row.get(0).unwrap_or_default()).into_owned();
        rows.entry(channel).or_default().push(row.get(1).unwrap_or_default());
    }
    let not = |reason: String| BulkError::SyncUnknown { target: target.endpoint().into(), reason };
    let read = |(channel, rows): (String, Vec<&[u8]>)| {
        let reader = reader
            .ok_or_else(|| not(format!("Tailwater has no reader for the progress of channel {channel}")))?;
        let reach = reader.reach(&rows);
        let reach = reach
            .map_err(|reason| not(format!("the progress of channel {channel} cannot be read: {reason}")))?;
        Ok((channel, reach))
    };
    rows.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_with_a_gap_lacks_transactions() {
        let reach = |low, high| AppliedRange { low: (1, low), high: (1, high) };
        let all = |channels: &[(&str, AppliedRange)]| -> BTreeMap<_, _> {
            channels.iter().map(|(name, reach)| ((*name).to_owned(), *reach)).collect()
        };
        let wanted = BTreeMap::from([("a".to_owned(), (1, 20)), ("b".to_owned(), (1, 5))]);
        let missing = missing_range(&wanted, &all(&[("a", reach(10, 20)), ("b", reach(5, 5))]));
        assert!(missing.is_some_and(|text| text.contains("channel a") && text.contains("1:10")));
        // Transactions after the wanted position may be missing, and a channel may have been removed.
        assert_eq!(missing_range(&wanted, &all(&[("a", reach(20, 90))])), None);
        assert!(missing_range(&wanted, &all(&[("a", reach(20, 20)), ("b", reach(4, 20))])).is_some());
    }
}
