//! `channel`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{CloneArgs, ConfigFile, CopyHowArgs};
use tailwater_daemon::moment::Moment;

#[derive(Debug, Subcommand)]
pub enum ChannelCommand {
    /// Shows all channels: state, lag, rate, and what is wrong.
    List(ConfigFile),
    /// Copies a channel's source to its empty target, and starts the channel behind exactly what was copied.
    Add(ChannelAdd),
    /// Goes on behind what is applied; a channel that failed tries again.
    Start {
        #[command(flatten)]
        channel: ChannelName,
        /// Stop behind this transaction.
        #[arg(long, value_name = "GTID", conflicts_with = "until_time")]
        until_gtid: Option<String>,
        /// Stop before the first transaction that committed on the source at this time or later: local
        /// "YYYY-MM-DD[ HH:MM:SS]", RFC 3339, or @SECONDS.
        #[arg(long, value_name = "TIME")]
        until_time: Option<Moment>,
        /// For the transaction that it failed at: rows that are there are replaced, rows that are not there are not missed.
        #[arg(long, conflicts_with_all = ["until_gtid", "until_time"])]
        idempotent_once: bool,
        /// The same for all transactions up to this one.
        #[arg(long, value_name = "GTID", conflicts_with_all = ["until_gtid", "until_time", "idempotent_once"])]
        idempotent_until: Option<String>,
    },
    /// Stops when what is under way has committed, and tells the target what was applied.
    Stop(ChannelName),
    /// Leaves a transaction out for good, and records that on the target. A channel that failed starts
    /// again; one that was stopped stays so.
    Skip {
        #[command(flatten)]
        channel: ChannelName,
        /// The transaction.
        gtid: String,
        /// Do it, rather than say what would be done.
        #[arg(long)]
        yes: bool,
    },
    /// Goes on as if exactly these transactions of the source were applied.
    Seek {
        #[command(flatten)]
        channel: ChannelName,
        /// A GTID set (MySQL) or position (MariaDB); "" for none.
        gtids: String,
        /// Do it, rather than say what would be done.
        #[arg(long)]
        yes: bool,
    },
    /// Has other filters and rewrites count, from the next transaction on or from a named one; kept on the target.
    Filter {
        #[command(flatten)]
        channel: ChannelName,
        /// All of them, as [channel.filters] of the configuration has them; - reads standard input.
        #[arg(value_name = "TOML")]
        filters: PathBuf,
        /// From this transaction on.
        #[arg(long, value_name = "GTID")]
        from_gtid: Option<String>,
    },
    /// Changes how a running channel works, until the daemon is started anew.
    Set {
        #[command(flatten)]
        channel: ChannelName,
        #[command(flatten)]
        edit: ChannelEditArgs,
    },
}

#[derive(Debug, Args)]
pub struct ChannelAdd {
    #[command(flatten)]
    pub channel: ChannelName,
    /// Copy all databases of the source to the target.
    #[arg(long, required = true)]
    pub provision: bool,
    /// Copy the whole server by MySQL's CLONE, its accounts too.
    #[arg(long, conflicts_with = "restart")]
    pub binary: bool,
    #[command(flatten)]
    pub clone: CloneArgs,
    /// Option file with an account that may dump the source, in place of the one that captures it.
    #[arg(long, value_name = "FILE")]
    pub source_defaults_file: Option<PathBuf>,
    /// The user of that account.
    #[arg(long, value_name = "USER")]
    pub source_user: Option<String>,
    #[command(flatten)]
    pub how: CopyHowArgs,
}

#[derive(Debug, Args)]
pub struct ChannelName {
    #[command(flatten)]
    pub file: ConfigFile,
    /// The channel.
    #[arg(value_name = "CHANNEL")]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct ChannelEditArgs {
    /// Connections that apply side by side.
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// The most source transactions in one target transaction.
    #[arg(long, value_name = "N")]
    pub batch_transactions_max: Option<usize>,
    /// The most bytes of rows in one target transaction.
    #[arg(long, value_name = "N")]
    pub batch_bytes_max: Option<usize>,
    /// Whether commits keep the source's order.
    #[arg(long, value_enum)]
    pub commit_order: Option<CommitOrderArg>,
    /// Under which identity transactions stand in the target's own binlog, or that they do not.
    #[arg(long, value_enum)]
    pub gtid: Option<GtidArg>,
    /// Whether a CREATE TABLE replaces a table that the target has, and a DROP TABLE passes over one that it lacks.
    #[arg(long, value_enum)]
    pub ddl_exec_mode: Option<DdlExecModeArg>,
    /// Apply transactions this many seconds after they committed on the source.
    #[arg(long, value_name = "N")]
    pub delay_seconds: Option<u64>,
}

/// The order of commits on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CommitOrderArg {
    /// The source's.
    Source,
    /// Only transactions that share a key keep their order.
    Independent,
}

impl From<CommitOrderArg> for tailwater_apply::scheduler::CommitOrder {
    fn from(order: CommitOrderArg) -> Self {
        match order {
            CommitOrderArg::Source => Self::Source,
            CommitOrderArg::Independent => Self::Independent,
        }
    }
}

/// What becomes of definitions where the target's tables are not the source's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DdlExecModeArg {
    /// The channel stops.
    Strict,
    /// The source's table replaces the target's; a table that is not there is not dropped.
    Idempotent,
}

impl From<DdlExecModeArg> for tailwater_apply::channel::DdlExecMode {
    fn from(mode: DdlExecModeArg) -> Self {
        match mode {
            DdlExecModeArg::Strict => Self::Strict,
            DdlExecModeArg::Idempotent => Self::Idempotent,
        }
    }
}

/// Identity of transactions on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GtidArg {
    /// Not in its binlog; what was applied is published to it.
    Log,
    /// In its binlog under the source's GTIDs.
    Preserve,
    /// In its binlog as its own.
    Own,
}

impl From<GtidArg> for tailwater_apply::channel::GtidMode {
    fn from(mode: GtidArg) -> Self {
        match mode {
            GtidArg::Log => Self::Log,
            GtidArg::Preserve => Self::Preserve,
            GtidArg::Own => Self::Own,
        }
    }
}
