//! Jobs: long work of the daemon and of command lines.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use tailwater_daemon::api::daemon_requests::{ApiFailure, ControlAnswer, ControlCommand};
use tailwater_daemon::api::jobs::{
    Job, JobAnswer, JobCaller, JobDetails, JobEnd, JobRegistration, JobReport, JobReportResponse, JobRequest,
    RegisteredJob,
};
use tailwater_daemon::control_api::Control;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::daemon_state::unexpected_answer;
use crate::api_error::{ApiError, JsonBody, PathParameters};
use crate::authentication::{Caller, RequestOrigin};

/// The longest body of a request about a job, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

pub(super) fn routes() -> OpenApiRouter<Arc<Control>> {
    OpenApiRouter::new()
        .routes(routes!(list, register))
        .routes(routes!(show))
        .routes(routes!(report))
        .routes(routes!(end))
        .routes(routes!(cancel))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// The running jobs, and the last 100 that have ended; in each of the two parts the newest come first.
#[utoipa::path(get, path = "/jobs", tag = "jobs", responses(
    (status = 200, body = Vec<Job>),
    (status = "4XX", body = ApiFailure),
))]
async fn list(State(control): State<Arc<Control>>) -> Result<Json<Vec<Job>>, ApiError> {
    match execute(&control, JobRequest::List).await? {
        JobAnswer::List(jobs) => Ok(Json(jobs)),
        _ => Err(unexpected_answer()),
    }
}

/// A job, with the last lines of its log.
#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs", params(("id" = u64, Path)), responses(
    (status = 200, body = JobDetails),
    (status = "4XX", body = ApiFailure),
))]
async fn show(
    State(control): State<Arc<Control>>,
    PathParameters(id): PathParameters<u64>,
) -> Result<Json<JobDetails>, ApiError> {
    details(&control, JobRequest::Show { id }).await
}

/// Registers the job of a command line, which then reports its progress about once a second. A job that
/// reports nothing for 10 s and whose process is gone, or that reports nothing for 60 s, is lost.
#[utoipa::path(post, path = "/jobs", tag = "jobs", request_body = JobRegistration, responses(
    (status = 201, body = RegisteredJob),
    (status = "4XX", body = ApiFailure),
))]
async fn register(
    State(control): State<Arc<Control>>,
    caller: Option<Extension<Caller>>,
    origin: Option<Extension<RequestOrigin>>,
    JsonBody(registration): JsonBody<JobRegistration>,
) -> Result<(StatusCode, Json<RegisteredJob>), ApiError> {
    let pid = origin.and_then(|origin| origin.local_process);
    let caller = JobCaller { user: name_of(caller), pid };
    match execute(&control, JobRequest::Register { registration, caller }).await? {
        JobAnswer::Registered(registered) => Ok((StatusCode::CREATED, Json(registered))),
        _ => Err(unexpected_answer()),
    }
}

/// Reports the progress of a job. The response tells whether the job must end. Successful reports are not in
/// the audit log.
#[utoipa::path(put, path = "/jobs/{id}/progress", tag = "jobs", params(("id" = u64, Path)),
    request_body = JobReport, responses(
    (status = 200, body = JobReportResponse),
    (status = "4XX", body = ApiFailure),
))]
async fn report(
    State(control): State<Arc<Control>>,
    PathParameters(id): PathParameters<u64>,
    JsonBody(report): JsonBody<JobReport>,
) -> Result<Json<JobReportResponse>, ApiError> {
    match execute(&control, JobRequest::Report { id, report: Box::new(report) }).await? {
        JobAnswer::Reported(response) => Ok(Json(response)),
        _ => Err(unexpected_answer()),
    }
}

/// Reports the end of a job.
#[utoipa::path(post, path = "/jobs/{id}/end", tag = "jobs", params(("id" = u64, Path)),
    request_body = JobEnd, responses(
    (status = 200, body = JobDetails),
    (status = "4XX", body = ApiFailure),
))]
async fn end(
    State(control): State<Arc<Control>>,
    PathParameters(id): PathParameters<u64>,
    JsonBody(end): JsonBody<JobEnd>,
) -> Result<Json<JobDetails>, ApiError> {
    details(&control, JobRequest::End { id, end: Box::new(end) }).await
}

/// Cancels a job. It ends as after Ctrl-C, about a second later; most kinds of work can be resumed.
#[utoipa::path(post, path = "/jobs/{id}/cancel", tag = "jobs", params(("id" = u64, Path)), responses(
    (status = 200, body = JobDetails),
    (status = "4XX", body = ApiFailure),
))]
async fn cancel(
    State(control): State<Arc<Control>>,
    PathParameters(id): PathParameters<u64>,
    caller: Option<Extension<Caller>>,
) -> Result<Json<JobDetails>, ApiError> {
    details(&control, JobRequest::Cancel { id, by: name_of(caller) }).await
}

fn name_of(caller: Option<Extension<Caller>>) -> String {
    caller.map(|Extension(caller)| caller.name).unwrap_or_default()
}

async fn details(control: &Control, request: JobRequest) -> Result<Json<JobDetails>, ApiError> {
    match execute(control, request).await? {
        JobAnswer::Details(details) => Ok(Json(*details)),
        _ => Err(unexpected_answer()),
    }
}

async fn execute(control: &Control, request: JobRequest) -> Result<JobAnswer, ApiError> {
    match control.execute(ControlCommand::Job(request)).await? {
        ControlAnswer::Job(answer) => Ok(answer),
        _ => Err(unexpected_answer()),
    }
}
