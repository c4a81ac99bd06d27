//! The configuration file of `tailwater run`, in TOML. docs/reference/config.md documents every key; unknown
//! keys are refused.

// This module is declared before the modules that use its macro.
#[macro_use]
mod server_connection;
mod backup_and_drift_check;
mod binlog_server;
mod channel;
mod cluster_server;
mod daemon_file_names;
mod default_config;
mod http;
mod log_folder;
mod manager;
mod message_level_and_format;
mod overrides;
mod prefetch;
mod relay;
mod setting_names;
mod settings_in_force;
mod source;
mod spelling_suggestion;
mod toml_parser;
mod traces;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tailwater_object_storage::segment_archive::ArchiveAddress;

pub use backup_and_drift_check::{BackupConfig, DriftCheckConfig};
pub use binlog_server::{OneOrMany, ServeConfig, ServeTlsConfig, UserConfig};
pub use channel::ChannelConfig;
pub use cluster_server::MemberConfig;
pub use daemon_file_names::{
    AUDIT_FILE, CONTROL_SOCKET, DAEMON_LOCK, EARLIER_AUDIT_FILE, HISTORY_FILE, JOBS_FILE,
};
pub use default_config::DEFAULT_CONFIG;
pub use http::{AnonymousRequests, HttpConfig, HttpRole, HttpTokenConfig};
pub use log_folder::{AckConfig, LogConfig};
pub use manager::{HookConfig, LeaseConfig, ManagerConfig, ServiceUrl};
pub use message_level_and_format::{MessageFormat, MessagesConfig};
pub use overrides::{Overrides, SettingOrigin};
pub use prefetch::{PrefetchConfig, PrefetchMode};
pub use relay::RelayConfig;
pub use server_connection::{ServerAddress, TlsConfig};
pub use settings_in_force::{LoadedConfig, SectionInForce, SettingChange, SettingInForce, settings_in_force};
pub use source::{SourceConfig, StartConfig};
pub use toml_parser::parse_toml;
pub use traces::TracesConfig;

/// A checked configuration file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The log.
    pub log: LogConfig,
    /// The servers whose binlog is captured.
    #[serde(default, rename = "source")]
    pub sources: Vec<SourceConfig>,
    /// The listeners that serve the logs to replicas.
    #[serde(default, rename = "serve")]
    pub serves: Vec<ServeConfig>,
    /// The channels that apply the logs to targets.
    #[serde(default, rename = "channel")]
    pub channels: Vec<ChannelConfig>,
    /// The replicas whose pages are read ahead.
    #[serde(default, rename = "prefetch")]
    pub prefetches: Vec<PrefetchConfig>,
    /// The other servers in the clusters of the sources.
    #[serde(default, rename = "server")]
    pub servers: Vec<MemberConfig>,
    /// The manager of the clusters; no manager if absent.
    pub manager: Option<ManagerConfig>,
    /// Relays on other machines that capture the same sources.
    #[serde(default, rename = "relay")]
    pub relays: Vec<RelayConfig>,
    /// The HTTP listener; no listener if absent.
    pub http: Option<HttpConfig>,
    /// What the daemon logs.
    #[serde(default)]
    pub messages: MessagesConfig,
    /// Where traces go; no traces if absent.
    pub traces: Option<TracesConfig>,
    /// The folders of dumps whose age is monitored.
    #[serde(default, rename = "backup")]
    pub backups: Vec<BackupConfig>,
    /// The checks for drift whose result is monitored.
    #[serde(default, rename = "check")]
    pub drift_checks: Vec<DriftCheckConfig>,
}

/// An error in a configuration file.
#[derive(Debug)]
pub struct ConfigError {
    code: &'static str,
    path: PathBuf,
    message: String,
}

impl ConfigError {
    /// The error's stable code: `TW-CFG-0001` if the file cannot be read, `TW-CFG-0002` if it is not valid
    /// (syntax, unknown key, wrong type), `TW-CFG-0003` if its settings contradict each other, `TW-CFG-0004`
    /// if an environment variable or `--set` is wrong.
    pub fn code(&self) -> &'static str {
        self.code
    }
}

impl ConfigError {
    /// An error about an environment variable or `--set`.
    pub(crate) fn of_override(path: &Path, message: String) -> Self {
        Self { code: "TW-CFG-0004", path: path.into(), message }
    }

