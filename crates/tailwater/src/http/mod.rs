//! The daemon's HTTP listener: what load balancers ask before they send a client somewhere, what monitoring asks, and what
//! a manager on another machine orders. docs/reference/http.md is its reference.
//!
//! The map:
//! - `route`: what a request asks for. Pure.
//! - `verdict`: whether a server is the primary, or a replica that may be read. Pure.
//! - `watching`: takes the looks that verdicts rest on, in the background; a check never costs a server anything.
//! - `answering`: asks the former two and writes JSON.
//! - `token`: who may order something.
//! - `serving`: connections, with a limit on everything. `starting`: as the configuration has it.

mod answering;
mod route;
mod serving;
mod starting;
mod verdict;
mod watching;

pub use starting::Bound;
pub use verdict::Leader;
