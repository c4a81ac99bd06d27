//! Integration tests of the applier, on real servers.

mod binlog_statements;
mod catalogue;
mod collations;
mod decoding;
mod following;
mod live;
mod logged;
mod servers;
mod support;
