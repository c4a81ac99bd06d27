//! The form for the token, and the end of a session.

use askama::Template;
use axum::extract::State;
use axum::http::header::{COOKIE, HeaderValue, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Form, Router};
use serde::Deserialize;
use tailwater_http_api::page_sessions::{SESSION_COOKIE, SESSION_TIME_MAX, session_id};

use super::PageState;
use super::page_error::PageError;

#[derive(Template)]
#[template(path = "page/login.html")]
struct LoginPage {
    failure: Option<&'static str>,
}

#[derive(Deserialize)]
struct LoginForm {
    token: String,
}

pub(super) fn routes() -> Router<PageState> {
    Router::new().route("/login", get(form).post(log_in)).route("/logout", post(log_out))
}

async fn form() -> Result<Response, PageError> {
    Ok(Html(LoginPage { failure: None }.render()?).into_response())
}

async fn log_in(State(state): State<PageState>, Form(form): Form<LoginForm>) -> Result<Response, PageError> {
    match state.access.log_in(&form.token).await {
        Some(id) => Ok(redirect("/", &cookie(&state, &id, SESSION_TIME_MAX.as_secs()))),
        None => {
            let failure = Some(
                "There is no such token. A token is the first line of token_file, or of the file of a [[http.token]].",
            );
            Ok((StatusCode::UNAUTHORIZED, Html(LoginPage { failure }.render()?)).into_response())
        }
    }
}

async fn log_out(State(state): State<PageState>, headers: HeaderMap) -> Response {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    for id in cookies.filter_map(session_id) {
        state.access.sessions().end(id);
    }
    let ended = HeaderValue::from_str(&cookie(&state, "", 0));
    let mut response = super::action_dialog::go_to("/login");
    if let Ok(ended) = ended {
        response.headers_mut().insert(SET_COOKIE, ended);
    }
    response
}

/// The session's cookie. Scripts cannot read it, and other sites cannot make a browser send it.
fn cookie(state: &PageState, id: &str, seconds: u64) -> String {
    let secure = if state.access.is_tls() { "; Secure" } else { "" };
    format!("{SESSION_COOKIE}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

fn redirect(path: &'static str, cookie: &str) -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, path.to_owned()), (SET_COOKIE, cookie.to_owned())]).into_response()
}
