//! The listener: accepts clients, and holds the state that their connections share.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tailwater_log::LogHandle;
use tailwater_session::SessionError;
use tailwater_session::server::{
    Acceptor, Accounts, ConnectionLimits, ServerOptions, ServerTls, reject_connection,
};
use tailwater_wire::Flavour;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span, warn};

use super::client_command_loop::run_client_loop;
use super::connected_clients::{ClientRegistry, StreamReaders};
use super::log_snapshot::{LogSnapshot, SegmentHeads};
use super::reader_wakeup_limiter::WakeupPacer;
use super::shared_tail::{SharedTail, TailEncoder};
use crate::error::BinlogServerError;
use crate::receiver_status::LogReceiver;

/// What the binlog server needs to know before it listens: address, identity, accounts and limits.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The source's name, for messages.
    pub name: String,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The `server_id` that clients see.
    pub server_id: u32,
    /// The `server_uuid` that MySQL replicas see.
    pub server_uuid: String,
    /// The accounts that may log in.
    pub accounts: Accounts,
    /// The accounts that may purge the log and end other connections.
    pub admins: HashSet<String>,
    /// The TLS certificate for clients.
    pub tls: ServerTls,
    /// Whether clients without TLS are refused.
    pub require_tls: bool,
    /// Limits on client connections.
    pub limits: ConnectionLimits,
    /// The maximum memory of the newest transactions that all streams share: see
    /// [`SHARED_TAIL_BYTES_MAX`].
    pub shared_tail_bytes_max: usize,
}

/// The default of [`ServeOptions::shared_tail_bytes_max`]. Readers at the end of the log are woken at least
/// every 40 ms, so it is enough for 100 MB/s of small transactions.
pub const SHARED_TAIL_BYTES_MAX: usize = 4 << 20;

/// A log to serve, and the capture that writes it.
#[derive(Debug, Clone)]
pub struct ServedLog {
    /// The served log.
    pub log: LogHandle,
    /// The capture that writes the log.
    pub receiver: Arc<dyn LogReceiver>,
    /// The host of the source, for `SHOW REPLICA STATUS`.
    pub source_host: String,
    /// The port of the source, for `SHOW REPLICA STATUS`.
    pub source_port: u16,
    /// The account that the capture uses on the source.
    pub source_user: String,
    /// Whether the capture's connection must be encrypted.
    pub source_tls: bool,
}

/// A running binlog server.
#[derive(Debug)]
pub struct BinlogServer {
    address: SocketAddr,
    readers: StreamReaders,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// The state that all connections of one binlog server share.
#[derive(Debug)]
pub(super) struct ServerShared {
    pub(super) options: ServeOptions,
    pub(super) served: ServedLog,
    pub(super) clients: ClientRegistry,
    pub(super) pace: WakeupPacer,
    pub(super) tail: Arc<SharedTail>,
    pub(super) stop: CancellationToken,
    pub(super) address: SocketAddr,
    pub(super) hostname: String,
    pub(super) began: Instant,
    heads: Mutex<SegmentHeads>,
}

impl ServerShared {
    /// The current state of the log; `None` while the log is empty.
    pub(super) fn log_snapshot(&self) -> Option<LogSnapshot> {
        // The thread may block here, because reading archived segments may need a request to the archive.
        tokio::task::block_in_place(|| {
            let mut heads = self.heads.lock();
            LogSnapshot::of(&self.served.log, &mut heads)
        })
    }
}

/// How long to wait before accepting connections again, after the operating system lacked the resources for a
/// connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long [`BinlogServer::stop`] waits for connections to end in an orderly way. The time is limited
/// because a client may never read the shutdown error.
const SHUTDOWN_WAIT_MAX: Duration = Duration::from_secs(2);

/// A binlog server that listens on its address and does not accept clients yet.
#[derive(Debug)]
pub struct BoundServer {
    options: ServeOptions,
    acceptor: Acceptor,
    listener: TcpListener,
    address: SocketAddr,
}

impl BoundServer {
    /// Serves the log until [`BinlogServer::stop`] is called. Runs on the current tokio runtime. The runtime
    /// must be multi-threaded, because reading old segments may block a thread.
    pub fn serve(self, served: ServedLog) -> BinlogServer {
        let Self { options, acceptor, listener, address } = self;
        let durable = served.log.subscribe();
        let stop = CancellationToken::new();
        let clients = ClientRegistry::default();
        let readers = StreamReaders::of(&clients);
        let span = info_span!("binlog_server", source = %options.name);
        let shared = Arc::new(ServerShared {
            pace: WakeupPacer::new(&durable),
            tail: Arc::new(SharedTail::new(options.shared_tail_bytes_max)),
            options,
            served,
            clients,
            stop: stop.clone(),
            address,
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            began: Instant::now(),
            heads: Mutex::default(),
        });
        info!(parent: &span, %address, "serving the log");
        let task = tokio::spawn(serve(listener, Arc::new(acceptor), shared, durable).instrument(span));
        BinlogServer { address, readers, stop, task }
    }
}

fn acceptor_of(options: &ServeOptions) -> Result<Acceptor, BinlogServerError> {
    Ok(Acceptor::new(ServerOptions {
        // The source's flavour is not known yet. The real flavour replaces this value before the server
        // accepts a client.
        flavour: Flavour::MySql,
        version_text: String::new(),
        accounts: options.accounts.clone(),
        tls: options.tls.clone(),
        require_tls: options.require_tls,
        limits: options.limits.clone(),
    })?)
}

impl BinlogServer {
    /// Checks the TLS certificate and key without listening.
    ///
    /// # Errors
    /// If the certificate or the key cannot be used.
    pub fn check(options: &ServeOptions) -> Result<(), BinlogServerError> {
        acceptor_of(options).map(drop)
    }

