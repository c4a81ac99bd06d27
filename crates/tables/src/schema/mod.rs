//! Reads the objects of a server that have a definition, as scripts that create them again.
//!
//! - [`object_inventory`]: the existing objects, in an order in which they can be created;
//!   [`object_visibility_check`]: whether the account sees all of them.
//! - [`show_create`]: the definition of one object. Call [`prepare`] on the connection first.
//! - [`index_definitions`]: the keys of a table definition, and which of them can be created after the rows.
//! - [`account_scripts`]: users and roles.
//! - [`sql_script`]: definitions as files, and files as statements.
//!
//! Definitions are bytes. Servers store routines, triggers, events and views in the character set of the
//! session that created them, and this module reads and writes them in that character set. Each script sets
//! everything that its definition depends on, so it can run alone.

pub mod account_scripts;
pub mod index_definitions;
mod object_inventory;
mod object_kind;
mod object_visibility_check;
mod show_create;
pub mod sql_script;
pub mod statement_splitter;
pub mod view_order;

pub use object_inventory::texts;
pub use object_inventory::{SchemaInventory, SchemaObject, Selection, TableName, inventory};
pub use object_kind::ObjectKind;
pub use object_visibility_check::{VisibilityScope, check_visible, hidden_triggers};
pub use show_create::{ddl, prepare};
