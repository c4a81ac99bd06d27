//! Integration tests of the applier, on real servers.

mod catalogue;
mod collations;
mod decoding;
mod live;
mod support;
