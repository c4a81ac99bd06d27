//! The common base of all bulk work on tables: chunks of a key, consistent snapshots, the schema inventory,
//! field encoding, throttle and progress.
//!
//! Modules:
//! - [`chunker`]: cuts a table into chunks by ranges of its key. Its core does no I/O.
//! - [`snapshot`]: takes the same consistent snapshot on many connections.
//! - [`schema`]: lists databases and objects, reads their definitions as scripts, and checks that the account
//!   sees all of them.
//! - [`session_settings`]: session settings that several kinds of bulk work need.
//! - [`data_file_field_conversion`]: how values are written as fields of a data file; [`enum_members`]:
//!   values of ENUM and SET that belong to no member. [`tab_separated_rows`]: fields as lines;
//!   [`insert_builder`]: lines as INSERT statements.
//! - [`journal_file`]: files of JSON lines with checksums.
//! - [`throttle`]: pauses bulk work while servers are busy. [`progress_counters`]: counters of the finished
//!   work.
//! - [`error`]: all errors of bulk work, with stable codes.

pub mod chunker;
pub mod data_file_field_conversion;
pub mod enum_members;
pub mod error;
pub mod insert_builder;
pub mod journal_file;
pub mod progress_counters;
mod redacted_error_detail;
pub mod schema;
pub mod session_settings;
pub mod snapshot;
pub mod tab_separated_rows;
pub mod throttle;

pub use error::{BulkError, ResumeHint};
pub use progress_counters::BulkProgress;
pub use throttle::{Throttle, ThrottleQuery, ThrottleRules};
