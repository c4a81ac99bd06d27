//! The requests for views.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use tailwater_binlog_stats::read_recent;
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::api::daemon_status::DaemonStatus;
use tailwater_daemon::api::jobs::{JobAnswer, JobRequest};
use tailwater_daemon::api::manager_requests::{ManagerAnswer, ManagerRequest, RunSummary};
use tailwater_daemon::error_chain::ErrorChain;
use tailwater_manager::model::{Audit, RunKind};

use super::PageState;
use super::binlog_server_view::BinlogServerList;
use super::captured_log_view::{LogDetail, LogList, SourceRow};
use super::channel_view::{ChannelDetail, ChannelList};
use super::display_format::path_segment;
use super::failover_timeline_view::RunDetail;
use super::failover_view::{ClusterDetail, ClusterList, ClusterRow, run_path};
use super::job_actions::details;
use super::jobs_view::{JobDetail, JobList, job_name, job_path};
use super::large_transactions_view::TransactionsPart;
use super::overview_view::Overview;
use super::page_error::PageError;
use super::page_layout::PageFrame;
use super::page_user_role::Visitor;
use super::settings_view::SettingsList;

/// How many failovers and switchovers the history lists at most.
const RUNS_MAX: usize = 50;

/// How much of a log is analysed at once, in bytes.
const ANALYSIS_BYTES_MAX: u64 = 1 << 30;

type View = Result<Response, PageError>;

pub(super) fn routes() -> Router<PageState> {
    Router::new()
        .route("/", get(overview))
        .route("/logs", get(logs))
        .route("/logs/{source}", get(log))
        .route("/logs/{source}/transactions", get(transactions))
        .route("/channels", get(channels))
        .route("/channels/{name}", get(channel))
        .route("/failovers", get(failovers))
        .route("/failovers/{source}", get(failover))
        .route("/failovers/{source}/runs/{id}", get(run))
        .route("/jobs", get(jobs))
        .route("/jobs/{id}", get(job))
        .route("/binlog-servers", get(binlog_servers))
        .route("/settings", get(settings))
}

fn html(view: &impl Template) -> View {
    Ok(Html(view.render()?).into_response())
}

/// The status. Reading it also keeps the servers probed while the page is open.
async fn status(state: &PageState) -> Result<DaemonStatus, PageError> {
    match state.control.execute(ControlCommand::Status).await? {
        ControlAnswer::Status(status) => Ok(*status),
        _ => Err(PageError::failed("The daemon gave another answer than its status.")),
    }
}

async fn overview(State(state): State<PageState>, visitor: Visitor) -> View {
    let status = status(&state).await?;
    let title = match status.problems.len() {
        0 => "Overview".to_owned(),
        count => format!("Overview ({count} wrong)"),
    };
    html(&Overview::new(PageFrame::new(title, "/", "/", visitor), &status, &state.control.snapshot()))
}

async fn logs(State(state): State<PageState>, visitor: Visitor) -> View {
    let (status, snapshot) = (status(&state).await?, state.control.snapshot());
    let charts = super::chart_data::write_chart(&snapshot).into_iter().collect();
    let sources = status.sources.iter().map(|source| SourceRow::new(source, &snapshot)).collect();
    html(&LogList { frame: PageFrame::new("Logs", "/logs", "/logs", visitor), sources, charts })
}

async fn log(State(state): State<PageState>, Path(name): Path<String>, visitor: Visitor) -> View {
    let (status, snapshot) = (status(&state).await?, state.control.snapshot());
    let source = status.sources.iter().find(|source| source.source == name);
    let capture = snapshot.captures.iter().find(|capture| capture.report.source == name);
    let (Some(source), Some(capture)) = (source, capture) else {
        return Err(PageError::unknown("source", &name));
    };
    let (control, wanted) = (state.control.clone(), name.clone());
    let segments = tokio::task::spawn_blocking(move || control.segments(&wanted)).await;
    let segments = segments.ok().flatten().unwrap_or_default();
    let frame =
        PageFrame::new(format!("Log of {name}"), "/logs", format!("/logs/{}", path_segment(&name)), visitor);
    html(&LogDetail::new(frame, source, &snapshot, capture, &segments))
}

#[derive(Debug, Deserialize)]
struct AnalysisQuery {
    /// The length of the time that ends now.
    minutes: u64,
}

/// The analysis in the view of a log. It reads the log, so it is done only when a visitor asks for it.
async fn transactions(
    State(state): State<PageState>,
    Path(name): Path<String>,
    Query(AnalysisQuery { minutes }): Query<AnalysisQuery>,
) -> View {
    let source = state.control.state().sources.get(&name);
    let log = source.ok_or_else(|| PageError::unknown("source", &name))?.log.clone();
    let now_us = u64::try_from(chrono::Utc::now().timestamp_micros()).unwrap_or_default();
    let since_us = now_us.saturating_sub(minutes.saturating_mul(60_000_000));
    let permit = Arc::clone(&state.analysis).acquire_owned().await;
    let read = tokio::task::spawn_blocking(move || {
        // The permit is held until the log is read, even if the browser has disconnected.
        let _permit = permit;
        read_recent(&log, since_us, ANALYSIS_BYTES_MAX)
    });
    let stats = read.await.map_err(|error| PageError::failed(error.to_string()))?;
    let stats = stats.map_err(|error| PageError::failed(ErrorChain(&error.into()).to_string()))?;
    html(&TransactionsPart::new(&stats, ANALYSIS_BYTES_MAX))
}

