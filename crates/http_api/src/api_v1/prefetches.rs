//! Replicas and targets whose pages are read ahead.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tailwater_daemon::api::daemon_requests::ApiFailure;
use tailwater_daemon::api::prefetches::PrefetchSnapshot;
use tailwater_daemon::control_api::Control;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Control>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// The replicas and targets whose pages are read ahead, with the figures.
#[utoipa::path(get, path = "/prefetches", tag = "state", responses(
    (status = 200, body = Vec<PrefetchSnapshot>),
    (status = "4XX", body = ApiFailure),
))]
async fn list(State(control): State<Arc<Control>>) -> Json<Vec<PrefetchSnapshot>> {
    Json(control.state().prefetches())
}
