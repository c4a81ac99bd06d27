//! The daemon's HTTP listener: health checks of load balancers, monitoring, and orders of managers on other
//! machines. docs/reference/http.md is its reference.
//!
//! - `request_routes`: parses a request line. Has no side effects.
//! - `request_handler`: maps requests to [`crate::control_api::Control`], and answers to JSON and the text of
//!   metrics.
//! - `remote_manager_orders`: requests of managers on other machines, and `bearer_token`: the token that
//!   authorizes them.
//! - `listener`: connections, with limits. `listener_startup`: the listener of the configuration.

mod bearer_token;
mod listener;
mod listener_startup;
mod remote_manager_orders;
mod request_handler;
mod request_routes;

pub use bearer_token::BearerToken;
pub use listener_startup::HttpListener;
pub use listener_startup::token_of;
