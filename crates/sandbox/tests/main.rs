//! The sandbox against real servers.

mod load;
mod servers;
