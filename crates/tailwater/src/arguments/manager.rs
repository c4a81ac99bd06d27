//! Arguments of `failover`, `switchover`, `rejoin` and `manager`.

use clap::{Args, Subcommand};

use super::{ConfigFile, DaemonArgs};

#[derive(Debug, Args)]
pub struct FailoverArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the source whose primary has failed.
    pub source: String,
    /// Promote only this server. Default: the best candidate.
    #[arg(long, value_name = "SERVER")]
    pub to: Option<String>,
    /// Check all rules and print the plan with the expected duration, without changing anything.
    #[arg(long)]
    pub dry_run: bool,
    /// Fail over even if it is not proved that every acknowledged commit is preserved. Prints what may be
    /// lost.
    #[arg(long)]
    pub allow_data_loss: bool,
    /// Also allow a candidate in another region.
    #[arg(long)]
    pub across_regions: bool,
}

#[derive(Debug, Args)]
pub struct SwitchoverArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the source.
    pub source: String,
    /// Promote only this server. Default: the best candidate.
    #[arg(long, value_name = "SERVER")]
    pub to: Option<String>,
    /// Maximum time in which clients cannot write, in milliseconds. A switchover that takes longer is rolled
    /// back.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub max_write_pause_ms: u64,
    /// Check all rules and print the plan with the expected duration, without changing anything.
    #[arg(long)]
    pub dry_run: bool,
    /// Also allow a candidate in another region.
    #[arg(long)]
    pub across_regions: bool,
}

#[derive(Debug, Args)]
pub struct RejoinArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the source whose cluster the server belongs to.
    pub source: String,
    /// The former primary: the name of a [[server]], or of the [[source]] that was the primary before.
    pub server: String,
    /// Print which transactions would be undone and which would be applied again, without changing anything.
    #[arg(long)]
    pub dry_run: bool,
    /// Drop all databases of the former primary and copy the databases of the primary instead. Requires
    /// --yes.
    #[arg(long, conflicts_with = "dry_run")]
    pub copy: bool,
    /// Confirm --copy: the databases of the former primary may be dropped.
    #[arg(long, requires = "copy")]
    pub yes: bool,
    /// Do not compare the rows of the rejoined server with the rows of the primary.
    #[arg(long)]
    pub no_check: bool,
    /// How many seconds of commits may be missing from the former primary's tables, counted back from the end
    /// of its binlog. Default: 60 if the server runs with reduced durability, else 0.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub window: Option<u64>,
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

#[derive(Debug, Subcommand)]
pub enum ManagerCommand {
    /// Show the problems of each cluster, the lease, and what prevents automatic failover.
    Status(ConfigFile),
    /// Disable automatic failover until `resume`. `tailwater failover` still works.
    Pause(ManagerScope),
    /// Enable automatic failover again.
    Resume(ManagerScope),
    /// Put a server or a whole cluster in maintenance. Meanwhile the manager starts no automatic failover for
    /// it and reports no problems of it.
    Downtime(DowntimeArgs),
    /// Acknowledge the last failover, so that the next automatic failover is allowed at once.
    Acknowledge(ManagerScope),
    /// Raise the lease term after etcd was recreated. The new etcd counts lease terms from the start, and
    /// relays refuse orders with a lower lease term than one that they have accepted. Only safe while no
    /// other manager holds a lease.
    RaiseTerms(RaiseTermsArgs),
}

#[derive(Debug, Args)]
pub struct RaiseTermsArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the source.
    pub source: String,
}

#[derive(Debug, Args)]
pub struct ManagerScope {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the source. Default: all sources.
    pub source: Option<String>,
}

#[derive(Debug, Args)]
pub struct DowntimeArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the source whose cluster the server belongs to.
    pub source: String,
    /// Name of the server. Default: all servers of the cluster.
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    /// Duration of the downtime from now: 15min, 2h.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration, required_unless_present = "end")]
    pub duration: Option<std::time::Duration>,
    /// End the downtime at once.
    #[arg(long, conflicts_with = "duration")]
    pub end: bool,
    /// Reason for the downtime, shown by `manager status`.
    #[arg(long, default_value = "")]
    pub reason: String,
}
