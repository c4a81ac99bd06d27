//! Reads the objects of a server that have a definition, as scripts that create them again.
//!
//! - [`inventory`]: the existing objects, in an order in which they can be created; [`privileges`]: whether
//!   the account sees all of them.
//! - [`ddl`]: the definition of one object. Call [`prepare`] on the connection first.
//! - [`index_definitions`]: the keys of a table definition, and which of them can be created after the rows.
//! - [`accounts`]: users and roles.
//! - [`script`]: definitions as files, and files as statements.
//!
//! Definitions are bytes. Servers store routines, triggers, events and views in the character set of the
//! session that created them, and this module reads and writes them in that character set. Each script sets
//! everything that its definition depends on, so it can run alone.

pub mod accounts;
mod ddl;
pub mod index_definitions;
mod inventory;
mod object_kind;
mod privileges;
pub mod script;
pub mod statement_splitter;
pub mod view_order;

pub use ddl::{ddl, prepare};
pub use inventory::texts;
pub use inventory::{SchemaInventory, SchemaObject, Selection, TableName, inventory};
pub use object_kind::ObjectKind;
pub use privileges::{VisibilityScope, check_visible, hidden_triggers};
