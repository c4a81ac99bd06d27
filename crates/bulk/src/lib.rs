//! Whole tables at once: walked in bounded chunks of a key, read at one point in time, kept in a folder.
//!
//! The map:
//! - [`walk`]: which ranges of a table's key to take next. Its core does no I/O.
//! - [`snapshot`]: the same point in time on many connections.
//! - [`schema`]: what has a definition, and its definition as a script.
//! - [`folder`]: the format of a dump on disk; the one place that knows its layout.
//! - [`error`]: what can go wrong, with stable codes.

pub mod error;
pub mod folder;
pub mod schema;
pub mod snapshot;
mod sql;
pub mod walk;

pub use error::BulkError;