    /// Starts to listen. Clients that connect have to wait until [`BoundServer::serve`] is called.
    ///
    /// # Errors
    /// [`BinlogServerError::Listen`] if the address is not available; [`BinlogServerError::Session`] for
    /// invalid TLS files.
    pub async fn bind(options: ServeOptions) -> Result<BoundServer, BinlogServerError> {
        let failed = |source| BinlogServerError::Listen { address: options.listen, source };
        let acceptor = acceptor_of(&options)?;
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(BoundServer { options, acceptor, listener, address })
    }

    /// Listens and serves immediately.
    ///
    /// # Errors
    /// The same errors as [`BinlogServer::bind`].
    pub async fn start(options: ServeOptions, served: ServedLog) -> Result<Self, BinlogServerError> {
        Ok(Self::bind(options).await?.serve(served))
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The clients that read a stream of this server.
    pub fn readers(&self) -> StreamReaders {
        self.readers.clone()
    }

    /// Ends all connections and stops listening.
    pub async fn stop(self) {
        self.stop.cancel();
        // The task ends after all its connections have ended.
        let _ = self.task.await;
    }
}

async fn serve(
    listener: TcpListener,
    acceptor: Arc<Acceptor>,
    shared: Arc<ServerShared>,
    durable: watch::Receiver<tailwater_log::DurableState>,
) {
    let encoder = TailEncoder::new(shared.served.log.clone(), Arc::clone(&shared.tail));
    let pace = tokio::spawn(shared.pace.clone().keep(durable, encoder));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shared.stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(source) = shared.served.log.source() else {
            let message = "the log of this source is still empty: its source was not reached";
            connections.spawn(reject_connection(socket, 1105, "HY000", message));
            continue;
        };
        acceptor.set_identity(source.flavour, &source.server_version);
        let span = info_span!("binlog_server.client", %peer);
        connections.spawn(receive(Arc::clone(&acceptor), socket, peer, Arc::clone(&shared)).instrument(span));
    }
    pace.abort();
    let remaining = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_WAIT_MAX, remaining).await.is_err() {
        connections.shutdown().await;
    }
}

async fn receive(acceptor: Arc<Acceptor>, socket: TcpStream, peer: SocketAddr, shared: Arc<ServerShared>) {
    let session = tokio::select! {
        () = shared.stop.cancelled() => return,
        session = acceptor.accept(socket, peer) => session,
    };
    let result = match session {
        // The login code has already logged a refused login.
        Err(SessionError::LoginRefused { .. }) => return,
        Err(error) => Err(error),
        Ok(session) => run_client_loop(session, &shared).await,
    };
    match result {
        Ok(()) => debug!("client disconnected"),
        Err(error) => debug!(code = error.code(), "client disconnected: {error}"),
    }
}
