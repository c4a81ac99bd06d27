//! `[[channel]]`: a target to which the log is applied.

use std::collections::HashSet;

use tailwater_apply::channel::{ChannelStart, DdlExecMode, GtidMode, OldTemporalPrecision};
use tailwater_apply::filter::FilterSet;
use tailwater_apply::scheduler::CommitOrder;

server_section! {
    /// `[[channel]]`
    pub struct ChannelConfig {
        /// The name of the channel in messages and commands, and of its progress on the target.
        pub name: String,
        /// Name of the source whose log is applied.
        pub source: String,
        /// Number of connections that apply in parallel.
        #[serde(default = "default_workers")]
        pub workers: usize,
        /// Whether commits keep the source's order.
        #[serde(default = "default_commit_order")]
        pub commit_order: CommitOrder,
        /// The GTIDs of the transactions on the target.
        #[serde(default)]
        pub gtid: GtidMode,
        /// How to apply a `CREATE TABLE` whose table exists on the target, and a `DROP TABLE` whose table
        /// does not.
        #[serde(default)]
        pub ddl_exec_mode: DdlExecMode,
        /// The start of a channel that is new on its target.
        #[serde(default)]
        pub start: ChannelStart,
        /// The most source transactions in one target transaction.
        #[serde(default = "default_batch_transactions_max")]
        pub batch_transactions_max: usize,
        /// The most bytes of rows in one target transaction, unless a single source transaction is larger.
        #[serde(default = "default_batch_bytes_max")]
        pub batch_bytes_max: usize,
        /// The most bytes of decoded transactions in memory.
        #[serde(default = "default_memory_bytes_max")]
        pub memory_bytes_max: usize,
        /// Source transactions above this size, in bytes, are streamed from the log.
        #[serde(default = "default_transaction_bytes_max")]
        pub transaction_bytes_max: u64,
        /// How long after their commit on the source transactions are applied, in seconds.
        #[serde(default)]
        pub delay_seconds: u64,
        /// Where the precision of temporal columns in the format before MySQL 5.6 comes from (MariaDB).
        #[serde(default)]
        pub old_temporal_precision: OldTemporalPrecision,
        /// Whether it waits for `tailwater channel start`.
        #[serde(default)]
        pub stopped: bool,
        /// Filters and renames; edits by `tailwater channel filter` take precedence.
        #[serde(default)]
        pub filters: FilterSet,
    }
}

fn default_workers() -> usize {
    4
}

fn default_commit_order() -> CommitOrder {
    CommitOrder::Source
}

fn default_batch_transactions_max() -> usize {
    2000
}

fn default_batch_bytes_max() -> usize {
    8 << 20
}

fn default_memory_bytes_max() -> usize {
    64 << 20
}

fn default_transaction_bytes_max() -> u64 {
    16 << 20
}

/// With more workers a channel is no faster: they only wait for each other.
const WORKERS_MAX: usize = 64;

impl ChannelConfig {
    /// Checks the section for contradictions; `sources` are the names of the sources.
    pub(super) fn check(&self, sources: &HashSet<&String>) -> Result<(), String> {
        let name = &self.name;
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
            return Err(format!("channel.name = {name:?}: 1 to 64 of a-z, A-Z, 0-9, `_`, `-`, `.`"));
        }
        if !sources.contains(&self.source) {
            return Err(format!(
                "channel {name:?}: source = {:?}: there is no [[source]] of that name",
                self.source
            ));
        }
        let server = self.server();
        server.check().map_err(|reason| format!("channel {name:?}: {reason}"))?;
        if !server.is_given() {
            return Err(format!(
                "channel {name:?}: the address of its target is missing; give host and port, or socket"
            ));
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return Err(format!("channel {name:?}: workers is 1 to {WORKERS_MAX}"));
        }
        if self.batch_transactions_max == 0 || self.batch_bytes_max == 0 {
            return Err(format!(
                "channel {name:?}: batch_transactions_max and batch_bytes_max are at least 1"
            ));
        }
        if self.memory_bytes_max < 1 << 20 || self.transaction_bytes_max < 64 << 10 {
            return Err(format!(
                "channel {name:?}: memory_bytes_max is at least 1048576, transaction_bytes_max 65536"
            ));
        }
        if self.transaction_bytes_max as usize > self.memory_bytes_max {
            return Err(format!("channel {name:?}: transaction_bytes_max is at most memory_bytes_max"));
        }
        self.filters.compile().map_err(|error| format!("channel {name:?}: {error}"))?;
        Ok(())
    }
}
