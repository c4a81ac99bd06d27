//! The page of the daemon: server-rendered HTML with actions for operators.
//!
//! - [`router`]: the routes. The middleware of the HTTP API checks the caller of each request before.
//! - `page_user_role`: who looks at the page, and what they may do. `login`: the form for the token.
//! - `page_layout`: what all views share. `overview_view`, `cluster_graph`, `captured_log_view`,
//!   `channel_view`, `failover_view`, `failover_timeline_view`, `jobs_view`, `binlog_server_view`,
//!   `settings_view`, `large_transactions_view`: what each view shows, from the types of the daemon. Pure.
//! - `view_routes`: the requests for views. `channel_actions`, `failover_actions`, `job_actions`: dialogs,
//!   and what they do. `action_dialog`: their form.
//! - `chart_data`: the figures of charts.
//! - `assets`: scripts and styles. `security_headers`: what browsers may load.
//! - `display_format`: values as text.

mod action_dialog;
mod action_dialog_input;
mod assets;
mod binlog_server_view;
mod captured_log_view;
mod channel_actions;
mod channel_view;
mod chart_data;
mod cluster_graph;
mod display_format;
mod failover_actions;
mod failover_timeline_view;
mod failover_view;
mod job_actions;
mod jobs_view;
mod large_transactions_view;
mod login;
mod overview_view;
mod page_error;
mod page_layout;
mod page_user_role;
mod security_headers;
mod settings_view;
mod view_routes;

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use tailwater_daemon::control_api::Control;
use tailwater_http_api::authentication::AccessControl;
use tokio::sync::Semaphore;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;

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
        // A page about 50 clusters is 20 times smaller. Fast rather than small: the daemon has better use for
        // its CPU.
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest))
}
