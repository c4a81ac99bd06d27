//! Arguments of `tailwater job`, and where commands register as jobs.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};

use super::ConfigFile;

#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// List the running jobs, and the last 100 that have ended.
    List(ConfigFile),
    /// Show a job: state, progress, remaining time, and the last lines of its log.
    Show(JobId),
    /// End a running job as Ctrl-C does. A dump, load, copy or check can be resumed with --resume.
    Cancel(JobId),
}

#[derive(Debug, Args)]
pub struct JobId {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Number of the job, from `tailwater job list`.
    #[arg(value_name = "ID")]
    pub id: u64,
}

#[derive(Debug, Clone, Args)]
pub struct DaemonArgs {
    /// Daemon that lists this command as a job: auto, none, or the path of the daemon's control socket. auto
    /// means the daemon of the configuration file of this command, or else the daemon of
    /// /etc/tailwater/tailwater.toml. If that daemon does not run, auto means none.
    #[arg(long, value_name = "auto|none|SOCKET", default_value = "auto")]
    pub daemon: JobDaemon,
}

/// The daemon that lists a command as a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobDaemon {
    /// The daemon of the configuration or of this machine, if it runs.
    Auto,
    /// No daemon.
    None,
    /// The daemon with this control socket.
    Socket(PathBuf),
}

impl FromStr for JobDaemon {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "none" => Self::None,
            path => Self::Socket(PathBuf::from(path)),
        })
    }
}
