//! What a request asks for. Pure.

use hyper::Method;

/// What can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// Whether the process answers.
    Health,
    /// Every cluster, as a tree.
    Status,
    /// Metrics of captures, channels and the manager.
    Metrics,
    /// Whether a server is the primary; which server is, if none is named.
    Primary { of: PrimaryQuery },
    /// Whether a server may be read from.
    Replica { server: String, source: Option<String>, lag_seconds_max: Option<u64> },
    /// How a source's capture stands, and what it holds.
    Acker { source: String },
    /// An order to a source's capture.
    Order { source: String, order: OrderKind },
}

/// What a capture can be ordered; the body says the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderKind {
    Stop,
    Start,
    Follow,
}

/// Whose question it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PrimaryQuery {
    /// This server's, in whichever cluster it is, or in the one that is named.
    Server { server: String, source: Option<String> },
    /// That of a cluster; the only one, if it is not named.
    Cluster { source: Option<String> },
}

/// Why a request asks for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RouteError {
    /// There is no such path.
    NotFound,
    /// The path is asked in other ways.
    Method { allowed: &'static str },
    /// The query is wrong.
    Bad(String),
}

const READING: &str = "GET, HEAD, OPTIONS";
const ASKING: &str = "GET";
const ORDERING: &str = "POST";

/// Reads a request's line. OPTIONS is answered as GET is: load balancers check with it.
pub(super) fn route(method: &Method, path: &str, query: Option<&str>) -> Result<Route, RouteError> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let mut query = Query::read(query)?;
    let found = match segments.as_slice() {
        ["healthz"] => Route::Health,
        ["status"] => Route::Status,
        ["metrics"] => Route::Metrics,
        ["primary"] => match query.take("server") {
            Some(server) => Route::Primary {
                of: PrimaryQuery::Server { server: named(&server)?, source: query.take("source") },
            },
            None => Route::Primary { of: PrimaryQuery::Cluster { source: query.take("source") } },
        },
        ["primary", server] => Route::Primary {
            of: PrimaryQuery::Server { server: named(server)?, source: query.take("source") },
        },
        ["replica"] => {
            let server =
                query.take("server").ok_or_else(|| RouteError::Bad("server= is missing".to_owned()))?;
            replica(&server, &mut query)?
        }
        ["replica", server] => replica(server, &mut query)?,
        ["acker", source] => Route::Acker { source: named(source)? },
        ["acker", source, "stop"] => order(source, OrderKind::Stop)?,
        ["acker", source, "start"] => order(source, OrderKind::Start)?,
        ["acker", source, "follow"] => order(source, OrderKind::Follow)?,
        _ => return Err(RouteError::NotFound),
    };
    query.is_used_up()?;
    let (is_allowed, allowed) = match found {
        Route::Order { .. } => (*method == Method::POST, ORDERING),
        Route::Acker { .. } => (*method == Method::GET, ASKING),
        _ => (matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS), READING),
    };
    if is_allowed { Ok(found) } else { Err(RouteError::Method { allowed }) }
}

fn order(source: &str, order: OrderKind) -> Result<Route, RouteError> {
    Ok(Route::Order { source: named(source)?, order })
}

fn replica(server: &str, query: &mut Query) -> Result<Route, RouteError> {
    let lag = query.take("lag");
    let lag = lag.map(|text| {
        text.parse().map_err(|_| RouteError::Bad(format!("lag={text}: whole seconds, such as lag=10")))
    });
    Ok(Route::Replica {
        server: named(server)?,
        source: query.take("source"),
        lag_seconds_max: lag.transpose()?,
    })
}

/// Names have no characters that a URL has to hide, so nothing is decoded.
fn named(text: &str) -> Result<String, RouteError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if text.is_empty() || text.len() > 64 || !text.chars().all(legal) {
        return Err(RouteError::Bad("a name is 1 to 64 of a-z, A-Z, 0-9, `_`, `-`, `.`".to_owned()));
    }
    Ok(text.to_owned())
}

/// The parameters behind a path, each once.
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

    /// A parameter that is spelt wrongly must not be one that is not given.
    fn is_used_up(&self) -> Result<(), RouteError> {
        match self.0.first() {
            Some((key, _)) => Err(RouteError::Bad(format!("{key}= means nothing here"))),
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

    #[test]
    fn paths_are_read() {
        let of = |server: &str, source: Option<&str>| {
            let (server, source) = (server.to_owned(), source.map(str::to_owned));
            Ok(Route::Primary { of: PrimaryQuery::Server { server, source } })
        };
        assert_eq!(read("/primary/db1"), of("db1", None));
        assert_eq!(read("/primary?server=db1&source=orders"), of("db1", Some("orders")));
        let source = Some("orders".to_owned());
        assert_eq!(
            read("/primary?source=orders"),
            Ok(Route::Primary { of: PrimaryQuery::Cluster { source } })
        );
        let replica =
            |lag_seconds_max| Ok(Route::Replica { server: "db2".to_owned(), source: None, lag_seconds_max });
        assert_eq!(read("/replica/db2"), replica(None));
        assert_eq!(read("/replica/db2?lag=5"), replica(Some(5)));
        assert_eq!(read("/replica?server=db2&lag=5"), replica(Some(5)));
        assert_eq!(read("/status"), Ok(Route::Status));
        assert_eq!(read("/metrics"), Ok(Route::Metrics));
        assert_eq!(read("/healthz"), Ok(Route::Health));
    }

    #[test]
    fn what_is_wrong_is_no_other_question() {
        for wrong in [
            "/replica/db2?lag=ten",
            "/replica/db2?lags=5",
            "/replica/db2?lag=5&lag=50",
            "/replica?lag=5",
            "/primary/db1%20",
            "/primary/db1?server=db2",
        ] {
            assert!(matches!(read(wrong), Err(RouteError::Bad(_))), "{wrong}: {:?}", read(wrong));
        }
        assert_eq!(read("/"), Err(RouteError::NotFound));
        assert_eq!(read("/primary/db1/x"), Err(RouteError::NotFound));
        assert_eq!(route(&Method::POST, "/primary/db1", None), Err(RouteError::Method { allowed: READING }));
        assert_eq!(route(&Method::OPTIONS, "/healthz", None), Ok(Route::Health));
        // Nothing is changed by who follows a link.
        for path in ["/acker/orders/stop", "/acker/orders/start", "/acker/orders/follow"] {
            assert_eq!(
                route(&Method::GET, path, None),
                Err(RouteError::Method { allowed: ORDERING }),
                "{path}"
            );
            assert!(matches!(route(&Method::POST, path, None), Ok(Route::Order { .. })), "{path}");
        }
        assert_eq!(route(&Method::GET, "/acker/orders/purge", None), Err(RouteError::NotFound));
    }

    proptest! {
        #[test]
        fn no_request_line_makes_it_panic(path in ".{0,80}", query in proptest::option::of(".{0,80}")) {
            let _ = route(&Method::GET, &path, query.as_deref());
        }
    }
}
