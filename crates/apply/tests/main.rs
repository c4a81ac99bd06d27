//! Integration tests of the applier, on real servers.

mod following;
mod support;
