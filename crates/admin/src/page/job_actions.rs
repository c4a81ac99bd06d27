//! The action of a job: its dialog, and what it does.

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Form, Router};
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::api::jobs::{Job, JobAnswer, JobDetails, JobRequest};

use super::PageState;
use super::action_dialog::{Dialog, done};
use super::action_dialog_input::{Entered, failure_text, refilled};
use super::failover_timeline_view::capitalised;
use super::jobs_view::{job_name, job_path};
use super::page_error::PageError;
use super::page_user_role::Visitor;

pub(super) fn routes() -> Router<PageState> {
    Router::new().route("/jobs/{id}/cancel", get(dialog).post(cancel))
}

/// A job with its log. `id` is its number, as in the address.
pub(super) async fn details(state: &PageState, id: &str) -> Result<JobDetails, PageError> {
    let id = id.parse().map_err(|_| PageError::not_found(format!("There is no job {id:?}.")))?;
    match state.control.execute(ControlCommand::Job(JobRequest::Show { id })).await? {
        ControlAnswer::Job(JobAnswer::Details(details)) => Ok(*details),
        _ => Err(PageError::failed("The daemon gave another answer than a job.")),
    }
}

async fn dialog(State(state): State<PageState>, Path(id): Path<String>) -> Result<Response, PageError> {
    cancel_dialog(&details(&state, &id).await?.job).show()
}

async fn cancel(
    State(state): State<PageState>,
    Path(id): Path<String>,
    visitor: Visitor,
    Form(entered): Form<Entered>,
) -> Result<Response, PageError> {
    let job = details(&state, &id).await?.job;
    let request = JobRequest::Cancel { id: job.id, by: visitor.name };
    match state.control.execute(ControlCommand::Job(request)).await {
        Ok(_) => Ok(done(&format!("The {} ends within a few seconds", job_name(&job)))),
        Err(error) => refilled(cancel_dialog(&job), &entered, failure_text(&error)).show(),
    }
}

fn cancel_dialog(job: &Job) -> Dialog {
    Dialog {
        title: format!("Cancel the {}", job_name(job)),
        action: format!("{}/cancel", job_path(job.id)),
        intro: vec![
            format!("It works on {}, and ends within a few seconds, as after Ctrl-C.", job.subject),
            format!("{}.", capitalised(job.kind.after_interruption())),
        ],
        submit: format!("Cancel the {}", job.kind.name()),
        dismiss: "Let it run",
        is_dangerous: true,
        ..Dialog::default()
    }
}
