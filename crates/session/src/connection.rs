//! A logged-in connection to a server, and the commands that run on it.

use bytes::Bytes;
use tailwater_wire::protocol::command::ClientCommand;
use tailwater_wire::protocol::ok_err_eof_packets::{ERR, EofPacket, ErrPacket, LOCAL_INFILE, OK, OkPacket};
use tailwater_wire::protocol::resultset::parse_column_count;
use tailwater_wire::protocol::{Capabilities, ColumnDefinition, MariadbCapabilities, ServerStatus};
use tailwater_wire::server_version::{ServerFeature, without_replication_prefix};
use tailwater_wire::sql_redaction::{KEPT_BYTES_MAX, nth_statement};
use tailwater_wire::{Flavour, WireError};
use tracing::debug;

use crate::connection_options::ConnectOptions;
use crate::error::{SessionError, StatementPrefix};
use crate::login::{self, LoggedIn};
use crate::packet_stream::PacketStream;
use crate::session_settings;
use crate::socket::Socket;
use crate::supported_versions;
use crate::text_result_rows::{QueryResult, RowStream};

const QUERYING: &str = "running a statement";
pub(crate) const READING_ROWS: &str = "reading rows";

/// The length in bytes of the padded statement with which [`Connection::widen_answers`] makes the server
/// enlarge its network buffer for this connection. It is about the size of a socket's buffer.
const WIDE_BYTES: usize = 128 << 10;

/// The maximum number of results of one statement (a procedure returns one per SELECT).
const RESULTS_MAX: usize = 10_000;

/// The properties of the server that a connection is logged in to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// The flavour: MySQL or MariaDB.
    pub flavour: Flavour,
    /// The version: major, minor and patch number.
    pub version: (u16, u16, u16),
    /// The version text. The prefix `5.5.5-`, which MariaDB 10 sends in its greeting, is removed.
    pub version_text: String,
    /// The connection id for `KILL`, truncated to 32 bits.
    pub connection_id: u32,
    /// Whether the connection uses TLS.
    pub tls: bool,
}

impl ServerInfo {
    /// Whether a server of this flavour and version has a feature.
    pub fn has(&self, feature: ServerFeature) -> bool {
        feature.is_in(self.flavour, self.version)
    }
}

/// A server's OK answer to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OkInfo {
    /// The number of changed rows.
    pub affected_rows: u64,
    /// The first AUTO_INCREMENT value that the statement generated. 0 if it generated none.
    pub last_insert_id: u64,
    /// The number of warnings that `SHOW WARNINGS` lists.
    pub warnings: u16,
    /// The status flags: see [`ServerStatus`].
    pub status: ServerStatus,
}

impl From<OkPacket> for OkInfo {
    fn from(ok: OkPacket) -> Self {
        Self {
            affected_rows: ok.affected_rows,
            last_insert_id: ok.last_insert_id,
            warnings: ok.warnings,
            status: ok.status,
        }
    }
}

/// The first packet of the answer to a statement.
pub(crate) enum Opening {
    Ok(OkInfo),
    Columns(Vec<ColumnDefinition>),
    /// The server requests a local file. The text is the beginning of the file's name.
    LocalInfile(String),
}

/// Adds `piece` to `front`, up to the number of bytes of a statement that messages show.
fn keep_front(front: &mut Vec<u8>, piece: &[u8]) {
    let more = KEPT_BYTES_MAX.saturating_sub(front.len());
    front.extend_from_slice(piece.get(..more).unwrap_or(piece));
}

/// A logged-in connection.
///
/// A connection runs one command at a time. If a call is cancelled before it returns, the connection becomes
/// unusable, and later calls return [`SessionError::OutOfStep`].
#[derive(Debug)]
pub struct Connection {
    pub(crate) stream: PacketStream,
    pub(crate) server: ServerInfo,
    capabilities: Capabilities,
    pub(crate) mariadb_capabilities: MariadbCapabilities,
    pub(crate) rows_bytes_max: usize,
    endpoint: String,
    /// The beginning of the current statement, for messages.
    pub(crate) statement: Vec<u8>,
    /// Set while a command runs. If the command is cancelled or breaks off, the flag stays set and the
    /// connection is unusable.
    busy: bool,
}