    /// An error about a file that holds a password or token.
    pub fn of_file(path: &Path, message: impl Into<String>) -> Self {
        Self { code: "TW-CFG-0010", path: path.into(), message: message.into() }
    }

    /// The error for a channel whose target is its own source.
    pub fn onto_itself(channel: &str, source: &str, endpoint: &str) -> Self {
        let message = format!(
            "the channel's target, {endpoint}, is the server that source {source} captures: every change would be captured and applied again; name another target"
        );
        Self { code: "TW-CFG-0011", path: format!("channel {channel}").into(), message }
    }

    /// The error for a capture that has the same `server_id` as its source.
    pub fn server_id_of_source(source: &str, server_id: u32) -> Self {
        let message = format!(
            "server_id = {server_id} is the source's own; give the capture a server_id that no server of the cluster has"
        );
        Self { code: "TW-CFG-0012", path: format!("source {source}").into(), message }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.message)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads and checks the file at `path`, with the environment variables that take precedence over it.
    ///
    /// # Errors
    /// [`ConfigError`], with the line, column and key of the error if it has them.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with(path, &Overrides::from_environment())
    }

    /// Reads and checks the file at `path`, with settings that take precedence over it.
    ///
    /// # Errors
    /// [`ConfigError`], with the line, column and key of the error if it has them.
    pub fn load_with(path: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        let error = |code, message: String| ConfigError { code, path: path.into(), message };
        let text = read_text(path)?;
        let mut config: Self = if overrides.is_empty() {
            parse_toml(&text).map_err(|reason| error("TW-CFG-0002", reason))?
        } else {
            let mut document = read_document_of(path, &text)?;
            overrides.apply(&mut document).map_err(|reason| ConfigError::of_override(path, reason))?;
            toml_parser::from_document(document).map_err(|reason| {
                // If the file alone has an error too, return that error, because it has a line number. But a
                // key that the file lacks may be set by the environment or `--set`.
                match parse_toml::<Self>(&text).err().filter(|alone| !alone.contains("missing field")) {
                    Some(alone) => error("TW-CFG-0002", alone),
                    None => {
                        let message =
                            format!("the file with the environment variables and --set is invalid: {reason}");
                        error("TW-CFG-0004", message)
                    }
                }
            })?
        };
        config.check().map_err(|message| error("TW-CFG-0003", message))?;
        let base = path.parent().unwrap_or(Path::new(""));
        config.log.directory = base.join(&config.log.directory);
        config.log.archive = config.log.archive.map(|url| ArchiveAddress::at(&url).relative_to(base).url);
        for source in &mut config.sources {
            source.rebase(base);
        }
        for serve in &mut config.serves {
            serve.rebase(base);
        }
        for channel in &mut config.channels {
            channel.rebase(base);
        }
        for prefetch in &mut config.prefetches {
            prefetch.rebase(base);
        }
        for server in &mut config.servers {
            server.rebase(base);
        }
        if let Some(manager) = &mut config.manager {
            manager.rebase(base);
        }
        for relay in &mut config.relays {
            relay.rebase(base);
        }
        if let Some(http) = &mut config.http {
            http.rebase(base);
        }
        for backup in &mut config.backups {
            backup.rebase(base);
        }
        for check in &mut config.drift_checks {
            check.rebase(base);
        }
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.sources.is_empty() {
            return Err("no [[source]]: there is nothing to capture".into());
        }
        let mut names = HashSet::new();
        for source in &self.sources {
            source.check()?;
            if !names.insert(&source.name) {
                return Err(format!("source.name = {:?} is given twice", source.name));
            }
        }
        let mut addresses = HashSet::new();
        for serve in &self.serves {
            serve.check(&names)?;
            if !addresses.insert(serve.listen) {
                return Err(format!("serve.listen = \"{}\" is given twice", serve.listen));
            }
        }
        let mut channels = HashSet::new();
        for channel in &self.channels {
            channel.check(&names)?;
            if !channels.insert(&channel.name) {
                return Err(format!("channel.name = {:?} is given twice", channel.name));
            }
        }
        prefetch::check(&self.prefetches, &names, &channels)?;
        let mut members = HashSet::new();
        for server in &self.servers {
            server.check(&names)?;
            if !members.insert(&server.name) {
                return Err(format!("server.name = {:?} is given twice", server.name));
            }
        }
        if let Some(manager) = &self.manager {
            manager.check()?;
            if self.servers.is_empty() && self.channels.is_empty() {
                return Err("[manager] without a [[server]]: there is no server that could become primary; add the other servers of the cluster".into());
            }
        }
        let ids: Vec<_> = self.sources.iter().map(|source| (&source.name, source.server_id)).collect();
        relay::check(&self.relays, &ids)?;
        self.http.as_ref().map_or(Ok(()), HttpConfig::check)?;
        self.traces.as_ref().map_or(Ok(()), TracesConfig::check)?;
        backup_and_drift_check::check(&self.backups, &self.drift_checks)?;
        self.log.check()
    }
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    tailwater_files::read_user_file_text(path, 64 << 20).map_err(|error| ConfigError {
        code: "TW-CFG-0001",
        path: path.into(),
        message: error.to_string(),
    })
}

