//! `tailwater run`: the daemon.

use std::io::IsTerminal;

use anyhow::{Context, anyhow};
use tailwater_config::LoadedConfig;
use tailwater_daemon::configuration_reload::{ReloadSource, SetMessageLevel};
use tailwater_daemon::options_from_config::ConfigurationRefused;
use tailwater_http_api::HttpFrontEnd;
use tracing_subscriber::EnvFilter;

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
    let set_message_level = init_messages(&loaded.config.messages.level).context(ConfigurationRefused)?;
    let mut front_end = HttpFrontEnd::with_page(tailwater_admin::page::router);
    let reload = ReloadSource { load: Box::new(load), set_message_level };
    tailwater_daemon::daemon_lifecycle::run(loaded, reload, &mut front_end)?;
    Ok(Exit::Done)
}

/// Sends the daemon's log to standard error: plain lines on a terminal, else JSON lines. Returns the function
/// that sets the level.
fn init_messages(level: &str) -> anyhow::Result<Box<SetMessageLevel>> {
    let of_environment = EnvFilter::try_from_env(super::LEVEL_VARIABLE).ok();
    let has_variable = of_environment.is_some();
    let of_config = filter(level).map_err(|reason| anyhow!("{reason}"))?;
    let filter_now = of_environment.unwrap_or(of_config);
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false);
    let set: Box<SetMessageLevel> = if std::io::stderr().is_terminal() {
        let builder = builder.with_env_filter(filter_now).with_filter_reloading();
        let handle = builder.reload_handle();
        builder.init();
        Box::new(move |level| handle.reload(filter(level)?).map_err(|error| error.to_string()))
    } else {
        let builder = builder.json().flatten_event(true).with_env_filter(filter_now).with_filter_reloading();
        let handle = builder.reload_handle();
        builder.init();
        Box::new(move |level| handle.reload(filter(level)?).map_err(|error| error.to_string()))
    };
    if has_variable {
        let reason = format!("the environment variable {} takes precedence", super::LEVEL_VARIABLE);
        return Ok(Box::new(move |_| Err(reason.clone())));
    }
    Ok(set)
}

fn filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(level).map_err(|error| format!("messages.level = {level:?}: {error}"))
}
