//! The manager in the daemon: watches the cluster of each source, and leads it where that is asked for or configured.
//!
//! - [`acker`]: relays as ackers that can be ordered about.
//! - [`cluster`]: one source's cluster: its watch, its runs, one at a time.
//! - [`eyes`]: how captures stand, of this process and of others.
//! - [`feeds`]: channels as what feeds servers that may become primary.
//! - [`guarding`]: what holds failovers back, over restarts.
//! - [`leasing`]: the lease as configured.
//! - [`ordering`]: what was known of a primary becomes the order of a failover.
//! - [`rejoining`]: a former primary becomes a replica again.
//! - [`remembering`]: where lies what a manager knew, for the one that comes behind it.
//! - [`remote`]: relays on other machines.
//! - [`replaced`]: how a former primary was replaced, as records tell.
//! - [`requests`]: what the manager can be told and asked.
//! - [`sharing`]: records where every manager finds them.
//! - [`starting`]: the configuration and the captures become a manager.

pub mod acker;
pub mod cluster;
pub mod eyes;
pub mod feeds;
pub mod guarding;
pub mod leasing;
pub mod ordering;
pub mod rejoining;
pub mod remembering;
pub mod remote;
pub mod replaced;
pub mod requests;
pub mod sharing;
pub mod starting;
