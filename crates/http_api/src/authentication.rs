//! Checks that the caller of a request may make it, and records every change in the audit log.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, COOKIE, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use tailwater_config::{AnonymousRequests, HttpRole};
use tailwater_daemon::bearer_token::NamedToken;
use tailwater_daemon::control_socket::REQUEST_BYTES_MAX;

use crate::access_rules::{RequiredAccess, is_change, is_job_progress, is_of_programs, required_access};
use crate::api_error::ApiError;
use crate::audit_log::{self, AuditLog, AuditLogEntry, body_text};
use crate::page_sessions::{CSRF_HEADER, PageSessions, session_id};

/// How long a client may take to send the body.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest body of a request without a valid token, in bytes: the form of the login.
const ANONYMOUS_BODY_BYTES_MAX: usize = 4 << 10;
/// A request with a wrong token is answered after this time, so that tokens cannot be guessed quickly.
const REFUSAL_DELAY: Duration = Duration::from_millis(200);

/// The client of a connection.
#[derive(Debug, Clone)]
pub struct RequestOrigin {
    /// The client's address, or the text `control socket`.
    pub address: String,
    /// The user id of the client's process, if the client is connected to the control socket.
    pub local_user: Option<u32>,
    /// The id of the client's process on the control socket, if the daemon can see the process.
    pub local_process: Option<u32>,
}

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token, or the user of the control socket.
    pub name: String,
    /// What the caller may do.
    pub role: HttpRole,
    /// The token against cross-site requests, if the caller is a browser that has logged in.
    pub csrf_token: Option<String>,
}

/// The rules for all requests.
#[derive(Debug)]
pub struct AccessControl {
    tokens: Vec<NamedToken>,
    anonymous: HashSet<AnonymousRequests>,
    sessions: PageSessions,
    audit_log: AuditLog,
    /// Whether the listener uses TLS. If so, browsers must send cookies only over TLS.
    is_tls: bool,
    /// Whether there is a page, whose visitors are sent to its login.
    has_page: bool,
}

impl AccessControl {
    pub(crate) fn new(
        tokens: Vec<NamedToken>,
        anonymous: impl IntoIterator<Item = AnonymousRequests>,
        audit_log: AuditLog,
        is_tls: bool,
        has_page: bool,
    ) -> Self {
        let anonymous = anonymous.into_iter().collect();
        Self { tokens, anonymous, sessions: PageSessions::default(), audit_log, is_tls, has_page }
    }

    /// The browsers that have logged in.
    pub fn sessions(&self) -> &PageSessions {
        &self.sessions
    }

    /// Whether cookies must only be sent over TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Starts a session for a browser that sends a token. Returns the session's id; `None` if there is no
    /// such token.
    pub async fn log_in(&self, token: &str) -> Option<String> {
        let found = self.token_that(|known| known.token.is(token.trim().as_bytes()));
        if found.is_none() {
            tokio::time::sleep(REFUSAL_DELAY).await;
        }
        found.map(|known| self.sessions.start(&known.name, known.role))
    }

    /// Returns the token that matches. Every token is compared, so that the duration of the comparison does
    /// not show which token matches.
    fn token_that(&self, is_it: impl Fn(&NamedToken) -> bool) -> Option<&NamedToken> {
        self.tokens.iter().fold(None, |found, known| if is_it(known) { Some(known) } else { found })
    }

    /// Returns the caller of a request; `None` if it has no valid token.
    fn caller(&self, headers: &HeaderMap, peer: &RequestOrigin) -> Option<Caller> {
        if let Some(uid) = peer.local_user {
            let name = format!("user {uid} of the control socket");
            return Some(Caller { name, role: HttpRole::Operator, csrf_token: None });
        }
        if let Some(header) = headers.get(AUTHORIZATION) {
            let known = self.token_that(|known| known.token.is_in(header.as_bytes()))?;
            return Some(Caller { name: known.name.clone(), role: known.role, csrf_token: None });
        }
        let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let session = cookies.filter_map(session_id).find_map(|id| self.sessions.get(id))?;
        Some(Caller { name: session.name, role: session.role, csrf_token: Some(session.csrf_token) })
    }

