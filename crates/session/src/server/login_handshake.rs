//! One login over a socket: the greeting, TLS, the exchange of [`ServerAuthentication`], and the final OK or
//! error packet.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tailwater_wire::byte_cursor::put_lenenc_bytes;
use tailwater_wire::protocol::authentication_plugin::{MORE_DATA, OsRng};
use tailwater_wire::protocol::handshake::{ClientAnswer, HandshakeResponse, HandshakeV10};
use tailwater_wire::protocol::ok_err_eof_packets::{ErrPacket, OK, OkPacket};
use tailwater_wire::protocol::rsa_password_key::PasswordKey;
use tailwater_wire::protocol::{COLLATION_UTF8MB4, Capabilities, MariadbCapabilities, ServerStatus};
use tailwater_wire::server_version::parse_version;
use tailwater_wire::{Flavour, WireError};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::error::SessionError;
use crate::packet_stream::PacketStream;
use crate::server::authentication_exchange::{
    AuthStep, ServerAuthentication, default_plugin, may_be_mariadb, nonce,
};
use crate::server::client_accounts::{Accounts, PasswordProof};
use crate::server::client_limits::{ConnectionLimits, LOGIN_BYTES_MAX};
use crate::server::tls_certificate::ServerCertificate;
use crate::socket::Socket;

const LOGGING_IN: &str = "logging a client in";

/// The capabilities of this server. It deliberately does not offer compression, LOAD DATA LOCAL, multiple
/// statements, query attributes, session state in OK packets, or multi-factor authentication.
const OFFERED: Capabilities = Capabilities::FOUND_ROWS
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::NO_SCHEMA)
    .with(Capabilities::ODBC)
    .with(Capabilities::IGNORE_SPACE)
    .with(Capabilities::PROTOCOL_41)
    .with(Capabilities::INTERACTIVE)
    .with(Capabilities::IGNORE_SIGPIPE)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::RESERVED)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PS_MULTI_RESULTS)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::CONNECT_ATTRS)
    .with(Capabilities::PLUGIN_AUTH_LENENC_DATA)
    .with(Capabilities::CAN_HANDLE_EXPIRED_PASSWORDS)
    .with(Capabilities::DEPRECATE_EOF);

/// The lower 8 bits of MySQL's default collation, `utf8mb4_0900_ai_ci`.
const COLLATION_MYSQL: u8 = 255;

/// The maximum length of a user name in log messages, in characters.
const USER_CHARS_MAX: usize = 128;

/// The maximum number of packets that a client may send in a login. The longest known login takes 5.
const LOGIN_PACKETS_MAX: usize = 8;

/// The maximum number of connection attributes that are kept, and the maximum number of characters in an
/// attribute's name or value.
const ATTRIBUTES_MAX: usize = 32;
const ATTRIBUTE_CHARS_MAX: usize = 256;

/// The data that all logins share.
#[derive(Debug, Clone)]
pub(super) struct Receiver {
    pub(super) flavour: Flavour,
    pub(super) version_text: String,
    pub(super) accounts: Accounts,
    pub(super) certificate: Option<ServerCertificate>,
    pub(super) require_tls: bool,
    pub(super) limits: ConnectionLimits,
    /// The RSA key, generated when the first client requests it; `None` if the generation fails.
    pub(super) key: Arc<OnceLock<Option<PasswordKey>>>,
}

/// A client whose login exchange has ended, successfully or not. The server has not sent the result to the
/// client yet.
pub(super) struct ClientLogin {
    pub(super) stream: PacketStream,
    pub(super) capabilities: Capabilities,
    pub(super) tls: bool,
    pub(super) user: String,
    pub(super) attributes: Vec<(String, String)>,
    password_used: bool,
    verdict: Result<LoginGrant, &'static str>,
}

/// A client that has answered the greeting.
struct GreetedClient {
    stream: PacketStream,
    tls: bool,
    response: HandshakeResponse,
}

/// The time at which a login must be complete.
struct Deadline {
    at: Instant,
    seconds: Duration,
    peer: SocketAddr,
}

impl Deadline {
    fn new(seconds: Duration, peer: SocketAddr) -> Self {
        Self { at: Instant::now() + seconds, seconds, peer }
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        match tokio::time::timeout_at(self.at, work).await {
            Ok(result) => result,
            Err(_) => Err(SessionError::LoginTimeout { peer: self.peer, seconds: self.seconds }),
        }
    }
}

