//! Parses a request line. Has no side effects.

use axum::http::Method;
use tailwater_daemon::api::daemon_requests::ControlCommand;

/// What a request asks for.
#[derive(Debug, Clone)]
pub(super) enum Route {
    /// Whether the daemon's process answers.
    Health,
    /// The topology trees of all clusters.
    Status,
    /// The metrics of captures, channels and the manager.
    Metrics,
    /// A check of a server's role, with the server and the source that the request names.
    Check { command: ControlCommand, server: Option<String>, source: Option<String> },
    /// The state of a source's capture, and what its log contains.
    Acker { source: String },
    /// An order to a source's capture.
    Order { source: String, order: OrderKind },
}

/// Kinds of orders to a capture. The request body has the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderKind {
    Stop,
    Start,
    Follow,
}

/// Why a request is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RouteError {
    /// The path does not exist.
    NotFound,
    /// The path accepts only other methods.
    Method { allowed: &'static str },
    /// A parameter is invalid. The text has the reason.
    Bad(String),
}

const CHECK_METHODS: &str = "GET, HEAD, OPTIONS";
const QUERY_METHODS: &str = "GET";
const ORDER_METHODS: &str = "POST";

/// Parses a request line. OPTIONS is handled like GET, because some load balancers send OPTIONS as their
/// check.
pub(super) fn route(method: &Method, path: &str, query: Option<&str>) -> Result<Route, RouteError> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let mut query = Query::read(query)?;
    let found = match segments.as_slice() {
        ["healthz"] => Route::Health,
        ["status"] => Route::Status,
        ["metrics"] => Route::Metrics,
        ["primary"] => {
            let server = query.take("server").map(|server| name(&server)).transpose()?;
            primary(server, &mut query)
        }
        ["primary", server] => primary(Some(name(server)?), &mut query),
        ["replica"] => {
            let server =
                query.take("server").ok_or_else(|| RouteError::Bad("server= is missing".to_owned()))?;
            replica(&server, &mut query)?
        }
        ["replica", server] => replica(server, &mut query)?,
        // The paths of `/api/v1/captures` in earlier versions. Managers of these versions use them.
        ["acker", source] => Route::Acker { source: name(source)? },
        ["acker", source, "stop"] => order(source, OrderKind::Stop)?,
        ["acker", source, "start"] => order(source, OrderKind::Start)?,
        ["acker", source, "follow"] => order(source, OrderKind::Follow)?,
        _ => return Err(RouteError::NotFound),
    };
    query.check_all_used()?;
    let (is_allowed, allowed) = match found {
        Route::Order { .. } => (*method == Method::POST, ORDER_METHODS),
        Route::Acker { .. } => (*method == Method::GET, QUERY_METHODS),
        _ => (matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS), CHECK_METHODS),
    };
    if is_allowed { Ok(found) } else { Err(RouteError::Method { allowed }) }
}

fn order(source: &str, order: OrderKind) -> Result<Route, RouteError> {
    Ok(Route::Order { source: name(source)?, order })
}

fn primary(server: Option<String>, query: &mut Query) -> Route {
    let source = query.take("source");
    let command = ControlCommand::CheckPrimary { server: server.clone(), source: source.clone() };
    Route::Check { command, server, source }
}

fn replica(server: &str, query: &mut Query) -> Result<Route, RouteError> {
    let lag = query.take("lag");
    let lag = lag.map(|text| {
        text.parse().map_err(|_| {
            RouteError::Bad(format!("lag={text} is invalid; give whole seconds, such as lag=10"))
        })
    });
    let (server, source) = (name(server)?, query.take("source"));
    let command = ControlCommand::CheckReplica {
        server: server.clone(),
        source: source.clone(),
        lag_seconds_max: lag.transpose()?,
    };
    Ok(Route::Check { command, server: Some(server), source })
}

/// Returns a name from the URL. Names contain no characters that a URL must encode, so nothing is decoded.
fn name(text: &str) -> Result<String, RouteError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if text.is_empty() || text.len() > 64 || !text.chars().all(legal) {
        return Err(RouteError::Bad(
            "a name has 1 to 64 of the characters a-z, A-Z, 0-9, `_`, `-`, `.`".to_owned(),
        ));
    }
    Ok(text.to_owned())
}

