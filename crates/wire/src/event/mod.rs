//! Binlog events: the 19-byte header that all share, and the bodies.

pub mod header;

pub use header::{EVENT_HEADER_BYTES, EventHeader, EventType};
