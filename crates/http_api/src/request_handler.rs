//! Maps HTTP requests to commands and snapshots of [`Control`], and the answers to JSON or to the text of
//! metrics.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::http::header::{ALLOW, CONTENT_TYPE, HeaderValue, LINK};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use tailwater_daemon::api::clusters::ClusterView;
use tailwater_daemon::api::daemon_requests::{CommandError, CommandErrorKind, ControlAnswer, ControlCommand};
use tailwater_daemon::control_api::Control;
use tailwater_manager::FailoverReadiness;

use crate::api_error::ApiError;
use crate::metrics;
use crate::remote_manager_orders;
use crate::request_routes::{Route, RouteError, route};

/// How long the first request after a time without requests waits for probes.
const FIRST_PROBE_MAX: Duration = Duration::from_millis(1_000);

/// A response to a request.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub status: StatusCode,
    pub body: HttpBody,
    /// The methods that the path accepts, if the request used another method.
    pub allowed: Option<&'static str>,
}

/// The body of a response.
#[derive(Debug)]
pub(super) enum HttpBody {
    Json(Value),
    /// OpenMetrics text of [`metrics::render`].
    Metrics(String),
}

impl HttpResponse {
    pub(super) fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, body: HttpBody::Json(body), allowed: None }
    }

    pub(super) fn failed(status: StatusCode, reason: &str) -> Self {
        let body = HttpBody::Json(json!({ "ok": false, "reason": reason }));
        Self { status, body, allowed: None }
    }
}

impl From<RouteError> for HttpResponse {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::NotFound => Self::failed(
                StatusCode::NOT_FOUND,
                "no such path; the paths are /api/v1, /primary, /replica, /status, /metrics, /healthz and /acker",
            ),
            RouteError::Method { allowed } => Self {
                allowed: Some(allowed),
                ..Self::failed(
                    StatusCode::METHOD_NOT_ALLOWED,
                    &format!("method not allowed; this path accepts {allowed}"),
                )
            },
            RouteError::Bad(reason) => Self::failed(StatusCode::BAD_REQUEST, &reason),
        }
    }
}

impl From<CommandError> for HttpResponse {
    fn from(error: CommandError) -> Self {
        let status = match error.kind {
            CommandErrorKind::UnknownName => StatusCode::NOT_FOUND,
            CommandErrorKind::Invalid => StatusCode::BAD_REQUEST,
            CommandErrorKind::Failed => StatusCode::CONFLICT,
        };
        Self::failed(status, &error.message)
    }
}

impl IntoResponse for HttpResponse {
    fn into_response(self) -> Response {
        let (text, content_type) = match self.body {
            HttpBody::Json(value) => (format!("{value}\n"), "application/json"),
            HttpBody::Metrics(text) => (text, metrics::CONTENT_TYPE),
        };
        let mut response = (self.status, [(CONTENT_TYPE, content_type)], text).into_response();
        if let Some(allowed) = self.allowed {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        }
        response
    }
}

/// Responds to a request for a path that is neither of the API nor of the page.
pub(crate) async fn respond(handler: Arc<HttpHandler>, request: Request) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    match Bytes::from_request(request, &()).await {
        Ok(body) => {
            let mut response = handler.handle(&method, uri.path(), uri.query(), &body).await.into_response();
            if let Some(link) = successor_link(uri.path()) {
                response.headers_mut().insert(LINK, link);
            }
            response
        }
        Err(error) => ApiError::new(error.status(), error.body_text()).into_response(),
    }
}

/// The header that names the present path of a request to `/acker`, which is kept for clients and managers of
/// the release before.
fn successor_link(path: &str) -> Option<HeaderValue> {
    let rest = path.trim_end_matches('/').strip_prefix("/acker/")?;
    HeaderValue::try_from(format!("</api/v1/captures/{rest}>; rel=\"successor-version\"")).ok()
}

/// Removes the reason, which may repeat a server's error about a statement. Clients need no token to read the
/// readiness.
fn without_reason(readiness: FailoverReadiness) -> FailoverReadiness {
    match readiness {
        FailoverReadiness::NotReady { rule, .. } => FailoverReadiness::NotReady {
            rule,
            reason: "`tailwater manager status` prints the reason".to_owned(),
        },
        other => other,
    }
}

/// Handles HTTP requests.
#[derive(Debug)]
pub(crate) struct HttpHandler {
    control: Arc<Control>,
}

impl HttpHandler {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    pub(super) async fn handle(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        body: &[u8],
    ) -> HttpResponse {
        match route(method, path, query) {
            Err(error) => error.into(),
            Ok(Route::Health) => {
                HttpResponse::ok(json!({ "ok": true, "version": env!("CARGO_PKG_VERSION") }))
            }
            Ok(Route::Status) => self.status().await,
            Ok(Route::Metrics) => self.metrics(),
            Ok(Route::Check { command, server, source }) => {
                self.control.keep_probed(server.as_deref(), source.as_deref(), FIRST_PROBE_MAX).await;
                self.check(command).await
            }
            Ok(Route::Acker { source }) => {
                self.order(&source, Ok(ControlCommand::AckerRead { source: source.clone() })).await
            }
            Ok(Route::Order { source, order }) => {
                let command = remote_manager_orders::command(source.clone(), order, body);
                self.order(&source, command).await
            }
        }
    }

    async fn check(&self, command: ControlCommand) -> HttpResponse {
        match self.control.execute(command).await {
            Ok(ControlAnswer::Role(check)) => {
                let status = if check.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                HttpResponse { status, body: HttpBody::Json(json!(check)), allowed: None }
            }
            Ok(_) => HttpResponse::failed(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the daemon's answer is not the result of a role check",
            ),
            Err(error) => error.into(),
        }
    }

    async fn order(&self, source: &str, command: Result<ControlCommand, HttpResponse>) -> HttpResponse {
        match command {
            Ok(command) => {
                let answer = self.control.execute(command).await;
                remote_manager_orders::response(source, answer, &self.control.snapshot())
            }
            Err(response) => response,
        }
    }

    async fn status(&self) -> HttpResponse {
        self.control.keep_probed(None, None, FIRST_PROBE_MAX).await;
        let clusters = self.control.snapshot().clusters.into_iter().map(|cluster| ClusterView {
            readiness: cluster.view.readiness.map(without_reason),
            ..cluster.view
        });
        HttpResponse::ok(json!({ "clusters": clusters.collect::<Vec<_>>() }))
    }

    fn metrics(&self) -> HttpResponse {
        match metrics::render(self.control.snapshot()) {
            Ok(text) => HttpResponse { status: StatusCode::OK, body: HttpBody::Metrics(text), allowed: None },
            Err(error) => HttpResponse::failed(
                StatusCode::INTERNAL_SERVER_ERROR,
                &format!("the metrics cannot be encoded as text: {error}"),
            ),
        }
    }
}
