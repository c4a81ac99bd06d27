//! Integration tests of the applier, on real servers.
