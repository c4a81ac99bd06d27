//! The daemon's HTTP listener: health checks of load balancers, monitoring, and orders of managers on other
//! machines. docs/reference/http.md is its reference.
//!
//! - `route`: parses a request line. Has no side effects.
//! - `handler`: maps requests to [`crate::control::Control`], and answers to JSON and the text of metrics.
//! - `orders`: requests of managers on other machines, and `token`: the token that authorizes them.
//! - `listener`: connections, with limits. `startup`: the listener of the configuration.

mod handler;
mod listener;
mod orders;
mod route;
mod startup;
mod token;

pub use startup::HttpListener;
pub use startup::token_of;
pub use token::BearerToken;
