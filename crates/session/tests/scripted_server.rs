//! A scripted server, for behaviour that no real server has.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tailwater_session::{ConnectOptions, Connection, Endpoint, SessionPreset, TlsMode};
use tailwater_wire::ServerId;
use tailwater_wire::binlog_event::{EVENT_HEADER_BYTES, EventHeader, EventType};
use tailwater_wire::protocol::authentication_plugin::AuthPlugin;
use tailwater_wire::protocol::command::ClientCommand;
use tailwater_wire::protocol::handshake::ClientAnswer;
use tailwater_wire::protocol::ok_err_eof_packets::{EofPacket, OK, OkPacket};
use tailwater_wire::protocol::packet::{PACKET_HEADER_BYTES, PacketHeader, put_packets};
use tailwater_wire::protocol::resultset::encode_text_row;
use tailwater_wire::protocol::{
    Capabilities, ColumnDefinition, HandshakeResponse, HandshakeV10, MariadbCapabilities, ServerStatus,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The fake server's side of one connection.
pub struct Peer {
    pub stream: TcpStream,
    pub sequence: u8,
    pub capabilities: Capabilities,
    /// Every byte that the client sent.
    pub received: Vec<u8>,
}

/// Starts a fake server for one connection. `script` sends the packets of the server.
pub async fn serve<T, F, Script>(script: Script) -> Result<(Endpoint, JoinHandle<Result<T>>)>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
    Script: FnOnce(Peer) -> F + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let endpoint = Endpoint::tcp("127.0.0.1", listener.local_addr()?.port());
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        script(Peer { stream, sequence: 0, capabilities: Capabilities::default(), received: Vec::new() })
            .await
    });
    Ok((endpoint, task))
}

/// Connection options for a fake server. The timeouts are long: they only end a test that hangs.
pub fn options(endpoint: Endpoint) -> ConnectOptions {
    let mut options = ConnectOptions::new(endpoint, "u").password("geheim");
    options.connect_timeout = Duration::from_secs(20);
    options.read_timeout = Some(Duration::from_secs(20));
    // Set no session variables, so that the client sends only what the script expects.
    options.session_preset = SessionPreset::Inherited;
    options
}

/// Connects a client to a fake server that accepts any login and then runs `script`.
pub async fn connected<T, F, Script>(script: Script) -> Result<(Connection, JoinHandle<Result<T>>)>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
    Script: FnOnce(Peer) -> F + Send + 'static,
{
    let (endpoint, task) = serve(async move |mut peer: Peer| {
        peer.log_in().await?;
        script(peer).await
    })
    .await?;
    Ok((Connection::connect(&options(endpoint)).await?, task))
}

/// A greeting like MySQL's, without TLS.
pub fn greeting() -> HandshakeV10 {
    HandshakeV10 {
        server_version: "9.7.0-fake".to_owned(),
        connection_id: 7,
        auth_data: (1..=20).collect(),
        capabilities: Capabilities(0xdfff_ffff) - Capabilities::SSL,
        mariadb_capabilities: MariadbCapabilities::default(),
        collation: 255,
        status: ServerStatus::AUTOCOMMIT,
        auth_plugin: AuthPlugin::CachingSha2Password.name().to_owned(),
    }
}

