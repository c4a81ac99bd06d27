//! Failures of requests for views.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use tailwater_daemon::api::daemon_requests::{CommandError, CommandErrorKind};

/// A view that cannot be shown.
#[derive(Debug)]
pub(super) struct PageError {
    status: StatusCode,
    message: String,
}

#[derive(Template)]
#[template(path = "page/error.html")]
struct ErrorPage<'a> {
    title: &'a str,
    message: &'a str,
}

impl PageError {
    /// The configuration has no object of that kind and name.
    pub(super) fn unknown(kind: &str, name: &str) -> Self {
        Self { status: StatusCode::NOT_FOUND, message: format!("The configuration has no {kind} {name:?}.") }
    }

    /// There is no such object.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, message: message.into() }
    }

    /// A failure that is no fault of the client.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, message: message.into() }
    }
}

impl From<CommandError> for PageError {
    fn from(error: CommandError) -> Self {
        let status = match error.kind {
            CommandErrorKind::UnknownName => StatusCode::NOT_FOUND,
            CommandErrorKind::Invalid => StatusCode::BAD_REQUEST,
            CommandErrorKind::Failed => StatusCode::CONFLICT,
        };
        Self { status, message: error.message }
    }
}

impl From<askama::Error> for PageError {
    fn from(error: askama::Error) -> Self {
        Self::failed(format!("The page cannot be rendered: {error}"))
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let title =
            if self.status == StatusCode::NOT_FOUND { "Not found" } else { "This view cannot be shown" };
        let page = ErrorPage { title, message: &self.message }.render();
        match page {
            Ok(page) => (self.status, Html(page)).into_response(),
            Err(_) => (self.status, self.message).into_response(),
        }
    }
}
