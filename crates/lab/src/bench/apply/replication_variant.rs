//! The measured contenders: native replication with one of its settings, or Tailwater with one of its commit
//! orders.

use tailwater_sandbox::ServerKind;
use tailwater_wire::Flavour;

/// The order in which a reader of the target sees commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayOrder {
    /// Commits become visible in the order of the source.
    Source,
    /// Commits become visible in any order in which transactions that depend on each other keep the order of
    /// the source.
    Independent,
}

impl ReplayOrder {
    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Independent => "independent",
        }
    }
}

/// What MariaDB's workers may run at the same time: `slave_parallel_mode`. All modes keep the commit order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParallelMode {
    /// Workers run nothing in parallel.
    None,
    /// Workers run the transactions in parallel that the source committed as one group.
    Conservative,
    /// Workers run all transactions in parallel, except those that conflicted on the source. Conflicts are
    /// rolled back and tried again.
    Optimistic,
    /// Workers run all transactions in parallel.
    Aggressive,
}

impl ParallelMode {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Conservative => "conservative",
            Self::Optimistic => "optimistic",
            Self::Aggressive => "aggressive",
        }
    }
}

/// Settings of native replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeSettings {
    /// MariaDB: `slave_parallel_mode` and `slave_parallel_threads`.
    Mariadb {
        /// The value of `slave_parallel_mode`.
        mode: ParallelMode,
        /// Number of workers. With 0, the thread that reads the relay log also applies.
        workers: u32,
    },
    /// MySQL: `replica_parallel_workers` and `replica_preserve_commit_order`, with write sets.
    Mysql {
        /// Number of workers.
        workers: u32,
        /// Whether commits keep the source's order.
        preserve_order: bool,
    },
}

impl NativeSettings {
    /// Returns every setting of a flavour, the single-threaded setting first. A quick run has fewer settings.
    pub fn all(flavour: Flavour, quick: bool) -> Vec<Self> {
        let workers: &[u32] = if quick { &[4] } else { &[2, 4, 8, 16] };
        match flavour {
            Flavour::MariaDb => {
                let modes: &[ParallelMode] = match quick {
                    true => &[ParallelMode::Conservative, ParallelMode::Optimistic],
                    false => {
                        &[ParallelMode::Conservative, ParallelMode::Optimistic, ParallelMode::Aggressive]
                    }
                };
                let single = Self::Mariadb { mode: ParallelMode::None, workers: 0 };
                // This setting has one worker in addition to the thread that reads the relay log.
                let one = Self::Mariadb { mode: ParallelMode::Conservative, workers: 1 };
                let more = modes
                    .iter()
                    .flat_map(|mode| workers.iter().map(|&workers| Self::Mariadb { mode: *mode, workers }));
                [single, one].into_iter().chain(more).collect()
            }
            Flavour::MySql => {
                let single = Self::Mysql { workers: 1, preserve_order: true };
                let more = [true, false].into_iter().flat_map(|preserve_order| {
                    workers.iter().map(move |&workers| Self::Mysql { workers, preserve_order })
                });
                std::iter::once(single).chain(more).collect()
            }
        }
    }

    /// Whether one thread applies all transactions.
    pub fn is_single(self) -> bool {
        matches!(self, Self::Mariadb { workers: 0, .. } | Self::Mysql { workers: 1, .. })
    }

    /// Returns the statements that set these settings. The target must not be applying transactions when they
    /// run.
    pub fn statements(self) -> Vec<String> {
        match self {
            Self::Mariadb { mode, workers } => vec![
                format!("SET GLOBAL slave_parallel_threads = {workers}"),
                format!("SET GLOBAL slave_parallel_mode = '{}'", mode.name()),
            ],
            Self::Mysql { workers, preserve_order } => vec![
                format!("SET GLOBAL replica_parallel_workers = {workers}"),
                format!("SET GLOBAL replica_preserve_commit_order = {}", u8::from(preserve_order)),
            ],
        }
    }
}

impl std::fmt::Display for NativeSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            single if single.is_single() => write!(f, "native, single-threaded"),
            // With one worker the parallel mode has no effect, so it is not printed.
            Self::Mariadb { workers: 1, .. } => write!(f, "native, 1 worker"),
            Self::Mariadb { mode, workers } => write!(f, "native, {}, {workers} workers", mode.name()),
            Self::Mysql { workers, preserve_order } => {
                let order = if *preserve_order { "in order" } else { "in any order" };
                write!(f, "native, {order}, {workers} workers")
            }
        }
    }
}

/// A measured contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// Native replication.
    Native(NativeSettings),
    /// Tailwater.
    Ours(ReplayOrder),
}

impl Contender {
    /// Tailwater's contenders, with the one of the headline figure first.
    pub const OURS: [Self; 2] = [Self::Ours(ReplayOrder::Independent), Self::Ours(ReplayOrder::Source)];
}

impl std::fmt::Display for Contender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Native(native) => native.fmt(f),
            Self::Ours(order) => write!(f, "tailwater, {}", order.name()),
        }
    }
}

/// Returns the options with which native replication is fastest, and which do not slow Tailwater down.
pub fn replica_options(kind: ServerKind) -> &'static [&'static str] {
    match kind.flavour() {
        Flavour::MariaDb => {
            &["--skip-slave-start", "--relay-log=relay", "--slave-parallel-max-queued=67108864"]
        }
        Flavour::MySql => &["--skip-replica-start", "--relay-log=relay"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_native_setting_is_tried_once() {
        for (flavour, quick, want) in [
            (Flavour::MariaDb, false, 14),
            (Flavour::MySql, false, 9),
            (Flavour::MariaDb, true, 4),
            (Flavour::MySql, true, 3),
        ] {
            let all = NativeSettings::all(flavour, quick);
            assert_eq!(all.len(), want, "wrong number of native settings for {flavour:?}");
            assert!(all[0].is_single() && all[1..].iter().all(|native| !native.is_single()));
            let names: std::collections::HashSet<_> = all.iter().map(ToString::to_string).collect();
            assert_eq!(names.len(), want);
        }
        let native = NativeSettings::Mysql { workers: 8, preserve_order: false };
        assert_eq!(Contender::Native(native).to_string(), "native, in any order, 8 workers");
        assert_eq!(
            Contender::OURS.map(|ours| ours.to_string()),
            ["tailwater, independent", "tailwater, source"]
        );
    }
}
