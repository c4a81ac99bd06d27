//! The daemon's HTTP listener: what load balancers ask before they send a client somewhere, what monitoring asks, and what
//! a manager on another machine orders. docs/reference/http.md is its reference.
//!
//! The map:
//! - `route`: what a request asks for. Pure.
//! - `verdict`: whether a server is the primary, or a replica that may be read. Pure.
//! - `watching`: takes the looks that verdicts rest on, in the background; a check never costs a server anything.
//! - `answering`: asks the former two and writes JSON; the metrics of `crate::metrics` too.
//! - `captured`: how a source of this daemon stands.
//! - `acker`: what a manager on another machine asks and orders, and `token`: who may.
//! - `serving`: connections, with a limit on everything. `starting`: as the configuration has it.

mod acker;
mod answering;
mod captured;
mod route;
mod serving;
mod starting;
mod token;
mod verdict;
mod watching;

pub use acker::{OrderBody, RelayText};
pub use starting::Bound;
pub use starting::secret_of;
pub use token::Secret;
