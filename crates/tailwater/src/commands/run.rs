//! `tailwater run`: the daemon.

use anyhow::Context;
use tailwater_config::LoadedConfig;
use tailwater_daemon::configuration_reload::ReloadSource;
use tailwater_daemon::options_from_config::ConfigurationRefused;
use tailwater_http_api::HttpFrontEnd;

use super::stderr_and_journal_output;
use crate::arguments::ConfigFile;
use crate::exit_codes::Exit;

/// Runs the daemon. It ends on SIGTERM, on SIGINT, or when no capture runs any more; on SIGHUP it reloads the
/// configuration.
///
/// # Errors
/// [`ConfigurationRefused`] if the configuration cannot be read, and the errors of
/// [`tailwater_daemon::daemon_lifecycle::run`].
pub fn run(file: &ConfigFile) -> anyhow::Result<Exit> {
    // The path is made absolute, because a reload must read the same file even if the working directory has
    // changed.
    let (path, overrides) = (std::path::absolute(&file.config)?, file.overrides());
    let load = move || LoadedConfig::load(&path, &overrides);
    let loaded = LoadedConfig::load(&file.config, &file.overrides()).context(ConfigurationRefused)?;
    let messages = stderr_and_journal_output::init(&loaded.config).context(ConfigurationRefused)?;
    let mut front_end = HttpFrontEnd::with_page(tailwater_admin::page::router);
    let reload = ReloadSource { load: Box::new(load), set_message_level: messages.set_level };
    tailwater_daemon::daemon_lifecycle::run(loaded, reload, &mut front_end)?;
    Ok(Exit::Done)
}
