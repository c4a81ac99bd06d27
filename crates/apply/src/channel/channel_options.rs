//! The options of a channel.

use std::sync::Arc;
use std::time::Duration;

use tailwater_session::ConnectOptions;
use tailwater_wire::gtid::Gtid;

use super::ddl_exec_mode::DdlExecMode;
use crate::replication_filter::FilterSet;
use crate::scheduler::CommitOrder;
use crate::source_table_columns::SourceCatalogue;

/// Under which GTIDs the target logs the transactions.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum GtidMode {
    /// The target does not log the transactions. The channel sets the applied GTIDs in `gtid_purged` or
    /// `gtid_slave_pos`, so that native replication can continue from there. The channel's account needs the
    /// privilege to set them. No other channel may apply the same source to the target.
    #[default]
    Log,
    /// The target logs each transaction under its GTID on the source. So each source transaction needs a
    /// separate target transaction, which also contains the progress. After a statement that commits
    /// implicitly, the progress is written separately and not logged. An XA transaction of MySQL has two
    /// GTIDs: under the GTID of its `XA PREPARE`, the target logs only progress.
    Preserve,
    /// The target logs the transactions under its own GTIDs. Many source transactions become one target
    /// transaction.
    Own,
}

/// Where a channel starts if the target has no progress of this channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChannelStart {
    /// The channel starts after the target's GTID position.
    #[default]
    Target,
    /// The channel starts at the log's oldest transaction.
    Oldest,
}

/// Where the fractional digits of temporal columns in the layout from before MySQL 5.6 come from. A MariaDB
/// binlog does not contain them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OldTemporalPrecision {
    /// The digits come from the table definition on the source. The channel stops if the target's definition
    /// has another number of digits, and waits if it cannot query the source.
    #[default]
    Verified,
    /// The digits come from the table definition on the target, as in the servers' native replication. Values
    /// are wrong if the source's definition differs.
    Target,
}

/// When a channel stops automatically, as with MySQL's `START REPLICA UNTIL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UntilCondition {
    /// The channel stops after this transaction.
    Gtid(Gtid),
    /// The channel stops before the first transaction with this commit time or a later one, in microseconds
    /// since 1970.
    TimeUs(u64),
}

/// The options of a channel from a log to a target.
#[derive(Debug, Clone)]
pub struct ChannelOptions {
    /// The channel's name, in messages and in its progress on the target.
    pub name: String,
    /// How to connect to the target.
    pub target: ConnectOptions,
    /// Number of connections that apply to the target in parallel.
    pub workers: usize,
    /// The order in which transactions commit on the target.
    pub commit_order: CommitOrder,
    /// Under which GTIDs the target logs the transactions.
    pub gtid: GtidMode,
    /// What to do with a `CREATE TABLE` or `DROP TABLE` if the target's tables differ from the source's.
    pub ddl_exec_mode: DdlExecMode,
    /// Where the channel starts if the target has no progress of this channel.
    pub start: ChannelStart,
    /// When the channel stops automatically.
    pub until: Option<UntilCondition>,
    /// Up to this transaction, the channel tolerates rows of the target that differ from the source's rows.
    /// An insert replaces an existing row. An update or delete of a missing row is ignored. Each such
    /// transaction is recorded on the target.
    pub tolerate_until: Option<Gtid>,
    /// The maximum number of source transactions in one target transaction.
    pub batch_transactions_max: usize,
    /// The maximum number of bytes of row images in one target transaction. A single source transaction may
    /// be larger.
    pub batch_bytes_max: usize,
    /// The maximum memory for decoded transactions, in bytes.
    pub memory_bytes_max: usize,
    /// A source transaction longer than this many bytes is read from the log while it is written to the
    /// target.
    pub transaction_bytes_max: u64,
    /// The delay of the channel: it applies a transaction this long after the commit on the source, by the
    /// source's clock.
    pub delay: Duration,
    /// Where the fractional digits of temporal columns in the layout from before MySQL 5.6 come from.
    pub old_temporal_precision: OldTemporalPrecision,
    /// Reads table definitions from the log's source. Used only for details that the binlog does not contain.
    pub source_catalogue: Option<Arc<dyn SourceCatalogue>>,
    /// Which tables are excluded, and which are renamed.
    pub filters: FilterSet,
}

impl ChannelOptions {
    /// Returns whether workers write their progress with a row event, which updates an existing row. With
    /// `gtid = preserve` they write SQL instead, because the row does not exist on replicas of the target.
    /// Workers also write SQL while the channel tolerates differences. During that time, the target ignores
    /// row events of missing rows, so it would also ignore that the progress row is missing.
    pub(super) fn records_progress_by_event(&self) -> bool {
        self.gtid != GtidMode::Preserve && self.tolerate_until.is_none()
    }

    /// Returns the default options for a channel with this name and target.
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

/// Returns the name under which a channel reads its log.
pub fn log_reader_name(channel: &str) -> String {
    format!("channel {channel}")
}
