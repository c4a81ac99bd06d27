//! Compares tables of two servers while both are written to, and repairs rows that differ.
//!
//! The map:
//! - [`check`]: compares; it writes nothing to tables.
//! - [`repair`]: writes the rows that differ to the target, one by one, and compares them again.

pub mod check;
pub mod repair;
