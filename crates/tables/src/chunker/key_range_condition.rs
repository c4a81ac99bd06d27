//! Converts key ranges to SQL conditions.

use super::chunk_key::ChunkKey;
use super::key_range::{KeyLiteral, KeyRange};
use tailwater_wire::sql_quote::quote_identifier;

/// Returns the WHERE condition for the rows of a range; `None` if the range covers all rows.
pub fn condition(key: Option<&ChunkKey>, range: &KeyRange) -> Option<String> {
    let key = key?;
    let parts = match range {
        KeyRange::All => return None,
        KeyRange::Nulls => return Some(or(each(key, true))),
        KeyRange::Integers { from, to } => {
            let name = key.columns.first().map(|column| quote_identifier(&column.name))?;
            let mut parts = each(key, false);
            match (from, to) {
                // The server evaluates BETWEEN as one comparison per row, and `>=` and `<=` as two
                // comparisons.
                (Some(from), Some(to)) => parts.push(format!("{name} BETWEEN {from} AND {to}")),
                (from, to) => {
                    parts.extend(from.map(|from| format!("{name} >= {from}")));
                    parts.extend(to.map(|to| format!("{name} <= {to}")));
                }
            }
            parts
        }
        KeyRange::Keys { after, to } => {
            // Rows with NULL in a column of the key belong to the chunk for NULL. Comparisons alone do not
            // exclude all of them.
            let mut parts = each(key, false);
            parts.extend(after.iter().map(|after| beyond(key, after, RangeBound::After)));
            parts.extend(to.iter().map(|to| beyond(key, to, RangeBound::To)));
            parts
        }
    };
    (!parts.is_empty()).then(|| parts.join(" AND "))
}

/// Returns an `IS NULL` or `IS NOT NULL` condition for each nullable column.
fn each(key: &ChunkKey, null: bool) -> Vec<String> {
    let is = if null { "IS NULL" } else { "IS NOT NULL" };
    let nullable = key.columns.iter().filter(|column| column.nullable);
    nullable.map(|column| format!("{} {is}", quote_identifier(&column.name))).collect()
}

fn or(parts: Vec<String>) -> String {
    match parts.len() {
        0 => "FALSE".to_owned(),
        1 => parts.concat(),
        _ => format!("({})", parts.join(" OR ")),
    }
}

/// An end of a key range.
#[derive(Clone, Copy)]
enum RangeBound {
    /// The range begins after this key, which is excluded.
    After,
    /// The range ends at this key, which is included.
    To,
}

/// Returns a condition like `(a, b) > (x, y)`, in a form for which servers use the index: `a >= x AND (a > x
/// OR (a = x AND b > y))`. For a descending column, "after" means "less than".
fn beyond(key: &ChunkKey, values: &[KeyLiteral], end: RangeBound) -> String {
    let columns: Vec<_> =
        key.columns.iter().map(|column| quote_identifier(&column.name)).zip(values).collect();
    let last = columns.len().saturating_sub(1);
    let compare = |descending| if matches!(end, RangeBound::After) == descending { "<" } else { ">" };
    let terms = columns.iter().enumerate().map(|(index, (name, value))| {
        let or_equal = if matches!(end, RangeBound::To) && index == last { "=" } else { "" };
        let compare = format!("{}{or_equal}", compare(key.columns[index].descending));
        let mut term: Vec<_> =
            columns[..index].iter().map(|(name, value)| format!("{name} = {}", value.0)).collect();
        term.push(format!("{name} {compare} {}", value.0));
        if term.len() == 1 { term.concat() } else { format!("({})", term.join(" AND ")) }
    });
    let terms = or(terms.collect());
    match columns.first() {
        Some((name, value)) if last > 0 => {
            format!("{name} {}= {} AND {terms}", compare(key.columns[0].descending), value.0)
        }
        _ => terms,
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunk_key::{KeyColumn, KeyKind};
    use super::*;

    fn key(columns: &[(&str, bool)]) -> ChunkKey {
        let columns = columns
            .iter()
            .map(|&(name, nullable)| KeyColumn {
                name: name.into(),
                kind: KeyKind::Integer,
                nullable,
                descending: false,
            })
            .collect();
        ChunkKey { name: "k".into(), columns }
    }

    fn values(values: &[&str]) -> Option<Vec<KeyLiteral>> {
        Some(values.iter().map(|value| KeyLiteral((*value).to_owned())).collect())
    }

    #[test]
    fn conditions_of_ranges_can_use_the_index() {
        let text = |key: &ChunkKey, range| condition(Some(key), &range).unwrap_or_default();
        let one = key(&[("a", false)]);
        assert_eq!(text(&one, KeyRange::All), "");
        assert_eq!(text(&one, KeyRange::Integers { from: Some(-3), to: Some(4) }), "`a` BETWEEN -3 AND 4");
        assert_eq!(text(&one, KeyRange::Integers { from: Some(5), to: None }), "`a` >= 5");
        assert_eq!(text(&one, KeyRange::Integers { from: None, to: Some(-4) }), "`a` <= -4");
        assert_eq!(
            text(&one, KeyRange::Keys { after: values(&["1"]), to: values(&["2"]) }),
            "`a` > 1 AND `a` <= 2"
        );
        let two = key(&[("a", false), ("b", true)]);
        assert_eq!(text(&two, KeyRange::Nulls), "`b` IS NULL");
        assert_eq!(text(&two, KeyRange::Keys { after: None, to: None }), "`b` IS NOT NULL");
        assert_eq!(
            text(&two, KeyRange::Keys { after: values(&["1", "2"]), to: values(&["3", "4"]) }),
            "`b` IS NOT NULL AND `a` >= 1 AND (`a` > 1 OR (`a` = 1 AND `b` > 2)) \
             AND `a` <= 3 AND (`a` < 3 OR (`a` = 3 AND `b` <= 4))"
        );
        let mut descending = key(&[("a", false), ("b", false)]);
        descending.columns[1].descending = true;
        assert_eq!(descending.order(), "`a`, `b` DESC");
        assert_eq!(
            text(&descending, KeyRange::Keys { after: values(&["1", "2"]), to: values(&["3", "4"]) }),
            "`a` >= 1 AND (`a` > 1 OR (`a` = 1 AND `b` < 2)) AND `a` <= 3 AND (`a` < 3 OR (`a` = 3 AND `b` >= 4))"
        );
        assert_eq!(condition(None, &KeyRange::All), None);
    }
}