/// Reads the file as a document whose keys are not checked.
fn read_document(path: &Path) -> Result<toml::Table, ConfigError> {
    read_document_of(path, &read_text(path)?)
}

fn read_document_of(path: &Path, text: &str) -> Result<toml::Table, ConfigError> {
    let error = |message| ConfigError { code: "TW-CFG-0002", path: path.into(), message };
    parse_toml(text).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_cannot_have_the_name_of_a_file_of_tailwater() {
        let names = [
            "manager",
            "rejoin",
            "control.sock",
            "daemon.lock",
            "jobs.json",
            "Manager",
            "orders.guard",
            "a.lease",
        ];
        for name in names {
            let (message, code) = complaint(&GOOD.replace("\"orders\"", &format!("{name:?}")));
            assert!(code == "TW-CFG-0003" && message.contains("Tailwater itself uses"), "{name}: {message}");
        }
        load(&GOOD.replace("orders", "managers")).unwrap();
    }

    #[test]
    fn every_code_is_explained() {
        let page = include_str!("../../../docs/reference/errors.md");
        let source = include_str!("lib.rs");
        let codes: HashSet<_> = source
            .split("\"TW-CFG-")
            .filter_map(|rest| rest.get(..4))
            .filter(|code| code.chars().all(|c| c.is_ascii_digit()))
            .collect();
        assert!(codes.len() > 3, "not all error codes were found: {codes:?}");
        for code in &codes {
            let row = format!("\n| TW-CFG-{code} |");
            assert_eq!(page.matches(&row).count(), 1, "errors.md must have exactly one row {row:?}");
        }
        assert_eq!(
            page.matches("\n| TW-CFG-").count(),
            codes.len(),
            "errors.md lists codes that no error has"
        );
    }

    const GOOD: &str = r#"
        [log]
        directory = "log"

        [[source]]
        name = "orders"
        host = "db1"
        server_id = 4201
    "#;

    fn load(text: &str) -> Result<Config, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tailwater.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(&path)
    }

    fn complaint(text: &str) -> (String, &'static str) {
        let error = load(text).expect_err(text);
        (error.to_string(), error.code())
    }

    #[test]
    fn old_spellings_of_keys_are_read() {
        let config = load(&format!("{GOOD}\nwatch_ms = 700")).unwrap();
        assert_eq!(config.sources[0].semi_sync_check_ms, 700);
    }

    #[test]
    fn a_minimal_configuration_has_safe_defaults() {
        let config = load(GOOD).unwrap();
        assert_eq!(config.log.ack_of(&config.sources[0]), AckConfig::Durable);
        assert!(config.log.directory.is_absolute());
        assert!(config.sources[0].semi_sync);
        assert_eq!(config.sources[0].start, StartConfig::Current);
    }

    #[test]
    fn the_log_of_an_asynchronous_source_is_not_durable_by_default() {
        let ack = |text: &str| {
            let config = load(text).unwrap();
            config.log.ack_of(&config.sources[0])
        };
        let asynchronous = GOOD.replace("[[source]]", "[[source]]\nsemi_sync = false");
        assert_eq!(ack(&asynchronous), AckConfig::Received);
        let with = |ack: &str, text: &str| text.replace("[log]", &format!("[log]\nack = \"{ack}\""));
        assert_eq!(ack(&with("durable", &asynchronous)), AckConfig::Durable);
        assert_eq!(ack(&with("received", GOOD)), AckConfig::Received);
    }

    #[test]
    fn an_unknown_key_is_reported_with_its_line() {
        let (message, code) = complaint(&GOOD.replace("host =", "hots ="));
        assert_eq!(code, "TW-CFG-0002");
        assert!(
            message.contains("line 7") && message.contains("hots"),
            "the error does not name line 7 and `hots`: {message}"
        );
        let (message, _) = complaint(&GOOD.replace("directory", "directroy"));
        assert!(
            message.contains("line 3") && message.contains("directroy"),
            "the error does not name line 3 and `directroy`: {message}"
        );
    }

    #[test]
    fn contradictions_are_errors() {
        let check = |change: &str, expected: &str| {
            let (message, code) = complaint(&format!("{GOOD}{change}"));
            assert!(message.contains(expected), "expected {expected:?} in the error: {message}");
            assert_eq!(code, "TW-CFG-0003");
        };
        check("socket = '/run/mysqld.sock'", "either socket, or host");
        check("tls = 'verify-full'", "tls_ca");
        check("[[source]]\nname = 'orders'\nserver_id = 7", "twice");
        check("[[source]]\nname = '../x'\nserver_id = 7", "source.name");
        check("[[source]]\nname = 'x'\nserver_id = 0", "server_id");
        let (message, _) = complaint(&GOOD.replace("[log]", "[log]\narchive_region = 'eu-north-1'"));
        assert!(
            message.contains("log.archive_region is given without log.archive"),
            "unexpected text of the error: {message}"
        );
    }

    #[test]
    fn the_listeners_and_accounts_of_serve_sections_are_checked() {
        let user = "[[serve.user]]\nname = 'repl'\nhash = '*00'";
        let serve = |change: &str, user: &str| {
            format!("{GOOD}\n[[serve]]\nsource = 'orders'\nlisten = '127.0.0.1:3307'\n{change}\n{user}")
        };
        let config = load(&serve("", user)).unwrap();
        assert_eq!(config.serves[0].users[0].hash.0, ["*00"]);
        assert_eq!(
            load(&serve("", &user.replace("'*00'", "['a', 'b']"))).unwrap().serves[0].users[0].hash.0.len(),
            2
        );
        let check = |change: &str, user: &str, expected: &str| {
            let (message, code) = complaint(&serve(change, user));
            assert!(message.contains(expected), "expected {expected:?} in the error: {message}");
            assert_eq!(code, "TW-CFG-0003");
        };
        check("", "", "add one");
        check("tls_key = 'k'", user, "together");
        check("server_id = 0", user, "must not be 0");
        check("", &format!("{user}\npassword = 'x'"), "give one of");
        check("", &format!("{user}\n{user}"), "given twice");
        check("", &serve("", user).replace(GOOD, user), "listen = \"127.0.0.1:3307\" is given twice");
        let (message, _) = complaint(&serve("", user).replace("source = 'orders'", "source = 'other'"));
        assert!(message.contains("no [[source]]"), "the error does not name the missing source: {message}");
    }

    #[test]
    fn the_servers_of_a_cluster_are_checked() {
        let server = |change: &str| format!("{GOOD}\n[[server]]\nname = 'db2'\nsource = 'orders'\n{change}");
        let config = load(&server("host = 'db2'\npromotion = 'must_not'\nregion = 'north'")).unwrap();
        assert_eq!(config.servers[0].promotion, tailwater_topology::Promotion::MustNot);
        let check = |text: &str, expected: &str| {
            let (message, code) = complaint(text);
            assert!(message.contains(expected), "expected {expected:?} in the error: {message}");
            assert_eq!(code, "TW-CFG-0003");
        };
        check(&server(""), "its address is missing");
        check(&server("port = 3306").replace("'db2'", "'tailwater'"), "own relay has this name");
        check(&server("port = 3306").replace("source = 'orders'", "source = 'other'"), "no [[source]]");
        check(&format!("{}\n{}", server("port = 3306"), server("port = 1").replace(GOOD, "")), "given twice");
        let (message, _) = complaint(&server("port = 3306\npromotion = 'never'"));
        assert!(message.contains("must_not"), "the error does not list the known values: {message}");
    }

    #[test]
    fn other_relays_and_the_http_listener_are_checked() {
        let relay = |change: &str| {
            format!(
                "{GOOD}\n[[relay]]\nname = 'relay2'\nsource = 'orders'\nurl = 'http://relay2:8080'\n\
                 token_file = 'token'\nserver_id = 4202\n{change}"
            )
        };
        let config = load(&relay("")).unwrap();
        assert_eq!((config.relays[0].server_id, config.relays[0].timeout_ms), (4202, 12_000));
        let check = |text: &str, expected: &str| {
            let (message, code) = complaint(text);
            assert!(message.contains(expected), "expected {expected:?} in the error: {message}");
            assert_eq!(code, "TW-CFG-0003");
        };
        check(&relay("").replace("4202", "4201"), "disconnect each other");
        check(&relay("").replace("http://", ""), "url must begin with");
        check(&relay("").replace("'relay2'", "'tailwater'"), "own relay has this name");
        check(&relay("").replace("source = 'orders'", "source = 'other'"), "no [[source]]");
        check(&relay("timeout_ms = 5"), "timeout_ms");
        check(&relay("serves = ['relay2']"), "host:port");
        check(&relay(relay("").strip_prefix(GOOD).unwrap()), "given twice");
        let http = |change: &str| format!("{GOOD}\n[http]\nlisten = '127.0.0.1:8080'\n{change}");
        assert_eq!(load(&http("")).unwrap().http.unwrap().stale_after_ms, 3_000);
        check(&http("look_interval_ms = 2000"), "at least twice");
        check(&http("look_interval_ms = 10"), "at least 100");
        check(&http("tls_key = 'key.pem'"), "both http.tls_certificate and http.tls_key");
        let token =
            |name: &str| format!("[[http.token]]\nname = '{name}'\nrole = 'read_only'\nfile = 'token'\n");
        let tokens = load(&http(&token("grafana"))).unwrap().http.unwrap().tokens;
        assert_eq!((tokens[0].role, tokens[0].file.is_absolute()), (HttpRole::ReadOnly, true));
        check(&http(&token("")), "1 to 64 characters");
        check(&http(&token("grafana").repeat(2)), "\"grafana\" is given twice");
    }

    #[test]
    fn monitored_backups_and_checks_are_checked() {
        let backup = "[[backup]]\nname = 'nightly'\nfolder = 'dumps'\n";
        let check = "[[check]]\nname = 'db2'\nstate_file = 'db2.check'\n";
        let config = load(&format!("{GOOD}\n{backup}{check}")).unwrap();
        assert_eq!((config.backups[0].age_hours_max, config.drift_checks[0].age_hours_max), (26, 192));
        assert!(config.backups[0].folder.is_absolute() && config.drift_checks[0].state_file.is_absolute());
        for (more, expected) in [
            (format!("{backup}{backup}"), "given twice"),
            (format!("{check}{check}"), "given twice"),
            (format!("{backup}age_hours_max = 0"), "at least 1"),
            (check.replace("db2'", "'"), "give a name"),
            (backup.replace("'dumps'", "'s3://bucket/dumps'"), "local folder"),
        ] {
            let (message, code) = complaint(&format!("{GOOD}\n{more}"));
            assert!(code == "TW-CFG-0003" && message.contains(expected), "{message}");
        }
    }

    #[test]
    fn the_example_on_the_production_page_is_a_valid_configuration() {
        let page = include_str!("../../../docs/how-to/production.md");
        let text = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let config = load(text).unwrap();
        assert_eq!((config.servers.len(), config.relays.len()), (3, 1));
        assert!(config.http.is_some_and(|http| http.token_file.is_some()));
        let manager = config.manager.unwrap();
        assert!(manager.automatic && manager.lease == LeaseConfig::Etcd && manager.etcd_user.is_some());
    }

    #[test]
    fn the_start_of_a_log_is_a_keyword_or_a_position() {
        let start =
            |value: &str| load(&format!("{GOOD}start = {value:?}")).map(|c| c.sources[0].start.clone());
        assert_eq!(start("oldest").unwrap(), StartConfig::Oldest);
        let position = StartConfig::Position { file: "binlog.000007".into(), position: 4 };
        assert_eq!(start("binlog.000007:4").unwrap(), position);
        for wrong in ["newest", "binlog.000007:3", ":4", "b:x"] {
            assert!(start(wrong).is_err(), "start = {wrong} was accepted");
        }
    }
}
