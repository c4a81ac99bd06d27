//! Reloads the configuration while the daemon runs: applies the settings that can change live, and reports
//! which changed settings need a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tailwater_apply::channel::ChannelEdit;
use tailwater_config::{
    ChannelConfig, Config, ConfigError, LoadedConfig, ManagerConfig, SectionInForce, SettingChange,
};
use tailwater_log::Retention;
use tracing::{error, info, warn};

use crate::api::configuration_reloads::{ReloadFailure, ReloadReport};
use crate::api::daemon_requests::{CommandError, CommandErrorKind};
use crate::control_api::Control;
use crate::error_chain::ErrorChain;
use crate::options_from_config::{self, ResolvedConfig};
use crate::segment_archiver::Schedule;

/// Time limit for reading the configuration and the files that it names. Reading a file can take forever if
/// the file is a pipe.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the configuration again.
pub type LoadConfiguration = dyn Fn() -> Result<LoadedConfig, ConfigError> + Send + Sync;

/// Sets which messages the daemon logs. The text is `messages.level`.
pub type SetMessageLevel = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// How a daemon reloads its configuration.
pub struct ReloadSource {
    /// Reads the configuration again.
    pub load: Box<LoadConfiguration>,
    /// Sets which messages are logged.
    pub set_message_level: Box<SetMessageLevel>,
}

impl std::fmt::Debug for ReloadSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReloadSource").finish_non_exhaustive()
    }
}

/// The part of the daemon that a live setting belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum LiveSetting {
    ChannelOption(String),
    ChannelFilters(String),
    Retention,
    ArchiveSchedule,
    FailureAnalysis,
    MessageLevel,
}

/// The settings that can change live, as section and key. `*` is every key of the section.
const LIVE_SETTINGS: [(&str, &str); 14] = [
    ("channel", "workers"),
    ("channel", "batch_transactions_max"),
    ("channel", "batch_bytes_max"),
    ("channel", "commit_order"),
    ("channel", "gtid"),
    ("channel", "ddl_exec_mode"),
    ("channel", "delay_seconds"),
    ("channel.filters", "*"),
    ("log", "retention_hours_max"),
    ("log", "retention_bytes_max"),
    ("log", "archive_interval_ms"),
    ("log", "archive_retention_hours_max"),
    ("manager.analysis", "*"),
    ("messages", "level"),
];

/// Returns the part of the daemon that changes with this setting; `None` if the change needs a restart.
fn live_setting(change: &SettingChange) -> Option<LiveSetting> {
    let key = change.key.as_deref()?;
    let is_live =
        |(section, live): &(&str, &str)| *section == change.section && (*live == key || *live == "*");
    LIVE_SETTINGS.iter().find(|one| is_live(one))?;
    let object = || change.object.clone();
    match change.section.as_str() {
        "channel" => object().map(LiveSetting::ChannelOption),
        "channel.filters" => object().map(LiveSetting::ChannelFilters),
        "log" if key.starts_with("archive_") => Some(LiveSetting::ArchiveSchedule),
        "log" => Some(LiveSetting::Retention),
        "manager.analysis" => Some(LiveSetting::FailureAnalysis),
        "messages" => Some(LiveSetting::MessageLevel),
        _ => None,
    }
}

/// Reloads the configuration of one daemon.
#[derive(Debug)]
pub struct ConfigurationReload {
    source: ReloadSource,
    schedule: Arc<Mutex<Schedule>>,
    state: tokio::sync::Mutex<ReloadState>,
}

#[derive(Debug)]
struct ReloadState {
    /// The configuration at the start of the daemon. Settings that need a restart are compared with it.
    started: LoadedConfig,
    /// The configuration that was applied last. Settings that can change live are compared with it.
    applied: LoadedConfig,
}

impl ConfigurationReload {
    /// Creates the reload of a daemon that started with `started`. `schedule` is the schedule of the
    /// archiver.
    pub fn new(source: ReloadSource, started: LoadedConfig, schedule: Arc<Mutex<Schedule>>) -> Self {
        let state = tokio::sync::Mutex::new(ReloadState { applied: started.clone(), started });
        Self { source, schedule, state }
    }

