//! The options of a channel.

use std::sync::Arc;
use std::time::Duration;

use tailwater_session::ConnectOptions;
use tailwater_wire::gtid::Gtid;

use super::ddl_exec_mode::DdlExecMode;
use crate::filter::FilterSet;
use crate::scheduler::CommitOrder;
use crate::source_catalogue::SourceCatalogue;

/// How transactions are identified on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GtidMode {
    /// The target does not log them. Applied GTIDs are set in `gtid_purged` or `gtid_slave_pos`, so that
    /// native replication can continue from there. Requires the privilege, and that no other channel applies
    /// the same source to the target.
    #[default]
    Log,
    /// The target logs each under its GTID on the source, so each needs a separate target transaction.
    /// Progress is part of it. For a statement that commits implicitly, progress follows and is not logged.
    /// An XA transaction of MySQL has two GTIDs: only progress is logged under that of its `XA PREPARE`.
    Preserve,
    /// The target logs them under its own GTIDs, many as one.
    Own,
}

/// Where a channel starts that has no progress on its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChannelStart {
    /// After the target's own GTID position.
    #[default]
    Target,
    /// At the log's oldest transaction.
    Oldest,
}

/// The source of the fractional digits of temporal columns in the layout from before MySQL 5.6. A MariaDB
/// binlog does not contain them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OldTemporalPrecision {
    /// The source's catalogue. The channel stops if the target declares others, and waits if the source
    /// cannot be queried.
    #[default]
    Verified,
    /// The target's declaration, as in the servers' own replication: values are wrong if the source's
    /// declaration differs.
    Target,
}

/// When a channel stops automatically, like MySQL's `START REPLICA UNTIL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UntilCondition {
    /// After this transaction.
    Gtid(Gtid),
    /// Before the first transaction with this or a later commit time, in microseconds since 1970.
    TimeUs(u64),
}

/// The options of a channel from a log to a target.
#[derive(Debug, Clone)]
pub struct ChannelOptions {
    /// The name in messages and in the progress on the target.
    pub name: String,
    /// The target.
    pub target: ConnectOptions,
    /// Number of connections that apply in parallel.
    pub workers: usize,
    /// Whether commits keep the source's order.
    pub commit_order: CommitOrder,
    /// How transactions are identified on the target.
    pub gtid: GtidMode,
    /// What to do with a definition when the target's tables differ from the source's.
    pub ddl_exec_mode: DdlExecMode,
    /// Where it starts.
    pub start: ChannelStart,
    /// When it stops.
    pub until: Option<UntilCondition>,
    /// Up to this transaction, differences of the target are tolerated: an insert replaces an existing row,
    /// and an update or delete of a missing row is ignored. Each transaction is recorded.
    pub tolerate_until: Option<Gtid>,
    /// The most source transactions in one target transaction.
    pub batch_transactions_max: usize,
    /// The most bytes of row images in one target transaction, except for a larger source transaction.
    pub batch_bytes_max: usize,
    /// The memory for decoded transactions, in bytes.
    pub memory_bytes_max: usize,
    /// Longer source transactions are streamed from the log while they are written, in bytes.
    pub transaction_bytes_max: u64,
    /// Transactions are applied this long after their commit on the source, by its clock.
    pub delay: Duration,
    /// The source of the fractional digits of temporal columns in the layout from before MySQL 5.6.
    pub old_temporal_precision: OldTemporalPrecision,
    /// Access to the tables of the log's source; used only for information that the binlog lacks.
    pub source_catalogue: Option<Arc<dyn SourceCatalogue>>,
    /// Filters and rewrites.
    pub filters: FilterSet,
}

impl ChannelOptions {
    /// Whether workers write progress by a row event, to an existing row. Not with `gtid = preserve`: nothing
    /// creates that row on replicas of the target. Not while differences are tolerated: a missing progress
    /// row would be tolerated too.
    pub(super) fn records_progress_by_event(&self) -> bool {
        self.gtid != GtidMode::Preserve && self.tolerate_until.is_none()
    }

    /// The defaults, for a channel with this name and target.
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

/// The name of a channel's reader in its log.
pub fn log_reader_name(channel: &str) -> String {
    format!("channel {channel}")
}
