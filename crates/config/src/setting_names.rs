//! The names of settings in environment variables and in `--set`.
//!
//! A setting's name is its section, the name of the section's object if the section may be repeated, and its
//! key: `TAILWATER_LOG_DIRECTORY`, `TAILWATER_SOURCE_ORDERS_HOST`, `source.orders.host`. Sections without a
//! name have a number, from 1. The name or number may be left out if there is only one such section.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::default_config::{ListedKey, listed_keys};

/// What every environment variable of Tailwater begins with.
pub(super) const VARIABLE_PREFIX: &str = "TAILWATER_";

/// A step of the path to a table: from a table of the document to a table inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableStep {
    /// The key of the table, or of the array of tables.
    pub(super) name: String,
    /// The index in the array of tables; `None` for a table.
    pub(super) index: Option<usize>,
}

/// A table of the document, which may be absent.
#[derive(Debug, Clone)]
pub(super) struct LocatedTable {
    /// The steps from the document to the table.
    pub(super) steps: Vec<TableStep>,
    /// The names of the table, as parts: the full name first.
    names: Vec<Vec<String>>,
}

impl LocatedTable {
    /// The full name of a setting in this table, as in `--set`.
    pub(super) fn flag_of(&self, key: &str) -> String {
        flag_name(self.full_name(), key)
    }

    /// The environment variable of a setting in this table.
    pub(super) fn variable_of(&self, key: &str) -> String {
        variable_name(self.full_name(), key)
    }

    /// The full name, as parts.
    pub(super) fn full_name(&self) -> &[String] {
        self.names.first().map_or(&[], Vec::as_slice)
    }
}

fn flag_name(table: &[String], key: &str) -> String {
    format!("{}.{key}", table.join("."))
}

fn variable_name(table: &[String], key: &str) -> String {
    let upper = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    let parts = table.iter().map(String::as_str).chain([key]);
    let parts: Vec<String> = parts.map(|part| part.chars().map(upper).collect()).collect();
    format!("{VARIABLE_PREFIX}{}", parts.join("_"))
}

/// A setting of the document, which may be absent.
#[derive(Debug, Clone)]
pub(super) struct SettingPath {
    /// The section without brackets.
    pub(super) section: String,
    /// The steps from the document to the section.
    pub(super) steps: Vec<TableStep>,
    /// The key.
    pub(super) key: &'static str,
    /// A value of the setting's type.
    pub(super) example: Option<Value>,
}

/// The settings by their names. A name that several settings share is ambiguous.
#[derive(Debug, Default)]
pub(super) struct SettingNames {
    /// By environment variable.
    pub(super) variables: BTreeMap<String, Vec<SettingPath>>,
    /// By the name for `--set`.
    pub(super) flags: BTreeMap<String, Vec<SettingPath>>,
}

impl SettingNames {
    /// The names of all settings that a document has, or could have in its sections.
    pub(super) fn of(document: &Table) -> Self {
        let (keys, mut names) = (listed_keys(), Self::default());
        for key in &keys {
            let path = |table: &LocatedTable| SettingPath {
                section: key.section.clone(),
                steps: table.steps.clone(),
                key: key.key,
                example: key.value(),
            };
            for table in tables_of(document, &key.section, &keys) {
                for name in &table.names {
                    names.flags.entry(flag_name(name, key.key)).or_default().push(path(&table));
                    names.variables.entry(variable_name(name, key.key)).or_default().push(path(&table));
                }
            }
        }
        names
    }
}

/// Returns the tables of a section. If the section may be repeated, these are all its tables in the document.
/// Otherwise this is one table, which the document may lack.
pub(super) fn tables_of(document: &Table, section: &str, keys: &[ListedKey]) -> Vec<LocatedTable> {
    let mut tables = vec![LocatedTable { steps: Vec::new(), names: vec![Vec::new()] }];
    let mut around = String::new();
    for part in section.split('.') {
        around = if around.is_empty() { part.to_owned() } else { format!("{around}.{part}") };
        let is_repeated = keys.iter().any(|key| key.section == around && key.is_repeated);
        let inner = |table: &LocatedTable| match is_repeated {
            true => repeated_tables(document, table, part),
            false => vec![table.inner(part, None, &[vec![part.to_owned()]])],
        };
        tables = tables.iter().flat_map(inner).collect();
    }
    tables
}

