//! The listener: lets clients in, and holds what their connections share.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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

use super::client_loop::run_client_loop;
use super::clients::{ClientRegistry, StreamReaders};
use super::log_snapshot::{LogSnapshot, SegmentHeads};
use super::wakeup_pacer::WakeupPacer;
use crate::error::RelayError;
use crate::status::CaptureStatus;

/// What is served, to whom, and where.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Names the source in messages.
    pub name: String,
    /// Where to listen.
    pub listen: SocketAddr,
    /// The `server_id` that clients see.
    pub server_id: u32,
    /// The `server_uuid` that MySQL replicas see.
    pub server_uuid: String,
    /// Who may log in.
    pub accounts: Accounts,
    /// Which of them may purge the log and end the connections of others.
    pub admins: HashSet<String>,
    /// TLS.
    pub tls: ServerTls,
    /// Whether clients without TLS are refused.
    pub require_tls: bool,
    /// How much clients may take.
    pub limits: ConnectionLimits,
}

/// What is served from: a log, and what is known of the capture that writes it.
#[derive(Debug, Clone)]
pub struct ServedLog {
    /// The log.
    pub log: LogHandle,
    /// How its capture is.
    pub status: Arc<CaptureStatus>,
    /// Where its source is, for `SHOW REPLICA STATUS`.
    pub source_host: String,
    /// See `source_host`.
    pub source_port: u16,
    /// The user that the capture logs in as.
    pub source_user: String,
    /// Whether its connection must be encrypted.
    pub source_tls: bool,
}

/// A binlog server that runs.
#[derive(Debug)]
pub struct BinlogServer {
    address: SocketAddr,
    readers: StreamReaders,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// What all connections of one binlog server share.
#[derive(Debug)]
pub(super) struct ServerShared {
    pub(super) options: ServeOptions,
    pub(super) served: ServedLog,
    pub(super) clients: ClientRegistry,
    pub(super) pace: WakeupPacer,
    pub(super) stop: CancellationToken,
    pub(super) address: SocketAddr,
    pub(super) hostname: String,
    pub(super) began: Instant,
    heads: Mutex<SegmentHeads>,
}

impl ServerShared {
    /// What the log has now; `None` while it has nothing.
    pub(super) fn log_snapshot(&self) -> Option<LogSnapshot> {
        // Of archived segments the archive may have to be asked.
        tokio::task::block_in_place(|| {
            // Nothing panics while the lock is held, so a poisoned one still guards sound data.
            let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
            LogSnapshot::of(&self.served.log, &mut heads)
        })
    }
}

/// How long to wait when the system has no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a stop waits for connections to end in good order: a client may take nothing, not even that.
const SHUTDOWN_WAIT_MAX: Duration = Duration::from_secs(2);

/// A binlog server that has its address, and lets nobody in yet.
#[derive(Debug)]
pub struct BoundServer {
    options: ServeOptions,
    acceptor: Acceptor,
    listener: TcpListener,
    address: SocketAddr,
}

impl BoundServer {
    /// Serves until [`BinlogServer::stop`]. Runs on the present tokio runtime, which must be a multi-threaded one: reading
    /// old segments may block.
    pub fn serve(self, served: ServedLog) -> BinlogServer {
        let Self { options, acceptor, listener, address } = self;
        let durable = served.log.subscribe();
        let stop = CancellationToken::new();
        let clients = ClientRegistry::default();
        let readers = StreamReaders::of(&clients);
        let span = info_span!("relay.serve", source = %options.name);
        let shared = Arc::new(ServerShared {
            pace: WakeupPacer::new(&durable),
            options,
            served,
            clients,
            stop: stop.clone(),
            address,
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            began: Instant::now(),
            heads: Mutex::default(),
        });
        info!(parent: &span, %address, "the log is served");
        let task = tokio::spawn(serve(listener, Arc::new(acceptor), shared, durable).instrument(span));
        BinlogServer { address, readers, stop, task }
    }
}

fn acceptor_of(options: &ServeOptions) -> Result<Acceptor, RelayError> {
    Ok(Acceptor::new(ServerOptions {
        // No client is let in before it is known whom to speak like.
        flavour: Flavour::MySql,
        version_text: String::new(),
        accounts: options.accounts.clone(),
        tls: options.tls.clone(),
        require_tls: options.require_tls,
        limits: options.limits.clone(),
    })?)
}

impl BinlogServer {
    /// Reads certificate and key, and takes no address.
    ///
    /// # Errors
    /// If they are no use.
    pub fn check(options: &ServeOptions) -> Result<(), RelayError> {
        acceptor_of(options).map(drop)
    }

    /// Listens; whoever connects waits until [`BoundServer::serve`].
    ///
    /// # Errors
    /// [`RelayError::Listen`] if the address cannot be had; [`RelayError::Session`] for TLS files that are none.
    pub async fn bind(options: ServeOptions) -> Result<BoundServer, RelayError> {
        let failed = |source| RelayError::Listen { address: options.listen, source };
        let acceptor = acceptor_of(&options)?;
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(BoundServer { options, acceptor, listener, address })
    }

    /// Listens and serves at once.
    ///
    /// # Errors
    /// As [`BinlogServer::bind`].
    pub async fn start(options: ServeOptions, served: ServedLog) -> Result<Self, RelayError> {
        Ok(Self::bind(options).await?.serve(served))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who reads its streams.
    pub fn readers(&self) -> StreamReaders {
        self.readers.clone()
    }

    /// Ends all connections and stops listening.
    pub async fn stop(self) {
        self.stop.cancel();
        // It ends when its connections have.
        let _ = self.task.await;
    }
}

async fn serve(
    listener: TcpListener,
    acceptor: Arc<Acceptor>,
    shared: Arc<ServerShared>,
    durable: watch::Receiver<tailwater_log::DurableState>,
) {
    let pace = tokio::spawn(shared.pace.clone().keep(durable));
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
                warn!("a connection could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(source) = shared.served.log.source() else {
            let message = "the log of this source is empty as yet: its source was not reached";
            connections.spawn(reject_connection(socket, 1105, "HY000", message));
            continue;
        };
        acceptor.set_identity(source.flavour, &source.server_version);
        let span = info_span!("relay.client", %peer);
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
        // Logged where it was refused.
        Err(SessionError::LoginRefused { .. }) => return,
        Err(error) => Err(error),
        Ok(session) => run_client_loop(session, &shared).await,
    };
    match result {
        Ok(()) => debug!("client gone"),
        Err(error) => debug!(code = error.code(), "client gone: {error}"),
    }
}
