//! Channels.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use tailwater_apply::replication_filter::FilterSet;
use tailwater_config::HttpRole;
use tailwater_daemon::api::channels::{ChannelEdit, ChannelStatus};
use tailwater_daemon::api::daemon_requests::{ApiFailure, ControlAnswer, ControlCommand};
use tailwater_daemon::control_api::{Control, ControlSession};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::daemon_state::unexpected_answer;
use crate::api_error::{ApiError, JsonBody, PathParameters, QueryParameters};
use crate::authentication::Caller;
use crate::listener::LongLived;

/// Interval between the empty lines that the daemon sends while a client pauses a channel. If a line cannot
/// be sent, the daemon notices that the client has disconnected.
const PAUSE_LINE_INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn routes() -> OpenApiRouter<Arc<Control>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(edit))
        .routes(routes!(start))
        .routes(routes!(tolerate))
        .routes(routes!(stop))
        .routes(routes!(pause))
        .routes(routes!(skip))
        .routes(routes!(seek))
        .routes(routes!(hold))
        .routes(routes!(set_filters))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListParameters {
    /// Whether errors include values of rows. Needs the role operator.
    show_values: bool,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct StartChannel {
    /// Stop after the transaction with this GTID.
    until_gtid: Option<String>,
    /// Stop before the first transaction that was committed at this time or later, in microseconds since
    /// 1970.
    until_time_us: Option<u64>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct TolerateChanges {
    /// Up to and including this transaction, skip changes that the target already has. If absent, skip them
    /// only in the transaction at which the channel failed.
    until_gtid: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SkipTransaction {
    /// The GTID of the transaction.
    gtid: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SeekChannel {
    /// The GTIDs of the applied transactions, in the source's notation.
    gtids: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SetFilters {
    /// All filters of the channel: `include`, `exclude`, `rewrite`, `ignore_case`, as in `[channel.filters]`.
    filters: FilterSet,
    /// The GTID of the first transaction to which the new filters apply.
    #[serde(default)]
    from_gtid: Option<String>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

/// All channels.
#[utoipa::path(get, path = "/channels", tag = "channels", params(ListParameters), responses(
    (status = 200, body = Vec<ChannelStatus>),
    (status = "4XX", body = ApiFailure),
))]
async fn list(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    QueryParameters(parameters): QueryParameters<ListParameters>,
) -> Result<Json<Vec<ChannelStatus>>, ApiError> {
    let command = match parameters.show_values {
        true if caller.role < HttpRole::Operator => {
            return Err(ApiError::new(StatusCode::FORBIDDEN, "show_values needs the role operator"));
        }
        true => ControlCommand::ListWithValues,
        false => ControlCommand::List,
    };
    match control.execute(command).await? {
        ControlAnswer::Channels(channels) => Ok(Json(channels)),
        _ => Err(unexpected_answer()),
    }
}

/// Starts a channel.
#[utoipa::path(post, path = "/channels/{name}/start", tag = "channels",
    params(("name" = String, Path)), request_body = StartChannel, responses(
    (status = 200, body = ChannelStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn start(
    State(control): State<Arc<Control>>,
    PathParameters(channel): PathParameters<String>,
    JsonBody(StartChannel { until_gtid, until_time_us }): JsonBody<StartChannel>,
) -> Result<Json<ChannelStatus>, ApiError> {
    execute(&control, &channel.clone(), ControlCommand::Start { channel, until_gtid, until_time_us }).await
}

/// Starts a channel, and lets it skip changes that the target already has.
#[utoipa::path(post, path = "/channels/{name}/tolerate", tag = "channels",
    params(("name" = String, Path)), request_body = TolerateChanges, responses(
    (status = 200, body = ChannelStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn tolerate(
    State(control): State<Arc<Control>>,
    PathParameters(channel): PathParameters<String>,
    JsonBody(TolerateChanges { until_gtid }): JsonBody<TolerateChanges>,
) -> Result<Json<ChannelStatus>, ApiError> {
    execute(&control, &channel.clone(), ControlCommand::Tolerate { channel, until_gtid }).await
}

/// Stops a channel after its running transactions have committed.
#[utoipa::path(post, path = "/channels/{name}/stop", tag = "channels",
    params(("name" = String, Path)), request_body = NoParameters, responses(
    (status = 200, body = ChannelStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn stop(
    State(control): State<Arc<Control>>,
    PathParameters(channel): PathParameters<String>,
    JsonBody(NoParameters {}): JsonBody<NoParameters>,
) -> Result<Json<ChannelStatus>, ApiError> {
    execute(&control, &channel.clone(), ControlCommand::Stop { channel }).await
}

/// Stops a channel as long as the client is connected. The response does not end: its first line has the
/// channel's status, an empty line follows each second. A channel that was already stopped stays stopped.
#[utoipa::path(post, path = "/channels/{name}/pause", tag = "channels",
    params(("name" = String, Path)), request_body = NoParameters, responses(
    (status = 200, description = "A JSON object in the first line, then empty lines", body = ChannelStatus, content_type = "application/x-ndjson"),
    (status = "4XX", body = ApiFailure),
    (status = 503, body = ApiFailure, description = "Too many clients have paused channels or read events"),
))]
async fn pause(
    State(control): State<Arc<Control>>,
    Extension(long_lived): Extension<LongLived>,
    PathParameters(channel): PathParameters<String>,
    JsonBody(NoParameters {}): JsonBody<NoParameters>,
) -> Result<Response, ApiError> {
    require_channel(&control, &channel)?;
    let permit = long_lived.allow().ok_or_else(super::event_stream::too_many)?;
    let mut resumed = ResumedOnDrop(Some(control.session()));
    let session = resumed.0.as_mut().ok_or_else(unexpected_answer)?;
    let answer = session.execute(ControlCommand::Pause { channel: channel.clone() }).await?;
    let status = channel_of(answer, &channel)?;
    let mut first = serde_json::to_vec(&status).map_err(|_| unexpected_answer())?;
    first.push(b'\n');
    // The stream owns `resumed`. When the client disconnects, both are dropped, and the pause ends.
    let lines = stream::unfold((Some(first), resumed, permit), |(first, resumed, permit)| async move {
        let line = match first {
            Some(first) => first,
            None => {
                tokio::time::sleep(PAUSE_LINE_INTERVAL).await;
                b"\n".to_vec()
            }
        };
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(line)), (None, resumed, permit)))
    });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// Starts the paused channels again when it is dropped.
struct ResumedOnDrop(Option<ControlSession>);

impl Drop for ResumedOnDrop {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            tokio::spawn(session.close());
        }
    }
}

/// Excludes a transaction from the apply.
#[utoipa::path(post, path = "/channels/{name}/skip", tag = "channels",
    params(("name" = String, Path)), request_body = SkipTransaction, responses(
    (status = 200, body = ChannelStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn skip(
    State(control): State<Arc<Control>>,
    PathParameters(channel): PathParameters<String>,
    JsonBody(SkipTransaction { gtid }): JsonBody<SkipTransaction>,
) -> Result<Json<ChannelStatus>, ApiError> {
    execute(&control, &channel.clone(), ControlCommand::Skip { channel, gtid }).await
}

/// Sets which transactions count as applied on the target. The channel must be stopped.
#[utoipa::path(post, path = "/channels/{name}/seek", tag = "channels",
    params(("name" = String, Path)), request_body = SeekChannel, responses(
    (status = 200, body = ChannelStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn seek(
    State(control): State<Arc<Control>>,
    PathParameters(channel): PathParameters<String>,
    JsonBody(SeekChannel { gtids }): JsonBody<SeekChannel>,
) -> Result<Json<ChannelStatus>, ApiError> {
    execute(&control, &channel.clone(), ControlCommand::Seek { channel, gtids }).await
}

/// Keeps new transactions in the log until a stopped channel has applied them.
#[utoipa::path(post, path = "/channels/{name}/hold", tag = "channels",
    params(("name" = String, Path)), request_body = NoParameters, responses(
    (status = 200, body = ChannelStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn hold(
    State(control): State<Arc<Control>>,
    PathParameters(channel): PathParameters<String>,
    JsonBody(NoParameters {}): JsonBody<NoParameters>,
) -> Result<Json<ChannelStatus>, ApiError> {
    execute(&control, &channel.clone(), ControlCommand::Hold { channel }).await
}

/// Replaces the filters of a channel.
#[utoipa::path(put, path = "/channels/{name}/filters", tag = "channels",
    params(("name" = String, Path)), request_body = SetFilters, responses(
    (status = 200, body = ChannelStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn set_filters(
    State(control): State<Arc<Control>>,
    PathParameters(channel): PathParameters<String>,
    JsonBody(SetFilters { filters, from_gtid }): JsonBody<SetFilters>,
) -> Result<Json<ChannelStatus>, ApiError> {
    execute(&control, &channel.clone(), ControlCommand::Filter { channel, filters, from_gtid }).await
}

/// Changes options of a channel. Absent options stay as they are.
#[utoipa::path(patch, path = "/channels/{name}", tag = "channels",
    params(("name" = String, Path)), request_body = ChannelEdit, responses(
    (status = 200, body = ChannelStatus),
    (status = "4XX", body = ApiFailure),
))]
async fn edit(
    State(control): State<Arc<Control>>,
    PathParameters(channel): PathParameters<String>,
    JsonBody(edit): JsonBody<ChannelEdit>,
) -> Result<Json<ChannelStatus>, ApiError> {
    execute(&control, &channel.clone(), ControlCommand::Set { channel, edit }).await
}

async fn execute(
    control: &Control,
    channel: &str,
    command: ControlCommand,
) -> Result<Json<ChannelStatus>, ApiError> {
    require_channel(control, channel)?;
    channel_of(control.execute(command).await?, channel).map(Json)
}

fn require_channel(control: &Control, channel: &str) -> Result<(), ApiError> {
    let channels = &control.state().channels;
    if channels.contains_key(channel) {
        return Ok(());
    }
    let known = channels.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    Err(ApiError::not_found(format!("there is no channel {channel:?}; the channels are: {known}")))
}

fn channel_of(answer: ControlAnswer, name: &str) -> Result<ChannelStatus, ApiError> {
    match answer {
        ControlAnswer::Channels(channels) => {
            channels.into_iter().find(|channel| channel.name == name).ok_or_else(unexpected_answer)
        }
        _ => Err(unexpected_answer()),
    }
}
