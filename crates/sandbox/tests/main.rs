//! The sandbox against real servers.

mod install;
mod load;
mod servers;
mod slow_sync;
mod standing;
