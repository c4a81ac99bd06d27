//! Parses the secondary keys of a table from its definition as servers print it, and decides which of them
//! can be created after the rows.

use std::collections::HashSet;

/// The column from which InnoDB's full-text index takes the document identifiers of rows. While such an index
/// exists, InnoDB refuses rows that do not arrive in the order of their identifiers (error 182,
/// `row_insert_for_mysql` in `row0mysql.cc`). Rows of a dump arrive in the order of their primary key.
pub const DOCUMENT_ID: &str = "FTS_DOC_ID";

/// The text at the start of a line that defines a full-text key.
const FULLTEXT: &str = "FULLTEXT KEY ";

/// Returns whether the table has a column [`DOCUMENT_ID`].
pub fn has_document_ids(definition: &str) -> bool {
    definition
        .lines()
        .any(|line| line.strip_prefix("  ").and_then(name).is_some_and(|(name, _)| name == DOCUMENT_ID))
}

/// A secondary key of a table definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition<'a> {
    /// The name of the key.
    pub name: String,
    /// The line of the definition, without the comma.
    pub definition: &'a str,
    /// The first column of the key; `None` for an expression.
    first: Option<String>,
    /// Whether the key can be created after the rows without extra cost.
    plain: bool,
}

/// Splits a text that follows an opening backquote. Returns the quoted name, and the text after the closing
/// backquote.
fn name(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('`')?;
    let mut name = String::new();
    loop {
        let end = rest.find('`')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('`') {
            Some(after) => {
                name.push('`');
                rest = after;
            }
            None => return Some((name, rest)),
        }
    }
}

/// Returns the secondary keys of a definition as servers print it, with one key per line.
pub fn keys(definition: &str) -> Vec<IndexDefinition<'_>> {
    const KINDS: [(&str, bool); 5] = [
        ("KEY ", true),
        ("UNIQUE KEY ", true),
        (FULLTEXT, false),
        ("SPATIAL KEY ", false),
        ("VECTOR KEY ", false),
    ];
    let mut keys = Vec::new();
    for line in definition.lines() {
        let Some(line) = line.strip_prefix("  ") else { continue };
        let kind = KINDS.iter().find_map(|(kind, plain)| Some((line.strip_prefix(kind)?, *plain)));
        let Some((named, plain)) = kind else { continue };
        let Some((key, rest)) = name(named) else { continue };
        let first = rest.strip_prefix(" (").and_then(name).map(|(column, _)| column);
        let definition = line.strip_suffix(',').unwrap_or(line);
        // MariaDB stores a key with USING HASH in a hidden column. To create the key later, it would copy the
        // table.
        let plain = plain && !definition.contains("USING HASH");
        keys.push(IndexDefinition { name: key, definition, first, plain });
    }
    keys
}

/// Returns the keys of a table that can be created after its rows.
///
/// Some keys must exist before the rows: the keys of columns of foreign keys (`needed`), on either side of
/// the foreign key, and the key of an AUTO_INCREMENT column. Only keys after the last such key are returned,
/// so that all keys keep their order. Full-text keys are always returned if the rows have document
/// identifiers ([`DOCUMENT_ID`]). Other keys are returned only if `is_wanted`.
pub fn deferrable<'a>(
    definition: &'a str,
    needed: &HashSet<String>,
    is_wanted: bool,
) -> Vec<IndexDefinition<'a>> {
    let late_fulltext = has_document_ids(definition);
    let mut keys = deferrable_keys(definition, needed, late_fulltext);
    if !is_wanted {
        keys.retain(|key| late_fulltext && key.definition.starts_with(FULLTEXT));
    }
    keys
}

