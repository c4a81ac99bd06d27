//! Looks and the configuration become a tree: who reads from whom, how far each is, and what is wrong. Pure.
//!
//! - [`plan`]: what the configuration says, and what a running Tailwater says of itself.
//! - [`tree`]: the result.
//! - `identity`: which server is meant where a replica names its source.
//! - [`gtids`]: how far one server is behind another, and what it has that it should not.
//! - `judging`: what is wrong with one server.
//! - `building`: puts it together.

mod building;
pub mod gtids;
mod identity;
mod judging;
pub mod plan;
pub mod tree;

pub use building::build;
pub use plan::{
    ClusterPlan, ListenPlan, Member, OtherRelay, Promotion, RelayPlan, RelayReader, RelayState, TargetPlan,
    TargetState,
};
pub use tree::{Cluster, GtidState, Node, Problem, ProblemCode, Role, SemiSync};
