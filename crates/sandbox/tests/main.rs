//! The sandbox against real servers.

mod servers;
