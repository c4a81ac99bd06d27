//! The clusters, and the requests to their manager.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tailwater_daemon::api::clusters::ClusterReport;
use tailwater_daemon::api::daemon_requests::{ApiFailure, ControlAnswer, ControlCommand, StartedFailover};
use tailwater_daemon::api::manager_requests::{
    FailoverOptions, ManagerAnswer, ManagerRequest, RunSummary, SwitchoverOptions,
};
use tailwater_daemon::control_api::Control;
use tailwater_manager::model::Audit;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::daemon_state::unexpected_answer;
use crate::api_error::{ApiError, JsonBody, PathParameters, QueryParameters};

pub(super) fn routes() -> OpenApiRouter<Arc<Control>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(failover))
        .routes(routes!(switchover))
        .routes(routes!(audit))
        .routes(routes!(runs))
        .routes(routes!(pause_all))
        .routes(routes!(pause))
        .routes(routes!(resume_all))
        .routes(routes!(resume))
        .routes(routes!(acknowledge_all))
        .routes(routes!(acknowledge))
        .routes(routes!(raise_terms))
        .routes(routes!(downtime))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DowntimeOptions {
    /// The name of the server; if absent, the downtime is for the whole cluster.
    #[serde(default)]
    server: Option<String>,
    /// The duration of the downtime from now, in milliseconds; 0 ends it.
    for_ms: u64,
    /// The reason for the downtime, as text.
    #[serde(default)]
    reason: String,
}

/// The manager's reports about all clusters.
#[utoipa::path(get, path = "/clusters", tag = "clusters", responses(
    (status = 200, body = Vec<ClusterReport>),
    (status = "4XX", body = ApiFailure),
))]
async fn list(State(control): State<Arc<Control>>) -> Result<Json<Vec<ClusterReport>>, ApiError> {
    clusters(&control, ManagerRequest::Status).await
}

/// Starts a failover, or only reports its plan (`dry_run`).
#[utoipa::path(post, path = "/clusters/{source}/failover", tag = "clusters",
    params(("source" = String, Path)), request_body = FailoverOptions, responses(
    (status = 202, body = StartedFailover),
    (status = "4XX", body = ApiFailure),
))]
async fn failover(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
    JsonBody(options): JsonBody<FailoverOptions>,
) -> Result<(StatusCode, Json<StartedFailover>), ApiError> {
    begin(&control, &source.clone(), ManagerRequest::FailOver { source, options }).await
}

/// Starts a switchover, or only reports its plan (`dry_run`).
#[utoipa::path(post, path = "/clusters/{source}/switchover", tag = "clusters",
    params(("source" = String, Path)), request_body = SwitchoverOptions, responses(
    (status = 202, body = StartedFailover),
    (status = "4XX", body = ApiFailure),
))]
async fn switchover(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
    JsonBody(options): JsonBody<SwitchoverOptions>,
) -> Result<(StatusCode, Json<StartedFailover>), ApiError> {
    begin(&control, &source.clone(), ManagerRequest::SwitchOver { source, options }).await
}

/// The audit record of a failover or switchover up to its present step; `null` before its first step.
#[utoipa::path(get, path = "/clusters/{source}/runs/{id}", tag = "clusters",
    params(("source" = String, Path), ("id" = String, Path)), responses(
    (status = 200, body = Option<Object>),
    (status = "4XX", body = ApiFailure),
))]
async fn audit(
    State(control): State<Arc<Control>>,
    PathParameters((source, id)): PathParameters<(String, String)>,
) -> Result<Json<Option<Box<Audit>>>, ApiError> {
    require_source(&control, &source)?;
    match ask(&control, ManagerRequest::Audit { source, id }).await? {
        ManagerAnswer::Audit(audit) => Ok(Json(audit)),
        _ => Err(unexpected_answer()),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct RunsQuery {
    /// How many at most; 50 if absent.
    #[serde(default = "default_runs")]
    count_max: usize,
}

fn default_runs() -> usize {
    50
}

/// The failovers and switchovers of which the machine of the daemon has an audit record, the newest first.
#[utoipa::path(get, path = "/clusters/{source}/runs", tag = "clusters",
    params(("source" = String, Path), RunsQuery), responses(
    (status = 200, body = Vec<RunSummary>),
    (status = "4XX", body = ApiFailure),
))]
async fn runs(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
    QueryParameters(RunsQuery { count_max }): QueryParameters<RunsQuery>,
) -> Result<Json<Vec<RunSummary>>, ApiError> {
    require_source(&control, &source)?;
    match ask(&control, ManagerRequest::Runs { source, count_max }).await? {
        ManagerAnswer::Runs(runs) => Ok(Json(runs)),
        _ => Err(unexpected_answer()),
    }
}

/// Prevents automatic failovers of all clusters.
#[utoipa::path(post, path = "/clusters/pause", tag = "clusters", request_body = NoOptions, responses(
    (status = 200, body = Vec<ClusterReport>),
    (status = "4XX", body = ApiFailure),
))]
async fn pause_all(
    State(control): State<Arc<Control>>,
    JsonBody(NoOptions {}): JsonBody<NoOptions>,
) -> Result<Json<Vec<ClusterReport>>, ApiError> {
    clusters(&control, ManagerRequest::Pause { source: None }).await
}

