//! A small server built with this crate, for the tests of the server side.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tailwater_session::server::{
    Acceptor, Accounts, ClientSession, Credential, ServerOptions, ServerTls, integer_column, text_column,
};
use tailwater_session::{ConnectOptions, Endpoint, SessionError, SessionPreset};
use tailwater_wire::Flavour;
use tailwater_wire::protocol::authentication_plugin::AuthPlugin;
use tailwater_wire::protocol::command::ClientCommand;
use tailwater_wire::protocol::packet::{PACKET_HEADER_BYTES, PacketHeader, put_packets};
use tailwater_wire::protocol::{
    COLLATION_UTF8MB4, Capabilities, HandshakeResponse, HandshakeV10, MariadbCapabilities, OkPacket,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The password of all accounts in these tests.
pub const PASSWORD: &str = "Geheim!1 äöü";

/// Options for a server that behaves like MySQL or MariaDB. Its account `u` has a password in clear text.
pub fn options(flavour: Flavour) -> ServerOptions {
    with_account(flavour, &[Credential::password(PASSWORD)])
}

/// Options for a server that behaves like MySQL or MariaDB. Its account `u` has these credentials.
pub fn with_account(flavour: Flavour, credentials: &[Credential]) -> ServerOptions {
    let mut accounts = Accounts::new();
    accounts.add("u", credentials).expect("the account is valid");
    let version = match flavour {
        Flavour::MySql => "9.7.0-tailwater",
        Flavour::MariaDb => "10.11.18-MariaDB-tailwater",
    };
    let mut options = ServerOptions::new(flavour, version, accounts);
    options.tls = ServerTls::Off;
    // Most tests send wrong passwords on purpose, so do not delay their logins.
    options.limits.failed_login_delay_max = Duration::ZERO;
    options
}

/// A listening server. It answers its clients until it is dropped.
pub struct Served {
    pub address: SocketAddr,
    pub acceptor: Arc<Acceptor>,
    /// The errors of the failed logins.
    refusals: Arc<Mutex<Vec<SessionError>>>,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    /// Listens, and answers every statement of a client with a row about the session.
    pub async fn start(options: ServerOptions) -> Result<Self> {
        Self::start_with(options, |session| async move {
            let _ = answer(session).await;
        })
        .await
    }

    /// Listens, and passes each client that logged in to `serve`.
    pub async fn start_with<F, Serve>(options: ServerOptions, serve: Serve) -> Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
        Serve: Fn(ClientSession) -> F + Send + Sync + 'static,
    {
        let acceptor = Arc::new(Acceptor::new(options)?);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let refusals = Arc::new(Mutex::new(Vec::new()));
        let (serve, shared, refused) = (Arc::new(serve), Arc::clone(&acceptor), Arc::clone(&refusals));
        let task = tokio::spawn(async move {
            while let Ok((socket, peer)) = listener.accept().await {
                let (serve, acceptor, refused) =
                    (Arc::clone(&serve), Arc::clone(&shared), Arc::clone(&refused));
                tokio::spawn(async move {
                    match acceptor.accept(socket, peer).await {
                        Ok(session) => serve(session).await,
                        Err(error) => {
                            refused.lock().expect("no thread panicked while it held the lock").push(error)
                        }
                    }
                });
            }
        });
        Ok(Self { address, acceptor, refusals, task })
    }

    pub fn connect_options(&self) -> ConnectOptions {
        let endpoint = Endpoint::tcp("127.0.0.1", self.address.port());
        let options = ConnectOptions::new(endpoint, "u").password(PASSWORD);
        ConnectOptions { session_preset: SessionPreset::Inherited, ..options }
    }

    /// Returns the errors of the failed logins since the last call.
    pub fn refusals(&self) -> Vec<SessionError> {
        std::mem::take(&mut self.refusals.lock().expect("no thread panicked while it held the lock"))
    }

    /// Waits until a login has been refused. Returns its error.
    pub async fn refusal(&self) -> Result<SessionError> {
        for _ in 0..1000 {
            if let Some(error) = self.refusals().pop() {
                return Ok(error);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("no login was refused")
    }

    /// Waits until the number of open connections is `count`.
    pub async fn until_connections(&self, count: usize) -> Result<()> {
        for _ in 0..1000 {
            if self.acceptor.connections() == count {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("there are {} connections instead of {count}", self.acceptor.connections())
    }
}

/// Answers `SELECT ...` with a row about the session, `ERROR ...` with an error, `EMPTY` with a result
/// without rows, and every other statement with OK.
async fn answer(mut session: ClientSession) -> Result<()> {
    while let Some(payload) = session.read_command().await? {
        match ClientCommand::parse(&payload)? {
            // MySQL's command-line client sends this statement to find out whether the server supports `$$`
            // as a quote. The client expects an error.
            ClientCommand::Query(b"select $$") => {
                session.write_error(1064, "42000", "You have an error").await?
            }
            ClientCommand::Query(sql) if sql.to_ascii_uppercase().starts_with(b"SELECT") => {
                let columns = [
                    text_column("user"),
                    text_column("tls"),
                    integer_column("id"),
                    text_column("sql"),
                    text_column("n"),
                ];
                let (user, id) = (session.user().to_owned(), session.connection_id().to_string());
                let tls = if session.is_tls() { "tls" } else { "plain" };
                let row = [Some(user.as_bytes()), Some(tls.as_bytes()), Some(id.as_bytes()), Some(sql), None];
                session.write_rows(&columns, [row]).await?;
            }
            ClientCommand::Query(sql) if sql.starts_with(b"ERROR") => {
                session.write_error(1064, "42000", "You have an error").await?;
            }
            ClientCommand::Query(b"EMPTY") => {
                session.write_rows(&[text_column("a")], Vec::<Vec<Option<&str>>>::new()).await?;
            }
            ClientCommand::Query(sql) if sql.starts_with(b"ROWS ") => {
                let count: usize = str::from_utf8(&sql[5..])?
                    .trim()
                    .parse()
                    .context("the test statement ROWS needs a number")?;
                let rows = (0..count).map(|index| [Some(index.to_string()), Some("x".repeat(index % 300))]);
                session.write_rows(&[integer_column("a"), text_column("b")], rows).await?;
            }
            _ => session.write_ok(OkPacket { affected_rows: 7, ..OkPacket::default() }).await?,
        }
    }
    Ok(())
}

/// A client that sends exactly the packets that a test gives it.
pub struct RawClient {
    pub stream: TcpStream,
    pub greeting: HandshakeV10,
}

impl RawClient {
    /// Connects and reads the greeting.
    pub async fn connect(served: &Served) -> Result<Self> {
        let mut stream = TcpStream::connect(served.address).await?;
        stream.set_nodelay(true)?;
        let (sequence, payload) = read_packet(&mut stream).await?;
        ensure!(sequence == 0);
        Ok(Self { greeting: HandshakeV10::parse(&payload)?, stream })
    }

    /// The client's answer to the greeting, with the right password.
    pub fn answer(&self) -> Result<HandshakeResponse> {
        let plugin = AuthPlugin::from_name(&self.greeting.auth_plugin)
            .context("the greeting must name a known plugin")?;
        Ok(HandshakeResponse {
            capabilities: self.greeting.capabilities - Capabilities::SSL - Capabilities::CONNECT_WITH_DB,
            mariadb_capabilities: MariadbCapabilities::default(),
            packet_bytes_max: 1 << 24,
            collation: COLLATION_UTF8MB4,
            user: "u".to_owned(),
            auth_response: plugin.first_answer(PASSWORD.as_bytes(), &self.greeting.auth_data)?,
            database: None,
            auth_plugin: plugin.name().to_owned(),
            attributes: Vec::new(),
        })
    }

    /// Connects and logs in.
    pub async fn log_in(served: &Served) -> Result<Self> {
        let mut client = Self::connect(served).await?;
        let mut payload = Vec::new();
        client.answer()?.encode(&mut payload)?;
        client.send(1, &payload).await?;
        loop {
            match client.read().await?.1.first() {
                Some(0) => return Ok(client),
                // The server knows the fast hash of the password, so the OK packet follows.
                Some(1) => {}
                other => bail!("the server sent {other:?} instead of OK"),
            }
        }
    }

    pub async fn send(&mut self, sequence: u8, payload: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        put_packets(&mut out, sequence, payload);
        Ok(self.stream.write_all(&out).await?)
    }

    /// Reads a packet and returns its number and payload.
    pub async fn read(&mut self) -> Result<(u8, Vec<u8>)> {
        read_packet(&mut self.stream).await
    }
}

/// Reads a packet and returns its number and payload.
pub async fn read_packet(stream: &mut TcpStream) -> Result<(u8, Vec<u8>)> {
    let mut header = [0; PACKET_HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let header = PacketHeader::parse(&header).context("the packet header is invalid")?;
    let mut payload = vec![0; header.payload_bytes];
    stream.read_exact(&mut payload).await?;
    Ok((header.sequence, payload))
}
