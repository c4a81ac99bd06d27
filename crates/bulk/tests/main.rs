//! Integration tests of dump and load, on real servers.

mod error_codes;
