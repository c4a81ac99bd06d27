//! The paths below `/api/v1`.

mod captures;
mod channels;
mod clusters;
mod daemon_state;
mod event_stream;
mod jobs;
mod prefetches;

use std::sync::Arc;

use tailwater_daemon::control_api::Control;
use utoipa_axum::router::OpenApiRouter;

/// Returns the routes, with their description.
pub(crate) fn routes() -> OpenApiRouter<Arc<Control>> {
    OpenApiRouter::new()
        .merge(daemon_state::routes())
        .merge(channels::routes())
        .merge(captures::routes())
        .merge(clusters::routes())
        .merge(prefetches::routes())
        .merge(jobs::routes())
        .merge(event_stream::routes())
}
