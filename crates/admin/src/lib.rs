//! Pages for people: the only room with HTML. It knows no engine; what it shows is handed to it as text and as places in
//! charts, from 0 to 1.
//!
//! - [`stats`]: what happened in a binlog, as one file that needs no network.
//! - `chart`: where the shapes of a chart stand.

mod chart;
pub mod stats;

pub use stats::{StatsPage, stats_page};
