//! Requests of a manager on another machine. All of them need a token with the role operator.

use axum::http::StatusCode;
use serde_json::json;
use tailwater_daemon::api::capture_orders::{AckerFailure, AckerStatus, OrderBody, RelayStatus};
use tailwater_daemon::api::captures::CaptureSnapshot;
use tailwater_daemon::api::clusters::ClusterSnapshot;
use tailwater_daemon::api::daemon_requests::{CommandError, CommandErrorKind, ControlAnswer, ControlCommand};
use tailwater_daemon::api::daemon_snapshot::DaemonSnapshot;

use crate::request_handler::{HttpBody, HttpResponse};
use crate::request_routes::OrderKind;

/// Converts an order that a remote manager sent to a command for the capture.
pub(super) fn command(source: String, kind: OrderKind, body: &[u8]) -> Result<ControlCommand, HttpResponse> {
    parse(source, kind, body).map_err(|reason| HttpResponse::failed(StatusCode::BAD_REQUEST, &reason))
}

fn parse(source: String, kind: OrderKind, body: &[u8]) -> Result<ControlCommand, String> {
    let body: OrderBody = serde_json::from_slice(body).map_err(|error| {
        format!("the body must be a JSON object such as {{\"token\": 7}}, and an order to follow also has \"server\": {error}")
    })?;
    match (kind, body) {
        (OrderKind::Stop, OrderBody { token, run, server: None }) => {
            Ok(ControlCommand::AckerStop { source, token, run })
        }
        (OrderKind::Start, OrderBody { token, run, server: None }) => {
            Ok(ControlCommand::AckerStart { source, token, run })
        }
        (OrderKind::Follow, OrderBody { token, run, server: Some(server) }) => {
            Ok(ControlCommand::AckerFollow { source, token, run, server })
        }
        (OrderKind::Follow, _) => Err("\"server\" is missing: give the server to follow".to_owned()),
        (OrderKind::Stop | OrderKind::Start, _) => {
            Err("only an order to follow may contain \"server\"".to_owned())
        }
    }
}

/// Returns the HTTP response to an order to a capture, or to a query of its state. Its status code tells the
/// manager whether the order may have been executed.
pub(super) fn response(
    source: &str,
    answer: Result<ControlAnswer, CommandError>,
    snapshot: &DaemonSnapshot,
) -> HttpResponse {
    let capture = snapshot.captures.iter().find(|capture| capture.report.source == source);
    let cluster = snapshot.clusters.iter().find(|cluster| cluster.source == source);
    match (answer, capture, cluster) {
        (Ok(ControlAnswer::Acker(acker)), Some(capture), Some(cluster)) => {
            HttpResponse::ok(json!(relay_status(capture, cluster, acker)))
        }
        (Err(CommandError { kind: CommandErrorKind::Failed, code, message }), ..) => HttpResponse {
            status: StatusCode::CONFLICT,
            body: HttpBody::Json(json!(AckerFailure { code, message })),
            allowed: None,
        },
        _ => HttpResponse::failed(StatusCode::NOT_FOUND, "the configuration has no source of that name"),
    }
}

fn relay_status(capture: &CaptureSnapshot, cluster: &ClusterSnapshot, acker: AckerStatus) -> RelayStatus {
    RelayStatus {
        server_id: capture.server_id,
        is_streaming: capture.report.is_streaming,
        acknowledges: capture.semi_sync,
        heard_ago_ms: capture.report.heard_ago_ms,
        heartbeat_ms: Some(capture.heartbeat_ms),
        own: Some(cluster.own.clone()),
        acker,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_an_order_is_checked() {
        let parse = |kind, body: &str| parse("orders".to_owned(), kind, body.as_bytes());
        let stop = parse(OrderKind::Stop, r#"{"token":7}"#);
        assert!(
            matches!(stop, Ok(ControlCommand::AckerStop { source, token: 7, run: None }) if source == "orders")
        );
        let start = parse(OrderKind::Start, r#"{"token":7,"run":2}"#);
        assert!(matches!(start, Ok(ControlCommand::AckerStart { token: 7, run: Some(2), .. })));
        let follow = parse(OrderKind::Follow, r#"{"token":7,"server":"db2"}"#);
        assert!(
            matches!(follow, Ok(ControlCommand::AckerFollow { token: 7, server, .. }) if server == "db2")
        );
        for (kind, wrong) in [
            (OrderKind::Stop, ""),
            (OrderKind::Stop, "{}"),
            (OrderKind::Stop, r#"{"token":-1}"#),
            (OrderKind::Stop, r#"{"token":7,"server":"db2"}"#),
            (OrderKind::Start, r#"{"token":7,"force":true}"#),
            (OrderKind::Follow, r#"{"token":7}"#),
        ] {
            assert!(
                parse(kind, wrong).is_err(),
                "an invalid order of the kind {kind:?} was accepted: {wrong}"
            );
        }
    }
}