impl Peer {
    /// Sends bytes without adding a packet header.
    pub async fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(())
    }

    /// Sends a payload with the next packet number.
    pub async fn send(&mut self, payload: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        self.sequence = put_packets(&mut out, self.sequence, payload);
        self.raw(&out).await
    }

    /// Sends a greeting.
    pub async fn greet(&mut self, greeting: &HandshakeV10) -> Result<()> {
        let mut payload = Vec::new();
        greeting.encode(&mut payload)?;
        self.send(&payload).await
    }

    pub async fn ok(&mut self) -> Result<()> {
        let mut payload = Vec::new();
        OkPacket::default().encode(OK, &mut payload);
        self.send(&payload).await
    }

    /// Reads one packet and returns its payload. The next packet that the fake server sends gets the packet
    /// number after that of the read packet.
    pub async fn read(&mut self) -> Result<Vec<u8>> {
        let mut header = [0; PACKET_HEADER_BYTES];
        self.stream.read_exact(&mut header).await?;
        self.received.extend_from_slice(&header);
        let Some(header) = PacketHeader::parse(&header) else {
            bail!("the client sent no valid packet header")
        };
        let mut payload = vec![0; header.payload_bytes];
        self.stream.read_exact(&mut payload).await?;
        self.received.extend_from_slice(&payload);
        self.sequence = header.sequence.wrapping_add(1);
        Ok(payload)
    }

    /// Reads until the client closes the connection. The bytes read are in `received`.
    pub async fn read_to_end(&mut self) -> Result<()> {
        self.stream.read_to_end(&mut self.received).await?;
        Ok(())
    }

    /// Sends a greeting and reads the client's answer to it.
    pub async fn meet(&mut self, greeting: &HandshakeV10) -> Result<HandshakeResponse> {
        self.greet(greeting).await?;
        match ClientAnswer::parse(&self.read().await?)? {
            ClientAnswer::Response(answer) => {
                self.capabilities = answer.capabilities;
                Ok(answer)
            }
            ClientAnswer::SslRequest(_) => bail!("the client must not request TLS"),
        }
    }

    pub async fn log_in(&mut self) -> Result<()> {
        self.meet(&greeting()).await?;
        self.ok().await
    }

    /// Sends the definitions of columns named `c0`, `c1`, ...
    pub async fn columns(&mut self, count: u8) -> Result<()> {
        self.send(&[count]).await?;
        for index in 0..count {
            let mut payload = Vec::new();
            let column = ColumnDefinition { name: format!("c{index}"), ..ColumnDefinition::default() };
            column.encode(&mut payload);
            self.send(&payload).await?;
        }
        if !self.capabilities.has(Capabilities::DEPRECATE_EOF) {
            self.end_of_rows(ServerStatus::default()).await?;
        }
        Ok(())
    }

    pub async fn row(&mut self, values: &[Option<&[u8]>]) -> Result<()> {
        let mut payload = Vec::new();
        encode_text_row(values.iter().copied(), &mut payload);
        self.send(&payload).await
    }

    pub async fn end_of_rows(&mut self, status: ServerStatus) -> Result<()> {
        let mut payload = Vec::new();
        EofPacket { warnings: 0, status }.encode(self.capabilities, &mut payload);
        self.send(&payload).await
    }

    /// Answers the statements that a client sends before it requests a binlog stream. Returns these
    /// statements and the command that requests the stream.
    pub async fn until_dump(&mut self) -> Result<(Vec<String>, Vec<u8>)> {
        let mut statements = Vec::new();
        loop {
            let payload = self.read().await?;
            match ClientCommand::parse(&payload)? {
                ClientCommand::Query(sql) if sql.starts_with(b"SHOW GLOBAL VARIABLES") => {
                    self.columns(2).await?;
                    self.row(&[Some(b"rpl_semi_sync_source_enabled"), Some(b"ON")]).await?;
                    self.end_of_rows(ServerStatus::default()).await?;
                }
                ClientCommand::Query(sql) => {
                    statements.push(String::from_utf8_lossy(sql).into_owned());
                    self.ok().await?;
                }
                ClientCommand::RegisterReplica(_) => self.ok().await?,
                ClientCommand::BinlogDump { .. } | ClientCommand::BinlogDumpGtid { .. } => {
                    return Ok((statements, payload));
                }
                other => bail!(
                    "the client sent an unexpected command before the request for a binlog stream: {other:?}"
                ),
            }
        }
    }
}

/// An event with this type, timestamp and body.
pub fn event(event_type: EventType, timestamp: u32, body: &[u8]) -> Vec<u8> {
    let header = EventHeader {
        timestamp,
        event_type,
        server_id: ServerId(1),
        event_length: (EVENT_HEADER_BYTES + body.len()) as u32,
        end_log_pos: 1000,
        flags: 0,
    };
    [&header.to_bytes()[..], body].concat()
}

/// The artificial rotate event that starts every stream.
pub fn rotate() -> Vec<u8> {
    let mut body = 4u64.to_le_bytes().to_vec();
    body.extend_from_slice(b"binlog.000001");
    event(EventType::ROTATE, 0, &body)
}

/// A random number generator that repeats its numbers for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// The client must use no TLS, because all tests with a fake server need the unencrypted bytes.
#[tokio::test]
async fn the_client_accepts_the_fake_server() -> Result<()> {
    let (mut connection, task) = connected(async |mut peer: Peer| {
        ensure!(peer.read().await? == b"\x03SELECT 1");
        peer.columns(1).await?;
        peer.row(&[Some(b"1")]).await?;
        peer.end_of_rows(ServerStatus::default()).await?;
        peer.read().await
    })
    .await?;
    ensure!(connection.server().version == (9, 7, 0) && !connection.server().tls);
    ensure!(connection.query("SELECT 1").await?.scalar() == Some("1"));
    connection.close().await;
    ensure!(task.await?? == [1], "the client must send COM_QUIT");
    Ok(())
}

/// Returns the options with TLS turned off.
pub fn without_tls(mut options: ConnectOptions) -> ConnectOptions {
    options.tls.mode = TlsMode::Off;
    options
}
