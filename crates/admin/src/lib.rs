//! The HTML pages of Tailwater; no other crate contains HTML.
//!
//! - [`stats_page()`]: the statistics of a binlog as one HTML file that loads nothing from the network.
//!   `page_builder` makes the page's texts and chart data, `stats_page` renders them, `chart` computes the
//!   geometry of the charts.

mod chart;
mod page_builder;
mod stats_page;

pub use page_builder::stats_page;
