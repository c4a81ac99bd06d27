//! Connections, with limits for their number and duration and for the size of requests.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use tracing::{debug, warn};

use crate::authentication::RequestOrigin;

/// The greatest number of connections at the same time. Further connections are closed at once.
const CONNECTIONS_MAX: usize = 1024;
/// The greatest number of connections of [`LongLived`] requests.
const LONG_LIVED_MAX: usize = 256;
/// How long a client may take for the TLS handshake, and to send the request line and headers of each
/// request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest duration of a connection, unless its request is [`LongLived`].
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(120);
/// The greatest size of the request line and headers, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Allows a request to last as long as the client is connected. Every request has this value as an extension.
#[derive(Debug, Clone)]
pub(crate) struct LongLived {
    is_long_lived: Arc<AtomicBool>,
    permits: Arc<Semaphore>,
}

impl LongLived {
    /// Removes the time limit of the connection. Returns `None` if too many connections have no time limit.
    /// Dropping the permit makes room for another connection; the time limit stays removed.
    pub fn allow(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        self.is_long_lived.store(true, Ordering::Relaxed);
        Some(permit)
    }
}

/// Accepts connections and serves their requests.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionServer {
    router: Router,
    connections: Arc<Semaphore>,
    long_lived: Arc<Semaphore>,
}

impl ConnectionServer {
    pub fn new(router: Router) -> Self {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self { router, connections, long_lived: Arc::new(Semaphore::new(LONG_LIVED_MAX)) }
    }

    /// Serves the clients of an address, until it is dropped.
    pub async fn serve_tcp(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        loop {
            let (stream, peer) = accepted(listener.accept().await).await;
            let Some(stream) = stream else { continue };
            // Small responses must not wait for the next packet. If this call fails, they are only slower.
            let _ = stream.set_nodelay(true);
            let peer = RequestOrigin {
                address: peer.map(|peer| peer.to_string()).unwrap_or_default(),
                local_user: None,
                local_process: None,
            };
            match tls.clone() {
                None => self.spawn(peer, async { Ok(stream) }),
                Some(tls) => self.spawn(peer, async move {
                    let handshake = tokio::time::timeout(HEAD_TIME_MAX, tls.accept(stream)).await;
                    handshake.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
                }),
            }
        }
    }

    /// Serves the clients of the control socket. Ends only when the caller drops the future.
    pub async fn serve_unix(self, listener: UnixListener) {
        loop {
            let (stream, _) = accepted(listener.accept().await).await;
            let Some(stream) = stream else { continue };
            let Ok(credentials) = stream.peer_cred() else { continue };
            let peer = RequestOrigin {
                address: "control socket".to_owned(),
                local_user: Some(credentials.uid()),
                // The process id is 0 for a process that this daemon cannot see, such as one of another
                // container.
                local_process: credentials
                    .pid()
                    .and_then(|pid| u32::try_from(pid).ok())
                    .filter(|pid| *pid > 0),
            };
            self.spawn(peer, async { Ok(stream) });
        }
    }

    fn spawn<S>(&self, peer: RequestOrigin, connecting: impl Future<Output = io::Result<S>> + Send + 'static)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
            debug!(peer = peer.address, "http: closed a new connection: {CONNECTIONS_MAX} are already open");
            return;
        };
        let server = self.clone();
        tokio::spawn(async move {
            match connecting.await {
                Ok(stream) => server.serve(stream, peer).await,
                Err(error) => debug!(peer = peer.address, "http: the TLS handshake has failed: {error}"),
            }
            drop(permit);
        });
    }

    async fn serve<S>(self, stream: S, peer: RequestOrigin)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let is_long_lived = Arc::new(AtomicBool::new(false));
        let long_lived = LongLived { is_long_lived: Arc::clone(&is_long_lived), permits: self.long_lived };
        let address = peer.address.clone();
        let service = self.router.map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(long_lived.clone());
            request.map(axum::body::Body::new)
        });
        let serving = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let mut serving = std::pin::pin!(serving);
        loop {
            match tokio::time::timeout(CONNECTION_TIME_MAX, &mut serving).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => return debug!(peer = address, "http: {error}"),
                Err(_) if is_long_lived.load(Ordering::Relaxed) => {}
                Err(_) => {
                    let seconds = CONNECTION_TIME_MAX.as_secs();
                    return debug!(peer = address, "http: closed a connection that was open for {seconds} s");
                }
            }
        }
    }
}

/// Returns an accepted connection. After a failure, such as too many open files, it waits before it returns
/// `None`.
async fn accepted<S, A>(accepted: io::Result<(S, A)>) -> (Option<S>, Option<A>) {
    match accepted {
        Ok((stream, peer)) => (Some(stream), Some(peer)),
        Err(error) => {
            warn!("http: a connection cannot be accepted: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
            (None, None)
        }
    }
}
