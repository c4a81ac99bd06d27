//! The daemon's HTTP listener: what load balancers ask before they send a client somewhere, what monitoring asks, and what
//! a manager on another machine orders. docs/reference/http.md is its reference.
//!
//! The map:
//! - `route`: what a request asks for. Pure.
//! - `role_check`: whether a server is the primary, or a replica that may be read. Pure.
//! - `observer`: takes the looks that verdicts rest on, in the background; a check never costs a server anything.
//! - `handler`: asks the former two and writes JSON; the metrics of `crate::metrics` too.
//! - `relay_status`: how a source of this daemon stands.
//! - `acker`: what a manager on another machine asks and orders, and `token`: who may.
//! - `listener`: connections, with a limit on everything. `startup`: as the configuration has it.

mod acker;
mod handler;
mod listener;
mod observer;
mod relay_status;
mod role_check;
mod route;
mod startup;
mod token;

pub use acker::{OrderBody, RelayStatus};
pub use startup::HttpListener;
pub use startup::secret_of;
pub use token::BearerToken;
