//! A relay on another machine as an acker. The manager reaches it through the HTTP listener of the relay's
//! daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Certificate, Client, RequestBuilder, StatusCode};
use tailwater_manager::action_executor::{AckerControl, AckerError, AckerFuture, AckerReport};
use tailwater_manager::model::LeaseToken;
use tailwater_topology::probe_failure::ProbeFailure;
use tailwater_topology::server_state::ProbeError;

use crate::api::capture_orders::{AckerFailure, OrderBody, RelayStatus};
use crate::bearer_token::BearerToken;
use crate::error_chain::ErrorChain;
use crate::options_from_config::{ClusterWiring, remote_relay_state};
use tailwater_config::{Config, RelayConfig};

/// The greatest size of an answer, in bytes: two GTID sets and some text.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// How long an order to follow a server may take. This is longer than the relay itself waits.
const FOLLOW_TIME_MAX: Duration = Duration::from_secs(35);

/// A capture of a daemon on another machine.
#[derive(Debug, Clone)]
pub struct RemoteRelay {
    name: String,
    /// The URL of the capture: `http://host:8080/acker/SOURCE`.
    base: String,
    server_id: u32,
    client: Client,
    authorization: HeaderValue,
    time_max: Duration,
    run: Option<u64>,
    /// Whether the relay accepts the number of a failover or switchover in orders. Unknown before its first
    /// answer; a daemon of an earlier version refuses it.
    accepts_runs: Arc<AtomicBool>,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RelayRequestError {
    /// The request did not reach the relay, or the relay reports that it did nothing.
    NotDone(ProbeFailure, String),
    /// The relay may have executed the request.
    Unknown(ProbeFailure, String),
    /// The capture reports a failure.
    Failed(AckerFailure),
}

impl RemoteRelay {
    /// Creates the access to the relay of a `[[relay]]` section. Sends no request.
    ///
    /// # Errors
    /// If the token file or the file with the certificate authorities cannot be read.
    pub fn of(config: &RelayConfig) -> anyhow::Result<Self> {
        let named = || format!("relay {}", config.name);
        let secret = BearerToken::read(&config.token_file).with_context(named)?;
        let mut authorization = HeaderValue::from_str(&secret.bearer()).with_context(named)?;
        authorization.set_sensitive(true);
        // If the process already has a cryptography provider, installing another one fails, and the client
        // uses the installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .connect_timeout(Duration::from_millis(config.connect_timeout_ms))
            // A proxy or a redirect could lead to another relay than the configured one.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            // Each request uses a new connection. If the relay had closed a connection from an earlier
            // request, a request on that connection would look as if it had been sent.
            .pool_max_idle_per_host(0);
        if let Some(file) = &config.ca_file {
            let pem = tailwater_files::read_user_file(file, 16 << 20)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let authorities =
                Certificate::from_pem_bundle(&pem).with_context(|| file.display().to_string())?;
            ensure!(!authorities.is_empty(), "the file {} contains no certificate", file.display());
            client = client.tls_certs_only(authorities);
        }
        let source = config.source_there.as_ref().unwrap_or(&config.source);
        Ok(Self {
            name: config.name.clone(),
            base: format!("{}/acker/{source}", config.url.trim_end_matches('/')),
            server_id: config.server_id,
            client: client.build().with_context(named)?,
            authorization,
            time_max: Duration::from_millis(config.timeout_ms),
            run: None,
            accepts_runs: Arc::default(),
        })
    }

    /// Returns the relay's name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Queries the relay's state. Takes no longer than the relay's time-out.
    ///
    /// # Errors
    /// The reason why the state is not known.
    pub async fn status(&self) -> Result<RelayStatus, ProbeError> {
        self.ask(self.client.get(&self.base), self.time_max).await.map_err(|trouble| {
            let (failure, reason) = match trouble {
                RelayRequestError::NotDone(failure, reason) | RelayRequestError::Unknown(failure, reason) => {
                    (failure, reason)
                }
                RelayRequestError::Failed(failure) => (ProbeFailure::Other, failure.message),
            };
            ProbeError { failure, message: format!("{}: {reason}", self.base) }
        })
    }

