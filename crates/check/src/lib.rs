//! Compares tables of two servers while clients write to both, and repairs rows that differ.
//!
//! - [`table_check`]: compares the tables. It writes nothing to them.
//! - [`row_repair`]: writes the differing rows to the target, one by one, and compares them again.

pub mod row_repair;
pub mod table_check;
