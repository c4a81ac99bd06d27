//! The login: greeting, TLS and authentication on an open socket.

use bytes::Bytes;
use tailwater_wire::WireError;
use tailwater_wire::protocol::authentication_plugin::{self, AuthPlugin, AuthSwitchRequest, OsRng};
use tailwater_wire::protocol::handshake::{HANDSHAKE_BYTES_MAX, HandshakeResponse, HandshakeV10};
use tailwater_wire::protocol::ok_err_eof_packets::{ERR, ErrPacket, OK, OkPacket};
use tailwater_wire::protocol::{COLLATION_UTF8MB4, Capabilities, MariadbCapabilities};

use crate::connection_options::{ConnectOptions, Endpoint, TlsMode};
use crate::error::{ServerError, SessionError};
use crate::packet_stream::PacketStream;
use crate::socket::Socket;
use crate::tls;

/// The capabilities that this client always uses. LOCAL_FILES is added only if the options request it,
/// because without this capability a server has no reason to request a file.
const WANTED: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::PROTOCOL_41)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC_DATA)
    .with(Capabilities::CONNECT_ATTRS)
    .with(Capabilities::DEPRECATE_EOF);

/// The MariaDB capabilities that this client uses.
const WANTED_OF_MARIADB: MariadbCapabilities = MariadbCapabilities::STMT_BULK_OPERATIONS;

/// The maximum packet size that this client announces: 1 GiB, because servers never send more.
const PACKET_BYTES_MAX: u32 = 1 << 30;

/// The maximum number of packets in a login. The longest known authentication needs 5.
const AUTH_PACKETS_MAX: usize = 16;

const GREETING: &str = "waiting for the server's greeting";
const LOGGING_IN: &str = "logging in";

/// A logged-in stream and its negotiated properties.
pub(crate) struct LoggedIn {
    pub(crate) stream: PacketStream,
    pub(crate) greeting: HandshakeV10,
    pub(crate) capabilities: Capabilities,
    pub(crate) mariadb_capabilities: MariadbCapabilities,
    pub(crate) tls: bool,
}

/// Reads the greeting and logs in.
pub(crate) async fn log_in(socket: Socket, options: &ConnectOptions) -> Result<LoggedIn, SessionError> {
    let mut stream = PacketStream::new(socket);
    let greeting = read_greeting(&mut stream, options).await?;
    let mut capabilities = WANTED & greeting.capabilities;
    if options.database.is_some() {
        capabilities = capabilities | Capabilities::CONNECT_WITH_DB;
    }
    if options.multi_statements {
        capabilities = capabilities | (Capabilities::MULTI_STATEMENTS & greeting.capabilities);
    }

    if options.found_rows {
        capabilities = capabilities | (Capabilities::FOUND_ROWS & greeting.capabilities);
    }
    if options.local_infile {
        capabilities = capabilities | (Capabilities::LOCAL_FILES & greeting.capabilities);
    }

    // Answer with the server's default plugin if this client supports it and it does not send the password in
    // clear text. Otherwise answer with a plugin that every server knows, and wait for the server's request
    // to switch plugins.
    let plugin = AuthPlugin::from_name(&greeting.auth_plugin)
        .filter(|plugin| !plugin.sends_password())
        .unwrap_or(AuthPlugin::NativePassword);
    let mut answer = HandshakeResponse {
        capabilities,
        // A server that does not support MariaDB capabilities sends 0 here.
        mariadb_capabilities: WANTED_OF_MARIADB & greeting.mariadb_capabilities,
        packet_bytes_max: PACKET_BYTES_MAX,
        collation: COLLATION_UTF8MB4,
        user: options.user.clone(),
        auth_response: Vec::new(),
        database: options.database.clone(),
        auth_plugin: plugin.name().to_owned(),
        attributes: attributes(options),
    };

    let tls = wants_tls(&greeting, options)?;
    if tls {
        answer.capabilities = answer.capabilities | Capabilities::SSL;
        stream = start_tls(stream, &answer, options).await?;
    }

    let mut authentication = ClientAuthentication { options, plugin, nonce: greeting.auth_data.clone() };
    answer.auth_response = authentication.first_answer(stream.is_private())?;
    let mut payload = Vec::new();
    answer.encode(&mut payload).map_err(|source| SessionError::Protocol { doing: LOGGING_IN, source })?;
    stream.write_packet(LOGGING_IN, &payload).await?;
    authentication.finish(&mut stream).await?;
    let HandshakeResponse { capabilities, mariadb_capabilities, .. } = answer;
    Ok(LoggedIn { stream, greeting, capabilities, mariadb_capabilities, tls })
}