fn deferrable_keys<'a>(
    definition: &'a str,
    needed: &HashSet<String>,
    late_fulltext: bool,
) -> Vec<IndexDefinition<'a>> {
    let is_clustered = definition.lines().any(|line| line.starts_with("  PRIMARY KEY "));
    // The keys of a table with system versioning are not deferred, because the server records every ALTER
    // TABLE as a change of the history rows.
    if !(is_clustered || late_fulltext)
        || definition.contains("WITH SYSTEM VERSIONING")
        || definition.contains("WITHOUT OVERLAPS")
    {
        return Vec::new();
    }
    let counter = definition
        .lines()
        .filter(|line| line.contains(" AUTO_INCREMENT"))
        .find_map(|line| Some(name(line.strip_prefix("  ")?)?.0));
    let mut keys = keys(definition);
    let is_needed = |key: &IndexDefinition<'_>| {
        !(key.plain || late_fulltext && key.definition.starts_with(FULLTEXT))
            || key
                .first
                .as_ref()
                .is_some_and(|first| needed.contains(first) || counter.as_ref() == Some(first))
    };
    let first_deferrable = keys.iter().rposition(is_needed).map_or(0, |last| last + 1);
    keys.split_off(first_deferrable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "CREATE TABLE `t` (\n  `id` int NOT NULL AUTO_INCREMENT,\n  `a``b` int COMMENT '  KEY `no` (`a`)',\n  \
                         PRIMARY KEY (`id`),\n  UNIQUE KEY `u``1` (`a``b`),\n  KEY `f` (`other`),\n  \
                         KEY `e` ((`id` + 1)),\n  KEY `k, 2` (`a``b`,`id`) USING BTREE COMMENT 'a, b',\n  \
                         CONSTRAINT `c` FOREIGN KEY (`other`) REFERENCES `o` (`id`)\n) ENGINE=InnoDB";

    fn names(definition: &str, needed: &[&str]) -> Vec<String> {
        let needed = needed.iter().map(|name| (*name).to_owned()).collect();
        deferrable(definition, &needed, true).into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn keys_after_the_last_needed_key_are_deferred() {
        assert_eq!(names(TABLE, &[]), ["u`1", "f", "e", "k, 2"]);
        assert_eq!(names(TABLE, &["other"]), ["e", "k, 2"]);
        assert_eq!(names(TABLE, &["a`b"]), Vec::<String>::new());
        let deferred = deferrable(TABLE, &HashSet::new(), true);
        assert_eq!(deferred[3].definition, "KEY `k, 2` (`a``b`,`id`) USING BTREE COMMENT 'a, b'");
    }

    #[test]
    fn auto_increment_columns_and_tables_without_primary_key_keep_their_keys() {
        let counted =
            TABLE.replace("`id` int NOT NULL AUTO_INCREMENT", "`other` int NOT NULL AUTO_INCREMENT");
        assert_eq!(names(&counted, &[]), ["e", "k, 2"]);
        assert_eq!(names(&TABLE.replace("PRIMARY KEY", "UNIQUE KEY `p`"), &[]), Vec::<String>::new());
        let fulltext = TABLE.replace("  KEY `k, 2`", "  FULLTEXT KEY `k, 2`");
        assert_eq!(names(&fulltext, &[]), Vec::<String>::new());
        assert_eq!(
            names(&TABLE.replace("ENGINE", "WITH SYSTEM VERSIONING ENGINE"), &[]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn fulltext_keys_are_deferred_if_rows_have_document_identifiers() {
        let unwanted = |definition: &str| -> Vec<_> {
            deferrable(definition, &HashSet::new(), false).into_iter().map(|key| key.name).collect()
        };
        let fulltext = TABLE.replace("  KEY `k, 2`", "  FULLTEXT KEY `k, 2`");
        assert_eq!(unwanted(&fulltext), Vec::<String>::new());
        let identified =
            fulltext.replace("  `a``b` int", "  `FTS_DOC_ID` bigint unsigned NOT NULL,\n  `a``b` int");
        assert_eq!(unwanted(&identified), ["k, 2"]);
        assert_eq!(names(&identified, &[]), ["u`1", "f", "e", "k, 2"]);
        let without_primary = identified.replace("PRIMARY KEY", "UNIQUE KEY `p`");
        assert_eq!(unwanted(&without_primary), ["k, 2"]);
    }
}
