//! Integration tests of the applier, on real servers.

mod binlog_statements;
mod following;
mod logged;
mod support;
