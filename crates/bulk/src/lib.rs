//! Bulk work on whole tables: dump, load, copy, check and repair, in chunks of a key and at one point in
//! time.
//!
//! The map:
//! - [`chunker`]: cuts a table into chunks by ranges of its key. Its core does no I/O.
//! - [`check`]: compares two servers while they are written to.
//! - [`dump`]: dumps databases into a folder.
//! - [`copy`]: copies databases from one server to another; [`binary`]: copies whole servers as data files.
//! - [`snapshot`]: takes the same consistent snapshot on many connections.
//! - [`repair`]: repairs rows that differ.
//! - [`schema`]: lists databases and objects, and reads their definitions as scripts.
//! - [`folder`]: the format of a dump folder; no other module knows its layout.
//! - [`fields`]: how values are written as fields of a data file.
//! - `enum_members`: values of ENUM and SET without a member.
//! - [`load`]: loads a dump into a server.
//! - [`progress`]: counters of the work done.
//! - [`throttle`]: pauses work while servers are loaded.
//! - [`error`]: all errors, with stable codes. [`fuzzing`]: invariants for any bytes that are read as a dump.

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
pub mod throttle;

pub use dump::{DumpOptions, DumpReport, dump, dump_stream};
pub use error::{BulkError, ResumeHint};
pub use progress::BulkProgress;
pub use throttle::{Throttle, ThrottleQuery, ThrottleRules};