    /// Reads the configuration again, and applies what can change live. Logs the result.
    ///
    /// # Errors
    /// If the new configuration is refused; the daemon then keeps the present settings.
    pub async fn reload(self: &Arc<Self>, control: &Control) -> Result<ReloadReport, CommandError> {
        let mut state = self.state.lock().await;
        let new = self.read().await.map_err(|error| refused(&error))?;
        let changes = state.applied.changes_to(&new);
        let mut live: BTreeMap<LiveSetting, Vec<String>> = BTreeMap::new();
        for change in &changes {
            if let Some(setting) = live_setting(change) {
                live.entry(setting).or_default().push(change.name.clone());
            }
        }
        let since_start = state.started.changes_to(&new);
        let needs_restart = since_start.iter().filter(|change| live_setting(change).is_none());
        let mut report = ReloadReport {
            needs_restart: needs_restart.map(|change| change.name.clone()).collect(),
            ..ReloadReport::default()
        };
        for (setting, names) in live {
            match self.apply(&setting, &names, &new.config, control).await {
                Ok(()) => report.applied.extend(names),
                Err(message) => report.failed.push(ReloadFailure { settings: names, message }),
            }
        }
        state.applied = applied_settings(&state.applied, &new, &report);
        log(&report);
        Ok(report)
    }

    /// Returns the settings in force, without secrets: the settings at the start, and the changes that were
    /// applied since then.
    pub async fn settings(&self) -> Vec<SectionInForce> {
        let state = self.state.lock().await;
        let is_live = |change: &SettingChange| live_setting(change).is_some();
        state.started.with_settings_of(&state.applied, is_live).settings()
    }

    async fn read(self: &Arc<Self>) -> anyhow::Result<LoadedConfig> {
        let this = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let new = (this.source.load)()?;
            ResolvedConfig::of(&new.config)?;
            Ok(new)
        });
        match tokio::time::timeout(READ_TIMEOUT, reading).await {
            Ok(read) => read?,
            Err(_) => anyhow::bail!(
                "the configuration and its files could not be read within {} s",
                READ_TIMEOUT.as_secs()
            ),
        }
    }

    async fn apply(
        &self,
        setting: &LiveSetting,
        names: &[String],
        new: &Config,
        control: &Control,
    ) -> Result<(), String> {
        let state = control.state();
        let channel = |name: &str| {
            let running = state.channels.get(name).map(|(channel, _)| channel);
            let config = new.channels.iter().find(|channel| channel.name == name);
            running.zip(config).ok_or_else(|| format!("there is no channel {name:?}"))
        };
        match setting {
            LiveSetting::ChannelOption(name) => {
                let (channel, config) = channel(name)?;
                channel.edit(channel_edit(config, names)).await.map_err(|error| error.to_string())
            }
            LiveSetting::ChannelFilters(name) => {
                let (channel, config) = channel(name)?;
                channel.set_filters(config.filters.clone(), None).await.map_err(|error| error.to_string())
            }
            LiveSetting::Retention => {
                let retention: Retention = options_from_config::retention(&new.log);
                state.sources.values().for_each(|source| source.log.set_retention(retention));
                Ok(())
            }
            LiveSetting::ArchiveSchedule => {
                *self.schedule.lock() = options_from_config::archive_schedule(&new.log);
                Ok(())
            }
            LiveSetting::FailureAnalysis => {
                let analysis = new.manager.as_ref().map(|ManagerConfig { analysis, .. }| *analysis);
                if let (Some(manager), Some(analysis)) = (&state.manager, analysis) {
                    manager.set_analysis(analysis);
                }
                Ok(())
            }
            LiveSetting::MessageLevel => (self.source.set_message_level)(&new.messages.level),
        }
    }
}

/// The settings in force after a reload: the new ones, except those that could not be applied. The next
/// reload tries these again.
fn applied_settings(before: &LoadedConfig, new: &LoadedConfig, report: &ReloadReport) -> LoadedConfig {
    let failed: BTreeSet<&str> =
        report.failed.iter().flat_map(|failure| &failure.settings).map(String::as_str).collect();
    if failed.is_empty() {
        return new.clone();
    }
    before.with_settings_of(new, |change| !failed.contains(change.name.as_str()))
}

