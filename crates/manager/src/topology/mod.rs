//! Builds a tree of the cluster from observations and configuration: who reads from whom, how far behind each
//! is, and what is wrong. Pure.
//!
//! - [`plan`]: the configuration, and the state of a running daemon.
//! - [`tree`]: the result.
//! - `identity`: identifies servers in replication status and replica lists.
//! - [`gtids`]: compares the transactions of two servers.
//! - `problem_checks`: problems of one server.
//! - `tree_builder`: builds the tree.

pub mod gtids;
mod identity;
pub mod plan;
mod problem_checks;
pub mod tree;
mod tree_builder;

pub use plan::{
    ClusterPlan, ListenerPlan, Member, Promotion, RelayPlan, RelayReader, RelayState, RemoteRelay,
    TargetPlan, TargetState,
};
pub use tree::{Cluster, GtidComparison, NodeRole, ProblemCode, SemiSync, TopologyNode, TopologyProblem};
pub use tree_builder::build_tree;
