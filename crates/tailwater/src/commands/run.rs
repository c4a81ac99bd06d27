//! `tailwater run`: the daemon.

use anyhow::Context;
use tailwater_daemon::options_from_config::ConfigurationRefused;
use tailwater_http_api::HttpFrontEnd;

use crate::arguments::ConfigFile;
use crate::exit_codes::Exit;

/// Runs the daemon. It ends on SIGTERM, on SIGINT, or when no capture runs any more.
///
/// # Errors
/// [`ConfigurationRefused`] if the configuration cannot be read, and the errors of
/// [`tailwater_daemon::daemon_lifecycle::run`].
pub fn run(file: &ConfigFile) -> anyhow::Result<Exit> {
    let config = file.load().context(ConfigurationRefused)?;
    super::init_messages();
    tailwater_daemon::daemon_lifecycle::run(&config, &mut HttpFrontEnd::default())?;
    Ok(Exit::Done)
}