impl Connection {
    /// Connects, logs in, and sets the session variables of [`ConnectOptions::session_preset`].
    ///
    /// # Errors
    /// [`SessionError::Connect`], [`SessionError::Resolve`] or [`SessionError::ConnectTimeout`] if the server
    /// cannot be reached; [`SessionError::Denied`] if it rejects the login; the errors about TLS and
    /// authentication; [`SessionError::SessionSetting`] if a session variable that changes results cannot be
    /// set.
    pub async fn connect(options: &ConnectOptions) -> Result<Self, SessionError> {
        let work = async {
            let logged_in = login::log_in(Socket::connect(&options.endpoint).await?, options).await?;
            let mut connection = Self::new(logged_in, options);
            supported_versions::refuse_too_old(&connection.server, &options.endpoint)?;
            session_settings::apply(&mut connection, options.session_preset).await?;
            Ok(connection)
        };
        match tokio::time::timeout(options.connect_timeout, work).await {
            Ok(connected) => connected,
            Err(_) => Err(SessionError::ConnectTimeout {
                endpoint: options.endpoint.to_string(),
                seconds: options.connect_timeout,
            }),
        }
    }

    fn new(logged_in: LoggedIn, options: &ConnectOptions) -> Self {
        let LoggedIn { mut stream, greeting, capabilities, mariadb_capabilities, tls } = logged_in;
        stream.read_timeout = options.read_timeout;
        stream.write_timeout = options.write_timeout;
        let flavour = greeting.flavour();
        let server = ServerInfo {
            flavour,
            version: greeting.version(),
            version_text: without_replication_prefix(&greeting.server_version).to_owned(),
            connection_id: greeting.connection_id,
            tls,
        };
        supported_versions::warn_once(server.flavour, server.version, &options.endpoint);
        debug!(endpoint = %options.endpoint, user = options.user, server = server.version_text, tls, "connected");
        Self {
            stream,
            server,
            capabilities,
            mariadb_capabilities,
            rows_bytes_max: options.rows_bytes_max,
            endpoint: options.endpoint.to_string(),
            statement: Vec::new(),
            busy: false,
        }
    }

    /// The server that this connection is logged in to.
    pub fn server(&self) -> &ServerInfo {
        &self.server
    }

    /// The server's address, for messages.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Runs a statement and collects its rows. If the statement has several results, returns the first.
    ///
    /// # Errors
    /// [`SessionError::Server`] if the statement fails; [`SessionError::ResultTooLarge`] beyond
    /// [`ConnectOptions::rows_bytes_max`], which makes the connection unusable; any error that breaks the
    /// connection.
    pub async fn query(&mut self, sql: &str) -> Result<QueryResult, SessionError> {
        let bytes_max = self.rows_bytes_max;
        let mut stream = self.query_stream(sql).await?;
        let mut rows = Vec::new();
        let mut bytes = 0;
        while let Some(row) = stream.next().await? {
            bytes += row.memory_bytes();
            if bytes > bytes_max {
                return Err(SessionError::ResultTooLarge { bytes_max });
            }
            rows.push(row);
        }
        let end = stream.end().unwrap_or_default();
        Ok(QueryResult {
            columns: stream.into_columns(),
            rows,
            affected_rows: end.affected_rows,
            last_insert_id: end.last_insert_id,
            warnings: end.warnings,
        })
    }

    /// Runs a statement. If it returns rows, discards them.
    ///
    /// # Errors
    /// The same as for [`Connection::query`], except that the size is not limited.
    pub async fn execute(&mut self, sql: &str) -> Result<OkInfo, SessionError> {
        let mut stream = self.query_stream(sql).await?;
        while stream.next().await?.is_some() {}
        Ok(stream.end().unwrap_or_default())
    }

