//! A logged-in connection and the exchanges on it.

use bytes::Bytes;
use tailwater_wire::protocol::command::ClientCommand;
use tailwater_wire::protocol::response::{ERR, EofPacket, ErrPacket, LOCAL_INFILE, OK, OkPacket};
use tailwater_wire::protocol::resultset::parse_column_count;
use tailwater_wire::protocol::{Capabilities, ColumnDefinition, MariadbCapabilities, ServerStatus};
use tailwater_wire::redact::{KEPT_BYTES_MAX, nth_statement};
use tailwater_wire::server_version::{ServerFeature, without_replication_prefix};
use tailwater_wire::{Flavour, WireError};
use tracing::debug;

use crate::error::{SessionError, StatementPrefix};
use crate::login::{self, LoggedIn};
use crate::options::ConnectOptions;
use crate::packet_stream::PacketStream;
use crate::rows::{QueryResult, RowStream};
use crate::session_settings;
use crate::socket::Socket;
use crate::supported_versions;

const QUERYING: &str = "running a statement";
pub(crate) const READING_ROWS: &str = "reading rows";

/// How long a server's buffer is for a connection that many rows come over: about as much as a socket takes.
const WIDE_BYTES: usize = 128 << 10;

/// How many results one statement may give (a procedure gives one per SELECT in it).
const RESULTS_MAX: usize = 10_000;

/// Who answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// Which family the server belongs to.
    pub flavour: Flavour,
    /// Major, minor and patch number.
    pub version: (u16, u16, u16),
    /// The version as the server spells it, without the `5.5.5-` that MariaDB 10 greets with.
    pub version_text: String,
    /// The connection's id, as `KILL` takes it; cut to 32 bits.
    pub connection_id: u32,
    /// Whether the connection runs under TLS.
    pub tls: bool,
}

impl ServerInfo {
    /// Whether the server has a feature, by its flavour and version.
    pub fn has(&self, feature: ServerFeature) -> bool {
        feature.is_in(self.flavour, self.version)
    }
}

/// What a server says when a statement is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OkInfo {
    /// Rows changed.
    pub affected_rows: u64,
    /// The first AUTO_INCREMENT value generated; 0 for none.
    pub last_insert_id: u64,
    /// How many warnings `SHOW WARNINGS` would list.
    pub warnings: u16,
    /// See [`ServerStatus`].
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

/// What opens a result.
pub(crate) enum Opening {
    Ok(OkInfo),
    Columns(Vec<ColumnDefinition>),
    /// The server asks for a file, here the front of its name.
    LocalInfile(String),
}

/// Keeps of a statement what messages may show.
fn keep_front(front: &mut Vec<u8>, piece: &[u8]) {
    let more = KEPT_BYTES_MAX.saturating_sub(front.len());
    front.extend_from_slice(piece.get(..more).unwrap_or(piece));
}

/// A connection that is logged in.
///
/// One exchange at a time. A call that is cancelled before it is done leaves the connection unusable:
/// [`SessionError::OutOfStep`] from then on.
#[derive(Debug)]
pub struct Connection {
    pub(crate) stream: PacketStream,
    pub(crate) server: ServerInfo,
    capabilities: Capabilities,
    pub(crate) mariadb_capabilities: MariadbCapabilities,
    pub(crate) rows_bytes_max: usize,
    endpoint: String,
    /// The beginning of the statement that is under way, for messages.
    pub(crate) statement: Vec<u8>,
    /// Set while an exchange is under way, and for good if it does not end well.
    busy: bool,
}

impl Connection {
    /// Connects, logs in, and gives the session the settings of [`ConnectOptions::session_preset`].
    ///
    /// # Errors
    /// [`SessionError::Connect`], [`SessionError::Resolve`] or [`SessionError::ConnectTimeout`] if the server cannot
    /// be reached; [`SessionError::Denied`] if it does not let the user in; those about TLS and authentication;
    /// [`SessionError::SessionSetting`] if a setting of the server's that changes results cannot be taken out of the session.
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

    /// Who answered.
    pub fn server(&self) -> &ServerInfo {
        &self.server
    }

    /// Where the server is, for messages.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Runs a statement and collects its rows. Of several results the first is given.
    ///
    /// # Errors
    /// [`SessionError::Server`] if the statement fails; [`SessionError::ResultTooLarge`] beyond
    /// [`ConnectOptions::rows_bytes_max`], which ends the connection; anything that breaks the connection.
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

    /// Runs a statement for its effect; rows, if there are any, are read and dropped.
    ///
    /// # Errors
    /// As [`Connection::query`], without its limit.
    pub async fn execute(&mut self, sql: &str) -> Result<OkInfo, SessionError> {
        let mut stream = self.query_stream(sql).await?;
        while stream.next().await?.is_some() {}
        Ok(stream.end().unwrap_or_default())
    }

    /// As [`Connection::execute`], with a statement that need not be UTF-8: the server takes it in the character set that
    /// the session has set.
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub async fn execute_bytes(&mut self, statement: &[u8]) -> Result<OkInfo, SessionError> {
        let mut stream = self.send_statement(statement.len(), std::iter::once(statement)).await?;
        while stream.next().await?.is_some() {}
        Ok(stream.end().unwrap_or_default())
    }

