//! The status of a channel.

use serde::{Deserialize, Serialize};

use super::channel_options::GtidMode;
use super::worker_activity::WorkerStatus;
use crate::error::ApplyError;
use crate::replication_filter::FilterSet;

/// What a channel is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelState {
    /// The channel connects, or waits before it retries.
    #[default]
    Connecting,
    /// The channel applies, or waits for the next transaction.
    Running,
    /// An operator stopped the channel, or it has reached its until condition.
    Stopped,
    /// The channel cannot apply a transaction. An operator must act.
    Failed,
}

/// The last error of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ChannelFault {
    /// The stable error code, such as TW-APP-0002.
    pub code: String,
    /// The message, without row values. It names the GTID and the table if the channel knows them.
    pub message: String,
    /// Whether `detail` has a value. The value itself is shown only on request.
    #[serde(default)]
    pub has_detail: bool,
    /// The key, the statement and the target's full message, which may contain row values. Shown only to an
    /// operator who requests them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl ChannelFault {
    /// Returns the fault for an error.
    pub(super) fn of(error: &ApplyError) -> Self {
        let detail = error.private_detail();
        let (code, message) = (error.code().to_owned(), error.to_string());
        Self { code, message, has_detail: detail.is_some(), detail }
    }
}

/// The current status of a channel.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ChannelStatus {
    /// The channel's name.
    pub name: String,
    /// What the channel is doing.
    pub state: ChannelState,
    /// The last error, if the channel has failed or retries.
    pub fault: Option<ChannelFault>,
    /// All transactions before this log position are applied.
    #[serde(rename = "low", alias = "low_watermark")]
    pub low_watermark: String,
    /// The applied GTIDs in the source's notation, without transactions that are applied out of order.
    pub gtids: String,
    /// Why the applied GTIDs are not set on the target. Absent if they are set.
    #[serde(default, rename = "gtids_untold", alias = "gtids_unpublished_reason")]
    pub gtids_unpublished_reason: Option<String>,
    /// The GTID of the newest applied transaction.
    pub newest_gtid: String,
    /// How long ago, by the source's clock, the oldest unapplied transaction in the log was committed; 0 if
    /// there is none. Absent while the channel does not run.
    pub lag_seconds: Option<f64>,
    /// Why the channel is [`ChannelState::Stopped`]. Absent in other states.
    #[serde(default, rename = "stopped_because", alias = "stop_reason")]
    pub stop_reason: Option<String>,
    /// Why the relay does not capture the source. Absent if the relay captures it. `lag_seconds` includes
    /// only transactions that are already in the log.
    #[serde(default, rename = "source_trouble", alias = "capture_problem")]
    pub capture_problem: Option<String>,
    /// Transactions applied since the process started.
    pub transactions_total: u64,
    /// Rows that were applied since the process started.
    pub rows_total: u64,
    /// Target transactions committed since the process started.
    pub commits_total: u64,
    /// The number of batches in independent order that committed only their first part, because an older
    /// batch had stalled.
    #[serde(default, rename = "gave_way_total", alias = "yields_total")]
    pub yields_total: u64,
    /// Transactions per second, measured over the last second.
    pub transactions_per_second: f64,
    /// Number of connections that apply to the target.
    pub workers: usize,
    /// What each worker does. Empty while the channel does not run, or if the daemon is too old to report it.
    #[serde(default)]
    pub worker_states: Vec<WorkerStatus>,
    /// Transactions that were read from the log and that no worker has: they wait for a worker, or for a
    /// transaction with which they conflict.
    #[serde(default)]
    pub waiting_transactions: u64,
    /// The configured delay, in seconds: a transaction is applied this long after its commit on the source.
    /// The lag includes the delay.
    #[serde(default)]
    pub delay_seconds: u64,
    /// Memory of the transactions that are read but not yet applied, in bytes.
    #[serde(rename = "held_bytes", alias = "buffered_bytes")]
    pub buffered_bytes: u64,
    /// Under which GTIDs the target logs the transactions.
    #[serde(default)]
    pub gtid: GtidMode,
    /// Whether the target has received all transactions of the log since the channel was created: no filters,
    /// and no skipped transactions. False (unknown) before the channel has connected to its target.
    #[serde(default, rename = "is_whole", alias = "is_complete")]
    pub is_complete: bool,
    /// Nontransactional tables on the target that transactions have changed since the channel was started. A
    /// rollback does not undo the rows of these tables, so a retry writes them a second time.
    #[serde(default, rename = "tables_without_transactions", alias = "nontransactional_tables")]
    pub nontransactional_tables: Vec<String>,
    /// The version of the filters in use.
    pub filter_version: u64,
    /// The filters of this version: those of the configuration, or later ones that are stored on the target.
    /// Absent before the channel has read them from its target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filters: Option<FilterSet>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Load balancers, and managers of other Tailwater versions, read these JSON field names, so the names
    /// must not change.
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
            assert!(json.get(old).is_some(), "the JSON lacks the old field name {old}");
            let mut renamed = json.as_object().unwrap().clone();
            let value = renamed.remove(old).unwrap();
            renamed.insert(new.to_owned(), value);
            assert_eq!(serde_json::from_value::<ChannelStatus>(renamed.into()).unwrap(), status, "{new}");
        }
    }
}