/// The data that the server sends in the OK packet of a successful login.
struct LoginGrant {
    before_ok: Option<Vec<u8>>,
    /// The proof for MariaDB clients that the certificate belongs to this server.
    proof: Option<String>,
}

impl Receiver {
    /// The version text for the greeting. For MariaDB 10 it starts with `5.5.5-`, as the greeting of that
    /// server does.
    fn greeted_version(&self) -> String {
        match (self.flavour, parse_version(&self.version_text)) {
            (Flavour::MariaDb, (10, ..)) if !self.version_text.starts_with("5.5.5-") => {
                format!("5.5.5-{}", self.version_text)
            }
            _ => self.version_text.clone(),
        }
    }

    fn greeting(&self, connection_id: u32, auth_data: &[u8]) -> HandshakeV10 {
        let mut capabilities = OFFERED;
        if self.certificate.is_some() {
            capabilities = capabilities | Capabilities::SSL;
        }
        let collation = match self.flavour {
            Flavour::MySql => {
                capabilities = capabilities | Capabilities::LONG_PASSWORD;
                COLLATION_MYSQL
            }
            Flavour::MariaDb => COLLATION_UTF8MB4,
        };
        HandshakeV10 {
            server_version: self.greeted_version(),
            connection_id,
            auth_data: auth_data.to_vec(),
            capabilities,
            mariadb_capabilities: MariadbCapabilities::default(),
            collation,
            status: ServerStatus::AUTOCOMMIT,
            auth_plugin: default_plugin(self.flavour).name().to_owned(),
        }
    }

    /// Greets a client and runs the login exchange up to its result. Does not send the result.
    pub(super) async fn receive_login(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        connection_id: u32,
    ) -> Result<ClientLogin, SessionError> {
        let mut deadline = Deadline::new(self.limits.login_timeout, peer);
        let nonce = nonce();
        let greeting = self.greeting(connection_id, &nonce);
        let met = deadline.within(self.meet(socket, peer, &greeting)).await?;
        let GreetedClient { mut stream, tls, response } = met;
        let user: String = response.user.chars().take(USER_CHARS_MAX).collect();
        if self.require_tls && !tls {
            const TEXT: &str =
                "Connections using insecure transport are prohibited while --require_secure_transport=ON.";
            deadline.within(refuse(&mut stream, 3159, "HY000", TEXT)).await?;
            let reason = "the client does not use TLS, which is required (require_tls)";
            return Err(SessionError::LoginRefused { peer, user, reason });
        }

        let claimed = self.accounts.claim(&response.user);
        let greeted = default_plugin(self.flavour);
        let (login, step) = ServerAuthentication::begin(claimed, &response, greeted, nonce, tls);
        let capabilities = greeting.capabilities & response.capabilities;
        let (login, verdict) = self.converse(&mut stream, login, step, &mut deadline).await?;
        let verdict = verdict.map(|(before_ok, proven)| {
            let fingerprint = self.certificate.as_ref().filter(|_| tls && may_be_mariadb(&response, greeted));
            let proof = fingerprint
                .and_then(|certificate| certificate_proof(&login, &proven, &certificate.fingerprint));
            LoginGrant { before_ok, proof }
        });
        let attributes = bounded(response.attributes);
        let password_used = login.password_used;
        Ok(ClientLogin { stream, capabilities, tls, user, attributes, password_used, verdict })
    }

    /// Sends the greeting and reads the client's answer. If the client requests TLS, runs the TLS handshake
    /// before it reads the answer.
    async fn meet(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        greeting: &HandshakeV10,
    ) -> Result<GreetedClient, SessionError> {
        let mut stream = PacketStream::new(Socket::Tcp(socket));
        stream.write_timeout = self.limits.write_timeout;
        let mut payload = Vec::new();
        greeting
            .encode(&mut payload)
            .map_err(|source| SessionError::Protocol { doing: LOGGING_IN, source })?;
        stream.write_packet(LOGGING_IN, &payload).await?;

        let payload = read(&mut stream, true).await?;
        let mut tls = false;
        let response = match parse_answer(&mut stream, &payload).await? {
            ClientAnswer::Response(response) => response,
            ClientAnswer::SslRequest(_) => {
                stream = self.start_tls(stream, peer).await?;
                tls = true;
                let payload = read(&mut stream, false).await?;
                match parse_answer(&mut stream, &payload).await? {
                    ClientAnswer::Response(response) => response,
                    ClientAnswer::SslRequest(_) => return Err(bad_handshake(&mut stream, "TLS twice").await),
                }
            }
        };
        Ok(GreetedClient { stream, tls, response })
    }

