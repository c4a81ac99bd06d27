//! Failures as HTTP responses.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tailwater_daemon::api::daemon_requests::{ApiFailure, CommandError, CommandErrorKind};

/// 2^53: all integers up to this one are exact as floating-point numbers.
const EXACT_FLOAT_MAX: f64 = 9_007_199_254_740_992.0;

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

/// The JSON body of a request: an object. An empty body counts as `{}`. Integers are at most 2^63 - 1, as the
/// format `int64` of the OpenAPI document says, and `5.0` is an integer, as in JSON Schema.
#[derive(Debug, Clone, Copy)]
pub struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = bytes::Bytes::from_request(request, state)
            .await
            .map_err(|error| ApiError::new(error.status(), error.body_text()))?;
        let bytes = if bytes.is_empty() { bytes::Bytes::from_static(b"{}") } else { bytes };
        let mut body: Map<String, Value> = serde_json::from_slice(&bytes)
            .map_err(|error| ApiError::bad_request(format!("the body is not a JSON object: {error}")))?;
        body.values_mut().try_for_each(normalize_integers)?;
        serde_path_to_error::deserialize(Value::Object(body))
            .map(Self)
            .map_err(|error| ApiError::bad_request(format!("invalid body: {error}")))
    }
}

/// Replaces numbers such as `5.0` by integers.
fn normalize_integers(value: &mut Value) -> Result<(), ApiError> {
    match value {
        Value::Number(number) => {
            if number.is_u64() && !number.is_i64() {
                return Err(ApiError::bad_request(format!(
                    "{number} is too large: integers are at most 2^63 - 1"
                )));
            }
            if let Some(float) = number.as_f64().filter(|_| number.is_f64())
                && float.fract() == 0.0
                && float.abs() <= EXACT_FLOAT_MAX
            {
                *number = (float as i64).into();
            }
            Ok(())
        }
        Value::Array(values) => values.iter_mut().try_for_each(normalize_integers),
        Value::Object(fields) => fields.values_mut().try_for_each(normalize_integers),
        _ => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integral_numbers_are_integers_and_large_ones_are_refused() {
        let normal = |text: &str| {
            let mut value: Value = serde_json::from_str(text).expect("the test has valid JSON");
            normalize_integers(&mut value).map(|()| value.to_string())
        };
        assert_eq!(normal(r#"[5.0,{"a":-3.0,"b":2.5}]"#).as_deref(), Ok(r#"[5,{"a":-3,"b":2.5}]"#));
        assert_eq!(normal("9223372036854775807").as_deref(), Ok("9223372036854775807"));
        assert_eq!(normal("1e300").as_deref(), Ok("1e+300"));
        let refused = normal(r#"{"a":[9223372036854775808]}"#).expect_err("2^63 was accepted");
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        assert!(
            refused.failure.message.contains("9223372036854775808 is too large"),
            "the error does not name the number that is too large: {refused:?}"
        );
    }
}
