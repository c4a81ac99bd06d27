//! Failures as HTTP responses.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use tailwater_daemon::api::daemon_requests::{ApiFailure, CommandError, CommandErrorKind};

/// A failure, as a response with a JSON body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The status of the response.
    pub status: StatusCode,
    /// The body.
    pub failure: ApiFailure,
}

impl ApiError {
    /// A failure without an error code.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, failure: ApiFailure { code: None, message: message.into() } }
    }

    /// The response for a path or an object that does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// The response to a request that cannot be parsed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        let status = match error.kind {
            CommandErrorKind::UnknownName => StatusCode::NOT_FOUND,
            CommandErrorKind::Invalid => StatusCode::BAD_REQUEST,
            CommandErrorKind::Failed => StatusCode::CONFLICT,
        };
        Self { status, failure: ApiFailure { code: error.code, message: error.message } }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.failure)).into_response()
    }
}

/// The JSON body of a request. An empty body counts as `{}`.
#[derive(Debug, Clone, Copy)]
pub struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = bytes::Bytes::from_request(request, state)
            .await
            .map_err(|error| ApiError::new(error.status(), error.body_text()))?;
        let bytes = if bytes.is_empty() { bytes::Bytes::from_static(b"{}") } else { bytes };
        match Json::<T>::from_bytes(&bytes) {
            Ok(Json(value)) => Ok(Self(value)),
            Err(error) => Err(ApiError::bad_request(error.body_text())),
        }
    }
}

/// The parameters in the path of a request.
#[derive(Debug, Clone, Copy)]
pub struct PathParameters<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathParameters<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(error) => Err(ApiError::bad_request(error.body_text())),
        }
    }
}

/// The query of a request. Unknown parameters are errors if the type refuses unknown fields.
#[derive(Debug, Clone, Copy)]
pub struct QueryParameters<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParameters<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(error) => Err(ApiError::bad_request(error.body_text())),
        }
    }
}
