//! Answers by the names of their columns and variables.

use std::collections::BTreeMap;

use tailwater_session::{QueryResult, Row};

/// A row whose values are asked for by the names of their columns, of which families and versions have several.
pub(super) struct NamedRow<'a> {
    pub(super) result: &'a QueryResult,
    pub(super) row: &'a Row,
}

impl NamedRow<'_> {
    /// The value of the first column of those names that there is; empty for NULL.
    pub(super) fn text(&self, names: &[&str]) -> String {
        self.value(names).unwrap_or_default().to_owned()
    }

    pub(super) fn value(&self, names: &[&str]) -> Option<&str> {
        let column = names.iter().find_map(|name| self.result.column(name))?;
        self.row.get_str(column)
    }

    /// As a number; `None` for NULL, and for what is none.
    pub(super) fn number<T: std::str::FromStr>(&self, names: &[&str]) -> Option<T> {
        self.value(names)?.trim().parse().ok()
    }
}

/// Variables or status counters by name, in lower case.
#[derive(Debug, Default)]
pub(super) struct NamedValues(BTreeMap<String, String>);

impl NamedValues {
    /// Of an answer with a name and a value in each row.
    pub(super) fn of(result: &QueryResult) -> Self {
        let pairs = result.rows.iter().filter_map(|row| {
            Some((row.get_str(0)?.to_ascii_lowercase(), row.get_str(1).unwrap_or_default().to_owned()))
        });
        Self(pairs.collect())
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of the first of those names that there is.
    pub(super) fn get(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.0.get(*name)).map(String::as_str)
    }

    pub(super) fn number<T: std::str::FromStr>(&self, names: &[&str]) -> Option<T> {
        self.get(names)?.trim().parse().ok()
    }

    /// Whether it is on; MariaDB 12 has `read_only` with words of its own for on.
    pub(super) fn is_on(&self, names: &[&str]) -> bool {
        self.get(names)
            .is_some_and(|value| !matches!(value.to_ascii_uppercase().as_str(), "OFF" | "0" | "NO" | ""))
    }
}

#[cfg(test)]
mod tests {
    use super::NamedValues;

    #[test]
    fn switches_are_read_in_every_spelling() {
        let pairs = [("a", "ON"), ("b", "OFF"), ("c", "1"), ("d", "0"), ("e", "NO_LOCK_NO_ADMIN"), ("f", "")];
        let named = NamedValues(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let on = ["a", "b", "c", "d", "e", "f", "absent"].map(|name| named.is_on(&[name]));
        assert_eq!(on, [true, false, true, false, true, false, false]);
        assert_eq!(named.number::<u64>(&["absent", "c"]), Some(1));
    }
}