fn repeated_tables(document: &Table, table: &LocatedTable, part: &str) -> Vec<LocatedTable> {
    let array = table_at(document, &table.steps).and_then(|table| table.get(part)).and_then(Value::as_array);
    let elements = array.map(Vec::as_slice).unwrap_or_default();
    let located = |(index, element): (usize, &Value)| {
        let name = element.get("name").and_then(Value::as_str).map(str::to_owned);
        let name = name.unwrap_or_else(|| (index + 1).to_string());
        let mut names = vec![vec![part.to_owned(), name]];
        if elements.len() == 1 {
            names.push(vec![part.to_owned()]);
        }
        table.inner(part, Some(index), &names)
    };
    elements.iter().enumerate().map(located).collect()
}

impl LocatedTable {
    /// Returns a table that is inside this table. Each name of the inner table is a name of this table
    /// followed by one of `endings`.
    fn inner(&self, name: &str, index: Option<usize>, endings: &[Vec<String>]) -> Self {
        let step = TableStep { name: name.to_owned(), index };
        let names = self
            .names
            .iter()
            .flat_map(|name| endings.iter().map(move |ending| [name.as_slice(), ending.as_slice()].concat()));
        Self { steps: self.steps.iter().cloned().chain([step]).collect(), names: names.collect() }
    }
}

/// Returns the table to which the path `steps` leads, if the document has it.
pub(super) fn table_at<'a>(document: &'a Table, steps: &[TableStep]) -> Option<&'a Table> {
    steps.iter().try_fold(document, |table, step| match (table.get(&step.name)?, step.index) {
        (Value::Table(table), None) => Some(table),
        (Value::Array(tables), Some(index)) => tables.get(index)?.as_table(),
        _ => None,
    })
}

/// Returns the table to which the path `steps` leads. Absent tables are added, except in arrays.
pub(super) fn table_at_mut<'a>(document: &'a mut Table, steps: &[TableStep]) -> Option<&'a mut Table> {
    steps.iter().try_fold(document, |table, step| match step.index {
        None => table.entry(&step.name).or_insert_with(|| Value::Table(Table::new())).as_table_mut(),
        Some(index) => table.get_mut(&step.name)?.as_array_mut()?.get_mut(index)?.as_table_mut(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> SettingNames {
        SettingNames::of(&toml::from_str(text).unwrap())
    }

    #[test]
    fn every_setting_has_names() {
        let names = names(
            "[[source]]\nname = 'or-ders'\n[[serve]]\n[[serve.user]]\nname = 'repl'\n[[serve.user]]\nname = 'mon'",
        );
        for variable in [
            "TAILWATER_LOG_DIRECTORY",
            "TAILWATER_SOURCE_OR_DERS_HOST",
            "TAILWATER_SOURCE_HOST",
            "TAILWATER_SERVE_LISTEN",
            "TAILWATER_SERVE_1_LISTEN",
            "TAILWATER_SERVE_USER_REPL_PASSWORD",
            "TAILWATER_SERVE_1_USER_MON_PASSWORD_FILE",
            "TAILWATER_MANAGER_ANALYSIS_COOLDOWN_MS",
        ] {
            assert_eq!(names.variables.get(variable).map(Vec::len), Some(1), "{variable}");
        }
        for flag in ["log.directory", "source.or-ders.host", "source.host", "serve.user.repl.hash"] {
            assert_eq!(names.flags.get(flag).map(Vec::len), Some(1), "{flag}");
        }
        assert!(!names.variables.contains_key("TAILWATER_SERVE_USER_PASSWORD"), "two accounts");
        assert!(!names.variables.contains_key("TAILWATER_CHANNEL_WORKERS"), "no channel");
    }

    #[test]
    fn names_of_several_settings_are_known_to_be_ambiguous() {
        let names = names("[[source]]\nname = 'a.b'\n[[source]]\nname = 'a-b'");
        assert_eq!(names.variables["TAILWATER_SOURCE_A_B_HOST"].len(), 2);
        assert_eq!(names.flags["source.a.b.host"].len(), 1);
    }
}
