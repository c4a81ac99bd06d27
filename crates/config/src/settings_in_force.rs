//! The settings in force, and where each comes from.

use std::fmt::{self, Write};
use std::path::Path;

use serde::Serialize;
use tailwater_wire::url_credentials::without_login;
use toml::{Table, Value};

use super::default_config::{ListedKey, OLD_SPELLINGS, listed_keys};
use super::overrides::{OverriddenSetting, Overrides, SettingOrigin};
use super::setting_names::{LocatedTable, table_at, tables_of};
use super::{Config, ConfigError};

/// Keys whose values are secrets, or help to guess secrets.
const SECRET_KEYS: [&str; 2] = ["password", "hash"];

/// A section that is in force also if the file does not have it.
const SECTION_WITH_DEFAULTS: &str = "messages";

/// What is shown instead of a secret.
const MASK: &str = "***";

/// One section of the settings in force.
#[derive(Debug, Clone, Serialize)]
pub struct SectionInForce {
    /// The section as the file writes it: `[[source]]`.
    pub section: String,
    /// The settings of the section, in the order of `tailwater config default`.
    pub settings: Vec<SettingInForce>,
    /// The name of the table, as parts: `source`, `orders`.
    #[serde(skip)]
    path: Vec<String>,
}

/// A setting in force.
#[derive(Debug, Clone, Serialize)]
pub struct SettingInForce {
    /// The name for `--set`: `source.orders.host`.
    pub name: String,
    /// The environment variable that sets it.
    pub variable: String,
    /// The key within its section.
    pub key: String,
    /// The value, without secrets. `None` if the setting is not set and its default is described in words.
    pub value: Option<Value>,
    /// The default in words, if `value` is `None`.
    pub default: Option<String>,
    /// Where the value comes from.
    pub origin: SettingOrigin,
}

/// Reads and checks a configuration as [`Config::load_with`] does, and returns its settings.
///
/// # Errors
/// The same as for [`Config::load_with`].
pub fn settings_in_force(path: &Path, overrides: &Overrides) -> Result<Vec<SectionInForce>, ConfigError> {
    Ok(LoadedConfig::load(path, overrides)?.settings())
}

/// A configuration with the values of all its settings, to compare it with another one.
#[derive(Clone)]
pub struct LoadedConfig {
    /// The configuration.
    pub config: Config,
    sections: Vec<SectionInForce>,
}

// Written by hand, because the values contain secrets.
impl fmt::Debug for LoadedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedConfig").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A setting or section that two configurations do not have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    /// The name, as for `--set`: `channel.reports.workers`; `channel.reports` for a whole section.
    pub name: String,
    /// The section without brackets: `channel`.
    pub section: String,
    /// The name of the section's object, if the section may be repeated: `reports`.
    pub object: Option<String>,
    /// The key; `None` if only one configuration has the section.
    pub key: Option<String>,
}

impl LoadedConfig {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// The same as for [`Config::load_with`].
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        let config = Config::load_with(path, overrides)?;
        let mut document: Table = super::read_document(path)?;
        let applied =
            overrides.apply(&mut document).map_err(|reason| ConfigError::of_override(path, reason))?;
        Ok(Self { config, sections: sections(&document, &applied) })
    }

    /// The settings, without secrets.
    pub fn settings(&self) -> Vec<SectionInForce> {
        let mut sections = self.sections.clone();
        for setting in sections.iter_mut().flat_map(|section| &mut section.settings) {
            setting.value = setting.value.as_ref().map(|value| masked(&setting.key, value));
        }
        sections
    }

    /// Returns these settings, but takes from `other` the value of each setting for which `takes_other`
    /// returns true.
    #[must_use]
    pub fn with_settings_of(&self, other: &Self, takes_other: impl Fn(&SettingChange) -> bool) -> Self {
        let mut merged = self.clone();
        for section in &mut merged.sections {
            let Some(same) = other.sections.iter().find(|one| one.path == section.path) else { continue };
            for new in &same.settings {
                let is_taken = takes_other(&same.change(Some(new)));
                let old = section.settings.iter_mut().find(|old| is_taken && old.key == new.key);
                if let Some(old) = old {
                    old.clone_from(new);
                }
            }
        }
        merged
    }

    /// What is different in `other`: changed settings, and sections that only one of the two configurations
    /// has.
    pub fn changes_to(&self, other: &Self) -> Vec<SettingChange> {
        let find = |of: &Self, path: &[String]| of.sections.iter().position(|section| section.path == path);
        let mut changes: Vec<SettingChange> = Vec::new();
        for (one, another) in [(self, other), (other, self)] {
            for section in &one.sections {
                let is_inner = |change: &SettingChange| {
                    change.key.is_none() && section.path.join(".").starts_with(&format!("{}.", change.name))
                };
                if find(another, &section.path).is_none() && !changes.iter().any(is_inner) {
                    changes.push(section.change(None));
                }
            }
        }
        for section in &self.sections {
            let same = find(other, &section.path).and_then(|index| other.sections.get(index));
            let Some(same) = same else { continue };
            for setting in &section.settings {
                let new = same.settings.iter().find(|one| one.key == setting.key);
                if new.is_some_and(|new| new.value != setting.value) {
                    changes.push(section.change(Some(setting)));
                }
            }
        }
        changes
    }
}