async fn channels(State(state): State<PageState>, visitor: Visitor) -> View {
    let frame = PageFrame::new("Channels", "/channels", "/channels", visitor);
    html(&ChannelList::new(frame, &state.control.snapshot().channels))
}

async fn channel(State(state): State<PageState>, Path(name): Path<String>, visitor: Visitor) -> View {
    let snapshot = state.control.snapshot();
    let channel = snapshot.channels.iter().find(|channel| channel.status.name == name);
    let channel = channel.ok_or_else(|| PageError::unknown("channel", &name))?;
    let path = format!("/channels/{}", path_segment(&name));
    html(&ChannelDetail::new(PageFrame::new(format!("Channel {name}"), "/channels", path, visitor), channel))
}

async fn failovers(State(state): State<PageState>, visitor: Visitor) -> View {
    status(&state).await?;
    let clusters = state.control.snapshot().clusters.iter().map(ClusterRow::new).collect();
    html(&ClusterList { frame: PageFrame::new("Failovers", "/failovers", "/failovers", visitor), clusters })
}

async fn failover(State(state): State<PageState>, Path(source): Path<String>, visitor: Visitor) -> View {
    status(&state).await?;
    let snapshot = state.control.snapshot();
    let cluster = snapshot.clusters.iter().find(|cluster| cluster.source == source);
    let cluster = cluster.ok_or_else(|| PageError::unknown("source", &source))?;
    let history = history(&state, &source).await;
    let path = format!("/failovers/{}", path_segment(&source));
    let frame = PageFrame::new(format!("Failovers of {source}"), "/failovers", path, visitor);
    html(&ClusterDetail::new(frame, cluster, history))
}

async fn history(state: &PageState, source: &str) -> Result<Vec<RunSummary>, String> {
    let request = ManagerRequest::Runs { source: source.to_owned(), count_max: RUNS_MAX };
    match state.control.execute(ControlCommand::Manager(request)).await {
        Ok(ControlAnswer::Manager(ManagerAnswer::Runs(runs))) => Ok(runs),
        Ok(_) => Err("the manager gave another answer".to_owned()),
        Err(error) => Err(error.message),
    }
}

async fn run(
    State(state): State<PageState>,
    Path((source, id)): Path<(String, String)>,
    visitor: Visitor,
) -> View {
    let request = ManagerRequest::Audit { source: source.clone(), id: id.clone() };
    match state.control.execute(ControlCommand::Manager(request)).await? {
        ControlAnswer::Manager(ManagerAnswer::Audit(Some(audit))) => {
            let path = run_path(&source, &id);
            let frame = PageFrame::new(format!("Failover {id}"), "/failovers", path, visitor);
            html(&RunDetail::new(frame, &source, &audit))
        }
        // The failover or switchover has begun, and its first step is not recorded yet.
        ControlAnswer::Manager(ManagerAnswer::Audit(None)) if is_present_run(&state, &source, &id) => {
            let audit = Audit::new(&id, RunKind::default(), &source);
            let frame =
                PageFrame::new(format!("Failover {id}"), "/failovers", run_path(&source, &id), visitor);
            html(&RunDetail::new(frame, &source, &audit))
        }
        ControlAnswer::Manager(ManagerAnswer::Audit(None)) => Err(PageError::unknown("failover", &id)),
        _ => Err(PageError::failed("The manager gave another answer than an audit record.")),
    }
}

fn is_present_run(state: &PageState, source: &str, id: &str) -> bool {
    let snapshot = state.control.snapshot();
    let cluster = snapshot.clusters.iter().find(|cluster| cluster.source == source);
    let manager = cluster.and_then(|cluster| cluster.manager.as_ref());
    manager.is_some_and(|manager| manager.report.run.as_deref() == Some(id))
}

async fn jobs(State(state): State<PageState>, visitor: Visitor) -> View {
    match state.control.execute(ControlCommand::Job(JobRequest::List)).await? {
        ControlAnswer::Job(JobAnswer::List(jobs)) => {
            html(&JobList::new(PageFrame::new("Jobs", "/jobs", "/jobs", visitor), &jobs))
        }
        _ => Err(PageError::failed("The daemon gave another answer than its jobs.")),
    }
}

async fn job(State(state): State<PageState>, Path(id): Path<String>, visitor: Visitor) -> View {
    let details = details(&state, &id).await?;
    let title = format!("Job: {}", job_name(&details.job));
    html(&JobDetail::new(PageFrame::new(title, "/jobs", job_path(details.job.id), visitor), &details))
}

async fn binlog_servers(State(state): State<PageState>, visitor: Visitor) -> View {
    let status = status(&state).await?;
    let frame = PageFrame::new("Binlog servers", "/binlog-servers", "/binlog-servers", visitor);
    html(&BinlogServerList::new(frame, &status))
}

async fn settings(State(state): State<PageState>, visitor: Visitor) -> View {
    let frame = PageFrame::new("Settings", "/settings", "/settings", visitor);
    html(&SettingsList::new(frame, &state.control.settings().await))
}
