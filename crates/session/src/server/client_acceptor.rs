//! Accepts clients on open sockets and logs them in.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tailwater_wire::Flavour;
use tailwater_wire::protocol::ok_err_eof_packets::ErrPacket;
use tailwater_wire::protocol::packet::put_packets;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tracing::{debug, warn};

use crate::error::SessionError;
use crate::server::client_session::ClientSession;
use crate::server::connection_admission::{Admission, AdmissionSlot, lock};
use crate::server::login_handshake::Receiver;
use crate::server::server_options::ServerOptions;
use crate::server::tls_certificate::ServerCertificate;
use crate::socket;

/// The time limit for sending an error to a client that is refused before the greeting.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Accepts and authenticates clients.
#[derive(Debug)]
pub struct Acceptor {
    receiver: RwLock<Arc<Receiver>>,
    admission: Arc<Mutex<Admission>>,
    next_id: AtomicU32,
}

impl Acceptor {
    /// Loads or generates the certificate.
    ///
    /// # Errors
    /// [`SessionError::ServerTls`].
    pub fn new(options: ServerOptions) -> Result<Self, SessionError> {
        let ServerOptions { flavour, version_text, accounts, tls, require_tls, limits } = options;
        let certificate = ServerCertificate::load(&tls)?;
        if require_tls && certificate.is_none() {
            let reason = "TLS is required but turned off, so no client could log in".to_owned();
            return Err(SessionError::ServerTls { reason });
        }
        let admission = Arc::new(Mutex::new(Admission::new(limits.clone())));
        let key = Arc::new(OnceLock::new());
        let receiver = Receiver { flavour, version_text, accounts, certificate, require_tls, limits, key };
        Ok(Self { receiver: RwLock::new(Arc::new(receiver)), admission, next_id: AtomicU32::new(1) })
    }

    /// Sets the flavour and version that clients see. It applies to clients that connect later.
    pub fn set_identity(&self, flavour: Flavour, version_text: &str) {
        let receiver = self.receiver();
        if receiver.flavour != flavour || receiver.version_text != version_text {
            let changed =
                Receiver { flavour, version_text: version_text.to_owned(), ..Receiver::clone(&receiver) };
            *self.receiver.write() = Arc::new(changed);
        }
    }

    fn receiver(&self) -> Arc<Receiver> {
        Arc::clone(&self.receiver.read())
    }

    /// Logs in a client that has just connected. Returns when the client is logged in or rejected, so call it
    /// in a task of its own.
    ///
    /// If the login is refused, logs the client's address and user, and delays further logins from this
    /// address.
    ///
    /// # Errors
    /// [`SessionError::LimitReached`], [`SessionError::LoginRefused`] or [`SessionError::LoginTimeout`];
    /// [`SessionError::Tls`], [`SessionError::Protocol`], [`SessionError::Closed`] or [`SessionError::Io`] if
    /// the login was not completed. Each error is sent to the client if possible, and the connection is
    /// closed.
    pub async fn accept(&self, socket: TcpStream, peer: SocketAddr) -> Result<ClientSession, SessionError> {
        const DOING: &str = "setting up a client's connection";
        socket::set_up(&socket).map_err(|source| SessionError::Io { doing: DOING, source })?;
        let mut slot = match AdmissionSlot::take(&self.admission, peer.ip(), Instant::now()) {
            Ok(slot) => slot,
            Err(reason) => {
                reject_connection(socket, 1040, "08004", "Too many connections").await;
                return Err(SessionError::LimitReached { peer, reason });
            }
        };
        let connection_id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let receiver = self.receiver();
        let mut login = match receiver.receive_login(socket, peer, connection_id).await {
            Ok(login) => login,
            Err(error) => {
                if let SessionError::LoginRefused { .. } = error {
                    warn!(%peer, %error, "login refused");
                }
                return Err(error);
            }
        };
        let refusal = login.refusal();
        // Delay the answer equally for right and wrong passwords. If only wrong passwords were delayed, a
        // client could take a late answer for a refusal and disconnect early.
        let delay = slot.delay(refusal.is_some(), Instant::now());
        if let Some(reason) = refusal {
            let error = SessionError::LoginRefused { peer, user: login.user.clone(), reason };
            warn!(%peer, user = ?login.user, reason, delay_ms = delay.as_millis() as u64, "login refused");
            tokio::time::sleep(delay).await;
            // Ignore the error: the client may have disconnected.
            let _ = login.send_verdict(peer).await;
            return Err(error);
        }
        tokio::time::sleep(delay).await;
        login.send_verdict(peer).await?;
        slot.set_logged_in();
        debug!(%peer, user = login.user, tls = login.tls, connection_id, "client logged in");
        Ok(ClientSession::new(login, peer, connection_id, slot, &receiver.limits))
    }

    /// The number of open connections, including those that are not logged in.
    pub fn connections(&self) -> usize {
        lock(&self.admission).counts().0
    }

    /// The number of open connections that are not logged in.
    pub fn unauthenticated(&self) -> usize {
        lock(&self.admission).counts().1
    }
}

/// Sends an error instead of the greeting.
pub async fn reject_connection(mut socket: TcpStream, number: u16, sql_state: &str, message: &str) {
    let error = ErrPacket { number, sql_state: sql_state.to_owned(), message: message.to_owned() };
    let (mut payload, mut packet) = (Vec::new(), Vec::new());
    error.encode_before_greeting(&mut payload);
    put_packets(&mut packet, 0, &payload);
    // Ignore the error: the client may have disconnected.
    let _ = tokio::time::timeout(REFUSAL_TIMEOUT, socket.write_all(&packet)).await;
}