impl SectionInForce {
    fn change(&self, setting: Option<&SettingInForce>) -> SettingChange {
        let is_repeated = self.section.starts_with("[[") || self.path.len() > self.section.split('.').count();
        SettingChange {
            name: setting.map_or_else(|| self.path.join("."), |setting| setting.name.clone()),
            section: self.section.trim_matches(['[', ']']).to_owned(),
            object: self.path.get(1).filter(|_| is_repeated).cloned(),
            key: setting.map(|setting| setting.key.clone()),
        }
    }
}

fn sections(document: &Table, applied: &[OverriddenSetting]) -> Vec<SectionInForce> {
    let keys = listed_keys();
    let mut sections = Vec::new();
    // The keys of one section follow each other.
    for keys_of_section in keys.chunk_by(|one, other| one.section == other.section) {
        let Some(ListedKey { section, is_repeated, .. }) = keys_of_section.first() else { continue };
        let header = if *is_repeated { format!("[[{section}]]") } else { format!("[{section}]") };
        let present =
            tables_of(document, section, &keys).into_iter().filter(|table| is_present(document, table));
        for table in present {
            let settings = keys_of_section.iter().map(|key| setting(document, &table, key, applied));
            sections.push(SectionInForce {
                section: header.clone(),
                settings: settings.collect(),
                path: table.full_name().to_vec(),
            });
        }
    }
    sections
}

/// Whether a section counts as given: the document has the section, or the outer section that contains it.
fn is_present(document: &Table, table: &LocatedTable) -> bool {
    let around = table.steps.split_last().filter(|(_, around)| !around.is_empty());
    table_at(document, &table.steps).is_some()
        || table.steps.iter().any(|step| step.name == SECTION_WITH_DEFAULTS)
        || around.is_some_and(|(_, around)| table_at(document, around).is_some())
}

fn setting(
    document: &Table,
    table: &LocatedTable,
    key: &ListedKey,
    applied: &[OverriddenSetting],
) -> SettingInForce {
    let given = table_at(document, &table.steps).and_then(|values| {
        let old = OLD_SPELLINGS.iter().filter(|(section, _, new)| *section == key.section && *new == key.key);
        values.get(key.key).or_else(|| old.filter_map(|(_, old, _)| values.get(*old)).next())
    });
    let is_this = |one: &&OverriddenSetting| one.path.key == key.key && one.path.steps == table.steps;
    let origin = match applied.iter().rev().find(is_this) {
        Some(applied) => applied.origin.clone(),
        None if given.is_some() => SettingOrigin::File,
        None => SettingOrigin::Default,
    };
    let default_text = key.default_text();
    let value = match given {
        Some(given) => Some(given.clone()),
        None if default_text.is_none() && !key.is_required() => key.value(),
        None => None,
    };
    SettingInForce {
        name: table.flag_of(key.key),
        variable: table.variable_of(key.key),
        key: key.key.to_owned(),
        default: default_text.filter(|_| value.is_none()),
        value,
        origin,
    }
}

/// The value without secrets: passwords, their hashes, and the login in a URL.
fn masked(key: &str, value: &Value) -> Value {
    match value {
        _ if SECRET_KEYS.contains(&key) => Value::String(MASK.to_owned()),
        Value::String(text) => Value::String(without_login(text).into_owned()),
        Value::Array(values) => Value::Array(values.iter().map(|value| masked(key, value)).collect()),
        other => other.clone(),
    }
}