/// Prevents automatic failovers of a cluster.
#[utoipa::path(post, path = "/clusters/{source}/pause", tag = "clusters",
    params(("source" = String, Path)), request_body = NoOptions, responses(
    (status = 200, body = Vec<ClusterReport>),
    (status = "4XX", body = ApiFailure),
))]
async fn pause(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
    JsonBody(NoOptions {}): JsonBody<NoOptions>,
) -> Result<Json<Vec<ClusterReport>>, ApiError> {
    require_source(&control, &source)?;
    clusters(&control, ManagerRequest::Pause { source: Some(source) }).await
}

/// Allows automatic failovers of all clusters again.
#[utoipa::path(post, path = "/clusters/resume", tag = "clusters", request_body = NoOptions, responses(
    (status = 200, body = Vec<ClusterReport>),
    (status = "4XX", body = ApiFailure),
))]
async fn resume_all(
    State(control): State<Arc<Control>>,
    JsonBody(NoOptions {}): JsonBody<NoOptions>,
) -> Result<Json<Vec<ClusterReport>>, ApiError> {
    clusters(&control, ManagerRequest::Resume { source: None }).await
}

/// Allows automatic failovers of a cluster again.
#[utoipa::path(post, path = "/clusters/{source}/resume", tag = "clusters",
    params(("source" = String, Path)), request_body = NoOptions, responses(
    (status = 200, body = Vec<ClusterReport>),
    (status = "4XX", body = ApiFailure),
))]
async fn resume(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
    JsonBody(NoOptions {}): JsonBody<NoOptions>,
) -> Result<Json<Vec<ClusterReport>>, ApiError> {
    require_source(&control, &source)?;
    clusters(&control, ManagerRequest::Resume { source: Some(source) }).await
}

/// Ends the cool-down after the last failover of each cluster.
#[utoipa::path(post, path = "/clusters/acknowledge", tag = "clusters", request_body = NoOptions, responses(
    (status = 200, body = Vec<ClusterReport>),
    (status = "4XX", body = ApiFailure),
))]
async fn acknowledge_all(
    State(control): State<Arc<Control>>,
    JsonBody(NoOptions {}): JsonBody<NoOptions>,
) -> Result<Json<Vec<ClusterReport>>, ApiError> {
    clusters(&control, ManagerRequest::Acknowledge { source: None }).await
}

/// Ends the cool-down after the last failover of a cluster.
#[utoipa::path(post, path = "/clusters/{source}/acknowledge", tag = "clusters",
    params(("source" = String, Path)), request_body = NoOptions, responses(
    (status = 200, body = Vec<ClusterReport>),
    (status = "4XX", body = ApiFailure),
))]
async fn acknowledge(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
    JsonBody(NoOptions {}): JsonBody<NoOptions>,
) -> Result<Json<Vec<ClusterReport>>, ApiError> {
    require_source(&control, &source)?;
    clusters(&control, ManagerRequest::Acknowledge { source: Some(source) }).await
}

/// Raises the lease terms above the highest term that a relay has obeyed. Needed after etcd was created
/// again.
#[utoipa::path(post, path = "/clusters/{source}/raise-terms", tag = "clusters",
    params(("source" = String, Path)), request_body = NoOptions, responses(
    (status = 200, body = Vec<ClusterReport>),
    (status = "4XX", body = ApiFailure),
))]
async fn raise_terms(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
    JsonBody(NoOptions {}): JsonBody<NoOptions>,
) -> Result<Json<Vec<ClusterReport>>, ApiError> {
    require_source(&control, &source)?;
    clusters(&control, ManagerRequest::RaiseTerms { source }).await
}

/// Starts or ends a downtime, in which no automatic failover starts.
#[utoipa::path(post, path = "/clusters/{source}/downtime", tag = "clusters",
    params(("source" = String, Path)), request_body = DowntimeOptions, responses(
    (status = 200, body = Vec<ClusterReport>),
    (status = "4XX", body = ApiFailure),
))]
async fn downtime(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
    JsonBody(DowntimeOptions { server, for_ms, reason }): JsonBody<DowntimeOptions>,
) -> Result<Json<Vec<ClusterReport>>, ApiError> {
    require_source(&control, &source)?;
    clusters(&control, ManagerRequest::Downtime { source, server, for_ms, reason }).await
}

async fn ask(control: &Control, request: ManagerRequest) -> Result<ManagerAnswer, ApiError> {
    match control.execute(ControlCommand::Manager(request)).await? {
        ControlAnswer::Manager(answer) => Ok(answer),
        _ => Err(unexpected_answer()),
    }
}

async fn clusters(control: &Control, request: ManagerRequest) -> Result<Json<Vec<ClusterReport>>, ApiError> {
    match ask(control, request).await? {
        ManagerAnswer::Clusters(clusters) => Ok(Json(clusters)),
        _ => Err(unexpected_answer()),
    }
}

async fn begin(
    control: &Control,
    source: &str,
    request: ManagerRequest,
) -> Result<(StatusCode, Json<StartedFailover>), ApiError> {
    require_source(control, source)?;
    match ask(control, request).await? {
        ManagerAnswer::Begun { id } => Ok((StatusCode::ACCEPTED, Json(StartedFailover { id }))),
        _ => Err(unexpected_answer()),
    }
}

fn require_source(control: &Control, source: &str) -> Result<(), ApiError> {
    let sources = &control.state().sources;
    if sources.contains_key(source) {
        return Ok(());
    }
    let known = sources.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    Err(ApiError::not_found(format!("there is no source {source:?}; the sources are: {known}")))
}
