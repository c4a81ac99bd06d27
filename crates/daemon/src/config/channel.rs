//! `[[channel]]`: to which servers the log is applied, and how.

use std::collections::HashSet;

use tailwater_apply::channel::{ChannelStart, DdlExecMode, GtidMode, OldTemporalPrecision};
use tailwater_apply::filter::FilterSet;
use tailwater_apply::scheduler::CommitOrder;

server_section! {
    /// `[[channel]]`
    pub struct ChannelConfig {
        /// Names the channel in messages and commands, and its progress on the target.
        pub name: String,
        /// Name of the source whose log is applied.
        pub source: String,
        /// Connections that apply side by side.
        #[serde(default = "default_workers")]
        pub workers: usize,
        /// Whether commits keep the source's order.
        #[serde(default = "default_commit_order")]
        pub commit_order: CommitOrder,
        /// Under which identity transactions stand on the target.
        #[serde(default)]
        pub gtid: GtidMode,
        /// What becomes of a `CREATE TABLE` whose table the target has, and of a `DROP TABLE` whose table it lacks.
        #[serde(default)]
        pub ddl_exec_mode: DdlExecMode,
        /// Where a channel begins that is new on its target.
        #[serde(default)]
        pub start: ChannelStart,
        /// The most source transactions in one target transaction.
        #[serde(default = "default_batch_transactions_max")]
        pub batch_transactions_max: usize,
        /// The most bytes of rows in one target transaction, but for one source transaction that is larger.
        #[serde(default = "default_batch_bytes_max")]
        pub batch_bytes_max: usize,
        /// What is held in memory of the log, decoded.
        #[serde(default = "default_memory_bytes_max")]
        pub memory_bytes_max: usize,
        /// Longer source transactions are read from the log while they are written.
        #[serde(default = "default_transaction_bytes_max")]
        pub transaction_bytes_max: u64,
        /// Transactions are applied this long after they committed on the source.
        #[serde(default)]
        pub delay_seconds: u64,
        /// Where the digits of temporal columns in the layout of before MySQL 5.6 are taken from (MariaDB).
        #[serde(default)]
        pub old_temporal_precision: OldTemporalPrecision,
        /// It waits for `tailwater channel start`.
        #[serde(default)]
        pub stopped: bool,
        /// What is left out, and what goes elsewhere; edits by `tailwater channel filter` count for more.
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

/// Channels beyond this many workers only wait for each other.
const WORKERS_MAX: usize = 64;

impl ChannelConfig {
    /// What contradicts itself; `sources` are the names of the sources.
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
            return Err(format!("channel {name:?}: where is the target? give host and port, or socket"));
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