    /// Runs a statement as [`Connection::execute`] does. The statement consists of bytes in the session's
    /// character set, which need not be UTF-8.
    ///
    /// # Errors
    /// The same as for [`Connection::execute`].
    pub async fn execute_bytes(&mut self, statement: &[u8]) -> Result<OkInfo, SessionError> {
        let mut stream = self.send_statement(statement.len(), std::iter::once(statement)).await?;
        while stream.next().await?.is_some() {}
        Ok(stream.end().unwrap_or_default())
    }

    /// Runs `count` statements without rows, separated by semicolons, in one round trip. The server stops at
    /// the first statement that fails. Returns the answer to the last statement.
    ///
    /// After a `BINLOG` statement, a server sends further results but does not set the flag that announces
    /// them. So this method counts the answers and ignores the flag.
    ///
    /// # Errors
    /// [`SessionError::Server`] for the first statement that fails; [`SessionError::Protocol`] if a statement
    /// returns rows; any error that breaks the connection.
    pub async fn execute_all(&mut self, statements: &[u8], count: usize) -> Result<OkInfo, SessionError> {
        let mut opening = self.open_statement(statements.len(), std::iter::once(statements)).await?;
        for index in 1..count {
            Self::no_rows(opening)?;
            opening = match self.read_opening().await {
                Err(SessionError::Server { doing, error, .. }) => {
                    let statement = StatementPrefix::of(nth_statement(statements, index));
                    return Err(SessionError::Server { doing, error, statement });
                }
                opening => opening?,
            };
        }
        let ok = Self::no_rows(opening)?;
        self.finish(ok.status).await?;
        Ok(ok)
    }

    /// Reads the answer to a statement without rows.
    fn no_rows(opening: Opening) -> Result<OkInfo, SessionError> {
        match opening {
            Opening::Ok(ok) => Ok(ok),
            Opening::Columns(_) => {
                let source =
                    WireError::malformed("result", "the statement returned rows, but must return none");
                Err(SessionError::Protocol { doing: QUERYING, source })
            }
            Opening::LocalInfile(file) => Err(SessionError::LocalInfile { file }),
        }
    }

    /// Runs a statement of `bytes` bytes as [`Connection::execute_bytes`] does. The caller passes the
    /// statement in pieces, so the whole statement need not be in memory.
    ///
    /// # Errors
    /// The same as for [`Connection::execute`]. [`SessionError::Protocol`] if the total length of the pieces
    /// is not `bytes`; the connection is then unusable.
    pub async fn execute_pieces(
        &mut self,
        bytes: usize,
        pieces: impl Iterator<Item: AsRef<[u8]>>,
    ) -> Result<OkInfo, SessionError> {
        let mut stream = self.send_statement(bytes, pieces).await?;
        while stream.next().await?.is_some() {}
        Ok(stream.end().unwrap_or_default())
    }

    /// Makes the server send rows in larger pieces. Larger pieces need fewer system calls on both sides. The
    /// server's buffer for a connection has `net_buffer_length` bytes at first (16 KiB). The buffer grows to
    /// the length of the longest statement that the server has received, and does not shrink.
    ///
    /// # Errors
    /// Any error that breaks the connection.
    pub async fn widen_answers(&mut self) -> Result<(), SessionError> {
        let longest = self.query("SELECT @@SESSION.max_allowed_packet").await?;
        let longest = longest.first().and_then(|row| row.get_u64(0)).unwrap_or(0);
        let bytes = usize::try_from(longest / 2).unwrap_or(WIDE_BYTES).min(WIDE_BYTES);
        // The spaces only make the statement long: servers trim trailing spaces before they log a statement.
        self.execute(&("DO 0".to_owned() + &" ".repeat(bytes))).await?;
        Ok(())
    }

