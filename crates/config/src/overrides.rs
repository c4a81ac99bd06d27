//! Settings that take precedence over the configuration file: environment variables, and `--set`.

use std::ffi::OsString;

use toml::{Table, Value};

use super::default_config::OLD_SPELLINGS;
use super::setting_names::{SettingNames, SettingPath, VARIABLE_PREFIX, table_at_mut};
use super::spelling_suggestion::nearest;

/// Environment variables that begin with `TAILWATER_` but set no key: variables for connections, for hooks
/// (docs/reference/hooks.md) and for the developers' tests. An entry that ends with `_` is a prefix.
const OTHER_VARIABLES: [&str; 38] = [
    "TAILWATER_LOG",
    "TAILWATER_PASSWORD",
    "TAILWATER_HOOK",
    "TAILWATER_RUN",
    "TAILWATER_CLUSTER",
    "TAILWATER_SOURCE",
    "TAILWATER_TERM",
    "TAILWATER_COMMAND",
    "TAILWATER_HOST",
    "TAILWATER_PORT",
    "TAILWATER_SOCKET",
    "TAILWATER_USER",
    "TAILWATER_GTIDS",
    "TAILWATER_OLD_HOST",
    "TAILWATER_OLD_NAME",
    "TAILWATER_OLD_PORT",
    "TAILWATER_NEW_HOST",
    "TAILWATER_NEW_NAME",
    "TAILWATER_NEW_PORT",
    "TAILWATER_ALLOW_MISSING_SERVERS",
    "TAILWATER_BLESS",
    "TAILWATER_CACHE",
    "TAILWATER_CASES",
    "TAILWATER_DEBIAN",
    "TAILWATER_DEBIAN_",
    "TAILWATER_EARLIER_BUILD",
    "TAILWATER_FAULTS",
    "TAILWATER_FETCH",
    "TAILWATER_LONG",
    "TAILWATER_ONLY",
    "TAILWATER_PACKAGE",
    "TAILWATER_PACKAGE_",
    "TAILWATER_SEED",
    "TAILWATER_SEEDS",
    "TAILWATER_SUITES_",
    "TAILWATER_TEST_",
    "TAILWATER_BENCH_",
    "TAILWATER_BUILD_",
];

/// Settings that take precedence over the file. Later settings win: first the environment is applied, then
/// `--set`.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    variables: Vec<(String, OsString)>,
    /// `SECTION.KEY=VALUE`
    flags: Vec<String>,
}

/// Where the value of a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "from", content = "name", rename_all = "snake_case")]
pub enum SettingOrigin {
    /// The configuration file.
    File,
    /// An environment variable.
    Environment(String),
    /// `--set`
    Flag,
    /// The setting is nowhere: its default.
    Default,
}

/// A setting that an override has set.
#[derive(Debug)]
pub(super) struct OverriddenSetting {
    pub(super) path: SettingPath,
    pub(super) origin: SettingOrigin,
}

impl Overrides {
    /// The environment variables of this process that begin with `TAILWATER_` and have no other meaning.
    pub fn from_environment() -> Self {
        Self::from_variables(std::env::vars_os())
    }

    fn from_variables(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let own = |(name, value): (OsString, OsString)| {
            let name = name.into_string().ok().filter(|name| name.starts_with(VARIABLE_PREFIX))?;
            let has_other_meaning = OTHER_VARIABLES.iter().any(|other| match other.ends_with('_') {
                true => name.starts_with(other),
                false => name == *other,
            });
            (!has_other_meaning).then_some((name, value))
        };
        Self { variables: variables.into_iter().filter_map(own).collect(), flags: Vec::new() }
    }

    /// Adds settings in the form `SECTION.KEY=VALUE`.
    #[must_use]
    pub fn with_flags(mut self, flags: &[String]) -> Self {
        self.flags.extend_from_slice(flags);
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.variables.is_empty() && self.flags.is_empty()
    }

    /// Applies the settings to a document. Of two values for the same setting, the later value wins.
    ///
    /// # Errors
    /// A name that is not a setting, with the nearest name as a suggestion; a value of a wrong type. The
    /// message does not contain the value.
    pub(super) fn apply(&self, document: &mut Table) -> Result<Vec<OverriddenSetting>, String> {
        let names = SettingNames::of(document);
        let mut applied = Vec::new();
        for (variable, value) in &self.variables {
            let about = format!("environment variable {variable}");
            let path = only(names.variables.get(variable))
                .map_err(|known| no_setting(&about, variable, known, names.variables.keys()))?;
            let value = value.to_str().ok_or_else(|| format!("{about}: its value is not UTF-8"))?;
            set(document, path, value).map_err(|reason| format!("{about}: {reason}"))?;
            applied.push(OverriddenSetting {
                path: path.clone(),
                origin: SettingOrigin::Environment(variable.clone()),
            });
        }
        for flag in &self.flags {
            let (name, value) = flag.split_once('=').ok_or_else(|| {
                format!("--set {flag}: give SECTION.KEY=VALUE, for example log.directory=/srv/log")
            })?;
            let about = format!("--set {name}");
            let path = only(names.flags.get(name))
                .map_err(|known| no_setting(&about, name, known, names.flags.keys()))?;
            set(document, path, value).map_err(|reason| format!("{about}: {reason}"))?;
            applied.push(OverriddenSetting { path: path.clone(), origin: SettingOrigin::Flag });
        }
        Ok(applied)
    }
}

