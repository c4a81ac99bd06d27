//! The configuration that `tailwater config default` prints, with every key.

/// Every key with its meaning, unit and default. Only keys that most configurations need are set; the others
/// are commented out.
pub const DEFAULT_CONFIG: &str = include_str!("default.toml");

/// Returns the sections that have this key, as the configuration file writes them: `[log]`, `[[source]]`.
pub(super) fn sections_with(key: &str) -> Vec<&'static str> {
    let mut section = "";
    let mut found = Vec::new();
    for line in DEFAULT_CONFIG.lines().filter_map(uncommented) {
        match key_of(line) {
            None if line.starts_with('[') => section = line,
            Some(own) if own == key => found.push(section),
            _ => {}
        }
    }
    found
}

/// Returns a line without the `#` that disables it; `None` for prose and empty lines.
fn uncommented(line: &'static str) -> Option<&'static str> {
    let line = line.strip_prefix('#').unwrap_or(line);
    (!line.is_empty() && !line.starts_with(' ')).then_some(line)
}

/// Returns the key that a line sets.
fn key_of(line: &str) -> Option<&str> {
    line.split_once(" = ").map(|(key, _)| key)
}

/// Old spellings of keys, which are accepted and not listed: the section, the old spelling, the key.
pub(super) const OLD_SPELLINGS: [(&str, &str, &str); 6] = [
    ("source", "watch_ms", "semi_sync_check_ms"),
    ("manager", "unverified_ms_max", "primary_state_max_age_ms"),
    ("manager.analysis", "agreed_after_ms", "unanimous_detect_after_ms"),
    ("manager.pace", "look_ms", "poll_ms"),
    ("manager.pace", "look_timeout_ms", "poll_timeout_ms"),
    ("manager.pace", "hurried_look_ms", "failure_poll_ms"),
];

/// A key of the default configuration.
pub(super) struct ListedKey {
    /// The section without brackets: `log`, `serve.user`.
    pub(super) section: String,
    /// Whether the section may be repeated: `[[source]]`.
    pub(super) is_repeated: bool,
    /// The key.
    pub(super) key: &'static str,
    /// The line that sets it.
    pub(super) line: &'static str,
    /// Whether the line is not commented out.
    #[cfg(test)]
    is_set: bool,
    comment: String,
}

impl ListedKey {
    /// The value of the line: the default, or an example.
    pub(super) fn value(&self) -> Option<toml::Value> {
        toml::from_str::<toml::Table>(self.line).ok()?.remove(self.key)
    }

    /// Whether every section needs the key.
    pub(super) fn is_required(&self) -> bool {
        self.comment.contains("Required.")
    }

    /// The default in words, for example "no limit", if the comment above the key's line states it. `None` if
    /// the value in that line is the default.
    pub(super) fn default_text(&self) -> Option<String> {
        let (_, text) = self.comment.split_once("Default: ")?;
        let words = text.split_whitespace().filter(|word| *word != "#");
        Some(words.collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned())
    }
}

/// Every key, in the order of the default configuration.
pub(super) fn listed_keys() -> Vec<ListedKey> {
    let (mut section, mut is_repeated) = (String::new(), false);
    let (mut comment, mut keys) = (String::new(), Vec::new());
    for line in DEFAULT_CONFIG.lines() {
        let Some(code) = uncommented(line) else {
            comment = if line.is_empty() { String::new() } else { format!("{comment}{line}\n") };
            continue;
        };
        match key_of(code) {
            None => {
                section = code.trim_matches(['[', ']']).to_owned();
                is_repeated = code.starts_with("[[");
            }
            Some(key) => keys.push(ListedKey {
                section: section.clone(),
                is_repeated,
                key,
                line: code,
                #[cfg(test)]
                is_set: !line.starts_with('#'),
                comment: comment.clone(),
            }),
        }
        comment.clear();
    }
    keys
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::{Config, parse_toml};

    /// Returns the default configuration, in which the disabled lines that `wanted` accepts are enabled.
    fn enabled(wanted: impl Fn(&str) -> bool) -> String {
        let keep = |line: &'static str| match uncommented(line) {
            Some(code) if !line.starts_with('#') || wanted(code) => format!("{code}\n"),
            _ => String::new(),
        };
        DEFAULT_CONFIG.lines().map(keep).collect()
    }

    fn parsed(text: &str) -> Config {
        parse_toml(text)
            .unwrap_or_else(|reason| panic!("the default configuration cannot be parsed: {reason}\n{text}"))
    }

    #[test]
    fn the_default_configuration_is_valid_as_printed_and_uncommented() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tailwater.toml");
        std::fs::write(&path, DEFAULT_CONFIG).unwrap();
        let config = Config::load(&path).unwrap();
        assert_eq!((config.sources.len(), config.serves.len()), (1, 0));
        let all = parsed(&enabled(|_| true));
        assert!(all.manager.is_some() && all.http.is_some() && all.relays.len() == 1);
    }

    #[test]
    fn every_key_has_its_meaning_unit_and_default() {
        let keys = listed_keys();
        assert!(keys.len() > 100, "only {} keys were found", keys.len());
        for ListedKey { section, key, comment, is_set, .. } in &keys {
            assert!(comment.starts_with("# "), "{section}.{key} has no comment of its own");
            for (ending, unit) in [("_ms", "milliseconds"), ("_seconds", "seconds"), ("_hours", "hours")] {
                let named = key.ends_with(ending) || key.ends_with(&format!("{ending}_max"));
                assert!(
                    !named || comment.contains(unit),
                    "{section}.{key}: the comment does not mention {unit}"
                );
            }
            assert!(
                !key.contains("bytes") || comment.contains("bytes"),
                "{section}.{key}: the comment does not mention bytes"
            );
            assert!(
                !is_set || comment.contains("Required.") || comment.contains("Default:"),
                "{key} is set, but its comment has neither `Required.` nor `Default:`"
            );
        }
        let wide = DEFAULT_CONFIG.lines().find(|line| line.chars().count() > 92);
        assert_eq!(wide, None, "a line is wider than 92 columns");
    }

    /// The value in a disabled line is the key's default, unless the comment of the key names another
    /// default.
    #[test]
    fn values_are_the_defaults() {
        let keys = listed_keys();
        let is_needed = |code: &str| {
            code.starts_with('[') || keys.iter().any(|one| one.line == code && one.is_required())
        };
        let base = enabled(is_needed);
        let expected = format!("{:?}", parsed(&base));
        let mut compared = 0;
        for key in keys.iter().filter(|key| !key.is_set && !key.is_required()) {
            if key.comment.contains("Default:") {
                continue;
            }
            compared += 1;
            let header = |brackets: &str| brackets.replace('x', &key.section);
            let headers = [header("[x]\n"), header("[[x]]\n")];
            let header = headers.iter().find(|header| format!("\n{base}").contains(&format!("\n{header}")));
            let header =
                header.unwrap_or_else(|| panic!("the default configuration has no section {}", key.section));
            let changed = base.replacen(header.as_str(), &format!("{header}{}\n", key.line), 1);
            assert_ne!(base, changed);
            let found = format!("{:?}", parsed(&changed));
            assert_eq!(found, expected, "{}.{} is not the default", key.section, key.line);
        }
        assert!(compared > 45, "only {compared} defaults were compared");
    }

    /// The test gets the keys of each section from the parser: the error about an unknown key lists them.
    #[test]
    fn the_default_configuration_lists_every_accepted_key() {
        let mut listed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for ListedKey { section, key, .. } in listed_keys() {
            listed.entry(section).or_default().insert(key.to_owned());
        }
        let sections: Vec<String> = listed.keys().cloned().collect();
        for section in &sections {
            // A section inside another section is a key of the outer section.
            let (around, own) = section.rsplit_once('.').unwrap_or(("", section));
            listed.entry(around.to_owned()).or_default().insert(own.to_owned());
        }
        assert_eq!(listed.len(), 21, "wrong number of sections: {:?}", listed.keys());
        let all = enabled(|_| true);
        for (section, mut keys) in listed {
            let mut document: toml::Table = toml::from_str(&all).unwrap();
            let mut table = &mut document;
            for name in section.split('.').filter(|name| !name.is_empty()) {
                table = match table.get_mut(name) {
                    Some(toml::Value::Array(tables)) => tables[0].as_table_mut().unwrap(),
                    Some(toml::Value::Table(table)) => table,
                    other => panic!("{section} is not a section: {other:?}"),
                };
            }
            table.insert("no_such_key".into(), 1.into());
            let error = toml::from_str::<Config>(&toml::to_string(&document).unwrap()).unwrap_err();
            let (_, accepted) = error.message().split_once("expected").expect("a list of keys");
            let accepted = accepted.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
            for (of, old, _) in OLD_SPELLINGS {
                if of == section && accepted.contains(old) {
                    keys.insert(old.to_owned());
                }
            }
            assert_eq!(keys, accepted, "the parser accepts other keys in [{section}]");
        }
    }

    #[test]
    fn the_reference_documents_the_same_keys() {
        let page = include_str!("../../../docs/reference/config.md");
        let (mut section, mut texts) = (String::new(), BTreeMap::<String, String>::new());
        for line in page.lines() {
            let code = line.trim_start_matches('#');
            if let Some(header) = code.strip_prefix('[').filter(|_| !code.contains("](")) {
                let name = header.trim_start_matches('[').split(']').next().unwrap_or_default();
                section = name.to_owned();
            }
            let text = texts.entry(section.clone()).or_default();
            text.push_str(line);
            text.push('\n');
        }
        let keys = listed_keys();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        for ListedKey { section, key, .. } in &keys {
            let text = texts.get(section).unwrap_or_else(|| panic!("[{section}] is not documented"));
            let is_documented = text.split(|c: char| !is_word(c)).any(|word| word == *key);
            assert!(is_documented, "{section}.{key} is not documented");
        }
        for (section, text) in texts.iter().filter(|(section, _)| !section.is_empty()) {
            let documented = text.lines().filter_map(|line| key_of(line.trim_start_matches('#')));
            for key in documented.filter(|key| key.chars().all(is_word)) {
                let is_listed = keys.iter().any(|own| own.section == *section && own.key == key);
                assert!(is_listed, "config.md documents {section}.{key}, which does not exist");
            }
        }
    }

    #[test]
    fn sections_of_a_key_are_found() {
        assert_eq!(sections_with("archive"), ["[log]"]);
        assert_eq!(sections_with("listen"), ["[[serve]]", "[http]"]);
        assert!(sections_with("listens").is_empty());
    }
}
