//! Arguments of `init`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::ServerArgs;

#[derive(Debug, Args)]
pub struct InitArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Configuration file to write. Files with passwords are written beside it.
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = "tailwater.toml")]
    pub config: PathBuf,
    /// Name of the source in the configuration and in messages.
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub name: String,
    /// Folder of the log. Default: /var/lib/tailwater/log if the configuration is in /etc/tailwater, else the
    /// folder `log` beside the configuration.
    #[arg(long, value_name = "FOLDER")]
    pub log_directory: Option<PathBuf>,
    /// Account to create for the daemon.
    #[arg(long, value_name = "USER@HOST", default_value = "tailwater@%")]
    pub account: String,
    /// Do not let commits wait for the log. The last commits may then be lost if the primary fails.
    #[arg(long)]
    pub no_semi_sync: bool,
    /// Let the daemon watch the cluster, so that operators can order switchovers and failovers. The account
    /// gets the privileges for switchovers and failovers.
    #[arg(long)]
    pub manager: bool,
    /// Serve the log to replicas at this address and port, with an account `repl`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub serve: Option<SocketAddr>,
    /// User that owns the files. Default: `tailwater` if that user exists and this command runs as root, else
    /// the user who runs this command.
    #[arg(long, value_name = "USER")]
    pub owner: Option<String>,
    /// Replace an existing configuration file that differs from the new one. The old file is kept with the
    /// suffix .before-init.
    #[arg(long)]
    pub overwrite: bool,
    /// Give the account a new password if it exists and its password is not known.
    #[arg(long)]
    pub reset_password: bool,
    /// Carry out the printed plan. Without --yes nothing is changed, except after a confirmation on a
    /// terminal.
    #[arg(long)]
    pub yes: bool,
    /// Start the daemon afterwards. Then enable semi-sync on the primary as soon as the daemon captures it.
    #[arg(long)]
    pub start: bool,
}
