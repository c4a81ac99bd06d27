//! `[[prefetch]]`: reads pages ahead beside a native replica.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

/// `prefetch.mode`, `channel.prefetch`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PrefetchMode {
    /// Reads ahead while the measurement shows that it pays.
    Auto,
    /// Always reads ahead.
    On,
    /// Does not read ahead.
    #[default]
    Off,
}

server_section! {
    /// `[[prefetch]]`
    pub struct PrefetchConfig {
        /// The name of the prefetch in messages, metrics and the API.
        pub name: String,
        /// Name of the source from whose log the events come.
        pub source: String,
        /// The replica's channel (MariaDB: the name of its connection). Needed if the replica has several.
        pub channel: Option<String>,
        /// Whether it reads ahead always, or only while it pays.
        #[serde(default = "default_mode")]
        pub mode: PrefetchMode,
        /// Number of connections that read pages.
        #[serde(default = "default_connections")]
        pub connections: usize,
        /// Transactions that are nearer than this to the applied one, in seconds of commit time, and nearer
        /// than `ahead_bytes_min`, are left to the replica.
        #[serde(default = "default_ahead_seconds_min")]
        pub ahead_seconds_min: u64,
        /// See `ahead_seconds_min`; in bytes of the binlog.
        #[serde(default = "default_ahead_bytes_min")]
        pub ahead_bytes_min: u64,
        /// Nothing is read further ahead than this, in seconds of commit time.
        #[serde(default = "default_ahead_seconds_max")]
        pub ahead_seconds_max: u64,
        /// Nothing is read further ahead than this, in bytes of the binlog.
        #[serde(default = "default_ahead_bytes_max")]
        pub ahead_bytes_max: u64,
        /// A query that returns more rows for a key is not repeated for `slow_keep_seconds`.
        #[serde(default = "default_slow_rows_max")]
        pub slow_rows_max: u64,
        /// How long slow queries are not repeated, in seconds.
        #[serde(default = "default_slow_keep_seconds")]
        pub slow_keep_seconds: u64,
        /// The resource group of the reading sessions (MySQL).
        pub resource_group: Option<String>,
    }
}

fn default_mode() -> PrefetchMode {
    PrefetchMode::Auto
}

fn default_connections() -> usize {
    16
}

fn default_ahead_seconds_min() -> u64 {
    1
}

fn default_ahead_bytes_min() -> u64 {
    16 << 10
}

fn default_ahead_seconds_max() -> u64 {
    180
}

fn default_ahead_bytes_max() -> u64 {
    64 << 20
}

fn default_slow_rows_max() -> u64 {
    1_000
}

fn default_slow_keep_seconds() -> u64 {
    600
}

/// Checks the sections for contradictions. `sources` has the names of all sources, `channels` those of all
/// channels.
pub(crate) fn check(
    prefetches: &[PrefetchConfig],
    sources: &HashSet<&String>,
    channels: &HashSet<&String>,
) -> Result<(), String> {
    let mut names = HashSet::new();
    for prefetch in prefetches {
        prefetch.check(sources)?;
        // The prefetch of a channel has the channel's name.
        if !names.insert(&prefetch.name) || channels.contains(&prefetch.name) {
            return Err(format!(
                "prefetch.name = {:?} is given twice, or is the name of a channel",
                prefetch.name
            ));
        }
    }
    Ok(())
}

impl PrefetchConfig {
    fn check(&self, sources: &HashSet<&String>) -> Result<(), String> {
        let name = &self.name;
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
            return Err(format!(
                "prefetch.name = {name:?}: a name has 1 to 64 characters of a-z, A-Z, 0-9, `_`, `-`, `.`"
            ));
        }
        let wrong = |reason: &str| Err(format!("prefetch {name:?}: {reason}"));
        if !sources.contains(&self.source) {
            return wrong(&format!("source = {:?}: there is no [[source]] of that name", self.source));
        }
        let server = self.server();
        server.check().map_err(|reason| format!("prefetch {name:?}: {reason}"))?;
        if !server.is_given() {
            return wrong("the address of its replica is missing; give host and port, or socket");
        }
        if !(1..=256).contains(&self.connections) {
            return wrong("connections must be 1 to 256");
        }
        if self.ahead_seconds_max <= self.ahead_seconds_min || self.ahead_bytes_max <= self.ahead_bytes_min {
            return wrong(
                "ahead_seconds_max and ahead_bytes_max must be above ahead_seconds_min and ahead_bytes_min",
            );
        }
        if self.slow_rows_max == 0 {
            return wrong("slow_rows_max must be at least 1");
        }
        Ok(())
    }
}
