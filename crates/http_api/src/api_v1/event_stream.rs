//! Notifications of changes, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, stream};
use tailwater_daemon::api::daemon_requests::ApiFailure;
use tailwater_daemon::control_api::Control;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api_error::ApiError;
use crate::listener::LongLived;

/// The shortest time between two events of a stream. Changes in this time make one event.
const EVENT_INTERVAL_MIN: Duration = Duration::from_millis(500);

pub(super) fn routes() -> OpenApiRouter<Arc<Control>> {
    OpenApiRouter::new().routes(routes!(events))
}

/// A stream of server-sent events. An event `change` has the number of changes since the daemon started:
/// probes of servers and relays, changes of channels, and reports of jobs. At most two events are sent each
/// second.
#[utoipa::path(get, path = "/events", tag = "state", responses(
    (status = 200, content_type = "text/event-stream", body = String),
    (status = "4XX", body = ApiFailure),
    (status = 503, body = ApiFailure, description = "Too many clients read events"),
))]
async fn events(
    State(control): State<Arc<Control>>,
    Extension(long_lived): Extension<LongLived>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let permit = long_lived.allow().ok_or_else(too_many)?;
    let mut changes = control.subscribe();
    // The first event comes at once.
    changes.mark_changed();
    let state = (changes, Instant::now(), control, permit);
    let events = stream::unfold(state, |(mut changes, not_before, control, permit)| async move {
        tokio::time::sleep_until(not_before.into()).await;
        changes.changed().await.ok()?;
        // A client that reads slowly only gets the newest number, so nothing is queued for it.
        let count = *changes.borrow_and_update();
        let event = Event::default().event("change").data(count.to_string());
        Some((Ok(event), (changes, Instant::now() + EVENT_INTERVAL_MIN, control, permit)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// Returns the error for a client that connects when too many connections without a time limit are open.
pub(super) fn too_many() -> ApiError {
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many clients read events or have paused channels; close some of their connections",
    )
}