    /// Runs as many statements as `count` says, with semicolons between them, in one round trip: statements that give no rows.
    /// None is run behind one that fails. Gives the answer to the last.
    ///
    /// A server that was given row events (`BINLOG`) no longer says that more results follow, and sends them all the same: so
    /// what it says of that is not asked.
    ///
    /// # Errors
    /// [`SessionError::Server`] for the first that fails; anything that breaks the connection, and [`SessionError::Protocol`] if
    /// one answers with rows.
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

    /// What a statement that gives no rows is answered with.
    fn no_rows(opening: Opening) -> Result<OkInfo, SessionError> {
        match opening {
            Opening::Ok(ok) => Ok(ok),
            Opening::Columns(_) => {
                let source = WireError::malformed("result", "rows, of a statement that has none");
                Err(SessionError::Protocol { doing: QUERYING, source })
            }
            Opening::LocalInfile(file) => Err(SessionError::LocalInfile { file }),
        }
    }

    /// As [`Connection::execute_bytes`], with a statement of `bytes` that comes in pieces: for statements that are not to be
    /// whole in memory.
    ///
    /// # Errors
    /// As [`Connection::execute`]; [`SessionError::Protocol`], and an unusable connection, if the pieces are not `bytes`.
    pub async fn execute_pieces(
        &mut self,
        bytes: usize,
        pieces: impl Iterator<Item: AsRef<[u8]>>,
    ) -> Result<OkInfo, SessionError> {
        let mut stream = self.send_statement(bytes, pieces).await?;
        while stream.next().await?.is_some() {}
        Ok(stream.end().unwrap_or_default())
    }

    /// Has the server send many rows in larger pieces from here on, in fewer system calls of both sides: the buffer that it has for
    /// a connection is of `net_buffer_length` at first, 16 KiB, and stays as long as the longest statement that came.
    ///
    /// # Errors
    /// Anything that breaks the connection.
    pub async fn widen_answers(&mut self) -> Result<(), SessionError> {
        let longest = self.query("SELECT @@SESSION.max_allowed_packet").await?;
        let longest = longest.first().and_then(|row| row.get_u64(0)).unwrap_or(0);
        let bytes = usize::try_from(longest / 2).unwrap_or(WIDE_BYTES).min(WIDE_BYTES);
        // Servers cut spaces off before they log a statement.
        self.execute(&("DO 0".to_owned() + &" ".repeat(bytes))).await?;
        Ok(())
    }

    /// Runs a statement and gives its rows one by one, as they come.
    ///
    /// # Errors
    /// [`SessionError::Server`] if the statement fails; anything that breaks the connection.
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

    /// Begins an exchange with a statement, and reads how the server begins its answer.
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

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// Anything that breaks the connection.
    pub async fn ping(&mut self) -> Result<(), SessionError> {
        const DOING: &str = "pinging";
        self.begin()?;
        self.statement.clear();
        self.stream.send(DOING, &ClientCommand::Ping).await?;
        self.read_ok(DOING).await?;
        Ok(())
    }

    /// Says goodbye. Dropping a connection closes it too, and lets the server note an aborted one.
    pub async fn close(mut self) {
        if !self.busy {
            // The server closes its side whether or not it got this.
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

    /// Reads the OK or the error that ends an exchange.
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

    /// A command that the server does not answer is sent.
    pub(crate) fn end_unanswered(&mut self) {
        self.busy = false;
    }

    /// An error from the server ends the exchange and leaves the connection in order.
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

    /// Takes the rows that have come whole in a packet each, without waiting; what is none, or longer, is left to
    /// [`Connection::read_payload`].
    pub(crate) fn take_rows(&mut self) -> Bytes {
        let (bytes_max, capabilities) = (self.rows_bytes_max, self.capabilities);
        let is_row = |payload: &[u8]| {
            payload.len() <= bytes_max
                && payload.first() != Some(&ERR)
                && !EofPacket::ends(payload, capabilities)
        };
        self.stream.take_packets(is_row)
    }

    /// Reads the payload of a row, or what stands at the end of all results of the statement.
    pub(crate) async fn read_payload(&mut self) -> Result<Result<Bytes, OkInfo>, SessionError> {
        match self.read_payload_or_end().await? {
            Ok(payload) => Ok(Ok(payload)),
            Err(end) => {
                self.finish(end.status).await?;
                Ok(Err(end))
            }
        }
    }

    /// Reads the payload of a row, or what stands at the end of this result.
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

    /// Reads and drops the further results that `status` announces; then the exchange is over.
    pub(crate) async fn finish(&mut self, mut status: ServerStatus) -> Result<(), SessionError> {
        let mut results = 0;
        while status.has(ServerStatus::MORE_RESULTS_EXISTS) {
            results += 1;
            if results > RESULTS_MAX {
                let source =
                    WireError::malformed("result", format!("more than {RESULTS_MAX} of one statement"));
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
