//! What an operator chooses for a channel.

use std::sync::Arc;
use std::time::Duration;

use tailwater_session::ConnectOptions;
use tailwater_wire::gtid::Gtid;

use super::ddl_exec_mode::DdlExecMode;
use crate::filter::FilterSet;
use crate::scheduler::CommitOrder;
use crate::source_catalogue::SourceCatalogue;

/// Under which identity transactions stand on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GtidMode {
    /// The target does not log them; what was applied is published to `gtid_purged` or `gtid_slave_pos`, so that native
    /// replication can go on from there: if the account may, and no other channel brings the same source to the target.
    #[default]
    Log,
    /// The target logs each under the GTID it has on the source: no two share a target transaction. Progress stands in the same,
    /// but for that of a statement that commits by itself, which stands behind it and is not logged. An XA transaction of MySQL has
    /// two GTIDs: under that of its `XA PREPARE` only progress is logged.
    Preserve,
    /// The target logs them as its own, many as one.
    Own,
}

/// Where a channel begins that has no progress on its target yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChannelStart {
    /// Behind what the target's own GTID position says that it has.
    #[default]
    Target,
    /// At the log's oldest transaction.
    Oldest,
}

/// Where the digits of temporal columns in the layout of before MySQL 5.6 are taken from, which the binlog of a MariaDB source does not
/// hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OldTemporalPrecision {
    /// From the source's catalogue; the channel stops if the target declares others, and waits if the source cannot be asked.
    #[default]
    Verified,
    /// From the target's declaration, as the servers' own replication does: values are wrong where the source's is another.
    Target,
}

/// Where a channel stops by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UntilCondition {
    /// Behind this transaction.
    Gtid(Gtid),
    /// Before the first transaction that committed at this time, in microseconds since 1970, or later.
    TimeUs(u64),
}

/// A channel: from a log to a target.
#[derive(Debug, Clone)]
pub struct ChannelOptions {
    /// Names the channel in messages, and its progress on the target.
    pub name: String,
    /// The target.
    pub target: ConnectOptions,
    /// Connections that apply side by side.
    pub workers: usize,
    /// Whether commits keep the source's order.
    pub commit_order: CommitOrder,
    /// Identity on the target.
    pub gtid: GtidMode,
    /// What becomes of definitions where the target's tables are not the source's.
    pub ddl_exec_mode: DdlExecMode,
    /// Where it begins.
    pub start: ChannelStart,
    /// Where it stops.
    pub until: Option<UntilCondition>,
    /// Up to this transaction rows are written however those of the target are: what is to be inserted and is there is
    /// replaced, what is to be changed or deleted and is not there is passed over. Each transaction is recorded.
    pub tolerate_until: Option<Gtid>,
    /// The most source transactions in one target transaction.
    pub batch_transactions_max: usize,
    /// The most bytes of row images in one target transaction, but for one source transaction that is larger.
    pub batch_bytes_max: usize,
    /// What is held in memory of the log, decoded, in bytes.
    pub memory_bytes_max: usize,
    /// Longer source transactions are read from the log while they are written, in bytes.
    pub transaction_bytes_max: u64,
    /// Transactions are applied this long after they committed on the source, by its clock.
    pub delay: Duration,
    /// Where the digits of temporal columns in the layout of before MySQL 5.6 are taken from.
    pub old_temporal_precision: OldTemporalPrecision,
    /// How the log's source is asked about its tables; only where the binlog does not hold what is needed.
    pub source_catalogue: Option<Arc<dyn SourceCatalogue>>,
    /// What is left out, and what goes elsewhere.
    pub filters: FilterSet,
}

impl ChannelOptions {
    /// Whether workers note their progress by an event in a row that is there already. Under `gtid = preserve` nothing can make
    /// that row on servers behind the target; and what tolerates a row that is missing would miss it for that one too.
    pub(super) fn records_progress_by_event(&self) -> bool {
        self.gtid != GtidMode::Preserve && self.tolerate_until.is_none()
    }

    /// The defaults, for a channel of this name to this target.
    pub fn new(name: impl Into<String>, target: ConnectOptions) -> Self {
        Self {
            name: name.into(),
            target,
            workers: 4,
            commit_order: CommitOrder::Source,
            gtid: GtidMode::Log,
            ddl_exec_mode: DdlExecMode::Strict,
            start: ChannelStart::Target,
            until: None,
            tolerate_until: None,
            batch_transactions_max: 2000,
            batch_bytes_max: 8 << 20,
            memory_bytes_max: 64 << 20,
            transaction_bytes_max: 16 << 20,
            delay: Duration::ZERO,
            old_temporal_precision: OldTemporalPrecision::Verified,
            source_catalogue: None,
            filters: FilterSet::default(),
        }
    }
}
