//! Arguments of `demo` and `sandbox`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ServerFamily;

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Server family of the primary.
    #[arg(long, value_enum, default_value_t = ServerFamily::Mariadb)]
    pub server: ServerFamily,
    /// Release series, such as 11.8. Default: the first series of the family.
    #[arg(long = "version", value_name = "SERIES")]
    pub series: Option<String>,
    /// Run a shorter workload.
    #[arg(long)]
    pub short: bool,
    /// Number of client connections of the workload.
    #[arg(long, default_value_t = 8)]
    pub clients: u32,
    /// Keep the files of the servers and the log in this folder instead of a temporary one.
    #[arg(long)]
    pub keep: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Download missing servers into the cache folder, without root and without changing the system.
    Install {
        /// Only this server family.
        #[arg(long, value_enum)]
        server: Option<ServerFamily>,
    },
    /// Start servers that run until `down`.
    Up {
        /// Server family.
        #[arg(long, value_enum)]
        server: ServerFamily,
        /// Release series, such as 11.8. Default: the first series of the family.
        #[arg(long = "version", value_name = "SERIES")]
        series: Option<String>,
        /// Number of servers.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
        count: u32,
        /// TCP port of the first server; the others use the next ports. Default: free ports.
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        port: Option<u16>,
        /// Start a cluster for the manager: the first server is the primary with lossless semi-sync, the
        /// others are its replicas, and the configuration for Tailwater is printed. Commits wait until
        /// `tailwater run` acknowledges them.
        #[arg(long)]
        semi_sync: bool,
        /// Options for each server, after `--`: for instance `-- --sync-binlog=0`.
        #[arg(last = true, value_name = "SERVER_OPTION")]
        options: Vec<String>,
    },
    /// List the servers started by `up`.
    List,
    /// Shut down servers started by `up`; their data is kept.
    Stop {
        /// Names of servers. Default: all.
        names: Vec<String>,
    },
    /// Kill servers started by `up` (SIGKILL), as a crash does; their data is kept.
    Kill {
        /// Names of servers.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Start stopped or killed servers again, with the same data, ports and options.
    Start {
        /// Names of servers. Default: all.
        names: Vec<String>,
    },
    /// Stop the servers started by `up` and delete their data.
    Down {
        /// Names of servers. Default: all.
        names: Vec<String>,
    },
}