/// The parameters of a request. Each may be given once.
struct Query(Vec<(String, String)>);

impl Query {
    fn read(query: Option<&str>) -> Result<Self, RouteError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if pairs.iter().any(|(known, _)| known == key) {
                return Err(RouteError::Bad(format!("{key}= is given twice")));
            }
            pairs.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self(pairs))
    }

    fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Refuses parameters that the path does not have. Otherwise a misspelt parameter would be ignored
    /// silently.
    fn check_all_used(&self) -> Result<(), RouteError> {
        match self.0.first() {
            Some((key, _)) => Err(RouteError::Bad(format!("{key}= is not a parameter of this path"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(target: &str) -> Result<Route, RouteError> {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        route(&Method::GET, path, query)
    }

    fn primary_of(target: &str) -> Option<(Option<String>, Option<String>)> {
        match read(target) {
            Ok(Route::Check { command: ControlCommand::CheckPrimary { server, source }, .. }) => {
                Some((server, source))
            }
            _ => None,
        }
    }

    fn replica_of(target: &str) -> Option<(String, Option<u64>)> {
        match read(target) {
            Ok(Route::Check {
                command: ControlCommand::CheckReplica { server, source: None, lag_seconds_max },
                ..
            }) => Some((server, lag_seconds_max)),
            _ => None,
        }
    }

    #[test]
    fn valid_requests_are_parsed() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(primary_of("/primary/db1"), Some((text("db1"), None)));
        assert_eq!(primary_of("/primary?server=db1&source=orders"), Some((text("db1"), text("orders"))));
        assert_eq!(primary_of("/primary?source=orders"), Some((None, text("orders"))));
        assert_eq!(replica_of("/replica/db2"), Some(("db2".to_owned(), None)));
        for target in ["/replica/db2?lag=5", "/replica?server=db2&lag=5"] {
            assert_eq!(
                replica_of(target),
                Some(("db2".to_owned(), Some(5))),
                "the request is not parsed as `db2` with a lag of 5: {target}"
            );
        }
        assert!(matches!(read("/status"), Ok(Route::Status)));
        assert!(matches!(read("/metrics"), Ok(Route::Metrics)));
        assert!(matches!(read("/healthz"), Ok(Route::Health)));
    }

    #[test]
    fn invalid_requests_are_refused() {
        for wrong in [
            "/replica/db2?lag=ten",
            "/replica/db2?lags=5",
            "/replica/db2?lag=5&lag=50",
            "/replica?lag=5",
            "/primary/db1%20",
            "/primary/db1?server=db2",
        ] {
            assert!(
                matches!(read(wrong), Err(RouteError::Bad(_))),
                "{wrong} was not refused: {:?}",
                read(wrong)
            );
        }
        let error = |method: &Method, path: &str| route(method, path, None).expect_err(path);
        assert_eq!(error(&Method::GET, "/"), RouteError::NotFound);
        assert_eq!(error(&Method::GET, "/primary/db1/x"), RouteError::NotFound);
        assert_eq!(error(&Method::POST, "/primary/db1"), RouteError::Method { allowed: CHECK_METHODS });
        assert!(matches!(route(&Method::OPTIONS, "/healthz", None), Ok(Route::Health)));
        // GET is refused here, because following a link must not change anything.
        for path in ["/acker/orders/stop", "/acker/orders/start", "/acker/orders/follow"] {
            assert_eq!(
                error(&Method::GET, path),
                RouteError::Method { allowed: ORDER_METHODS },
                "GET {path} was not refused"
            );
            assert!(
                matches!(route(&Method::POST, path, None), Ok(Route::Order { .. })),
                "POST {path} is not an order"
            );
        }
        assert_eq!(error(&Method::GET, "/acker/orders/purge"), RouteError::NotFound);
    }

    proptest! {
        #[test]
        fn no_request_line_causes_a_panic(path in ".{0,80}", query in proptest::option::of(".{0,80}")) {
            let _ = route(&Method::GET, &path, query.as_deref());
        }
    }
}
