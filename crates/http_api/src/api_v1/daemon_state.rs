//! The state of the whole daemon.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use tailwater_daemon::api::captures::SourceReport;
use tailwater_daemon::api::configuration_reloads::ReloadReport;
use tailwater_daemon::api::daemon_requests::{ApiFailure, ControlAnswer, ControlCommand};
use tailwater_daemon::api::daemon_status::DaemonStatus;
use tailwater_daemon::control_api::Control;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api_error::ApiError;

/// How long the first request after a time without requests waits for probes.
const FIRST_PROBE_MAX: Duration = Duration::from_secs(1);

pub(super) fn routes() -> OpenApiRouter<Arc<Control>> {
    OpenApiRouter::new()
        .routes(routes!(status))
        .routes(routes!(snapshot))
        .routes(routes!(sources))
        .routes(routes!(reload))
}

/// The status of the daemon and its problems, as `tailwater status --output json` prints them.
#[utoipa::path(get, path = "/status", tag = "state", responses(
    (status = 200, body = DaemonStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn status(State(control): State<Arc<Control>>) -> Result<Json<DaemonStatus>, ApiError> {
    match control.execute(ControlCommand::Status).await? {
        ControlAnswer::Status(status) => Ok(Json(*status)),
        _ => Err(unexpected_answer()),
    }
}

/// Captures, channels and clusters with all counters. Row values in errors are left out.
#[utoipa::path(get, path = "/snapshot", tag = "state", responses(
    (status = 200, body = Object),
    (status = "4XX", body = ApiFailure),
))]
async fn snapshot(State(control): State<Arc<Control>>) -> Response {
    control.keep_probed(None, None, FIRST_PROBE_MAX).await;
    let mut snapshot = control.snapshot();
    for fault in snapshot.channels.iter_mut().filter_map(|channel| channel.status.fault.as_mut()) {
        fault.detail = None;
    }
    Json(snapshot).into_response()
}

/// The logs of the sources, and the replicas that read them.
#[utoipa::path(get, path = "/sources", tag = "state", responses(
    (status = 200, body = Vec<SourceReport>),
    (status = "4XX", body = ApiFailure),
))]
async fn sources(State(control): State<Arc<Control>>) -> Result<Json<Vec<SourceReport>>, ApiError> {
    match control.execute(ControlCommand::Topology).await? {
        ControlAnswer::Topology(sources) => Ok(Json(sources)),
        _ => Err(unexpected_answer()),
    }
}

/// Reads the configuration again, and applies the settings that can change while the daemon runs.
/// `tailwater config reload` does the same.
#[utoipa::path(post, path = "/configuration/reload", tag = "state", responses(
    (status = 200, body = ReloadReport),
    (status = "4XX", body = ApiFailure),
))]
async fn reload(State(control): State<Arc<Control>>) -> Result<Json<ReloadReport>, ApiError> {
    match control.execute(ControlCommand::Reload).await? {
        ControlAnswer::Reloaded(report) => Ok(Json(report)),
        _ => Err(unexpected_answer()),
    }
}

/// Returns the error for an answer of the daemon that does not fit the command.
pub(super) fn unexpected_answer() -> ApiError {
    ApiError::new(
        axum::http::StatusCode::INTERNAL_SERVER_ERROR,
        "the daemon's answer does not fit the request; report this as a bug",
    )
}
