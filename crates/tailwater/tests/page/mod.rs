//! Tests of the page in a real browser, with a daemon on real servers.

mod accessibility;
mod browser;
mod channel_pages;
mod cluster_pages;
mod daemon_with_page;
mod job_pages;
