//! Whole tables at once: walked in bounded chunks of a key, read at one point in time, kept in a folder.
//!
//! The map:
//! - [`chunker`]: which ranges of a table's key to take next. Its core does no I/O.
//! - [`check`]: two servers compared while they are written to.
//! - [`dump`]: databases into a folder.
//! - [`copy`]: databases from one server into another; [`binary`]: whole servers, as their files lie.
//! - [`snapshot`]: the same point in time on many connections.
//! - [`repair`]: what differs, made the same.
//! - [`schema`]: what has a definition, and its definition as a script.
//! - [`folder`]: the format of a dump on disk; the one place that knows its layout.
//! - [`fields`]: how values travel as fields of a data file.
//! - `enum_members`: values of ENUM and SET that are none of their members.
//! - [`load`]: a dump into a server.
//! - [`progress`]: how far it is.
//! - [`throttle`]: holds work back while servers have enough to do.
//! - [`sql`]: names and texts in statements.
//! - [`error`]: what can go wrong, with stable codes. [`fuzzing`]: what holds for any bytes that are read as a dump.

pub mod binary;
pub mod check;
pub mod chunker;
pub mod copy;
pub mod dump;
mod enum_members;
pub mod error;
pub mod fields;
pub mod folder;
pub mod fuzzing;
pub mod load;
mod private_detail;
pub mod progress;
pub mod repair;
pub mod schema;
pub mod snapshot;
pub mod sql;
pub mod throttle;

pub use dump::{DumpOptions, DumpReport, dump, dump_stream};
pub use error::{BulkError, ResumeHint};
pub use progress::BulkProgress;
pub use throttle::{Throttle, ThrottleQuery, ThrottleRules};
