//! `tailwater run`: the daemon.

use std::path::Path;

use tailwater_config::Config;

use crate::exit_codes::Exit;

/// Runs the daemon with the configuration file at `path`. It ends on SIGTERM, on SIGINT, or when no capture
/// runs any more.
///
/// # Errors
/// If the configuration cannot be read, and the errors of [`tailwater_daemon::daemon_lifecycle::run`].
pub fn run(path: &Path) -> anyhow::Result<Exit> {
    let config = Config::load(path)?;
    super::init_messages();
    tailwater_daemon::daemon_lifecycle::run(&config)?;
    Ok(Exit::Done)
}
