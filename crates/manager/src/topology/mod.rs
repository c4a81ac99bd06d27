//! Looks and the configuration become a tree: who reads from whom, how far each is, and what is wrong. Pure.
//!
//! - [`plan`]: what the configuration says, and what a running Tailwater says of itself.
//! - [`tree`]: the result.
//! - `identity`: which server is meant where a replica names its source.
//! - [`gtids`]: how far one server is behind another, and what it has that it should not.
//! - `judging`: what is wrong with one server.
//! - `building`: puts it together.

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
