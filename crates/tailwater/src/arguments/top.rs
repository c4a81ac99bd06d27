//! The arguments of `tailwater top`.

use clap::{Args, ValueEnum};

use super::ConfigFile;

#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Print one screen in full as text to standard output, after two requests to the daemon.
    #[arg(long)]
    pub once: bool,
    /// Screen that is shown first. With --once: the screen to print.
    #[arg(long, value_enum, default_value_t = ScreenArg::Overview)]
    pub screen: ScreenArg,
    /// Time between two requests to the daemon, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub interval: u64,
    /// Draw with ASCII characters only. Default: only if the locale has no UTF-8.
    #[arg(long)]
    pub ascii: bool,
}

/// A screen of `tailwater top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScreenArg {
    /// Problems, sources, readers of the binlog servers, log disk.
    Overview,
    /// Channels.
    Channels,
    /// Clusters and their servers.
    Clusters,
    /// Rates and lags of the last minutes.
    Trends,
    /// Dumps, loads, copies, checks, repairs and rejoins.
    Jobs,
}
