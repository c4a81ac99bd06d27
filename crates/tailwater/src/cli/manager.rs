//! Arguments of `failover`, `switchover`, `rejoin` and `manager`.

use clap::{Args, Subcommand};

use super::ConfigFile;

#[derive(Debug, Args)]
pub struct FailoverArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the source with the failed primary.
    pub source: String,
    /// Promote only this server. Default: the best candidate.
    #[arg(long, value_name = "SERVER")]
    pub to: Option<String>,
    /// Check all rules and print the plan with the expected time; nothing is changed.
    #[arg(long)]
    pub dry_run: bool,
    /// Fail over even without proof that every acknowledged commit is preserved; prints what may be lost.
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
    /// Maximum time without writes; the switchover is rolled back if it takes longer.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub max_write_pause_ms: u64,
    /// Check all rules and print the plan with the expected time; nothing is changed.
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
    /// The former primary: name of a [[server]], or of the [[source]] that was primary before.
    pub server: String,
    /// Print which transactions would be undone and which applied again; nothing is changed.
    #[arg(long)]
    pub dry_run: bool,
    /// Drop all its databases and copy those of the primary; requires --yes.
    #[arg(long, conflicts_with = "dry_run")]
    pub copy: bool,
    /// Confirm that the databases may be dropped.
    #[arg(long, requires = "copy")]
    pub yes: bool,
    /// Do not compare its rows with those of the primary.
    #[arg(long)]
    pub no_check: bool,
    /// How far before the end of its binlog commits may be missing from its tables. Default: 60 with reduced
    /// durability, else 0.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub window: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub enum ManagerCommand {
    /// Show problems of each cluster, the lease, and what blocks automatic failover.
    Status(ConfigFile),
    /// Disable automatic failover until `resume`; `tailwater failover` still works.
    Pause(ManagerScope),
    /// Enable automatic failover again.
    Resume(ManagerScope),
    /// Put a server or a cluster in maintenance: no failover and no problem reports for it.
    Downtime(DowntimeArgs),
    /// Acknowledge the last failover, so that the next automatic one may follow at once.
    Acknowledge(ManagerScope),
    /// Raise the lease term after etcd was recreated: relays refuse its terms, which are below those they
    /// have accepted. Only safe while no other manager holds a lease.
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
    /// Name of the server. Default: the whole cluster.
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    /// Duration from now: 15min, 2h.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration, required_unless_present = "end")]
    pub duration: Option<std::time::Duration>,
    /// End the downtime now.
    #[arg(long, conflicts_with = "duration")]
    pub end: bool,
    /// Reason, shown in the status.
    #[arg(long, default_value = "")]
    pub reason: String,
}