    /// Returns why a request is refused; `None` if it is allowed.
    fn refusal(&self, request: &Request, caller: Option<&Caller>) -> Option<ApiError> {
        let needed = match required_access(request.method(), request.uri().path()) {
            RequiredAccess::Nothing => return None,
            RequiredAccess::ReaderUnlessAnonymous(group) if self.anonymous.contains(&group) => return None,
            RequiredAccess::ReaderUnlessAnonymous(_) => HttpRole::ReadOnly,
            RequiredAccess::Role(role) => role,
        };
        let Some(caller) = caller else {
            if self.tokens.is_empty() {
                return Some(ApiError::new(
                    StatusCode::FORBIDDEN,
                    "this request needs a token, and [http] has none: add token_file or [[http.token]], and restart the daemon",
                ));
            }
            return Some(ApiError::new(
                StatusCode::UNAUTHORIZED,
                "the header `Authorization: Bearer TOKEN` is missing, or no token_file and no [[http.token]] has its token",
            ));
        };
        if caller.role < needed {
            let message = format!(
                "{} has the role {}; this request needs the role {}",
                caller.name,
                caller.role.name(),
                needed.name()
            );
            return Some(ApiError::new(StatusCode::FORBIDDEN, message));
        }
        // A change from a browser must have the header of the session. The cookie alone proves nothing:
        // browsers also send it with requests that a page of another site has caused.
        let header = || request.headers().get(CSRF_HEADER).map_or(&b""[..], HeaderValue::as_bytes);
        let is_forged = is_change(request.method())
            && caller.csrf_token.as_ref().is_some_and(|token| !same(token.as_bytes(), header()));
        is_forged.then(|| {
            ApiError::new(
                StatusCode::FORBIDDEN,
                format!(
                    "the header {CSRF_HEADER} of the page's session is missing or wrong: load the page again"
                ),
            )
        })
    }
}

fn same(one: &[u8], other: &[u8]) -> bool {
    subtle::ConstantTimeEq::ct_eq(one, other).into()
}

/// Refuses requests that the caller is not allowed to make. Adds the [`Caller`] to allowed requests, and
/// records changes in the audit log. Runs before every handler.
pub(crate) async fn authorize(
    State(access): State<Arc<AccessControl>>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<RequestOrigin>().cloned();
    let peer = peer.unwrap_or_else(|| RequestOrigin {
        address: String::new(),
        local_user: None,
        local_process: None,
    });
    let caller = access.caller(request.headers(), &peer);
    let refusal = access.refusal(&request, caller.as_ref());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut body = Bytes::new();
    let mut response = match refusal {
        Some(refusal) => {
            let headers = request.headers().clone();
            drop(request);
            refuse(refusal, access.has_page && method.is_safe(), &path, &headers).await
        }
        None => {
            let bytes_max = if caller.is_some() { REQUEST_BYTES_MAX } else { ANONYMOUS_BODY_BYTES_MAX };
            match with_whole_body(request, bytes_max).await {
                Ok((mut request, bytes)) => {
                    body = bytes;
                    if let Some(caller) = &caller {
                        request.extensions_mut().insert(caller.clone());
                    }
                    next.run(request).await
                }
                Err(error) => error.into_response(),
            }
        }
    };
    // The audit log has no logins, because their body contains the token, and no successful progress reports
    // of jobs, because each job sends one each second. It also has no requests without a valid token: they
    // change nothing, and anyone could send so many of them that the entries of operators are lost.
    let is_routine = path == "/login" || (is_job_progress(&method, &path) && response.status().is_success());
    if let Some(caller) = caller.filter(|_| is_change(&method) && !is_routine) {
        access.audit_log.append(&AuditLogEntry {
            time: audit_log::now(),
            caller: &caller.name,
            role: caller.role.name(),
            peer: &peer.address,
            method: method.as_str(),
            path: &path,
            body: &body_text(&body),
            status: response.status().as_u16(),
        });
    }
    // Prevents caching: an old response could direct a client to the wrong server.
    response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Returns the response to a refused request. `may_log_in` tells whether a browser is sent to the login.
async fn refuse(refusal: ApiError, may_log_in: bool, path: &str, headers: &HeaderMap) -> Response {
    let wants_page = headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"text/html"));
    if may_log_in && !is_of_programs(path) && wants_page {
        return (StatusCode::SEE_OTHER, [(LOCATION, "/login")]).into_response();
    }
    let status = refusal.status;
    if status == StatusCode::UNAUTHORIZED && headers.contains_key(AUTHORIZATION) {
        tokio::time::sleep(REFUSAL_DELAY).await;
    }
    let mut response = refusal.into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Reads the whole body of a request, so that the time and the size of the body are limited for all handlers.
async fn with_whole_body(request: Request, bytes_max: usize) -> Result<(Request, Bytes), ApiError> {
    let (head, body) = request.into_parts();
    let reading = tokio::time::timeout(BODY_TIME_MAX, Limited::new(body, bytes_max).collect());
    let bytes = match reading.await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let message = format!("the body is incomplete, or longer than {bytes_max} bytes");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        Err(_) => {
            let message = format!("the body did not arrive within {} s", BODY_TIME_MAX.as_secs());
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message));
        }
    };
    Ok((Request::from_parts(head, Body::from(bytes.clone())), bytes))
}
