//! The foreign keys between the tables of a server.

use rustc_hash::{FxHashMap, FxHashSet};
use tailwater_session::Connection;

use super::qualified_names::{IndexIds, QualifiedName, fold};
use crate::error::ApplyError;
use crate::target_table::ForeignKey;
use crate::writeset::IndexId;

/// All foreign keys of a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ForeignKeys {
    links: Vec<ForeignKeyLink>,
}

/// One foreign key, with the names of its tables and columns.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ForeignKeyLink {
    child: QualifiedName,
    parent: QualifiedName,
    child_columns: Vec<String>,
    parent_columns: Vec<String>,
    /// Whether a delete, or an update of the key, in the parent table changes rows of the child table.
    cascades: bool,
}

/// The `ON DELETE` and `ON UPDATE` rules that do not change the child table.
const PASSIVE_RULES: [&str; 2] = ["RESTRICT", "NO ACTION"];

impl ForeignKeys {
    /// Reads all foreign keys of a server. For this query MariaDB reads the definitions of all tables, and
    /// MySQL reads its data dictionary.
    pub(super) async fn query(connection: &mut Connection, folds: bool) -> Result<Self, ApplyError> {
        // MariaDB opens every table and view that the query covers. So leave out the schema `sys`: opening
        // its views is slow, and has crashed MariaDB.
        let rules = connection
            .query(
                "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, UPDATE_RULE, DELETE_RULE \
                 FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA NOT IN \
                 ('mysql', 'sys', 'information_schema', 'performance_schema')",
            )
            .await?;
        if rules.rows.is_empty() {
            return Ok(Self::default());
        }
        let text =
            |row: &tailwater_session::TextRow, index| row.get_str(index).unwrap_or_default().to_owned();
        let mut cascading = FxHashSet::default();
        for row in &rules.rows {
            if [3, 4].iter().any(|rule| !PASSIVE_RULES.contains(&row.get_str(*rule).unwrap_or_default())) {
                cascading.insert([text(row, 0), text(row, 1), text(row, 2)]);
            }
        }
        let columns = connection
            .query(
                "SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, \
                 REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME \
                 FROM information_schema.KEY_COLUMN_USAGE WHERE REFERENCED_TABLE_NAME IS NOT NULL \
                 AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') \
                 ORDER BY TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION",
            )
            .await?;
        let mut links: Vec<ForeignKeyLink> = Vec::new();
        let mut last = None;
        for row in &columns.rows {
            let constraint = [text(row, 0), text(row, 1), text(row, 2)];
            if last.as_ref() != Some(&constraint) {
                links.push(ForeignKeyLink {
                    child: fold(&constraint[0], &constraint[1], folds),
                    parent: fold(&text(row, 4), &text(row, 5), folds),
                    child_columns: Vec::new(),
                    parent_columns: Vec::new(),
                    cascades: cascading.contains(&constraint),
                });
                last = Some(constraint);
            }
            if let Some(link) = links.last_mut() {
                link.child_columns.push(text(row, 3).to_lowercase());
                link.parent_columns.push(text(row, 6).to_lowercase());
            }
        }
        Ok(Self { links })
    }

    /// Returns whether a table has foreign keys or is referenced by one.
    pub(super) fn concern(&self, table: &QualifiedName) -> bool {
        self.links.iter().any(|link| link.child == *table || link.parent == *table)
    }

    /// Returns the foreign keys of a child table. `columns` maps column names to indexes.
    pub(super) fn parents(
        &self,
        table: &QualifiedName,
        columns: &FxHashMap<String, usize>,
        ids: &mut IndexIds,
    ) -> Vec<ForeignKey> {
        let of_child = self.links.iter().filter(|link| link.child == *table);
        of_child
            .filter_map(|link| {
                Some(ForeignKey {
                    parent_index: ids.id(&link.parent, &parts(&link.parent_columns)),
                    parent_columns: Vec::new(),
                    child_columns: numbers(&link.child_columns, columns)?,
                    child_rows: ids.id(table, ""),
                })
            })
            .collect()
    }

    /// Returns the foreign keys that reference a parent table. `columns` maps column names to indexes.
    pub(super) fn children(
        &self,
        table: &QualifiedName,
        columns: &FxHashMap<String, usize>,
        ids: &mut IndexIds,
    ) -> Vec<ForeignKey> {
        let of_parent = self.links.iter().filter(|link| link.parent == *table);
        of_parent
            .filter_map(|link| {
                Some(ForeignKey {
                    parent_index: ids.id(table, &parts(&link.parent_columns)),
                    parent_columns: numbers(&link.parent_columns, columns)?,
                    child_columns: Vec::new(),
                    child_rows: ids.id(&link.child, ""),
                })
            })
            .collect()
    }

    /// Returns the IDs for [`crate::target_table::TargetTable::cascades`].
    ///
    /// The result has the IDs of the child tables with cascades, and of the tables that reference these child
    /// tables, directly or indirectly. The latter include tables with RESTRICT, because the source had to
    /// delete their rows before the parent row. A direct child table with RESTRICT is left out, because its
    /// rows access the parent's key, which is in the writeset of the parent row anyway.
    pub(super) fn cascades(&self, table: &QualifiedName, ids: &mut IndexIds) -> Vec<IndexId> {
        let mut found = Vec::new();
        let mut reached = vec![table];
        let mut next = 0;
        while let Some(parent) = reached.get(next).copied() {
            for link in self.links.iter().filter(|link| link.parent == *parent) {
                if link.cascades || next > 0 {
                    found.push(ids.id(&link.child, ""));
                }
                if link.cascades && !reached.contains(&&link.child) {
                    reached.push(&link.child);
                }
            }
            next += 1;
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Returns the text by which [`IndexIds`] identifies an index on whole columns. The separator is a zero byte,
/// which names cannot contain.
fn parts(columns: &[String]) -> String {
    columns.join("\0")
}

fn numbers(names: &[String], columns: &FxHashMap<String, usize>) -> Option<Vec<usize>> {
    names.iter().map(|name| columns.get(name).copied()).collect()
}
