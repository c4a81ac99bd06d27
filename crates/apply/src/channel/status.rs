//! What a channel says about itself.

use serde::{Deserialize, Serialize};

use super::options::GtidMode;
use crate::error::ApplyError;

/// What a channel is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChannelState {
    /// It connects, or waits to try again.
    #[default]
    Connecting,
    /// It applies, or waits for something to apply.
    Running,
    /// It was told to stop, or has reached where it was to stop.
    Stopped,
    /// It met what it cannot apply; somebody must look.
    Failed,
}

/// What went wrong last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelFault {
    /// The stable code.
    pub code: String,
    /// What happened, with GTID and table where they are known; without values of rows.
    pub message: String,
    /// Whether there is a `detail`, wherever it is shown.
    #[serde(default)]
    pub has_detail: bool,
    /// What may hold values of rows: key, statement, the target's whole text. Only for an operator who asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl ChannelFault {
    /// What an error says.
    pub(super) fn of(error: &ApplyError) -> Self {
        let detail = error.private_detail();
        let (code, message) = (error.code().to_owned(), error.to_string());
        Self { code, message, has_detail: detail.is_some(), detail }
    }
}

/// A channel, as it is now.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: ChannelState,
    /// What went wrong, if it failed or tries again.
    pub fault: Option<ChannelFault>,
    /// Everything before this place in the log is applied.
    #[serde(rename = "low", alias = "low_watermark")]
    pub low_watermark: String,
    /// What is applied, in the source's notation, without what is applied out of order.
    pub gtids: String,
    /// Why the target does not know the GTIDs of what is applied; absent if it does.
    #[serde(default, rename = "gtids_untold", alias = "gtids_unpublished_reason")]
    pub gtids_unpublished_reason: Option<String>,
    /// The newest transaction that is applied.
    pub newest_gtid: String,
    /// How long ago, by the source's clock, the oldest transaction in the log that is not applied committed there; 0 if there is none.
    /// Absent while that is not known: before the channel has begun, and whenever it does not run.
    pub lag_seconds: Option<f64>,
    /// Why it is [`ChannelState::Stopped`]; absent in other states.
    #[serde(default, rename = "stopped_because", alias = "stop_reason")]
    pub stop_reason: Option<String>,
    /// What keeps its source's log from getting what the source has, if something does: the lag does not count that then.
    #[serde(default, rename = "source_trouble", alias = "capture_problem")]
    pub capture_problem: Option<String>,
    /// Transactions applied since the process began.
    pub transactions_total: u64,
    /// Rows applied since the process began.
    pub rows_total: u64,
    /// Target transactions they were committed in.
    pub commits_total: u64,
    /// How often a batch was cut short in independent order, since one before it was held up.
    #[serde(default, rename = "gave_way_total", alias = "yields_total")]
    pub yields_total: u64,
    /// Transactions per second, over the last seconds.
    pub transactions_per_second: f64,
    /// Connections that apply.
    pub workers: usize,
    /// Its own memory for transactions that are not applied yet, in bytes.
    #[serde(rename = "held_bytes", alias = "buffered_bytes")]
    pub buffered_bytes: u64,
    /// Under which identity transactions stand on the target.
    #[serde(default)]
    pub gtid: GtidMode,
    /// The target got everything that the log has had since the channel began: there were never filters, and nothing was left
    /// out. Not known before the channel has reached its target.
    #[serde(default, rename = "is_whole", alias = "is_complete")]
    pub is_complete: bool,
    /// Tables on the target whose engine has no transactions, as far as rows of them came since it was started: what is written
    /// to them stays when a batch is rolled back, and comes again with it.
    #[serde(default, rename = "tables_without_transactions", alias = "nontransactional_tables")]
    pub nontransactional_tables: Vec<String>,
    /// Which version of the filters is in force.
    pub filter_version: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Managers and load balancers of other versions read these names.
    #[test]
    fn json_keeps_the_old_field_names_and_reads_the_new_ones() {
        let status = ChannelStatus {
            stop_reason: Some("stopped".into()),
            is_complete: true,
            buffered_bytes: 7,
            ..ChannelStatus::default()
        };
        let json = serde_json::to_value(&status).unwrap();
        for (old, new) in [
            ("low", "low_watermark"),
            ("gtids_untold", "gtids_unpublished_reason"),
            ("stopped_because", "stop_reason"),
            ("source_trouble", "capture_problem"),
            ("gave_way_total", "yields_total"),
            ("held_bytes", "buffered_bytes"),
            ("is_whole", "is_complete"),
            ("tables_without_transactions", "nontransactional_tables"),
        ] {
            assert!(json.get(old).is_some(), "{old} is missing");
            let mut renamed = json.as_object().unwrap().clone();
            let value = renamed.remove(old).unwrap();
            renamed.insert(new.to_owned(), value);
            assert_eq!(serde_json::from_value::<ChannelStatus>(renamed.into()).unwrap(), status, "{new}");
        }
    }
}
