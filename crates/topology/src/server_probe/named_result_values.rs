//! Access to query results by column and variable names.

use std::collections::BTreeMap;

use tailwater_session::{QueryResult, TextRow};

/// A row whose values are accessed by column name. Column names differ between flavours and versions, so
/// several names can be given.
pub(super) struct NamedRow<'a> {
    pub(super) result: &'a QueryResult,
    pub(super) row: &'a TextRow,
}

impl NamedRow<'_> {
    /// Returns the value of the first of these columns that exists; empty for NULL.
    pub(super) fn text(&self, names: &[&str]) -> String {
        self.value(names).unwrap_or_default().to_owned()
    }

    pub(super) fn value(&self, names: &[&str]) -> Option<&str> {
        let column = names.iter().find_map(|name| self.result.column(name))?;
        self.row.get_str(column)
    }

    /// Returns the value as a number; `None` for NULL and for a value that is not a number.
    pub(super) fn number<T: std::str::FromStr>(&self, names: &[&str]) -> Option<T> {
        self.value(names)?.trim().parse().ok()
    }
}

/// System variables or status variables, by their lower-case name.
#[derive(Debug, Default)]
pub(super) struct NamedValues(BTreeMap<String, String>);

impl NamedValues {
    /// Reads a query result that has a name and a value in each row.
    pub(super) fn of(result: &QueryResult) -> Self {
        let pairs = result.rows.iter().filter_map(|row| {
            Some((row.get_str(0)?.to_ascii_lowercase(), row.get_str(1).unwrap_or_default().to_owned()))
        });
        Self(pairs.collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the value of the first of these names that exists.
    pub(super) fn get(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.0.get(*name)).map(String::as_str)
    }

    pub(super) fn number<T: std::str::FromStr>(&self, names: &[&str]) -> Option<T> {
        self.get(names)?.trim().parse().ok()
    }

    /// Whether the variable is on. MariaDB 12 has additional values of `read_only` that also mean on.
    pub(super) fn is_on(&self, names: &[&str]) -> bool {
        self.get(names)
            .is_some_and(|value| !matches!(value.to_ascii_uppercase().as_str(), "OFF" | "0" | "NO" | ""))
    }
}

#[cfg(test)]
mod tests {
    use super::NamedValues;

    #[test]
    fn on_and_off_are_recognized_in_every_spelling() {
        let pairs = [("a", "ON"), ("b", "OFF"), ("c", "1"), ("d", "0"), ("e", "NO_LOCK_NO_ADMIN"), ("f", "")];
        let named = NamedValues(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let on = ["a", "b", "c", "d", "e", "f", "absent"].map(|name| named.is_on(&[name]));
        assert_eq!(on, [true, false, true, false, true, false, false]);
        assert_eq!(named.number::<u64>(&["absent", "c"]), Some(1));
    }
}
