//! `demo` and `sandbox`: servers on this machine.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ServerFamily;

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The family of the primary.
    #[arg(long, value_enum, default_value_t = ServerFamily::Mariadb)]
    pub server: ServerFamily,
    /// The server's series, for instance 11.8; the family's default if absent.
    #[arg(long = "version", value_name = "SERIES")]
    pub series: Option<String>,
    /// A shorter load.
    #[arg(long)]
    pub short: bool,
    /// Connections of the workload.
    #[arg(long, default_value_t = 8)]
    pub clients: u32,
    /// Keep the servers' and the log's files in this folder instead of a temporary one.
    #[arg(long)]
    pub keep: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Fetches the servers that are missing into the cache folder, without root and without touching the system.
    Install {
        /// Only this family.
        #[arg(long, value_enum)]
        server: Option<ServerFamily>,
    },
    /// Starts servers that run until `down`.
    Up {
        /// The family.
        #[arg(long, value_enum)]
        server: ServerFamily,
        /// The series, for instance 11.8; the family's default if absent.
        #[arg(long = "version", value_name = "SERIES")]
        series: Option<String>,
        /// How many.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
        count: u32,
        /// The TCP port of the first; the others have those after it. Any free ports if absent.
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        port: Option<u16>,
        /// A cluster that the manager accepts: the first is the source with lossless semi-synchronous replication, the others its
        /// replicas, and the configuration to run Tailwater with is printed. Commits wait until `tailwater run` acknowledges them.
        #[arg(long)]
        semi_sync: bool,
        /// Options for each server, behind `--`: for instance `-- --sync-binlog=0`.
        #[arg(last = true, value_name = "SERVER_OPTION")]
        options: Vec<String>,
    },
    /// Shows the servers started by `up`.
    List,
    /// Shuts servers started by `up` down; their data stay.
    Stop {
        /// Only these; all of them if absent.
        names: Vec<String>,
    },
    /// Ends the processes of servers started by `up` at once, as a crash does (SIGKILL); their data stay.
    Kill {
        /// These.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Starts servers again that were stopped or killed, with their data, ports and options.
    Start {
        /// Only these; all of them if absent.
        names: Vec<String>,
    },
    /// Stops the servers started by `up` and removes their data.
    Down {
        /// Only these; all of them if absent.
        names: Vec<String>,
    },
}