    async fn read_report(&self) -> Result<AckerReport, AckerError> {
        self.report(self.ask(self.client.get(&self.base), self.time_max).await)
    }

    async fn send(
        &self,
        order: &str,
        body: OrderBody,
        time_max: Duration,
    ) -> Result<AckerReport, AckerError> {
        let body = serde_json::to_vec(&body).map_err(|error| AckerError::Refused(error.to_string()))?;
        let request = self.client.post(format!("{}/{order}", self.base)).body(body);
        self.report(self.ask(request, time_max).await)
    }

    fn body(&self, token: LeaseToken, server: Option<&str>) -> OrderBody {
        let run = self.run.filter(|_| self.accepts_runs.load(Ordering::Relaxed));
        OrderBody { token: token.0, run, server: server.map(str::to_owned) }
    }

    fn report(&self, text: Result<RelayStatus, RelayRequestError>) -> Result<AckerReport, AckerError> {
        let named = |reason: String| format!("{}, at {}: {reason}", self.name, self.base);
        match text {
            Ok(text) => text.acker.report(&self.name).map_err(|reason| AckerError::Unknown(named(reason))),
            Err(RelayRequestError::NotDone(_, reason)) => Err(AckerError::Refused(named(reason))),
            Err(RelayRequestError::Unknown(_, reason)) => Err(AckerError::Unknown(named(reason))),
            Err(RelayRequestError::Failed(failure)) => Err(failure.into()),
        }
    }

    async fn ask(
        &self,
        request: RequestBuilder,
        time_max: Duration,
    ) -> Result<RelayStatus, RelayRequestError> {
        let request = request.header(AUTHORIZATION, &self.authorization).timeout(time_max);
        let mut response = request.send().await.map_err(|error| not_sent(&error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| unanswered(&error))? {
            if body.len() + part.len() > ANSWER_BYTES_MAX {
                return Err(RelayRequestError::Unknown(
                    ProbeFailure::ProtocolError,
                    "the answer of the relay is too long".to_owned(),
                ));
            }
            body.extend_from_slice(&part);
        }
        let text = parse_answer(status, &body)?;
        // The answer of another relay says nothing about this relay.
        if text.server_id != self.server_id {
            let reason = format!(
                "the relay that answers has server_id {}, and [[relay]] has {}: is url the address of another relay?",
                text.server_id, self.server_id
            );
            return Err(RelayRequestError::Unknown(ProbeFailure::ProtocolError, reason));
        }
        self.accepts_runs.store(text.acker.run.is_some(), Ordering::Relaxed);
        Ok(text)
    }
}

/// Sets the states of relays on other machines in the description of their clusters. A relay without an
/// answer becomes a finding, not an error.
pub async fn ask_others(config: &Config, clusters: &mut [ClusterWiring]) {
    let asked = config.relays.iter().map(|relay| async move {
        match RemoteRelay::of(relay) {
            Ok(remote) => remote.status().await.map_err(|unreached| unreached.message),
            Err(error) => Err(ErrorChain(&error).to_string()),
        }
    });
    let answers = futures_util::future::join_all(asked).await;
    for (relay, answer) in config.relays.iter().zip(answers) {
        let Some(cluster) = clusters.iter_mut().find(|cluster| cluster.plan.name == relay.source) else {
            continue;
        };
        let answer = answer.map(|status| remote_relay_state(&status, cluster));
        let Some(other) = cluster.plan.others.iter_mut().find(|other| other.name == relay.name) else {
            continue;
        };
        match answer {
            Ok(state) => other.relay.state = Some(state),
            Err(reason) => other.silent = Some(reason),
        }
    }
}

fn not_sent(error: &reqwest::Error) -> RelayRequestError {
    if !error.is_connect() {
        return unanswered(error);
    }
    let refused = causes(error).any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
    });
    let failure = match (refused, error.is_timeout()) {
        (true, _) => ProbeFailure::Refused,
        (_, true) => ProbeFailure::TimedOut,
        _ => ProbeFailure::NoRoute,
    };
    RelayRequestError::NotDone(failure, cause_text(error))
}