    /// Runs a statement and streams its rows.
    ///
    /// # Errors
    /// [`SessionError::Server`] if the statement fails; any error that breaks the connection.
    pub async fn query_stream(&mut self, sql: &str) -> Result<RowStream<'_>, SessionError> {
        self.send_statement(sql.len(), std::iter::once(sql)).await
    }

    async fn send_statement(
        &mut self,
        bytes: usize,
        pieces: impl Iterator<Item: AsRef<[u8]>>,
    ) -> Result<RowStream<'_>, SessionError> {
        match self.open_statement(bytes, pieces).await? {
            Opening::Ok(ok) => {
                self.finish(ok.status).await?;
                Ok(RowStream::new(self, Vec::new(), Some(ok)))
            }
            Opening::Columns(columns) => Ok(RowStream::new(self, columns, None)),
            Opening::LocalInfile(file) => Err(SessionError::LocalInfile { file }),
        }
    }

    /// Sends a statement and reads the first packet of its answer.
    pub(crate) async fn open_statement(
        &mut self,
        bytes: usize,
        pieces: impl Iterator<Item: AsRef<[u8]>>,
    ) -> Result<Opening, SessionError> {
        self.begin()?;
        let mut command = Vec::with_capacity(1);
        let empty = ClientCommand::Query(&[]).encode(&mut command);
        empty.map_err(|source| SessionError::Protocol { doing: QUERYING, source })?;
        self.statement.clear();
        let statement = &mut self.statement;
        let pieces = pieces.inspect(|piece| keep_front(statement, piece.as_ref()));
        self.stream.send_pieces(QUERYING, &command, bytes, pieces).await?;
        self.read_opening().await
    }

    /// Sends COM_PING.
    ///
    /// # Errors
    /// Any error that breaks the connection.
    pub async fn ping(&mut self) -> Result<(), SessionError> {
        const DOING: &str = "pinging";
        self.begin()?;
        self.statement.clear();
        self.stream.send(DOING, &ClientCommand::Ping).await?;
        self.read_ok(DOING).await?;
        Ok(())
    }

    /// Sends COM_QUIT and closes the connection. Dropping a connection closes it too, but the server then
    /// counts it in `Aborted_clients`.
    pub async fn close(mut self) {
        if !self.busy {
            // Ignore an error here: the server closes its side whether or not it received COM_QUIT.
            let _ = self.stream.send("closing the connection", &ClientCommand::Quit).await;
        }
    }

    pub(crate) fn begin(&mut self) -> Result<(), SessionError> {
        if self.busy {
            return Err(SessionError::OutOfStep);
        }
        self.busy = true;
        Ok(())
    }

    /// Reads the OK or error packet that ends a command.
    pub(crate) async fn read_ok(&mut self, doing: &'static str) -> Result<OkInfo, SessionError> {
        let payload = self.stream.read_packet(doing, self.rows_bytes_max).await?;
        match payload.first() {
            Some(&ERR) => Err(self.server_error(doing, &payload)),
            _ => {
                let ok =
                    OkPacket::parse(&payload).map_err(|source| SessionError::Protocol { doing, source })?;
                self.busy = false;
                Ok(ok.into())
            }
        }
    }

    /// Ends the current command, which the server does not answer.
    pub(crate) fn end_unanswered(&mut self) {
        self.busy = false;
    }

    /// Returns the server's error packet as a [`SessionError`]. The error ends the command; the connection
    /// stays usable.
    pub(crate) fn server_error(&mut self, doing: &'static str, payload: &[u8]) -> SessionError {
        match ErrPacket::parse(payload) {
            Ok(packet) => {
                self.busy = false;
                let statement = StatementPrefix::of(&self.statement);
                SessionError::Server { doing, error: packet.into(), statement }
            }
            Err(source) => SessionError::Protocol { doing, source },
        }
    }

    pub(crate) async fn read_opening(&mut self) -> Result<Opening, SessionError> {
        let wrong = |source| SessionError::Protocol { doing: QUERYING, source };
        let payload = self.stream.read_packet(QUERYING, self.rows_bytes_max).await?;
        match payload.first() {
            Some(&OK) => OkPacket::parse(&payload).map(|ok| Opening::Ok(ok.into())).map_err(wrong),
            Some(&ERR) => Err(self.server_error(QUERYING, &payload)),
            Some(&LOCAL_INFILE) => {
                let file = String::from_utf8_lossy(&payload[1..payload.len().min(257)]).into_owned();
                Ok(Opening::LocalInfile(file))
            }
            _ => {
                let count = parse_column_count(&payload).map_err(wrong)?;
                self.read_columns(count).await.map(Opening::Columns)
            }
        }
    }

    pub(crate) async fn read_columns(&mut self, count: usize) -> Result<Vec<ColumnDefinition>, SessionError> {
        let wrong = |source| SessionError::Protocol { doing: READING_ROWS, source };
        let mut columns = Vec::new();
        let mut bytes = 0;
        for _ in 0..count {
            let payload = self.stream.read_packet(READING_ROWS, self.rows_bytes_max).await?;
            bytes += payload.len() + size_of::<ColumnDefinition>();
            if bytes > self.rows_bytes_max {
                return Err(SessionError::ResultTooLarge { bytes_max: self.rows_bytes_max });
            }
            columns.push(ColumnDefinition::parse(&payload).map_err(wrong)?);
        }
        if !self.capabilities.has(Capabilities::DEPRECATE_EOF) {
            let payload = self.stream.read_packet(READING_ROWS, self.rows_bytes_max).await?;
            EofPacket::parse(&payload, self.capabilities).map_err(wrong)?;
        }
        Ok(columns)
    }

    /// Takes the rows that are completely buffered and consist of one packet each. Does not wait.
    /// [`Connection::read_payload`] reads rows of several packets, and all other packets.
    pub(crate) fn take_rows(&mut self) -> Bytes {
        let (bytes_max, capabilities) = (self.rows_bytes_max, self.capabilities);
        let is_row = |payload: &[u8]| {
            payload.len() <= bytes_max
                && payload.first() != Some(&ERR)
                && !EofPacket::ends(payload, capabilities)
        };
        self.stream.take_packets(is_row)
    }

    /// Reads the payload of the next row. Returns the final OK instead if the packet ends all results of the
    /// statement.
    pub(crate) async fn read_payload(&mut self) -> Result<Result<Bytes, OkInfo>, SessionError> {
        match self.read_payload_or_end().await? {
            Ok(payload) => Ok(Ok(payload)),
            Err(end) => {
                self.finish(end.status).await?;
                Ok(Err(end))
            }
        }
    }

    /// Reads the payload of the next row. Returns the OK instead if the packet ends this result. More results
    /// may follow.
    async fn read_payload_or_end(&mut self) -> Result<Result<Bytes, OkInfo>, SessionError> {
        let wrong = |source| SessionError::Protocol { doing: READING_ROWS, source };
        let payload = self.stream.read_packet(READING_ROWS, self.rows_bytes_max).await?;
        if payload.first() == Some(&ERR) {
            return Err(self.server_error(READING_ROWS, &payload));
        }
        if !EofPacket::ends(&payload, self.capabilities) {
            return Ok(Ok(payload));
        }
        Ok(Err(match self.capabilities.has(Capabilities::DEPRECATE_EOF) {
            true => OkPacket::parse(&payload).map_err(wrong)?.into(),
            false => {
                let eof = EofPacket::parse(&payload, self.capabilities).map_err(wrong)?;
                OkInfo { warnings: eof.warnings, status: eof.status, ..OkInfo::default() }
            }
        }))
    }

    /// Reads and discards the further results that `status` announces, then ends the command.
    pub(crate) async fn finish(&mut self, mut status: ServerStatus) -> Result<(), SessionError> {
        let mut results = 0;
        while status.has(ServerStatus::MORE_RESULTS_EXISTS) {
            results += 1;
            if results > RESULTS_MAX {
                let source = WireError::malformed(
                    "result",
                    format!("the statement returned more than {RESULTS_MAX} results"),
                );
                return Err(SessionError::Protocol { doing: READING_ROWS, source });
            }
            status = match self.read_opening().await? {
                Opening::Ok(ok) => ok.status,
                Opening::Columns(_) => loop {
                    if let Err(end) = self.read_payload_or_end().await? {
                        break end.status;
                    }
                },
                Opening::LocalInfile(file) => return Err(SessionError::LocalInfile { file }),
            };
        }
        self.busy = false;
        Ok(())
    }
}