/// Returns the only setting with this name; otherwise the number of settings with this name.
fn only(paths: Option<&Vec<SettingPath>>) -> Result<&SettingPath, usize> {
    match paths.map(Vec::as_slice).unwrap_or_default() {
        [path] => Ok(path),
        paths => Err(paths.len()),
    }
}

fn no_setting<'a>(
    about: &str,
    name: &str,
    settings: usize,
    known: impl Iterator<Item = &'a String>,
) -> String {
    if settings > 1 {
        return format!("{about}: {settings} sections have that name; set the key in the file");
    }
    let suggestion = match name.strip_prefix(VARIABLE_PREFIX) {
        Some(own) => {
            // Names are compared without the prefix `TAILWATER_`, which all of them have.
            let known: Vec<String> = known
                .filter_map(|known| known.strip_prefix(VARIABLE_PREFIX))
                .map(str::to_lowercase)
                .collect();
            let near = nearest(own, known.iter().map(String::as_str)).map(str::to_uppercase);
            near.map(|near| format!("{VARIABLE_PREFIX}{near}"))
        }
        None => nearest(name, known.map(String::as_str)).map(str::to_owned),
    };
    match suggestion {
        Some(near) => format!("{about} sets nothing; did you mean {near}?"),
        None => format!(
            "{about} sets nothing: there is no such setting in the sections of the file; `tailwater config show \
             --output json` lists the names"
        ),
    }
}

fn set(document: &mut Table, path: &SettingPath, text: &str) -> Result<(), String> {
    let value = match &path.example {
        Some(Value::Integer(_)) => {
            Value::Integer(text.trim().parse().map_err(|_| "the value is not a whole number")?)
        }
        Some(Value::Boolean(_)) => {
            Value::Boolean(text.trim().parse().map_err(|_| "the value is not true or false")?)
        }
        Some(Value::String(_)) => Value::String(text.to_owned()),
        Some(Value::Array(_)) => {
            let list = toml::from_str::<Table>(&format!("list = {text}")).ok();
            let list = list.and_then(|mut table| table.remove("list")).filter(Value::is_array);
            list.ok_or("the value is not a list in TOML, for example [\"a\", \"b\"]")?
        }
        _ => return Err("set the key in the file".to_owned()),
    };
    let table = table_at_mut(document, &path.steps).ok_or("the file has another type for its section")?;
    for (_, old, _) in OLD_SPELLINGS.iter().filter(|(of, _, key)| *of == path.section && *key == path.key) {
        table.remove(*old);
    }
    table.insert(path.key.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[log]\ndirectory = 'log'\n[[source]]\nname = 'orders'\nwatch_ms = 5\nserver_id = 1\n";

    fn applied(variables: &[(&str, &str)], flags: &[&str]) -> Result<Table, String> {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut document = toml::from_str(FILE).unwrap();
        Overrides::from_variables(variables).with_flags(&flags).apply(&mut document)?;
        Ok(document)
    }

    #[test]
    fn flags_take_precedence_over_variables_and_these_over_the_file() {
        let variables = [
            ("TAILWATER_LOG_DIRECTORY", "from environment"),
            ("TAILWATER_SOURCE_ORDERS_SEMI_SYNC_CHECK_MS", "700"),
            ("TAILWATER_SOURCE_SEMI_SYNC", "false"),
            ("TAILWATER_HTTP_LISTEN", "127.0.0.1:1"),
            ("TAILWATER_MANAGER_ETCD_ENDPOINTS", "['http://a']"),
            // Other meanings.
            ("TAILWATER_PASSWORD", "x"),
            ("TAILWATER_LOG", "debug"),
            ("TAILWATER_SUITES_ANY", "1"),
            ("PATH", "/bin"),
        ];
        let document = applied(&variables, &["log.directory=from=flag"]).unwrap();
        assert_eq!(document["log"]["directory"].as_str(), Some("from=flag"));
        let source = &document["source"][0];
        assert_eq!(source["semi_sync_check_ms"].as_integer(), Some(700));
        assert!(source.get("watch_ms").is_none(), "the old spelling of an overridden key");
        assert_eq!(source["semi_sync"].as_bool(), Some(false));
        assert_eq!(document["http"]["listen"].as_str(), Some("127.0.0.1:1"));
        assert_eq!(document["manager"]["etcd_endpoints"][0].as_str(), Some("http://a"));
    }

    #[test]
    fn a_name_or_value_that_is_wrong_is_refused() {
        for (name, value, expected) in [
            ("TAILWATER_LOG_DIRECTROY", "4711", "did you mean TAILWATER_LOG_DIRECTORY?"),
            ("TAILWATER_SOURCE_ORDES_HOST", "4711", "did you mean TAILWATER_SOURCE_ORDERS_HOST?"),
            ("TAILWATER_CHANNEL_X_BATCHES", "4711", "config show"),
            ("TAILWATER_SOURCE_SERVER_ID", "4711x", "not a whole number"),
            ("TAILWATER_MANAGER_AUTOMATIC", "4711", "not true or false"),
            ("TAILWATER_MANAGER_ETCD_ENDPOINTS", "4711", "not a list"),
        ] {
            let message = applied(&[(name, value)], &[]).unwrap_err();
            assert!(message.contains(expected) && message.contains(name), "{message}");
            assert!(!message.contains("4711"), "the value is shown: {message}");
        }
        for (flag, expected) in [("log.dir=x", "log."), ("log.directory", "SECTION.KEY=VALUE")] {
            let message = applied(&[], &[flag]).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
