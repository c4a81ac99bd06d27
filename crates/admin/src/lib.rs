//! The HTML pages of Tailwater; no other crate contains HTML.
//!
//! - [`stats_page()`]: the statistics of a binlog as one HTML file that loads nothing from the network.
//!   `stats_page_builder` makes the page's texts and chart data, `stats_page_template` renders them,
//!   `svg_chart` computes the geometry of the charts.
//! - [`page`]: the page of the daemon.

pub mod page;
mod stats_page_builder;
mod stats_page_template;
mod svg_chart;

pub use stats_page_builder::stats_page;
