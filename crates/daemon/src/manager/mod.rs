//! The manager in the daemon: watches the cluster of each source, and leads it where that is asked for or configured.
//!
//! - [`acker`]: relays as ackers that can be ordered about.
//! - [`automatic_rejoin`]: rejoins former primaries without an operator.
//! - [`cluster`]: one source's cluster: its watch, its runs, one at a time.
//! - [`relay_probes`]: how captures stand, of this process and of others.
//! - [`channel_controls`]: channels as what feeds servers that may become primary.
//! - [`former_primary`]: makes a former primary a replica again.
//! - [`persisted_guard`]: what holds failovers back, over restarts.
//! - [`lease_config`]: the lease as configured.
//! - [`run_requests`]: what was known of a primary becomes the order of a failover.
//! - [`checkpoint_file`]: where lies what a manager knew, for the one that comes behind it.
//! - [`remote`]: relays on other machines.
//! - [`replacement_history`]: how a former primary was replaced, as records tell.
//! - [`requests`]: what the manager can be told and asked.
//! - [`shared_audits`]: records where every manager finds them.
//! - [`startup`]: the configuration and the captures become a manager.

pub mod acker;
pub mod automatic_rejoin;
pub mod channel_controls;
pub mod checkpoint_file;
pub mod cluster;
pub mod former_primary;
pub mod lease_config;
pub mod persisted_guard;
pub mod relay_probes;
pub mod remote;
pub mod replacement_history;
pub mod requests;
pub mod run_requests;
pub mod shared_audits;
pub mod startup;
