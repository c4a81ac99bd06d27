//! What has a definition on a server, and its definition as a script that makes it again.
//!
//! - [`inventory`]: what there is, in an order in which it can be made; [`privileges`]: what there may be besides.
//! - [`ddl`]: one thing's definition. [`prepare`] the connection first.
//! - [`accounts`]: users and roles.
//! - [`script`]: definitions as files, and back.
//!
//! Definitions are bytes: routines, triggers, events and views are kept in the character set of the session that made them,
//! and are read and written in it. Each script sets all that its definition depends on, so it may be run by itself.

pub mod accounts;
mod ddl;
mod inventory;
mod privileges;
pub mod script;
pub mod view_order;

pub use ddl::{ddl, prepare};
pub(crate) use inventory::texts;
pub use inventory::{SchemaInventory, SchemaObject, Selection, TableName, inventory};
pub use privileges::{VisibilityScope, check_visible, hidden_triggers};
