//! Answers requests: JSON, and the text of metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tailwater_manager::FailoverReadiness;
use tailwater_manager::topology::{Cluster, RelayPlan};

use super::acker;
use super::observer::{Watched, Watching};
use super::role_check::{self, FollowedServer, RoleCheck};
use super::route::{PrimaryQuery, Route, RouteError, route};
use super::token::BearerToken;
use crate::cluster_view::ClusterView;
use crate::control::{DaemonState, SourceHandle};
use crate::manager::startup::OWN_RELAY;
use crate::metrics::{self, MetricsSnapshot};
use crate::wiring::{self, ClusterWiring};

/// A replica further behind than this, in seconds, is not to be read from, unless the check says otherwise.
const LAG_SECONDS_MAX: u64 = 10;

/// A tree is made anew after so long at the soonest, however many ask.
const TREE_KEEPS: Duration = Duration::from_millis(100);

/// What is answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub body: AnswerBody,
    /// The methods that the path knows, if this one is none of them.
    pub allowed: Option<&'static str>,
}

/// The body of an answer.
#[derive(Debug)]
pub(super) enum AnswerBody {
    Json(Value),
    /// OpenMetrics text of [`crate::metrics::render`].
    Metrics(String),
}

impl Answer {
    pub(super) fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, body: AnswerBody::Json(body), allowed: None }
    }

    pub(super) fn failed(status: StatusCode, reason: &str) -> Self {
        let body = AnswerBody::Json(json!({ "ok": false, "reason": reason }));
        Self { status, body, allowed: None }
    }
}

impl From<RouteError> for Answer {
    fn from(none: RouteError) -> Self {
        match none {
            RouteError::NotFound => Self::failed(
                StatusCode::NOT_FOUND,
                "there are /primary, /replica, /status, /metrics, /healthz and /acker",
            ),
            RouteError::Method { allowed } => Self {
                allowed: Some(allowed),
                ..Self::failed(StatusCode::METHOD_NOT_ALLOWED, "the path is asked in other ways")
            },
            RouteError::Bad(reason) => Self::failed(StatusCode::BAD_REQUEST, &reason),
        }
    }
}

impl From<RoleCheck> for Answer {
    fn from(verdict: RoleCheck) -> Self {
        let status = if verdict.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Self { status, body: AnswerBody::Json(json!(verdict)), allowed: None }
    }
}

/// Without the words, which may repeat what a server said of a statement: the client that asks here has shown no token.
fn without_reason(readiness: FailoverReadiness) -> FailoverReadiness {
    match readiness {
        FailoverReadiness::NotReady { rule, .. } => {
            FailoverReadiness::NotReady { rule, reason: "`tailwater manager status` says why".to_owned() }
        }
        other => other,
    }
}

/// How long each relay has had nothing from the primary, in milliseconds.
type Silences = BTreeMap<String, Option<u64>>;

/// A cluster's tree, with the primary that it was made for.
#[derive(Debug)]
struct Tree {
    made: Instant,
    leader: FollowedServer,
    cluster: Cluster,
    silent_ms: Silences,
}

/// Answers requests.
#[derive(Debug)]
pub struct HttpHandler {
    watching: Watching,
    controlled: Arc<DaemonState>,
    /// Of those who may order something.
    secret: Option<BearerToken>,
    /// One for each of the clusters that are watched.
    trees: Vec<Mutex<Option<Arc<Tree>>>>,
}

impl HttpHandler {
    /// Answers out of what `observer` sees and `daemon_state` says of itself.
    pub fn new(watching: Watching, controlled: Arc<DaemonState>, secret: Option<BearerToken>) -> Self {
        let trees = watching.clusters().iter().map(|_| Mutex::new(None)).collect();
        Self { watching, controlled, secret, trees }
    }

