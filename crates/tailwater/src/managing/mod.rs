//! The manager's part of the daemon: what it acts through, and what it knows.

pub mod acker;
pub mod remote;
