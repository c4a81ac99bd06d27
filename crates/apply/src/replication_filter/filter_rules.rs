//! Filter rules, as they are written in the configuration and in the stored progress.

use serde::{Deserialize, Serialize};

/// The filters of a channel: which tables it excludes and renames. The default excludes and renames nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilterSet {
    /// Tables to apply; all tables if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<RuleText>)]
    pub include: Vec<Rule>,
    /// Tables to exclude. A rule here takes precedence over `include`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<RuleText>)]
    pub exclude: Vec<Rule>,
    /// Tables to write under another name on the target.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rewrite: Vec<Rewrite>,
    /// Whether names are case-insensitive, as on servers with `lower_case_table_names` 1 or 2.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_case: bool,
}

/// A rule of a filter: a pattern for tables, and the operations on them. In the configuration, a pattern
/// without operations means all operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RuleText", into = "RuleText")]
pub struct Rule {
    /// A pattern for tables, as described in the [module](super).
    pub tables: String,
    /// The operations that the rule covers; all operations if empty.
    pub operations: Vec<Operation>,
}

/// An operation on a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Insert rows.
    Insert,
    /// Update rows.
    Update,
    /// Delete rows.
    Delete,
    /// DDL statements.
    Ddl,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Insert, Self::Update, Self::Delete, Self::Ddl];
}

/// Writes a table, or all tables of a schema (`shop.*`), under another name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rewrite {
    /// Name on the source.
    pub from: String,
    /// Name on the target: a table or `SCHEMA.*`, like `from`.
    pub to: String,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[serde(
    untagged,
    expecting = "a rule is \"SCHEMA.TABLE\" or { tables = \"SCHEMA.TABLE\", operations = [...] }"
)]
enum RuleText {
    Pattern(String),
    Full(FullRule),
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct FullRule {
    tables: String,
    #[serde(default)]
    operations: Vec<Operation>,
}

impl From<RuleText> for Rule {
    fn from(text: RuleText) -> Self {
        match text {
            RuleText::Pattern(tables) => Self { tables, operations: Vec::new() },
            RuleText::Full(FullRule { tables, operations }) => Self { tables, operations },
        }
    }
}

impl From<Rule> for RuleText {
    fn from(rule: Rule) -> Self {
        if rule.operations.is_empty() {
            Self::Pattern(rule.tables)
        } else {
            Self::Full(FullRule { tables: rule.tables, operations: rule.operations })
        }
    }
}

impl From<&str> for Rule {
    fn from(tables: &str) -> Self {
        Self { tables: tables.to_owned(), operations: Vec::new() }
    }
}
