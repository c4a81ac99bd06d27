//! What a channel leaves out, and what it writes under another name.
//!
//! ```toml
//! include = ["shop.*"]                                                # all, if there is none
//! exclude = ["*.tmp?_*", { tables = "shop.audit", operations = ["delete"] }]
//! rewrite = [{ from = "shop.orders", to = "archive.orders" }, { from = "shop.*", to = "copy.*" }]
//! ```
//!
//! - A pattern is `SCHEMA.TABLE`. `*` stands for any characters, or none, `?` for one. A part in backquotes is meant
//!   letter by letter, and may hold dots.
//! - A table is kept if a rule of `include` matches, or there is none, and no rule of `exclude` does. A rule without
//!   `operations` is for all of them.
//! - Of rewrites the one that names the table counts before the one of the whole schema. Rules look at the names that
//!   the source has.
//! - Upper and lower case differ, as they do on servers with `lower_case_table_names = 0`, unless `ignore_case` is set.

mod error;
mod names;
mod pattern;
mod router;
mod rules;
mod statement;
mod versions;

pub use error::FilterError;
pub(crate) use names::outline;
pub use names::{NamedObject, changed_by};
pub use router::{FilterRoute, Filters, Router, TableRoute};
pub use rules::{FilterSet, Operation, Rewrite, Rule};
pub use statement::{StatementRoute, StatementTable};
pub use versions::{FilterVersion, VersionedFilters};

#[cfg(test)]
mod tests;