/// Returns the options of a channel that `names` lists. The other options keep their values, because
/// `tailwater channel set` may have changed them.
fn channel_edit(config: &ChannelConfig, names: &[String]) -> ChannelEdit {
    let keys: BTreeSet<&str> = names.iter().filter_map(|name| name.rsplit('.').next()).collect();
    let changed = |key: &str| keys.contains(key);
    ChannelEdit {
        workers: changed("workers").then_some(config.workers),
        batch_transactions_max: changed("batch_transactions_max").then_some(config.batch_transactions_max),
        batch_bytes_max: changed("batch_bytes_max").then_some(config.batch_bytes_max),
        commit_order: changed("commit_order").then_some(config.commit_order),
        gtid: changed("gtid").then_some(config.gtid),
        ddl_exec_mode: changed("ddl_exec_mode").then_some(config.ddl_exec_mode),
        delay_seconds: changed("delay_seconds").then_some(config.delay_seconds),
    }
}

fn refused(cause: &anyhow::Error) -> CommandError {
    let code = cause.chain().find_map(|cause| cause.downcast_ref::<ConfigError>().map(ConfigError::code));
    let message =
        format!("the configuration is refused, and the present settings stay: {}", ErrorChain(cause));
    error!(code, "reload: {message}");
    CommandError { kind: CommandErrorKind::Failed, code: code.map(str::to_owned), message }
}

fn log(report: &ReloadReport) {
    let joined = |names: &[String]| names.join(", ");
    if *report == ReloadReport::default() {
        info!("reload: no setting has changed");
    }
    if !report.applied.is_empty() {
        info!("reload: applied {}", joined(&report.applied));
    }
    if !report.needs_restart.is_empty() {
        warn!("reload: these settings need a restart of the daemon: {}", joined(&report.needs_restart));
    }
    for failure in &report.failed {
        error!("reload: the settings {} were not applied: {}", joined(&failure.settings), failure.message);
    }
}

#[cfg(test)]
mod tests {
    use tailwater_config::Overrides;

    use super::*;

    /// After a reload that failed for some settings, the others are in force, and the next reload tries the
    /// failed ones again.
    #[test]
    fn a_reload_that_fails_partly_keeps_what_it_applied() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let load = |retention: u64, workers: u64| {
            let path = folder.path().join("tailwater.toml");
            let text = format!(
                "[log]\ndirectory = \"log\"\nretention_hours_max = {retention}\n[[source]]\nname = \"orders\"\n\
                 host = \"db1\"\nserver_id = 1\n[[channel]]\nname = \"reports\"\nsource = \"orders\"\n\
                 host = \"db2\"\nworkers = {workers}\n"
            );
            std::fs::write(&path, text)?;
            anyhow::Ok(LoadedConfig::load(&path, &Overrides::default())?)
        };
        let (before, new) = (load(100, 2)?, load(900, 4)?);
        let workers = "channel.reports.workers".to_owned();
        let failure = ReloadFailure { settings: vec![workers.clone()], message: "no connection".to_owned() };
        let report = ReloadReport { failed: vec![failure], ..ReloadReport::default() };
        let applied = applied_settings(&before, &new, &report);
        let names = |changes: Vec<SettingChange>| changes.into_iter().map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(names(applied.changes_to(&new)), [workers]);
        assert_eq!(names(before.changes_to(&applied)), ["log.retention_hours_max"]);
        assert!(applied_settings(&before, &new, &ReloadReport::default()).changes_to(&new).is_empty());
        Ok(())
    }

    #[test]
    fn the_documentation_lists_the_live_settings() {
        let page = include_str!("../../../docs/reference/config.md");
        let (_, section) = page.split_once("## Reload").expect("the page has a section about reloads");
        for (of, key) in LIVE_SETTINGS {
            let named = if key == "*" { format!("`[{of}]`") } else { format!("`{key}`") };
            assert!(section.contains(&named), "{named} is not documented");
        }
    }

    #[test]
    fn settings_that_are_not_listed_need_a_restart() {
        let change = |section: &str, key: Option<&str>| SettingChange {
            name: String::new(),
            section: section.to_owned(),
            object: Some("reports".to_owned()),
            key: key.map(str::to_owned),
        };
        let filters = live_setting(&change("channel.filters", Some("include")));
        assert_eq!(filters, Some(LiveSetting::ChannelFilters("reports".to_owned())));
        let workers = live_setting(&change("channel", Some("workers")));
        assert_eq!(workers, Some(LiveSetting::ChannelOption("reports".to_owned())));
        for (section, key) in [
            ("channel", Some("host")),
            ("channel", None),
            ("source", Some("workers")),
            ("log", Some("directory")),
            ("log", Some("archive")),
            ("manager", Some("automatic")),
        ] {
            assert_eq!(live_setting(&change(section, key)), None, "a reload would apply {section} {key:?}");
        }
    }
}
