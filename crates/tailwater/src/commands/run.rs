//! `tailwater run`: the daemon.

use std::path::Path;

use tailwater_daemon::config::Config;

use crate::exit::Exit;

/// Runs the daemon with the configuration in the file at `path` until SIGTERM or SIGINT, or until no capture
/// is left.
///
/// # Errors
/// A configuration that cannot be read, and those of [`tailwater_daemon::run::run`].
pub fn run(path: &Path) -> anyhow::Result<Exit> {
    let config = Config::load(path)?;
    super::init_messages();
    tailwater_daemon::run::run(&config)?;
    Ok(Exit::Done)
}