    pub(super) async fn answer(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        credential: Option<&[u8]>,
        body: &[u8],
    ) -> Answer {
        match route(method, path, query) {
            Err(none) => none.into(),
            Ok(Route::Health) => Answer::ok(json!({ "ok": true, "version": env!("CARGO_PKG_VERSION") })),
            Ok(Route::Status) => self.status().await,
            Ok(Route::Metrics) => self.metrics(),
            Ok(Route::Primary { of: PrimaryQuery::Server { server, source } }) => {
                match self.find(&server, source.as_deref()) {
                    Ok((_, cluster)) => self.is_primary(cluster, &server).await.into(),
                    Err(answer) => answer,
                }
            }
            Ok(Route::Primary { of: PrimaryQuery::Cluster { source } }) => {
                match self.named(source.as_deref()) {
                    Ok(cluster) => {
                        let leader = self.leader(cluster);
                        self.is_primary(cluster, &leader.server).await.into()
                    }
                    Err(answer) => answer,
                }
            }
            Ok(Route::Replica { server, source, lag_seconds_max }) => {
                match self.find(&server, source.as_deref()) {
                    Ok((index, cluster)) => {
                        let lag_max = lag_seconds_max.unwrap_or(LAG_SECONDS_MAX);
                        self.is_replica(index, cluster, &server, lag_max).await.into()
                    }
                    Err(answer) => answer,
                }
            }
            Ok(Route::Acker { source }) => match self.captured(&source, credential) {
                Ok((source, wiring)) => acker::read(source, wiring).await,
                Err(answer) => answer,
            },
            Ok(Route::Order { source, order }) => match self.captured(&source, credential) {
                Ok((source, wiring)) => acker::order(source, wiring, order, body).await,
                Err(answer) => answer,
            },
        }
    }

    /// The capture of a source, for who may order it.
    fn captured(
        &self,
        source: &str,
        credential: Option<&[u8]>,
    ) -> Result<(&SourceHandle, &ClusterWiring), Answer> {
        // First, so that who may not learns nothing.
        acker::admit(self.secret.as_ref(), credential)?;
        let controlled = self.controlled.sources.get(source);
        let mut wired = self.watching.clusters().iter().map(|cluster| &cluster.wiring);
        controlled.zip(wired.find(|wiring| wiring.plan.name == source)).ok_or_else(|| {
            Answer::failed(StatusCode::NOT_FOUND, "the configuration has no source of that name")
        })
    }

    /// Whom the log of a cluster follows.
    fn leader(&self, cluster: &Watched) -> FollowedServer {
        let (source, own) = (&cluster.wiring.plan.name, &cluster.wiring.own);
        match self.controlled.sources.get(source) {
            Some(controlled) => controlled.leader(own),
            None => FollowedServer {
                server: own.clone(),
                held: Some(format!("source {source} is not captured here")),
            },
        }
    }

    async fn is_primary(&self, cluster: &Watched, server: &str) -> RoleCheck {
        self.watching.ask(cluster).await;
        let server = cluster.canonical(server);
        // After the looks: who leads may have changed meanwhile.
        let leader = self.leader(cluster);
        let seen = cluster.seen(&server);
        let verdict = role_check::primary(&leader, &server, seen.as_ref(), self.watching.stale_after_ms());
        RoleCheck {
            source: cluster.wiring.plan.name.clone(),
            address: cluster.address_of(&server),
            ok: verdict.is_ok(),
            reason: verdict.err(),
            lag_seconds: None,
            server,
        }
    }

    async fn is_replica(&self, index: usize, cluster: &Watched, server: &str, lag_max: u64) -> RoleCheck {
        self.watching.ask(cluster).await;
        let server = cluster.canonical(server);
        let tree = self.tree(index, cluster);
        let silent_ms = |relay: &str| tree.silent_ms.get(relay).copied().flatten();
        let verdict = role_check::replica(&tree.cluster, &server, &silent_ms, lag_max);
        RoleCheck {
            source: cluster.wiring.plan.name.clone(),
            address: cluster.address_of(&server),
            ok: verdict.is_ok(),
            lag_seconds: verdict.as_ref().ok().copied(),
            reason: verdict.err(),
            server,
        }
    }