    async fn start_tls(
        &self,
        mut stream: PacketStream,
        peer: SocketAddr,
    ) -> Result<PacketStream, SessionError> {
        let Some(certificate) = &self.certificate else {
            return Err(bad_handshake(&mut stream, "the client requests TLS, which was not offered").await);
        };
        let (socket, sequence) = stream.into_socket("starting TLS with a client")?;
        let Socket::Tcp(tcp) = socket else { return Ok(PacketStream::resume(socket, sequence)) };
        match certificate.acceptor.accept(tcp).await {
            Ok(encrypted) => {
                let mut stream = PacketStream::resume(Socket::Tls(Box::new(encrypted.into())), sequence);
                stream.write_timeout = self.limits.write_timeout;
                Ok(stream)
            }
            Err(error) => Err(SessionError::Tls { endpoint: peer.to_string(), reason: error.to_string() }),
        }
    }

    /// Runs the authentication exchange. Returns its result and the final state.
    async fn converse(
        &self,
        stream: &mut PacketStream,
        mut login: ServerAuthentication,
        mut step: AuthStep,
        deadline: &mut Deadline,
    ) -> Result<(ServerAuthentication, Result<(Option<Vec<u8>>, PasswordProof), &'static str>), SessionError>
    {
        for _ in 0..LOGIN_PACKETS_MAX {
            step = match step {
                AuthStep::Ask(payload) => login.answered(&deadline.within(ask(stream, &payload)).await?),
                AuthStep::SendKey => {
                    let started = Instant::now();
                    let Some(mut pem) = self.public_key().await else {
                        return Ok((login, Err("the server has no RSA key")));
                    };
                    // The time that the server needs for computation does not count towards the client's time
                    // limit.
                    deadline.at += started.elapsed();
                    pem.insert(0, MORE_DATA);
                    login.answered(&deadline.within(ask(stream, &pem)).await?)
                }
                AuthStep::Decrypt(secret) => {
                    let fits = self.check_encrypted(&login, secret).await;
                    login.checked(fits)
                }
                AuthStep::Check(password) => {
                    let claimed = login.claimed().clone();
                    let check = move || claimed.proofs.sha2_password(&password, claimed.decoy);
                    // A check that panics counts as a wrong password.
                    let fits = tokio::task::spawn_blocking(check).await.unwrap_or(false);
                    login.checked(fits)
                }
                AuthStep::Granted { before_ok, proven } => return Ok((login, Ok((before_ok, proven)))),
                AuthStep::Denied(reason) => return Ok((login, Err(reason))),
            };
        }
        Ok((login, Err("the login took too many packets")))
    }

    /// The public RSA key, which is generated at the first request. The generation continues even if the
    /// client that requested the key disconnects.
    async fn public_key(&self) -> Option<Vec<u8>> {
        let key = Arc::clone(&self.key);
        let pem = move || Some(key_of(&key)?.public_pem().as_bytes().to_vec());
        tokio::task::spawn_blocking(pem).await.ok().flatten()
    }

    async fn check_encrypted(&self, login: &ServerAuthentication, secret: Vec<u8>) -> bool {
        let Ok(nonce) = login.nonce().try_into() else { return false };
        let (key, claimed) = (Arc::clone(&self.key), login.claimed().clone());
        let check = move || {
            let password = key_of(&key).and_then(|key| key.decrypt(&secret, &nonce, &mut OsRng).ok());
            password.is_some_and(|password| claimed.proofs.sha2_password(&password, claimed.decoy))
        };
        tokio::task::spawn_blocking(check).await.unwrap_or(false)
    }
}

fn key_of(key: &OnceLock<Option<PasswordKey>>) -> Option<&PasswordKey> {
    let made = key.get_or_init(|| match PasswordKey::generate(&mut OsRng) {
        Ok(key) => Some(key),
        Err(error) => {
            tracing::error!(%error, "cannot generate the RSA key for clients that log in without TLS");
            None
        }
    });
    made.as_ref()
}

impl ClientLogin {
    /// Why the login was refused. `None` if it succeeded.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        self.verdict.as_ref().err().copied()
    }

