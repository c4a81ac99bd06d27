//! Decides which access a request needs: none, a role, or a role unless `http.anonymous` allows the request
//! without a token. Has no side effects.

use axum::http::Method;
use tailwater_config::{AnonymousRequests, HttpRole};

/// The access that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredAccess {
    /// Nothing.
    Nothing,
    /// The role of a reader, unless `http.anonymous` allows requests of this kind without a token.
    ReaderUnlessAnonymous(AnonymousRequests),
    /// At least this role.
    Role(HttpRole),
}

/// Returns the access that a request needs. Every path that is not listed here needs a role, so that a new
/// path is never open by accident.
pub(crate) fn required_access(method: &Method, path: &str) -> RequiredAccess {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let mut segments = path.trim_start_matches('/').split('/');
    let (first, second) = (segments.next().unwrap_or_default(), segments.next());
    match first {
        "healthz" if second.is_none() => RequiredAccess::Nothing,
        // The files of the page, and its form for the token.
        "assets" if reads => RequiredAccess::Nothing,
        "login" if second.is_none() => RequiredAccess::Nothing,
        // These paths accept no change, whatever the method.
        "primary" | "replica" => RequiredAccess::ReaderUnlessAnonymous(AnonymousRequests::Checks),
        "metrics" => RequiredAccess::ReaderUnlessAnonymous(AnonymousRequests::Metrics),
        "status" => RequiredAccess::ReaderUnlessAnonymous(AnonymousRequests::Status),
        // The state of a capture includes what managers decide on.
        "acker" => RequiredAccess::Role(HttpRole::Operator),
        // Everyone who has a session may end it.
        "logout" if second.is_none() => RequiredAccess::Role(HttpRole::ReadOnly),
        _ if reads => RequiredAccess::Role(HttpRole::ReadOnly),
        _ => RequiredAccess::Role(HttpRole::Operator),
    }
}

/// Returns whether a request changes something. The audit log records such requests.
pub(crate) fn is_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Returns whether a request reports the progress of a job.
pub(crate) fn is_job_progress(method: &Method, path: &str) -> bool {
    let id = path.strip_prefix("/api/v1/jobs/").and_then(|rest| rest.strip_suffix("/progress"));
    *method == Method::PUT && id.is_some_and(|id| !id.is_empty() && id.bytes().all(|c| c.is_ascii_digit()))
}

/// Returns whether a path is for programs, which receive errors as JSON. Other paths are for the web page.
pub(crate) fn is_of_programs(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    matches!(first, "api" | "acker" | "primary" | "replica" | "metrics" | "status" | "healthz")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reading_needs_a_reader_and_a_change_needs_an_operator() {
        use RequiredAccess::{Nothing, ReaderUnlessAnonymous, Role};
        for (method, path, expected) in [
            (Method::GET, "/healthz", Nothing),
            (Method::GET, "/healthz/x", Role(HttpRole::ReadOnly)),
            (Method::GET, "/assets/page.css", Nothing),
            (Method::POST, "/login", Nothing),
            (Method::POST, "/login/x", Role(HttpRole::Operator)),
            (Method::POST, "/logout", Role(HttpRole::ReadOnly)),
            (Method::GET, "/primary/db1", ReaderUnlessAnonymous(AnonymousRequests::Checks)),
            (Method::OPTIONS, "/replica", ReaderUnlessAnonymous(AnonymousRequests::Checks)),
            (Method::POST, "/primary/db1", ReaderUnlessAnonymous(AnonymousRequests::Checks)),
            (Method::GET, "/metrics", ReaderUnlessAnonymous(AnonymousRequests::Metrics)),
            (Method::GET, "/status", ReaderUnlessAnonymous(AnonymousRequests::Status)),
            (Method::GET, "/acker/orders", Role(HttpRole::Operator)),
            (Method::GET, "/api/v1/status", Role(HttpRole::ReadOnly)),
            (Method::POST, "/api/v1/channels/c/stop", Role(HttpRole::Operator)),
            (Method::PATCH, "/api/v1/channels/c", Role(HttpRole::Operator)),
            (Method::GET, "/", Role(HttpRole::ReadOnly)),
            (Method::POST, "/channels/c/stop", Role(HttpRole::Operator)),
        ] {
            assert_eq!(required_access(&method, path), expected, "wrong access for {method} {path}");
        }
    }

    #[test]
    fn only_reports_of_progress_are_routine() {
        assert!(is_job_progress(&Method::PUT, "/api/v1/jobs/7/progress"));
        for path in ["/api/v1/jobs/7/cancel", "/api/v1/jobs//progress", "/api/v1/jobs/7/../8/progress"] {
            assert!(!is_job_progress(&Method::PUT, path), "{path} counts as a report of progress");
        }
        assert!(!is_job_progress(&Method::POST, "/api/v1/jobs/7/progress"));
    }

    proptest! {
        #[test]
        fn a_change_without_a_role_is_only_possible_at_the_login(path in "/[a-z/.%]{0,20}") {
            let needed = required_access(&Method::POST, &path);
            let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
            let without_changes = ["primary", "replica", "metrics", "status", "healthz"];
            prop_assert!(
                matches!(needed, RequiredAccess::Role(_)) || path.trim_start_matches('/') == "login" || without_changes.contains(&first),
                "a change at {path} requires only {needed:?}"
            );
        }
    }
}
