//! Probes the servers of a cluster, determines which server replicates from which, and analyses failures.
//!
//! - [`server_state`]: the state of a server at one time, as plain data.
//! - [`server_probe`]: probes and pings servers. Does I/O.
//! - [`probe_failure`]: why a probe failed, and whether the server is alive.
//! - [`server_version`]: versions that can be compared.
//! - [`error`]: errors with stable codes.
//!
//! The other modules are pure. From observations and the configuration they build a tree of the cluster. The
//! tree shows which server replicates from which, how far behind each server is, and what is wrong.
//!
//! - [`cluster_config`]: the configuration, and the state of a running daemon.
//! - [`cluster_tree`]: the tree.
//! - `cluster_tree_builder`: builds the tree.
//! - `server_identity`: identifies servers in replication status and replica lists.
//! - [`gtid_comparison`]: compares the transactions of two servers.
//! - `server_problem_checks`: finds problems of one server.
//! - [`failure_analysis`]: turns reports of observers over time into a failure code with evidence.

pub mod cluster_config;
pub mod cluster_tree;
mod cluster_tree_builder;
pub mod error;
pub mod failure_analysis;
pub mod gtid_comparison;
pub mod probe_failure;
mod server_identity;
pub mod server_probe;
mod server_problem_checks;
pub mod server_state;
pub mod server_version;

pub use cluster_config::{
    ClusterPlan, ListenerPlan, Member, Promotion, RelayPlan, RelayReader, RelayState, RemoteRelayPlan,
    TargetPlan, TargetState,
};
pub use cluster_tree::{
    Cluster, GtidComparison, NodeRole, ProblemCode, SemiSync, TopologyNode, TopologyProblem,
};
pub use cluster_tree_builder::build_tree;
pub use error::TopologyError;
pub use server_version::ServerVersion;
