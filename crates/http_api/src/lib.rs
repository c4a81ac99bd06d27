//! The daemon's HTTP API: for the command line, the page, load balancers, monitoring, and managers on other
//! machines. docs/reference/api.md and docs/reference/http.md are its reference.
//!
//! - [`HttpFrontEnd`]: binds and serves the control socket and the address of `[http]`.
//!   `listener`: connections, with limits.
//! - `access_rules`: what a request needs. Has no side effects. `authentication`: checks that the caller has
//!   it. [`page_sessions`]: browsers that have logged in. `audit_log`: records every change.
//! - `api_v1`: the paths below `/api/v1`. [`openapi`]: their description.
//! - `request_routes`, `request_handler`, `remote_manager_orders`: the paths of load balancers, monitoring
//!   and other managers.
//! - [`metrics`]: the text for Prometheus.
//! - [`api_error`]: failures as responses.

mod access_rules;
pub mod api_error;
mod api_v1;
mod audit_log;
pub mod authentication;
mod control_socket_and_http_server;
mod listener;
pub mod metrics;
pub mod openapi;
pub mod page_sessions;
mod remote_manager_orders;
mod request_handler;
mod request_routes;

pub use control_socket_and_http_server::{HttpFrontEnd, PageRoutes};
