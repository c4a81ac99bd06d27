//! HTTP connections: one request on each, with limits for their number, duration and size.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::request_handler::{HttpBody, HttpHandler, HttpResponse};
use crate::metrics;

/// The greatest number of connections at the same time. Further connections are closed at once.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to send the request line and headers.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest duration of a connection.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(120);
/// The greatest size of the request line and headers, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The greatest size of the HTTP body of an order to a capture, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Binds an address.
///
/// # Errors
/// If the address cannot be bound.
pub async fn bind(listen: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(listen).await.with_context(|| format!("http: cannot listen at {listen}"))
}

/// Serves requests until the returned task is aborted.
pub fn serve(listener: TcpListener, handler: Arc<HttpHandler>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
                        debug!(%peer, "http: closed a new connection: {CONNECTIONS_MAX} are already open");
                        continue;
                    };
                    let handler = Arc::clone(&handler);
                    tokio::spawn(async move {
                        let served = serve_connection(stream, handler);
                        if tokio::time::timeout(CONNECTION_TIME_MAX, served).await.is_err() {
                            debug!(%peer, "http: closed a connection that was open for {} s", CONNECTION_TIME_MAX.as_secs());
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    warn!("http: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    })
}

async fn serve_connection(stream: TcpStream, handler: Arc<HttpHandler>) {
    let service = service_fn(|request| {
        let handler = Arc::clone(&handler);
        async move { Ok::<_, Infallible>(respond(request, &handler).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        // Requests are rare, and an idle connection would count towards the limit.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        debug!("http: {error}");
    }
}

async fn respond(request: Request<Incoming>, handler: &HttpHandler) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let credential = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let body = tokio::time::timeout(HEAD_TIME_MAX, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let response = match body {
        Ok(Ok(body)) => {
            let (path, query) = (head.uri.path(), head.uri.query());
            handler.handle(&head.method, path, query, credential, &body.to_bytes()).await
        }
        Ok(Err(_)) => {
            HttpResponse::failed(StatusCode::PAYLOAD_TOO_LARGE, "the body is incomplete or too long")
        }
        Err(_) => HttpResponse::failed(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
    };
    let HttpResponse { status, body, allowed } = response;
    let (text, content_type) = match body {
        HttpBody::Json(value) => (format!("{value}\n"), "application/json"),
        HttpBody::Metrics(text) => (text, metrics::CONTENT_TYPE),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Prevents caching: an old response could direct a client to the wrong server.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(allowed) = allowed {
        headers.insert(ALLOW, HeaderValue::from_static(allowed));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
