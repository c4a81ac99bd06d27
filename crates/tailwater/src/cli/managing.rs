//! What the manager in the daemon is told and asked.

use clap::{Args, Subcommand};

use super::ConfigFile;

#[derive(Debug, Args)]
pub struct FailoverArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the source whose primary has failed.
    pub source: String,
    /// This server becomes primary, or none; the best if absent.
    #[arg(long, value_name = "SERVER")]
    pub to: Option<String>,
    /// Check everything and print the plan with the time it would take; nothing is changed.
    #[arg(long)]
    pub dry_run: bool,
    /// Go on even if it cannot be proven that every acknowledged commit is held; what may be missing is printed.
    #[arg(long)]
    pub allow_data_loss: bool,
    /// A server of another region will do.
    #[arg(long)]
    pub across_regions: bool,
}

#[derive(Debug, Args)]
pub struct SwitchoverArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the source whose primary is to be another server.
    pub source: String,
    /// This server becomes primary, or none; the best if absent.
    #[arg(long, value_name = "SERVER")]
    pub to: Option<String>,
    /// How long nobody may be able to write; everything is undone if that is not enough.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub max_write_pause_ms: u64,
    /// Check everything and print the plan with the time it would take; nothing is changed.
    #[arg(long)]
    pub dry_run: bool,
    /// A server of another region will do.
    #[arg(long)]
    pub across_regions: bool,
}

#[derive(Debug, Args)]
pub struct RejoinArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the source to whose cluster the server belongs.
    pub source: String,
    /// The former primary: the name of a [[server]], or of the [[source]] that led before.
    pub server: String,
    /// Print what would be undone and done again; nothing is changed.
    #[arg(long)]
    pub dry_run: bool,
    /// Remove all its databases, and copy those of the primary; needs --yes.
    #[arg(long, conflicts_with = "dry_run")]
    pub copy: bool,
    /// Remove the databases indeed.
    #[arg(long, requires = "copy")]
    pub yes: bool,
    /// Join it without comparing its rows with those of the primary.
    #[arg(long)]
    pub no_check: bool,
    /// What committed so long before the end of its binlog is certainly in its tables; 60 s if its durability was reduced, and 0 if
    /// not, unless given.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub window: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub enum ManagerCommand {
    /// What is wrong in each cluster, who may act, and what holds failovers back.
    Status(ConfigFile),
    /// No failover by itself until `resume`; `tailwater failover` goes on working.
    Pause(ManagerScope),
    /// Failovers again.
    Resume(ManagerScope),
    /// A server is down on purpose: it is no reason to fail over, and nothing to tell.
    Downtime(DowntimeArgs),
    /// The last failover was looked at: another may follow at once.
    Acknowledge(ManagerScope),
    /// etcd was made anew, and relays refuse the terms of its lease: the next one is above all that they have obeyed. Only if no
    /// manager holds a lease elsewhere.
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
    /// Name of the source; all of them if absent.
    pub source: Option<String>,
}

#[derive(Debug, Args)]
pub struct DowntimeArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Name of the source to whose cluster the server belongs.
    pub source: String,
    /// The server; the whole cluster if absent.
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    /// For so long from now: 15min, 2h.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration, required_unless_present = "end")]
    pub duration: Option<std::time::Duration>,
    /// It is over.
    #[arg(long, conflicts_with = "duration")]
    pub end: bool,
    /// Why, for those who wonder.
    #[arg(long, default_value = "")]
    pub reason: String,
}
