//! How servers are probed, who replicates from whom, and what has failed.
//!
//! - [`observation`]: the state of a server at one time, as plain data.
//! - [`probe`]: probes and pings servers. A driver.
//! - [`probe_failure`]: why a probe failed, and whether the server is alive.
//! - [`server_version`]: versions that can be compared.
//! - [`error`]: errors with stable codes.
//!
//! Pure: observations and the configuration become a tree of the cluster, which says who reads from whom, how
//! far behind each server is, and what is wrong.
//!
//! - [`plan`]: the configuration, and the state of a running daemon.
//! - [`tree`]: the result.
//! - `tree_builder`: builds the tree.
//! - `identity`: identifies servers in replication status and replica lists.
//! - [`gtids`]: compares the transactions of two servers.
//! - `problem_checks`: problems of one server.
//! - [`analysis`]: observer reports over time become a failure code with evidence.

pub mod analysis;
pub mod cluster_config;
pub mod error;
pub mod gtids;
mod identity;
pub mod observation;
pub mod probe;
pub mod probe_failure;
mod problem_checks;
pub mod server_version;
pub mod tree;
mod tree_builder;

pub use cluster_config::{
    ClusterPlan, ListenerPlan, Member, Promotion, RelayPlan, RelayReader, RelayState, RemoteRelayPlan,
    TargetPlan, TargetState,
};
pub use error::TopologyError;
pub use server_version::ServerVersion;
pub use tree::{Cluster, GtidComparison, NodeRole, ProblemCode, SemiSync, TopologyNode, TopologyProblem};
pub use tree_builder::build_tree;