fn unanswered(error: &reqwest::Error) -> RelayRequestError {
    let failure = if error.is_timeout() { ProbeFailure::TimedOut } else { ProbeFailure::ConnectionLost };
    RelayRequestError::Unknown(failure, cause_text(error))
}

fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(error), |cause| cause.source())
}

/// Returns the text of the innermost cause, without the address, because the message already contains the
/// address.
fn cause_text(error: &reqwest::Error) -> String {
    match causes(error).last() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}

/// Parses an answer. Some status codes are sent before the request reaches a capture; a relay that answers
/// with such a code did nothing.
fn parse_answer(status: StatusCode, body: &[u8]) -> Result<RelayStatus, RelayRequestError> {
    let text = || String::from_utf8_lossy(&body[..body.len().min(300)]).trim().to_owned();
    match status {
        StatusCode::OK => serde_json::from_slice(body).map_err(|error| {
            RelayRequestError::Unknown(
                ProbeFailure::ProtocolError,
                format!("the answer cannot be parsed: {error}"),
            )
        }),
        StatusCode::CONFLICT => Err(match serde_json::from_slice(body) {
            Ok(failure) => RelayRequestError::Failed(failure),
            Err(_) => {
                RelayRequestError::Unknown(ProbeFailure::ProtocolError, format!("{status}: {}", text()))
            }
        }),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(RelayRequestError::NotDone(ProbeFailure::Denied, format!("{status}: {}", text())))
        }
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            Err(RelayRequestError::NotDone(ProbeFailure::Other, format!("{status}: {}", text())))
        }
        _ => Err(RelayRequestError::Unknown(ProbeFailure::Other, format!("{status}: {}", text()))),
    }
}

impl AckerControl for RemoteRelay {
    fn in_run(&self, run: u64) -> Arc<dyn AckerControl> {
        Arc::new(Self { run: Some(run), ..self.clone() })
    }

    fn stop(&self, token: LeaseToken) -> AckerFuture<'_, AckerReport> {
        Box::pin(self.send("stop", self.body(token, None), self.time_max))
    }

    fn read(&self) -> AckerFuture<'_, AckerReport> {
        Box::pin(self.read_report())
    }

    fn start(&self, token: LeaseToken) -> AckerFuture<'_, ()> {
        let body = self.body(token, None);
        Box::pin(async move { self.send("start", body, self.time_max).await.map(drop) })
    }

    fn follow<'a>(&'a self, token: LeaseToken, server: &'a str) -> AckerFuture<'a, ()> {
        let body = self.body(token, Some(server));
        Box::pin(async move { self.send("follow", body, FOLLOW_TIME_MAX).await.map(drop) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_counts_as_refused_only_if_it_was_certainly_not_executed() {
        let not_done = |status: u16| {
            let status = StatusCode::from_u16(status).expect("a valid status code");
            matches!(parse_answer(status, b"{}"), Err(RelayRequestError::NotDone(..)))
        };
        for status in [400, 401, 403, 404, 405] {
            assert!(not_done(status), "{status} must count as not executed");
        }
        // A gateway that returns one of these codes may have forwarded the order.
        for status in [200, 204, 302, 408, 409, 413, 500, 502, 503, 504] {
            assert!(!not_done(status), "{status} must count as possibly executed");
        }
        let stale = br#"{"code":"TW-RELAY-0015","message":"a lower term"}"#;
        let Err(RelayRequestError::Failed(failure)) = parse_answer(StatusCode::CONFLICT, stale) else {
            panic!("the answer must be a failure of the capture")
        };
        assert!(matches!(AckerError::from(failure), AckerError::Refused(_)));
    }
}