async fn read_greeting(
    stream: &mut PacketStream,
    options: &ConnectOptions,
) -> Result<HandshakeV10, SessionError> {
    let payload = stream.read_packet(GREETING, HANDSHAKE_BYTES_MAX).await?;
    let wrong = |source| SessionError::Protocol { doing: GREETING, source };
    if payload.first() == Some(&ERR) {
        let error = ErrPacket::parse(&payload).map_err(wrong)?;
        return Err(refusal(options, error));
    }
    HandshakeV10::parse(&payload).map_err(wrong)
}

fn attributes(options: &ConnectOptions) -> Vec<(String, String)> {
    [
        ("_client_name", "tailwater".to_owned()),
        ("_client_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("_pid", std::process::id().to_string()),
        ("program_name", options.program_name.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn wants_tls(greeting: &HandshakeV10, options: &ConnectOptions) -> Result<bool, SessionError> {
    let offered = greeting.capabilities.has(Capabilities::SSL);
    match (&options.endpoint, options.tls.mode) {
        (Endpoint::Unix { .. }, _) | (_, TlsMode::Off) => Ok(false),
        (_, TlsMode::Preferred) => Ok(offered),
        (_, TlsMode::Required | TlsMode::VerifyCa | TlsMode::VerifyFull) if offered => Ok(true),
        _ => Err(SessionError::TlsNotOffered { endpoint: options.endpoint.to_string() }),
    }
}

async fn start_tls(
    mut stream: PacketStream,
    answer: &HandshakeResponse,
    options: &ConnectOptions,
) -> Result<PacketStream, SessionError> {
    const DOING: &str = "starting TLS";
    let mut payload = Vec::new();
    answer.ssl_request().encode(&mut payload);
    stream.write_packet(DOING, &payload).await?;
    let (socket, sequence) = stream.into_socket(DOING)?;
    match (socket, &options.endpoint) {
        (Socket::Tcp(tcp), Endpoint::Tcp { host, .. }) => {
            let stream = tls::start(tcp, host, &options.endpoint.to_string(), &options.tls).await?;
            Ok(PacketStream::resume(Socket::Tls(Box::new(stream.into())), sequence))
        }
        (socket, _) => Ok(PacketStream::resume(socket, sequence)),
    }
}

/// Returns the error for a rejected login, or for a server that currently rejects all logins.
fn refusal(options: &ConnectOptions, packet: ErrPacket) -> SessionError {
    let error = ServerError::from(packet);
    SessionError::Denied { endpoint: options.endpoint.to_string(), user: options.user.clone(), error }
}

/// The login exchange on the client's side. It uses one authentication plugin, or several if the server
/// switches plugins.
struct ClientAuthentication<'a> {
    options: &'a ConnectOptions,
    plugin: AuthPlugin,
    nonce: Vec<u8>,
}

impl ClientAuthentication<'_> {
    fn password(&self) -> &[u8] {
        self.options.password.expose().as_bytes()
    }

    fn first_answer(&self, private: bool) -> Result<Vec<u8>, SessionError> {
        match self.plugin {
            AuthPlugin::ClearPassword => self.check_clear_password(private)?,
            AuthPlugin::Sha256Password if private && !self.password().is_empty() => {
                return Ok(authentication_plugin::clear_password(self.password()));
            }
            _ => {}
        }
        let answer = self.plugin.first_answer(self.password(), &self.nonce);
        answer.map_err(|source| SessionError::Protocol { doing: LOGGING_IN, source })
    }

    fn check_clear_password(&self, private: bool) -> Result<(), SessionError> {
        let reason = if !private {
            "without TLS, other users of the network could read the password; use TLS"
        } else if !self.options.clear_password_allowed {
            "set enable-cleartext-plugin if this account needs it and TLS verifies the server's certificate"
        } else {
            return Ok(());
        };
        Err(SessionError::ClearPassword {
            user: self.options.user.clone(),
            plugin: self.plugin.name(),
            reason,
        })
    }

    async fn finish(&mut self, stream: &mut PacketStream) -> Result<(), SessionError> {
        let wrong = |source| SessionError::Protocol { doing: LOGGING_IN, source };
        for _ in 0..AUTH_PACKETS_MAX {
            let payload = stream.read_packet(LOGGING_IN, HANDSHAKE_BYTES_MAX).await?;
            match payload.first() {
                Some(&OK) => return OkPacket::parse(&payload).map(drop).map_err(wrong),
                Some(&ERR) => return Err(refusal(self.options, ErrPacket::parse(&payload).map_err(wrong)?)),
                Some(&authentication_plugin::SWITCH_REQUEST) => {
                    let request = AuthSwitchRequest::parse(&payload).map_err(wrong)?;
                    self.switch(request)?;
                    let answer = self.first_answer(stream.is_private())?;
                    stream.write_packet(LOGGING_IN, &answer).await?;
                }
                Some(&authentication_plugin::MORE_DATA) => self.go_on(stream, payload.slice(1..)).await?,
                other => {
                    let reason = format!("the packet begins with {other:02x?}");
                    return Err(wrong(WireError::malformed("authentication packet", reason)));
                }
            }
        }
        Err(wrong(WireError::malformed(
            "authentication",
            format!("the login takes more than {AUTH_PACKETS_MAX} packets"),
        )))
    }

    fn switch(&mut self, request: AuthSwitchRequest) -> Result<(), SessionError> {
        let Some(plugin) = AuthPlugin::from_name(&request.plugin) else {
            return Err(SessionError::AuthPlugin {
                user: self.options.user.clone(),
                plugin: request.plugin.chars().take(64).collect(),
                supported: AuthPlugin::ALL.map(AuthPlugin::name).join(", "),
            });
        };
        self.plugin = plugin;
        self.nonce = request.auth_data;
        Ok(())
    }

    /// Answers a further request of the authentication plugin.
    async fn go_on(&self, stream: &mut PacketStream, data: Bytes) -> Result<(), SessionError> {
        match (self.plugin, data.as_ref()) {
            (AuthPlugin::CachingSha2Password, [authentication_plugin::FAST_AUTH_SUCCESS]) => Ok(()),
            (AuthPlugin::CachingSha2Password, [authentication_plugin::PERFORM_FULL_AUTHENTICATION]) => {
                self.send_password(stream).await
            }
            // This packet contains the server's key, because the client's first answer requested it.
            (AuthPlugin::Sha256Password, key) if !stream.is_private() => {
                self.send_encrypted(stream, key).await
            }
            (plugin, data) => {
                let reason = format!("{} unexpected further bytes from {plugin}", data.len());
                let source = WireError::malformed("authentication packet", reason);
                Err(SessionError::Protocol { doing: LOGGING_IN, source })
            }
        }
    }

    /// Sends the password: in clear text on a protected connection, otherwise encrypted with the server's
    /// key.
    async fn send_password(&self, stream: &mut PacketStream) -> Result<(), SessionError> {
        if stream.is_private() {
            return stream
                .write_packet(LOGGING_IN, &authentication_plugin::clear_password(self.password()))
                .await;
        }
        if let Some(path) = &self.options.server_public_key {
            let key =
                tailwater_files::read_user_file(path, 1 << 20).map_err(|error| SessionError::TlsOptions {
                    reason: format!("cannot read the server's public key {}: {error}", path.display()),
                })?;
            return self.send_encrypted(stream, &key).await;
        }
        stream.write_packet(LOGGING_IN, &[authentication_plugin::REQUEST_PUBLIC_KEY]).await?;
        let payload = stream.read_packet(LOGGING_IN, HANDSHAKE_BYTES_MAX).await?;
        match payload.split_first() {
            Some((&authentication_plugin::MORE_DATA, key)) => self.send_encrypted(stream, key).await,
            Some((&ERR, _)) => match ErrPacket::parse(&payload) {
                Ok(packet) => Err(refusal(self.options, packet)),
                Err(source) => Err(SessionError::Protocol { doing: LOGGING_IN, source }),
            },
            _ => {
                let source = WireError::malformed(
                    "server's public key",
                    "the server sent another packet instead of the key",
                );
                Err(SessionError::Protocol { doing: LOGGING_IN, source })
            }
        }
    }

    async fn send_encrypted(&self, stream: &mut PacketStream, key: &[u8]) -> Result<(), SessionError> {
        let secret = authentication_plugin::encrypt_password(self.password(), &self.nonce, key, &mut OsRng)
            .map_err(|source| SessionError::Protocol { doing: LOGGING_IN, source })?;
        stream.write_packet(LOGGING_IN, &secret).await
    }
}
