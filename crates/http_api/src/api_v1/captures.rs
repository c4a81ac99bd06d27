//! The captures of the sources.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use tailwater_daemon::api::capture_orders::AckerStatus;
use tailwater_daemon::api::daemon_requests::{ApiFailure, ControlAnswer, ControlCommand};
use tailwater_daemon::control_api::Control;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::daemon_state::unexpected_answer;
use crate::api_error::{ApiError, JsonBody, PathParameters};

pub(super) fn routes() -> OpenApiRouter<Arc<Control>> {
    OpenApiRouter::new()
        .routes(routes!(read))
        .routes(routes!(stop))
        .routes(routes!(start))
        .routes(routes!(follow))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LeaseTermBody {
    /// The term of the manager's lease. An order with a lower term than an earlier order is refused.
    token: u64,
    /// The number of the manager's failover or switchover within the term. An order with a lower number than
    /// an earlier order of the same term is refused. Leave it out in orders by hand.
    #[serde(default)]
    run: Option<u64>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct FollowOrder {
    /// The term of the manager's lease. An order with a lower term than an earlier order is refused.
    token: u64,
    /// The number of the manager's failover or switchover within the term. An order with a lower number than
    /// an earlier order of the same term is refused. Leave it out in orders by hand.
    #[serde(default)]
    run: Option<u64>,
    /// The name of the server to follow, or the name of the source for the source's own server.
    server: String,
}

/// The orders that a capture has received, and what its log contains.
#[utoipa::path(get, path = "/captures/{source}", tag = "captures", params(("source" = String, Path)), responses(
    (status = 200, body = AckerStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn read(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
) -> Result<Json<AckerStatus>, ApiError> {
    execute(&control, ControlCommand::AckerRead { source }).await
}

/// Stops a capture and its ACKs. They stay stopped when the daemon restarts.
#[utoipa::path(post, path = "/captures/{source}/stop", tag = "captures",
    params(("source" = String, Path)), request_body = LeaseTermBody, responses(
    (status = 200, body = AckerStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn stop(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
    JsonBody(LeaseTermBody { token, run }): JsonBody<LeaseTermBody>,
) -> Result<Json<AckerStatus>, ApiError> {
    execute(&control, ControlCommand::AckerStop { source, token, run }).await
}

/// Resumes a capture from the server that it followed before.
#[utoipa::path(post, path = "/captures/{source}/start", tag = "captures",
    params(("source" = String, Path)), request_body = LeaseTermBody, responses(
    (status = 200, body = AckerStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn start(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
    JsonBody(LeaseTermBody { token, run }): JsonBody<LeaseTermBody>,
) -> Result<Json<AckerStatus>, ApiError> {
    execute(&control, ControlCommand::AckerStart { source, token, run }).await
}

/// Lets a capture follow another server of the cluster.
#[utoipa::path(post, path = "/captures/{source}/follow", tag = "captures",
    params(("source" = String, Path)), request_body = FollowOrder, responses(
    (status = 200, body = AckerStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn follow(
    State(control): State<Arc<Control>>,
    PathParameters(source): PathParameters<String>,
    JsonBody(FollowOrder { token, run, server }): JsonBody<FollowOrder>,
) -> Result<Json<AckerStatus>, ApiError> {
    execute(&control, ControlCommand::AckerFollow { source, token, run, server }).await
}

async fn execute(control: &Control, command: ControlCommand) -> Result<Json<AckerStatus>, ApiError> {
    match control.execute(command).await? {
        ControlAnswer::Acker(status) => Ok(Json(status)),
        _ => Err(unexpected_answer()),
    }
}
