//! Tests of the sandbox with real servers.

mod detached;
mod install;
mod load;
mod servers;
mod slow_fsync;