    async fn status(&self) -> Answer {
        let mut shown = Vec::new();
        for cluster in self.watching.clusters() {
            self.watching.ask(cluster).await;
            shown.push(self.seen(cluster, &self.leader(cluster)).0);
        }
        Answer::ok(json!({ "clusters": shown }))
    }

    /// From the state that this process keeps: a scrape queries no server.
    fn metrics(&self) -> Answer {
        let semi_sync = |source: &str| {
            let mut wired = self.watching.clusters().iter().map(|cluster| &cluster.wiring.plan);
            wired.any(|plan| plan.name == source && plan.relay.semi_sync)
        };
        match metrics::render(MetricsSnapshot::of(&self.controlled, semi_sync)) {
            Ok(text) => Answer { status: StatusCode::OK, body: AnswerBody::Metrics(text), allowed: None },
            Err(error) => Answer::failed(
                StatusCode::INTERNAL_SERVER_ERROR,
                &format!("the metrics cannot be written as text: {error}"),
            ),
        }
    }

    /// A cluster as it was seen last, and how long each relay has had nothing from the primary, in milliseconds.
    fn seen(&self, cluster: &Watched, leader: &FollowedServer) -> (ClusterView, Silences) {
        let mut wired = cluster.wiring.led_by(&leader.server);
        let (sources, channels) = self.controlled.reports();
        wiring::put_states(std::slice::from_mut(&mut wired), &sources, &channels);
        self.watching.put_others(cluster, &mut wired);
        let heard = |relay: &RelayPlan| relay.state.as_ref().and_then(|state| state.heard_ago_ms);
        let others = wired.plan.others.iter().map(|other| (other.name.clone(), heard(&other.relay)));
        let own = (OWN_RELAY.to_owned(), heard(&wired.plan.relay));
        let silent_ms = others.chain([own]).collect();
        let readiness = self.controlled.readiness(&wired.plan.name).map(without_reason);
        (ClusterView::of(&wired, &self.watching.observations(cluster), readiness), silent_ms)
    }

    fn tree(&self, index: usize, cluster: &Watched) -> Arc<Tree> {
        let leader = self.leader(cluster);
        let mut kept = self.trees[index].lock();
        if let Some(tree) =
            kept.as_ref().filter(|tree| tree.leader == leader && tree.made.elapsed() < TREE_KEEPS)
        {
            return Arc::clone(tree);
        }
        let made = Instant::now();
        let (shown, silent_ms) = self.seen(cluster, &leader);
        let tree = Arc::new(Tree { made, cluster: shown.cluster, leader, silent_ms });
        *kept = Some(Arc::clone(&tree));
        tree
    }

    /// The cluster that a server is in.
    fn find(&self, server: &str, source: Option<&str>) -> Result<(usize, &Watched), Answer> {
        let is_there = |cluster: &&Watched| {
            source.is_none_or(|source| cluster.wiring.plan.name == source) && cluster.has(server)
        };
        let found = self.watching.clusters().iter().enumerate().find(|(_, cluster)| is_there(cluster));
        found.ok_or_else(|| {
            Answer::failed(StatusCode::NOT_FOUND, &format!("the configuration has no server {server}"))
        })
    }

    /// The cluster of a source.
    fn named(&self, source: Option<&str>) -> Result<&Watched, Answer> {
        let mut clusters = self.watching.clusters().iter();
        match (source, self.watching.clusters()) {
            (None, [only]) => Ok(only),
            (None, _) => {
                Err(Answer::failed(StatusCode::BAD_REQUEST, "there are several sources: source=NAME"))
            }
            (Some(source), _) => {
                clusters.find(|cluster| cluster.wiring.plan.name == source).ok_or_else(|| {
                    Answer::failed(StatusCode::NOT_FOUND, "the configuration has no source of that name")
                })
            }
        }
    }
}
