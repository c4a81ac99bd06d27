//! Rules as they are written in the configuration and kept with progress.

use serde::{Deserialize, Serialize};

/// What a channel leaves out and renames. The default keeps everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FilterSet {
    /// Only these are kept; all, if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<Rule>,
    /// These are left out, whatever `include` says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<Rule>,
    /// These are written under another name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rewrite: Vec<Rewrite>,
    /// Whether upper and lower case are the same in names, as on servers with `lower_case_table_names` 1 or 2.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_case: bool,
}

/// Tables, and what is done to them. A bare pattern is a rule for all operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RuleText", into = "RuleText")]
pub struct Rule {
    /// A pattern, see the [module](super).
    pub tables: String,
    /// For which operations it is; for all, if there are none.
    pub operations: Vec<Operation>,
}

/// What is done to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Rows come.
    Insert,
    /// Rows change.
    Update,
    /// Rows go.
    Delete,
    /// Its definition changes.
    Ddl,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Insert, Self::Update, Self::Delete, Self::Ddl];
}

/// A table, or all of a schema (`shop.*`), under another name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rewrite {
    /// On the source.
    pub from: String,
    /// On the target; as `from`, either one table or `SCHEMA.*`.
    pub to: String,
}

#[derive(Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a rule is \"SCHEMA.TABLE\" or { tables = \"SCHEMA.TABLE\", operations = [...] }"
)]
enum RuleText {
    Pattern(String),
    Full(FullRule),
}

#[derive(Serialize, Deserialize)]
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
