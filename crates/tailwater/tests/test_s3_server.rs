//! An S3 server on the loopback address that stores objects in a folder. It can fail in the ways in which
//! object stores and networks fail.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use s3s::Body;
use s3s::auth::SimpleAuth;
use s3s::service::{S3ServiceBuilder, SharedS3Service};
use tailwater_sandbox::network_link::Link;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

pub const ACCESS_KEY: &str = "AKIATAILWATERTEST";
pub const SECRET_KEY: &str = "a-secret-of-the-test";
pub const BUCKET: &str = "archive";

pub struct S3Server {
    folder: TempDir,
    /// Number of further requests to answer with error 503.
    failing: Arc<AtomicUsize>,
    /// Number of requests so far.
    requests: Arc<AtomicUsize>,
    /// The network link between the clients and the server.
    pub link: Link,
    authority: Option<PathBuf>,
    // This field is declared last, so it is dropped last. The other fields use the runtime.
    _runtime: Runtime,
}

impl S3Server {
    /// Starts a server that uses plain HTTP.
    pub fn start() -> Result<Self> {
        Self::serve(false)
    }

    /// Starts a server that uses HTTPS. Its certificate is self-signed: only clients that trust
    /// [`Self::authority`] accept it.
    pub fn start_tls() -> Result<Self> {
        Self::serve(true)
    }

    fn serve(tls: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join(BUCKET))?;
        let files = s3s_fs::FileSystem::new(folder.path()).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build().into_shared();
        let (failing, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (acceptor, authority) = match tls {
            true => {
                let authority = folder.path().join("authority.pem");
                (Some(acceptor(&authority)?), Some(authority))
            }
            false => (None, None),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address: SocketAddr = listener.local_addr()?;
        let faults = Faults { failing: Arc::clone(&failing), requests: Arc::clone(&requests) };
        runtime.spawn(accept(listener, acceptor, service, faults));
        let link = runtime.block_on(Link::open(address))?;
        Ok(Self { folder, failing, requests, link, authority, _runtime: runtime })
    }

    /// Returns the URL for clients.
    pub fn endpoint(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://localhost:{}", self.link.port())
    }

    /// Returns the PEM file of the certificate authority that signed the server's certificate.
    pub fn authority(&self) -> Option<&Path> {
        self.authority.as_deref()
    }

    /// Answers the next `requests` requests with error 503.
    pub fn fail_next(&self, requests: usize) {
        self.failing.store(requests, Ordering::SeqCst);
    }

    /// Whether all failures that [`Self::fail_next`] requested have happened.
    pub fn has_failed(&self) -> bool {
        self.failing.load(Ordering::SeqCst) == 0
    }

    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Returns the file that stores an object.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(BUCKET).join(name)
    }

    /// Whether an unfinished multipart upload of an object has stored parts.
    pub fn has_parts(&self) -> Result<bool> {
        let mut entries =
            std::fs::read_dir(self.folder.path()).context("the server's folder cannot be read")?;
        Ok(entries
            .any(|entry| entry.is_ok_and(|entry| entry.file_name().to_string_lossy().contains(".part-"))))
    }
}

#[derive(Clone)]
struct Faults {
    failing: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, service: SharedS3Service, faults: Faults) {
    while let Ok((socket, _)) = listener.accept().await {
        let (tls, service, faults) = (tls.clone(), service.clone(), faults.clone());
        tokio::spawn(async move {
            match tls {
                Some(tls) => {
                    if let Ok(socket) = tls.accept(socket).await {
                        answer(socket, service, faults).await;
                    }
                }
                None => answer(socket, service, faults).await,
            }
        });
    }
}

async fn answer(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: SharedS3Service,
    faults: Faults,
) {
    let respond = service_fn(move |request: Request<Incoming>| {
        faults.requests.fetch_add(1, Ordering::SeqCst);
        let failing = faults
            .failing
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok();
        let answer = service.call(request);
        async move {
            let response = match failing {
                true => status(StatusCode::SERVICE_UNAVAILABLE),
                false => answer.await.unwrap_or_else(|_| status(StatusCode::INTERNAL_SERVER_ERROR)),
            };
            Ok::<_, Infallible>(response)
        }
    });
    // A broken connection is not reported here. The client reports it.
    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), respond).await;
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Creates a self-signed certificate for `localhost`, and writes it to `authority`.
fn acceptor(authority: &Path) -> Result<TlsAcceptor> {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(authority, certified.cert.pem())?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
