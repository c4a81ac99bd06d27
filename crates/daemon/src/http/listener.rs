//! Connections: one request on each, with a limit on their number, their time and their size.

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

use super::handler::{Answer, AnswerBody, HttpHandler};
use crate::metrics;

/// Connections at once; more are closed.
const CONNECTIONS_MAX: usize = 256;
/// A request has come whole after so long, or never.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// A connection lives no longer, whatever either side does.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(120);
/// A request's line and headers are no longer.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// What an order says besides.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Takes the address.
///
/// # Errors
/// If it is not to be had.
pub async fn bind(listen: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(listen).await.with_context(|| format!("http: listen at {listen}"))
}

/// Answers until the task that is given back is aborted.
pub fn serve(listener: TcpListener, answering: Arc<HttpHandler>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                        debug!(%peer, "http: {CONNECTIONS_MAX} connections are open; closed");
                        continue;
                    };
                    let answering = Arc::clone(&answering);
                    tokio::spawn(async move {
                        let talk = converse(stream, answering);
                        if tokio::time::timeout(CONNECTION_TIME_MAX, talk).await.is_err() {
                            debug!(%peer, "http: the connection took too long");
                        }
                        drop(place);
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

async fn converse(stream: TcpStream, answering: Arc<HttpHandler>) {
    let service = service_fn(|request| {
        let answering = Arc::clone(&answering);
        async move { Ok::<_, Infallible>(respond(request, &answering).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        // Checks come seldom, and a connection that waits takes another's place.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        debug!("http: {error}");
    }
}

async fn respond(request: Request<Incoming>, answering: &HttpHandler) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let credential = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let body = tokio::time::timeout(HEAD_TIME_MAX, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let answer = match body {
        Ok(Ok(body)) => {
            let (path, query) = (head.uri.path(), head.uri.query());
            answering.answer(&head.method, path, query, credential, &body.to_bytes()).await
        }
        Ok(Err(_)) => Answer::failed(StatusCode::PAYLOAD_TOO_LARGE, "the body is cut off or too long"),
        Err(_) => Answer::failed(StatusCode::REQUEST_TIMEOUT, "the body did not come"),
    };
    let (text, content_type) = match answer.body {
        AnswerBody::Json(value) => (format!("{value}\n"), "application/json"),
        AnswerBody::Metrics(text) => (text, metrics::CONTENT_TYPE),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // What was true a second ago may send a client to the wrong server.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(allowed) = answer.allowed {
        headers.insert(ALLOW, HeaderValue::from_static(allowed));
    }
    if answer.status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
