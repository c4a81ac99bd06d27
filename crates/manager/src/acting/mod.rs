//! Does what the machines order, on real servers.
//!
//! - [`replication`]: makes a server a native replica of an address, by GTIDs.
//! - [`draining`]: has it execute what it has received.
//! - `words`: how each family spells that.

pub mod draining;
pub mod replication;
mod words;