    /// Sends the result of the login to the client.
    pub(super) async fn send_verdict(&mut self, peer: SocketAddr) -> Result<(), SessionError> {
        let grant = match &self.verdict {
            Ok(grant) => grant,
            Err(_) => {
                let message = format!(
                    "Access denied for user '{}'@'{}' (using password: {})",
                    self.user,
                    peer.ip().to_canonical(),
                    if self.password_used { "YES" } else { "NO" },
                );
                return refuse(&mut self.stream, 1045, "28000", &message).await;
            }
        };
        self.stream.clear_queue();
        if let Some(payload) = &grant.before_ok {
            self.stream.queue_packet(payload);
        }
        let mut payload = Vec::new();
        let status = ServerStatus::AUTOCOMMIT;
        OkPacket { status, ..OkPacket::default() }.encode(OK, &mut payload);
        if let Some(proof) = &grant.proof {
            put_lenenc_bytes(&mut payload, proof.as_bytes());
        }
        self.stream.queue_packet(&payload);
        self.stream.send_queued(LOGGING_IN).await
    }
}

/// The proof for clients of MariaDB 11.4 and later. It shows that a self-signed certificate belongs to a
/// server that knows the client's password. The proof is the SHA256 of the stored hash, the random bytes and
/// the certificate's SHA256. The server sends it in the text of the OK packet. Source: `run_plugin_auth` in
/// `plugins/auth/my_auth.c` of MariaDB Connector/C.
fn certificate_proof(
    login: &ServerAuthentication,
    proven: &PasswordProof,
    fingerprint: &[u8; 32],
) -> Option<String> {
    let secret = proven.shared_secret()?;
    let digest = Sha256::new()
        .chain_update(secret)
        .chain_update(login.scramble())
        .chain_update(fingerprint)
        .finalize();
    let digits = digest.iter().map(|byte| format!("{byte:02X}"));
    Some(std::iter::once("\x01".to_owned()).chain(digits).collect())
}

async fn ask(stream: &mut PacketStream, payload: &[u8]) -> Result<Bytes, SessionError> {
    stream.write_packet(LOGGING_IN, payload).await?;
    read(stream, false).await
}

async fn read(stream: &mut PacketStream, alone: bool) -> Result<Bytes, SessionError> {
    let read = match alone {
        true => stream.read_packet_alone(LOGGING_IN, LOGIN_BYTES_MAX).await,
        false => stream.read_packet(LOGGING_IN, LOGIN_BYTES_MAX).await,
    };
    if let Err(SessionError::Protocol { source, .. }) = read {
        return Err(bad_packet(stream, source).await);
    }
    read
}

async fn parse_answer(stream: &mut PacketStream, payload: &[u8]) -> Result<ClientAnswer, SessionError> {
    match ClientAnswer::parse(payload) {
        Ok(answer) => Ok(answer),
        Err(source) => Err(bad_packet(stream, source).await),
    }
}

async fn bad_handshake(stream: &mut PacketStream, reason: &str) -> SessionError {
    bad_packet(stream, WireError::malformed("client's answer", reason)).await
}

/// Sends an error packet for an invalid packet, if the client is still connected.
async fn bad_packet(stream: &mut PacketStream, source: WireError) -> SessionError {
    let _ = refuse(stream, 1043, "08S01", "Bad handshake").await;
    SessionError::Protocol { doing: LOGGING_IN, source }
}

async fn refuse(
    stream: &mut PacketStream,
    number: u16,
    state: &str,
    message: &str,
) -> Result<(), SessionError> {
    let error = ErrPacket { number, sql_state: state.to_owned(), message: message.to_owned() };
    let mut payload = Vec::new();
    error.encode(&mut payload);
    stream.write_packet(LOGGING_IN, &payload).await
}

fn bounded(attributes: Vec<(String, String)>) -> Vec<(String, String)> {
    let cut = |text: String| text.chars().take(ATTRIBUTE_CHARS_MAX).collect();
    attributes.into_iter().take(ATTRIBUTES_MAX).map(|(name, value)| (cut(name), cut(value))).collect()
}
