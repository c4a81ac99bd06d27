//! Arguments of `tailwater channel`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{CloneArgs, ConfigFile, CopyHowArgs};
use tailwater_binlog_stats::LocalTime;

#[derive(Debug, Subcommand)]
pub enum ChannelCommand {
    /// List all channels: state, lag, rate and errors.
    List(ConfigFile),
    /// Copy the source of a channel to its empty target, then start the channel exactly at the position of
    /// the copy.
    Add(ChannelAdd),
    /// Start a stopped or failed channel after the last transaction that it applied.
    Start {
        #[command(flatten)]
        channel: ChannelName,
        /// Stop after the transaction with this GTID.
        #[arg(long, value_name = "GTID", conflicts_with = "until_time")]
        until_gtid: Option<String>,
        /// Stop before the first transaction that was committed on the source at or after this time: local
        /// "YYYY-MM-DD[ HH:MM:SS]", RFC 3339, or @SECONDS.
        #[arg(long, value_name = "TIME")]
        until_time: Option<LocalTime>,
        /// Apply only the failed transaction idempotently: INSERT replaces an existing row; UPDATE and DELETE
        /// ignore a missing row.
        #[arg(long, conflicts_with_all = ["until_gtid", "until_time"])]
        idempotent_once: bool,
        /// Apply all transactions up to and including this one idempotently.
        #[arg(long, value_name = "GTID", conflicts_with_all = ["until_gtid", "until_time", "idempotent_once"])]
        idempotent_until: Option<String>,
    },
    /// Stop a channel after its running transactions have committed, and publish the applied GTIDs to the
    /// target.
    Stop(ChannelName),
    /// Never apply this transaction, and record that on the target. A failed channel starts again; a stopped
    /// channel remains stopped.
    Skip {
        #[command(flatten)]
        channel: ChannelName,
        /// GTID of the transaction to skip.
        gtid: String,
        /// Change the channel. Without --yes, the command only prints what it would do.
        #[arg(long)]
        yes: bool,
    },
    /// Set the applied position: the channel treats exactly these transactions of the source as applied.
    Seek {
        #[command(flatten)]
        channel: ChannelName,
        /// GTID set (MySQL) or GTID position (MariaDB). An empty string means no transactions.
        gtids: String,
        /// Change the channel. Without --yes, the command only prints what it would do.
        #[arg(long)]
        yes: bool,
    },
    /// Replace the filters and rewrites of a channel. They take effect at the next transaction, or at
    /// --from-gtid, and are stored on the target.
    Filter {
        #[command(flatten)]
        channel: ChannelName,
        /// File with all filters, in the format of [channel.filters] in the configuration. - means standard
        /// input.
        #[arg(value_name = "TOML")]
        filters: PathBuf,
        /// First transaction that the new filters apply to. Default: the next one.
        #[arg(long, value_name = "GTID")]
        from_gtid: Option<String>,
    },
    /// Change settings of a running channel. The new values last until the daemon restarts.
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
    /// Copy all databases of the source to the target (required).
    #[arg(long, required = true)]
    pub provision: bool,
    /// Copy the whole server with MySQL's CLONE plugin, accounts included.
    #[arg(long, conflicts_with = "restart")]
    pub binary: bool,
    #[command(flatten)]
    pub clone: CloneArgs,
    /// Option file with an account that is allowed to dump the source. Default: the capture account.
    #[arg(long, value_name = "FILE")]
    pub source_defaults_file: Option<PathBuf>,
    /// User name of the account that dumps the source.
    #[arg(long, value_name = "USER")]
    pub source_user: Option<String>,
    #[command(flatten)]
    pub how: CopyHowArgs,
}

#[derive(Debug, Args)]
pub struct ChannelName {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the channel.
    #[arg(value_name = "CHANNEL")]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct ChannelEditArgs {
    /// Number of parallel apply workers (connections to the target).
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Maximum number of source transactions that one transaction on the target may combine.
    #[arg(long, value_name = "N")]
    pub batch_transactions_max: Option<usize>,
    /// Maximum bytes of row data in one transaction on the target.
    #[arg(long, value_name = "N")]
    pub batch_bytes_max: Option<usize>,
    /// Order in which transactions commit on the target.
    #[arg(long, value_enum)]
    pub commit_order: Option<CommitOrderArg>,
    /// Whether applied transactions are written to the target's binlog, and with which GTIDs.
    #[arg(long, value_enum)]
    pub gtid: Option<GtidArg>,
    /// Whether CREATE TABLE replaces an existing table and DROP TABLE ignores a missing one.
    #[arg(long, value_enum)]
    pub ddl_exec_mode: Option<DdlExecModeArg>,
    /// Apply each transaction this many seconds after its commit on the source.
    #[arg(long, value_name = "N")]
    pub delay_seconds: Option<u64>,
}

/// Order in which transactions commit on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CommitOrderArg {
    /// Transactions commit in the order of the source.
    Source,
    /// Any order in which transactions that write the same key keep the order of the source.
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

/// What DDL does when the target's tables differ from the source's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DdlExecModeArg {
    /// The channel stops with an error if a DDL statement fails on the target.
    Strict,
    /// CREATE TABLE replaces an existing table; DROP TABLE ignores a missing one.
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

/// Whether applied transactions are written to the target's binlog, and with which GTIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GtidArg {
    /// Not written to the target's binlog; the applied GTIDs are published to the target.
    Log,
    /// Written to the target's binlog with the source's GTIDs.
    Preserve,
    /// Written to the target's binlog with GTIDs that the target generates.
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
