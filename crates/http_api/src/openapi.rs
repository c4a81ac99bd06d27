//! All routes, and their description as an OpenAPI document.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use axum::{Json, Router, middleware};
use tailwater_daemon::control_api::Control;
use utoipa::OpenApi;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{RefOr, Required};
use utoipa_axum::router::OpenApiRouter;

use crate::api_v1;
use crate::authentication::{AccessControl, authorize};
use crate::request_handler::{self, HttpHandler};

#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "Tailwater",
        description = "State and control of a Tailwater daemon. Reading needs a token with the role read_only, every change a token with the role operator. Failures have a JSON body with code and message.",
    ),
    modifiers(&BearerScheme),
    security(("bearer" = [])),
)]
struct ApiDescription;

#[derive(Debug)]
struct BearerScheme;

impl utoipa::Modify for BearerScheme {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

/// Returns the OpenAPI document of the API.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = described_routes().split_for_parts().1;
    mark_optional_bodies(&mut document);
    document
}

/// A body whose fields are all optional may be absent.
fn mark_optional_bodies(document: &mut utoipa::openapi::OpenApi) {
    let schemas =
        document.components.as_ref().map(|components| components.schemas.clone()).unwrap_or_default();
    let has_required_fields = |schema: &RefOr<Schema>| match schema {
        RefOr::Ref(reference) => {
            let name = reference.ref_location.rsplit('/').next().unwrap_or_default();
            !matches!(schemas.get(name), Some(RefOr::T(Schema::Object(object))) if object.required.is_empty())
        }
        RefOr::T(_) => true,
    };
    for item in document.paths.paths.values_mut() {
        for operation in [&mut item.post, &mut item.put, &mut item.patch].into_iter().flatten() {
            let Some(RefOr::T(body)) = &mut operation.request_body else { continue };
            let is_required = body.content.values().any(|content| match content {
                RefOr::T(content) => content.schema.as_ref().is_none_or(has_required_fields),
                RefOr::Ref(_) => true,
            });
            body.required = Some(if is_required { Required::True } else { Required::False });
        }
    }
}

fn described_routes() -> OpenApiRouter<Arc<Control>> {
    OpenApiRouter::with_openapi(ApiDescription::openapi()).nest("/api/v1", api_v1::routes())
}

/// Returns the routes of the API, of `page`, and of load balancers, monitoring and other managers. Every
/// request is first checked by `access`.
pub(crate) fn router(control: Arc<Control>, page: Router, access: Arc<AccessControl>) -> Router {
    let (api, _) = described_routes().split_for_parts();
    let document: Arc<str> = document().to_json().unwrap_or_default().into();
    let openapi_json = move || {
        let document = Arc::clone(&document);
        async move { ([("content-type", "application/json")], document.to_string()) }
    };
    let programs = Arc::new(HttpHandler::new(Arc::clone(&control)));
    api.with_state(control)
        .route("/api/v1/openapi.json", axum::routing::get(openapi_json))
        .merge(page)
        .fallback(move |request| request_handler::respond(programs, request))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(access, authorize))
        .layer(axum::extract::DefaultBodyLimit::disable())
}

async fn method_not_allowed() -> Response {
    let failure = tailwater_daemon::api::daemon_requests::ApiFailure {
        code: None,
        message: "the path does not accept this method; the header Allow names those that it accepts"
            .to_owned(),
    };
    (axum::http::StatusCode::METHOD_NOT_ALLOWED, Json(failure)).into_response()
}
