//! Channels of Tailwater may apply in any order: that a mark has come says nothing of what stands before it on the source.
//! What they note with everything that they commit does: behind the newest that is applied when the mark is there, the mark is
//! not, so when nothing up to that place is missing any more, nothing is that stands before the mark.

use std::collections::BTreeMap;
use std::fmt::Debug;

use tailwater_session::{Connection, SessionError};

use crate::error::BulkError;

/// What a server says that no channel has ever fed.
const NOT_THERE: [u16; 2] = [1049, 1146];

/// A place in a channel's log: the number of a segment, and an offset in it.
pub type ChannelPosition = (u64, u64);

/// Reads what channels note on their target. How it is written is theirs to know.
pub trait ChannelProgressReader: Debug + Send + Sync {
    /// What all rows of a channel in `tailwater.apply_progress` say together.
    ///
    /// # Errors
    /// What is wrong with them.
    fn reach(&self, rows: &[&[u8]]) -> Result<AppliedRange, String>;
}

/// How far a channel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedRange {
    /// Up to here everything is applied.
    pub low: ChannelPosition,
    /// Behind here nothing is.
    pub high: ChannelPosition,
}

/// What may be missing of that which stands before a mark.
#[derive(Debug, Default)]
pub(super) struct MarkProgress {
    /// How far each channel was when the mark was there.
    wanted: Option<BTreeMap<String, ChannelPosition>>,
}

impl MarkProgress {
    /// What is missing, of a target that has the mark; `None` if nothing is.
    ///
    /// # Errors
    /// [`BulkError::SyncUnknown`] if channels feed the target and what they note cannot be read; [`BulkError::Session`].
    pub(super) async fn missing(
        &mut self,
        target: &mut Connection,
        reader: Option<&dyn ChannelProgressReader>,
    ) -> Result<Option<String>, BulkError> {
        let reaches = reaches(target, reader).await?;
        let wanted = self.wanted.get_or_insert_with(|| {
            reaches.iter().map(|(channel, reach)| (channel.clone(), reach.high)).collect()
        });
        Ok(behind(wanted, &reaches))
    }
}

/// The first channel that lacks something up to where it is wanted. One that is gone lacks nothing.
fn behind(
    wanted: &BTreeMap<String, ChannelPosition>,
    reaches: &BTreeMap<String, AppliedRange>,
) -> Option<String> {
    wanted.iter().find_map(|(channel, (segment, offset))| {
        let AppliedRange { low, .. } = reaches.get(channel)?;
        (*low < (*segment, *offset)).then(|| {
            format!(
                "the mark, and in channel {channel} all before it: {}:{} of its log is applied without gaps, not {segment}:{offset}",
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
        let reader = reader.ok_or_else(|| not(format!("nobody reads how far channel {channel} is")))?;
        let reach = reader.reach(&rows);
        let reach = reach.map_err(|reason| not(format!("how far channel {channel} is: {reason}")))?;
        Ok((channel, reach))
    };
    rows.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_with_a_gap_is_behind() {
        let reach = |low, high| AppliedRange { low: (1, low), high: (1, high) };
        let all = |channels: &[(&str, AppliedRange)]| -> BTreeMap<_, _> {
            channels.iter().map(|(name, reach)| ((*name).to_owned(), *reach)).collect()
        };
        let wanted = BTreeMap::from([("a".to_owned(), (1, 20)), ("b".to_owned(), (1, 5))]);
        let missing = behind(&wanted, &all(&[("a", reach(10, 20)), ("b", reach(5, 5))]));
        assert!(missing.is_some_and(|text| text.contains("channel a") && text.contains("1:10")));
        // Something newer may be missing, and a channel may go away.
        assert_eq!(behind(&wanted, &all(&[("a", reach(20, 90))])), None);
        assert!(behind(&wanted, &all(&[("a", reach(20, 20)), ("b", reach(4, 20))])).is_some());
    }
}
