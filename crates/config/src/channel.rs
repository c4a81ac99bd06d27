//! `[[channel]]`: applies the log of a source to a target.

use std::collections::HashSet;

use tailwater_apply::channel::{ChannelEdit, ChannelStart, DdlExecMode, GtidMode, OldTemporalPrecision};
use tailwater_apply::replication_filter::FilterSet;
use tailwater_apply::scheduler::CommitOrder;

use crate::PrefetchMode;

server_section! {
    /// `[[channel]]`
    pub struct ChannelConfig {
        /// The name of the channel in messages and commands, and in its progress table on the target.
        pub name: String,
        /// Name of the source whose log the channel applies.
        pub source: String,
        /// Number of connections to the target that apply transactions in parallel.
        #[serde(default = "default_workers")]
        pub workers: usize,
        /// Whether transactions commit in the source's order.
        #[serde(default = "default_commit_order")]
        pub commit_order: CommitOrder,
        /// Which GTIDs the transactions get on the target.
        #[serde(default)]
        pub gtid: GtidMode,
        /// What to do with a `CREATE TABLE` of a table that the target already has, and with a `DROP TABLE`
        /// of a table that the target does not have.
        #[serde(default)]
        pub ddl_exec_mode: DdlExecMode,
        /// Where a channel that is new on its target starts in the log.
        #[serde(default)]
        pub start: ChannelStart,
        /// The greatest number of source transactions in one target transaction.
        #[serde(default = "default_batch_transactions_max")]
        pub batch_transactions_max: usize,
        /// The greatest number of bytes of rows in one target transaction. A single source transaction may be
        /// larger.
        #[serde(default = "default_batch_bytes_max")]
        pub batch_bytes_max: usize,
        /// The greatest number of bytes of decoded transactions in memory.
        #[serde(default = "default_memory_bytes_max")]
        pub memory_bytes_max: usize,
        /// Source transactions above this size, in bytes, are read from the log in parts instead of being
        /// held in memory.
        #[serde(default = "default_transaction_bytes_max")]
        pub transaction_bytes_max: u64,
        /// The delay from the commit of a transaction on the source until the channel applies it, in seconds.
        #[serde(default)]
        pub delay_seconds: u64,
        /// Which server's table definition gives the precision of MariaDB's temporal columns in the format
        /// from before MySQL 5.6. The binlog does not contain this precision.
        #[serde(default)]
        pub old_temporal_precision: OldTemporalPrecision,
        /// Whether the pages that the channel needs are read ahead on the target.
        #[serde(default)]
        pub prefetch: PrefetchMode,
        /// Whether the channel stays stopped until `tailwater channel start`.
        #[serde(default)]
        pub stopped: bool,
        /// Filters and renames. Changes made with `tailwater channel filter` take precedence.
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

impl ChannelConfig {
    /// Checks the section for contradictions. `sources` has the names of all sources.
    pub(crate) fn check(&self, sources: &HashSet<&String>) -> Result<(), String> {
        let name = &self.name;
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
            return Err(format!(
                "channel.name = {name:?}: a name has 1 to 64 characters of a-z, A-Z, 0-9, `_`, `-`, `.`"
            ));
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
        let options = ChannelEdit {
            workers: Some(self.workers),
            batch_transactions_max: Some(self.batch_transactions_max),
            batch_bytes_max: Some(self.batch_bytes_max),
            delay_seconds: Some(self.delay_seconds),
            ..ChannelEdit::default()
        };
        options.check().map_err(|(option, range)| format!("channel {name:?}: {option} must be {range}"))?;
        if self.memory_bytes_max < 1 << 20 || self.transaction_bytes_max < 64 << 10 {
            return Err(format!(
                "channel {name:?}: memory_bytes_max must be at least 1048576, transaction_bytes_max at least 65536"
            ));
        }
        if self.transaction_bytes_max as usize > self.memory_bytes_max {
            return Err(format!("channel {name:?}: transaction_bytes_max must be at most memory_bytes_max"));
        }
        self.filters.compile().map_err(|error| format!("channel {name:?}: {error}"))?;
        Ok(())
    }
}
