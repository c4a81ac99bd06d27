//! The figures of the last hour and day, for charts, in a bounded file that survives restarts.
//!
//! - [`history_point`]: periods, series, and the values of a point.
//! - [`ring_file`]: the file that holds them.

pub mod history_point;
pub mod ring_file;

pub use history_point::{HistoryKind, HistoryPeriod, HistoryPoint, VALUES_MAX};
pub use ring_file::RingFile;
