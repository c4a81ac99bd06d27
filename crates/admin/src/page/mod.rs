//! The page of the daemon: server-rendered HTML with actions for operators.
//!
//! - [`router`]: the routes. The middleware of the HTTP API checks the caller of each request before.
//! - `visitor`: who looks at the page, and what they may do. `login`: the form for the token.
//! - `frame`: what all views share. `overview_view`, `cluster_graph`, `captured_log_view`, `channel_view`,
//!   `failover_view`, `run_view`, `jobs_view`, `binlog_server_view`, `settings_view`, `transactions_view`:
//!   what each view shows, from the types of the daemon. Pure.
//! - `view_routes`: the requests for views. `channel_actions`, `failover_actions`, `job_actions`: dialogs,
//!   and what they do. `dialog`: their form.
//! - `chart_data`: the figures of charts.
//! - `assets`: scripts and styles. `security_headers`: what browsers may load.
//! - `display_format`: values as text.

mod assets;
mod binlog_server_view;
mod captured_log_view;
mod channel_actions;
mod channel_view;
mod chart_data;
mod cluster_graph;
mod dialog;
mod display_format;
mod entered_fields;
mod failover_actions;
mod failover_view;
mod frame;
mod job_actions;
mod jobs_view;
mod login;
mod overview_view;
mod page_error;
mod run_view;
mod security_headers;
mod settings_view;
mod transactions_view;
mod view_routes;
mod visitor;

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use tailwater_daemon::control_api::Control;
use tailwater_http_api::authentication::AccessControl;
use tokio::sync::Semaphore;

/// What the handlers share.
#[derive(Clone)]
struct PageState {
    control: Arc<Control>,
    access: Arc<AccessControl>,
    /// One log is analysed at a time, because that reads the disk and takes a core.
    analysis: Arc<Semaphore>,
}

/// The routes of the page: `/`, the other views, their dialogs, `/login`, `/logout` and `/assets`.
pub fn router(control: Arc<Control>, access: Arc<AccessControl>) -> Router {
    let state = PageState { control, access, analysis: Arc::new(Semaphore::new(1)) };
    Router::new()
        .merge(view_routes::routes())
        .merge(channel_actions::routes())
        .merge(failover_actions::routes())
        .merge(job_actions::routes())
        .merge(chart_data::routes())
        .merge(login::routes())
        .merge(assets::routes())
        .with_state(state)
        .layer(middleware::map_response(security_headers::add))
}
