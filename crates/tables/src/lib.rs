//! The ground of all work on whole tables: chunks of a key, consistent snapshots, the schema inventory, field
//! encoding, throttle and progress.
//!
//! The map:
//! - [`chunker`]: cuts a table into chunks by ranges of its key. Its core does no I/O.
//! - [`snapshot`]: takes the same consistent snapshot on many connections.
//! - [`schema`]: lists databases and objects, reads their definitions as scripts, and checks that the account
//!   sees all of them.
//! - [`session_settings`]: settings of sessions that several kinds of work need.
//! - [`fields`]: how values are written as fields of a data file; [`enum_members`]: values of ENUM and SET
//!   without a member. [`tsv`]: fields as lines; [`insert_builder`]: lines as INSERT statements.
//! - [`journal`]: files of JSON lines with checksums.
//! - [`throttle`]: pauses work while servers are loaded. [`progress`]: counters of the work done.
//! - [`error`]: all errors of bulk work, with stable codes.

pub mod chunker;
pub mod enum_members;
pub mod error;
pub mod fields;
pub mod insert_builder;
pub mod journal;
mod private_detail;
pub mod progress;
pub mod schema;
pub mod session_settings;
pub mod snapshot;
pub mod throttle;
pub mod tsv;

pub use error::{BulkError, ResumeHint};
pub use progress::BulkProgress;
pub use throttle::{Throttle, ThrottleQuery, ThrottleRules};
