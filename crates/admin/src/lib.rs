//! Pages for people: the only room with HTML.
//!
//! - [`stats_page()`]: the statistics of a binlog as one file that needs no network. `page_builder` makes the page's
//!   texts and chart data, `stats_page` renders them, `chart` computes the positions of a chart's shapes.

mod chart;
mod page_builder;
mod stats_page;

pub use page_builder::stats_page;