impl SectionInForce {
    /// The section in TOML. A comment after each setting says where it comes from.
    pub fn to_toml(&self) -> String {
        let mut text = format!("{}\n", self.section);
        for SettingInForce { key, value, default, origin, .. } in &self.settings {
            let origin = match origin {
                SettingOrigin::File => "file".to_owned(),
                SettingOrigin::Environment(variable) => format!("environment: {variable}"),
                SettingOrigin::Flag => "--set".to_owned(),
                SettingOrigin::Default => "default".to_owned(),
            };
            // Writing to a string does not fail.
            let _ = match (value, default) {
                (Some(value), _) => writeln!(text, "{key} = {value}  # {origin}"),
                (None, Some(default)) => writeln!(text, "#{key}  # {origin}: {default}"),
                (None, None) => writeln!(text, "#{key}  # {origin}"),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
        [log]
        directory = 'log'
        retention_hours_max = 5
        [[source]]
        name = 'orders'
        host = 'db1'
        server_id = 4201
        watch_ms = 700
        [[serve]]
        source = 'orders'
        listen = '127.0.0.1:3307'
        [[serve.user]]
        name = 'repl'
        password = 'p4711'
        [manager]
        lease = 'etcd'
        etcd_endpoints = ['https://root:p4711@etcd1:2379/x']
        [[server]]
        name = 'db2'
        source = 'orders'
        host = 'db2'
    ";

    fn shown(flags: &[&str]) -> (String, Vec<SectionInForce>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tailwater.toml");
        std::fs::write(&path, FILE).unwrap();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let sections = settings_in_force(&path, &Overrides::default().with_flags(&flags)).unwrap();
        (sections.iter().map(|section| format!("{}\n", section.to_toml())).collect(), sections)
    }

    #[test]
    fn each_setting_has_its_source() {
        let (text, sections) = shown(&["source.orders.heartbeat_ms=300"]);
        for line in [
            "\nhost = \"db1\"  # file\n",
            "\nheartbeat_ms = 300  # --set\n",
            "\nsemi_sync_check_ms = 700  # file\n",
            "\narchive_interval_ms = 10000  # default\n",
            "\n#retention_bytes_max  # default: no limit\n",
            "\nping_ms = 100  # default\n",
            "\n[[serve.user]]\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("[http]"), "{text}");
        toml::from_str::<Table>(&text.replace("[manager", "[manager2")).unwrap();
        let host = sections
            .iter()
            .flat_map(|section| &section.settings)
            .find(|one| one.name.ends_with("orders.host"));
        assert_eq!(host.map(|one| one.variable.as_str()), Some("TAILWATER_SOURCE_ORDERS_HOST"));
    }

    #[test]
    fn changes_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tailwater.toml");
        let load = |text: &str| {
            std::fs::write(&path, text).unwrap();
            LoadedConfig::load(&path, &Overrides::default()).unwrap()
        };
        let one = load(FILE);
        assert_eq!(one.changes_to(&load(&FILE.replace("watch_ms", "semi_sync_check_ms"))), []);
        let channel = "[[channel]]\nname = 'reports'\nsource = 'orders'\nport = 1\n[channel.filters]\ninclude = ['a.*']\n";
        let other = load(&format!(
            "{}{channel}[http]\nlisten = '127.0.0.1:1'",
            FILE.replace("p4711'\n", "other'\n").replace("db1", "db9")
        ));
        let names =
            |changes: Vec<SettingChange>| changes.into_iter().map(|change| change.name).collect::<Vec<_>>();
        let expected = ["channel.reports", "http", "source.orders.host", "serve.1.user.repl.password"];
        let found = names(one.changes_to(&other));
        assert_eq!(found, expected);
        assert!(!format!("{one:?}").contains("4711"), "{one:?}");
        let filtered = load(&format!("{FILE}{}", channel.replace("a.*", "b.*")));
        let changes = load(&format!("{FILE}{channel}")).changes_to(&filtered);
        let change = SettingChange {
            name: "channel.reports.filters.include".into(),
            section: "channel.filters".into(),
            object: Some("reports".into()),
            key: Some("include".into()),
        };
        assert_eq!(changes, [change]);
    }

    #[test]
    fn secrets_are_masked() {
        let (text, sections) = shown(&["serve.user.repl.password=p4711"]);
        assert!(!text.contains("4711") && text.contains("password = \"***\"  # --set"), "{text}");
        assert!(text.contains("https://***@etcd1:2379/x"), "{text}");
        assert!(!format!("{sections:?}").contains("4711"));
    }

    #[test]
    fn no_error_shows_a_login() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tailwater.toml");
        let relay = "[[relay]]\nname = 'two'\nsource = 'orders'\nserver_id = 4202\ntoken_file = 't'\n";
        for (text, expected) in [
            (FILE.replace("'etcd'", "'file'"), "must be given together"),
            (
                FILE.replace("['https://root:p4711@etcd1:2379/x']", "'https://root:p4711@etcd1:2379/x'"),
                "line",
            ),
            (format!("{FILE}{relay}url = 'https://root:p4711@relay2:8080'"), "token_file"),
            (FILE.replace("[log]", "[log]\narchive = 's3://root:p4711@bucket/x'"), "AWS_"),
            (
                FILE.replace(
                    "[log]",
                    "[log]\narchive = 's3://bucket/x'\narchive_endpoint = 'https://root:p4711@store'",
                ),
                "AWS_",
            ),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = Config::load_with(&path, &Overrides::default()).expect_err(&text);
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(expected) && !shown.contains("4711"), "{shown}");
        }
    }
}
