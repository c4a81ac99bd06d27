//! Filters: the tables that a channel excludes, and the tables that it writes under another name.
//!
//! ```toml
//! include = ["shop.*"]                                                # all tables if empty
//! exclude = ["*.tmp?_*", { tables = "shop.audit", operations = ["delete"] }]
//! rewrite = [{ from = "shop.orders", to = "archive.orders" }, { from = "shop.*", to = "copy.*" }]
//! ```
//!
//! - A pattern is `SCHEMA.TABLE`. `*` matches any number of characters, and `?` matches one character. A part
//!   in backquotes is literal, and may contain dots.
//! - A table is applied if a rule of `include` matches or `include` is empty, and no rule of `exclude`
//!   matches. A rule without `operations` covers all operations.
//! - A rewrite of a table takes precedence over a rewrite of its schema. Rules match the names on the source.
//! - Names are case-sensitive, as on servers with `lower_case_table_names = 0`, unless `ignore_case` is set.

mod error;
mod filter_rule_matcher;
mod filter_rules;
mod filter_versions;
mod statement_filter_decision;
mod statement_table_names;
mod table_name_pattern;

pub use error::FilterError;
pub use filter_rule_matcher::{FilterRoute, Filters, Router, TableRoute};
pub use filter_rules::{FilterSet, Operation, Rewrite, Rule};
pub use filter_versions::{FilterVersion, VersionedFilters};
pub use statement_filter_decision::{StatementRoute, StatementTable};
pub use statement_table_names::{NamedObject, changed_by, outline};

#[cfg(test)]
mod tests;
