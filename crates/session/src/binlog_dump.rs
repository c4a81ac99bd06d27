//! The binlog stream of a server, in chunks, with semi-synchronous acknowledgements.

use std::time::Duration;

use bytes::Bytes;
use tailwater_wire::binlog_event::{EVENT_HEADER_BYTES, EventHeader};
use tailwater_wire::protocol::command::{ClientCommand, DumpFlags, RegisterReplica};
use tailwater_wire::protocol::ok_err_eof_packets::{EOF, ERR, ErrPacket, OK};
use tailwater_wire::protocol::packet::{PACKET_HEADER_BYTES, PacketHeader};
use tailwater_wire::protocol::semi_sync::{self, Ack, SemiSyncHeader};
use tailwater_wire::{Flavour, ServerId, WireError};
use tracing::debug;

use crate::connection::Connection;
use crate::error::{SessionError, StatementPrefix};
use crate::packet_stream::PacketStream;

/// The maximum size of a chunk in bytes. An event up to this size comes in one chunk.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The minimum size of a chunk of an event that is larger than [`CHUNK_BYTES_MAX`], in bytes.
const CHUNK_BYTES_MIN: usize = 128 << 10;

/// The number of bytes that one read from the socket requests. Large reads make the stream fast while the
/// capture catches up.
const READ_AHEAD_BYTES: usize = 256 << 10;

/// The maximum size of a server's error packet, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The stream fails if no bytes arrive for this many heartbeat periods, unless [`DumpRequest::silence_max`]
/// sets another limit.
const HEARTBEATS_MISSED_MAX: u32 = 3;

const STARTING: &str = "starting the binlog stream";
const READING: &str = "reading the binlog stream";
const ACKNOWLEDGING: &str = "acknowledging a commit";

/// Where a binlog stream begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DumpStart {
    /// At a position in a file of the source.
    FilePosition {
        /// The file name without a folder; empty for the oldest file.
        file: String,
        /// Offset of the first event: at least 4, and below 4 GiB, because the protocol has only 32 bits for
        /// the offset.
        position: u64,
    },
    /// For MySQL: after all transactions of a GTID set.
    MysqlGtid {
        /// The GTID set in MySQL's binary format.
        set_block: Vec<u8>,
    },
    /// For MariaDB: after a GTID position in each domain.
    MariadbGtid {
        /// The position in the format of `@@gtid_slave_pos`; empty for the beginning of the binlog.
        connect_state: String,
    },
}

/// A request for a binlog stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpRequest {
    /// The server id of this client. No other replica of the source may have the same id.
    pub server_id: u32,
    /// Where the stream starts.
    pub start: DumpStart,
    /// Whether to take part in semi-synchronous replication: see [`DumpStream::semi_sync`].
    pub semi_sync: bool,
    /// The source sends a heartbeat when it has had no event for this time. Zero disables heartbeats.
    pub heartbeat: Duration,
    /// The stream fails after this time without any bytes from the source. Default: three heartbeat periods,
    /// or no limit if heartbeats are disabled.
    pub silence_max: Option<Duration>,
    /// For MariaDB: whether the source sends Annotate_rows events. With them the stream equals the binlog
    /// file.
    pub annotate: bool,
    /// Whether the source ends the stream at the end of its newest binlog file instead of waiting for more
    /// events.
    pub non_blocking: bool,
    /// The UUID by which a MySQL source identifies replicas. If two streams have the same UUID, the source
    /// ends the older stream.
    pub replica_uuid: Option<String>,
    /// The host name that the source shows in `SHOW REPLICAS`.
    pub report_host: String,
    /// The port that the source shows in `SHOW REPLICAS`.
    pub report_port: u16,
}

impl DumpRequest {
    /// Returns a request without semi-sync, with Annotate_rows events, and with a heartbeat of 10 s. At the
    /// end of the binlog the stream waits for more events.
    pub fn new(server_id: u32, start: DumpStart) -> Self {
        Self {
            server_id,
            start,
            semi_sync: false,
            heartbeat: Duration::from_secs(10),
            silence_max: None,
            annotate: true,
            non_blocking: false,
            replica_uuid: None,
            report_host: String::new(),
            report_port: 0,
        }
    }

    fn check(&self, flavour: Flavour) -> Result<(), SessionError> {
        let refused = |reason: &str| Err(SessionError::DumpRequest { reason: reason.to_owned() });
        match (&self.start, flavour) {
            (DumpStart::MysqlGtid { .. }, Flavour::MariaDb) => {
                refused("the start is a MySQL GTID set, but a MariaDB server needs a MariaDB GTID position")
            }
            (DumpStart::MariadbGtid { .. }, Flavour::MySql) => {
                refused("the start is a MariaDB GTID position, but a MySQL server needs a MySQL GTID set")
            }
            (DumpStart::MariadbGtid { connect_state }, Flavour::MariaDb)
                if !connect_state.bytes().all(|byte| byte.is_ascii_digit() || b"-, ".contains(&byte)) =>
            {
                refused("a MariaDB GTID position may contain only digits, '-' and ','")
            }
            (DumpStart::FilePosition { position, .. }, _) if *position < 4 => {
                refused("a file position is at least 4, after the file's magic number")
            }
            (DumpStart::FilePosition { position, .. }, _) if u32::try_from(*position).is_err() => refused(
                "the protocol has no file positions beyond 4 GiB; start at a GTID, or at the beginning of the file",
            ),
            _ => match &self.replica_uuid {
                Some(uuid) if !uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') => {
                    refused("a replica UUID may contain only hexadecimal digits and '-'")
                }
                _ => Ok(()),
            },
        }
    }

    /// The statement that sets the options of the stream as user variables on the source.
    fn session_variables(&self, flavour: Flavour) -> String {
        let heartbeat_ns = self.heartbeat.as_nanos();
        let semi_sync = u8::from(self.semi_sync);
        match flavour {
            // Set each variable under both of its names: MySQL 8.0.26 renamed the variables, and a server
            // reads only the name that it knows.
            Flavour::MySql => {
                let mut set = format!(
                    "SET @source_binlog_checksum = @@global.binlog_checksum, \
                     @master_binlog_checksum = @@global.binlog_checksum, \
                     @source_heartbeat_period = {heartbeat_ns}, @master_heartbeat_period = {heartbeat_ns}"
                );
                if self.semi_sync {
                    set.push_str(", @rpl_semi_sync_replica = 1, @rpl_semi_sync_slave = 1");
                }
                if let Some(uuid) = &self.replica_uuid {
                    set.push_str(&format!(", @replica_uuid = '{uuid}', @slave_uuid = '{uuid}'"));
                }
                set
            }
            // 4 means `MARIA_SLAVE_CAPABILITY_GTID`. The source then sends every event unchanged, including
            // GTID events.
            Flavour::MariaDb => {
                let mut set = format!(
                    "SET @mariadb_slave_capability = 4, @master_binlog_checksum = @@global.binlog_checksum, \
                     @master_heartbeat_period = {heartbeat_ns}"
                );
                if self.semi_sync {
                    set.push_str(&format!(", @rpl_semi_sync_slave = {semi_sync}"));
                }
                if let DumpStart::MariadbGtid { connect_state } = &self.start {
                    set.push_str(&format!(
                        ", @slave_connect_state = '{connect_state}', @slave_gtid_strict_mode = 0, \
                         @slave_gtid_ignore_duplicates = 0"
                    ));
                }
                set
            }
        }
    }

    fn command(&self, flavour: Flavour) -> ClientCommand<'_> {
        let mut flags = DumpFlags::default();
        if self.non_blocking {
            flags = flags.with(DumpFlags::NON_BLOCK);
        }
        if self.annotate && flavour == Flavour::MariaDb {
            flags = flags.with(DumpFlags::SEND_ANNOTATE_ROWS);
        }
        let server_id = ServerId(self.server_id);
        match &self.start {
            DumpStart::FilePosition { file, position } => ClientCommand::BinlogDump {
                position: *position as u32,
                flags,
                server_id,
                file: file.as_bytes(),
            },
            DumpStart::MysqlGtid { set_block } => {
                ClientCommand::BinlogDumpGtid { flags, server_id, file: b"", position: 4, set_block }
            }
            // The start position is in `@slave_connect_state`, so MariaDB ignores the file and the offset of
            // this command.
            DumpStart::MariadbGtid { .. } => {
                ClientCommand::BinlogDump { position: 4, flags, server_id, file: b"" }
            }
        }
    }
}

/// An event of the stream, or a part of a large one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventChunk {
    /// The header of the event that the bytes belong to.
    pub header: EventHeader,
    /// Whether this chunk is the first chunk of the event. The first chunk begins with the event's header.
    pub first: bool,
    /// Whether this chunk is the last of the event.
    pub last: bool,
    /// Whether a commit on the source waits for the acknowledgement of this event. All chunks of an event
    /// have the same value.
    pub ack_requested: bool,
    /// The bytes of the chunk, with the event's checksum if there is one. The bytes are a slice of the read
    /// buffer and keep the whole buffer in memory, so drop them soon.
    pub data: Bytes,
}

/// The binlog stream of a server, which returns the events in chunks.
#[derive(Debug)]
pub struct DumpStream {
    stream: PacketStream,
    flavour: Flavour,
    semi_sync_headers: bool,
    semi_sync_enabled: bool,
    state: DumpState,
}

#[derive(Debug, Clone, Copy)]
enum DumpState {
    /// The next packet begins an event or ends the stream.
    BetweenEvents,
    /// The stream is inside an event that comes in several chunks.
    InEvent(InEvent),
    Ended,
}

#[derive(Debug, Clone, Copy)]
struct InEvent {
    header: EventHeader,
    ack_requested: bool,
    first: bool,
    /// The number of bytes of the event that are not received yet.
    event_left: usize,
    /// The number of bytes of the current packet that are not received yet.
    packet_left: usize,
    /// Whether the event continues in another packet.
    continued: bool,
    /// The sequence number of the current packet.
    sequence: u8,
}

/// What the buffer of received bytes begins with: an event, the end of the stream, or too few bytes to
/// decide.
enum BufferFront {
    /// The buffer has too few bytes to parse the packet. The packet can be parsed when this many bytes are
    /// buffered.
    Needs(usize),
    /// `prefix` bytes, and then a complete event.
    Whole { header: EventHeader, ack_requested: bool, prefix: usize },
    /// `prefix` bytes, and then the beginning of a large event.
    Big { event: InEvent, prefix: usize },
    /// The source closed the stream with a packet of this many bytes.
    End { frame_bytes: usize },
}

impl Connection {
    /// Requests a binlog stream on this connection. Waits for the first packet, so that this call returns the
    /// error if the source refuses the request.
    ///
    /// # Errors
    /// [`SessionError::DumpRequest`] if the server's flavour cannot serve the request.
    /// [`SessionError::Server`] if the server refuses (1236: it does not have the requested position; 1227: a
    /// privilege is missing). Any error that breaks the connection.
    pub async fn dump(mut self, request: DumpRequest) -> Result<DumpStream, SessionError> {
        let flavour = self.server.flavour;
        request.check(flavour)?;
        let semi_sync_enabled = request.semi_sync && self.semi_sync_is_enabled().await?;
        self.execute(&request.session_variables(flavour)).await?;
        self.begin()?;
        self.statement.clear();
        let register = RegisterReplica {
            server_id: request.server_id,
            host: request.report_host.as_bytes(),
            port: request.report_port,
            ..RegisterReplica::default()
        };
        self.stream.send(STARTING, &ClientCommand::RegisterReplica(register)).await?;
        self.read_ok(STARTING).await?;
        self.stream.send(STARTING, &request.command(flavour)).await?;

        let mut stream = DumpStream {
            stream: self.stream,
            flavour,
            semi_sync_headers: false,
            semi_sync_enabled,
            state: DumpState::BetweenEvents,
        };
        stream.stream.read_timeout = (!request.heartbeat.is_zero()).then(|| {
            request.silence_max.unwrap_or_else(|| request.heartbeat.saturating_mul(HEARTBEATS_MISSED_MAX))
        });
        stream.look_at_first_packet(request.semi_sync).await?;
        debug!(
            server_id = request.server_id,
            semi_sync_headers = stream.semi_sync_headers,
            semi_sync_enabled,
            "binlog stream started"
        );
        Ok(stream)
    }

    /// Reads whether semi-sync is enabled on the source.
    async fn semi_sync_is_enabled(&mut self) -> Result<bool, SessionError> {
        let result = self
            .query(
                "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
                 ('rpl_semi_sync_source_enabled', 'rpl_semi_sync_master_enabled')",
            )
            .await?;
        Ok(result.rows.iter().any(|row| matches!(row.get_str(1), Some("ON" | "1"))))
    }
}

impl DumpStream {
    /// The flavour of the source: MySQL or MariaDB.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// Whether commits on the source wait for acknowledgements of this stream. This is true if the source
    /// accepts acknowledgements, and semi-sync was enabled when the stream began. If the result is `false`
    /// although the request asked for semi-sync, load or enable semi-sync on the source and connect again.
    pub fn semi_sync(&self) -> bool {
        self.semi_sync_headers && self.semi_sync_enabled
    }

    /// Whether the source accepts acknowledgements from this stream, even while semi-sync is disabled on the
    /// source.
    pub fn takes_acks(&self) -> bool {
        self.semi_sync_headers
    }

    /// Returns the next event, or the next part of a large event. `None` at the end of a non-blocking stream.
    ///
    /// Cancel-safe: no bytes are lost.
    ///
    /// # Errors
    /// [`SessionError::Timeout`] if the source sends neither events nor heartbeats; [`SessionError::Server`]
    /// if the source ends the stream (1236); [`SessionError::Protocol`] if the bytes are not an event stream;
    /// [`SessionError::Closed`] or [`SessionError::Io`].
    pub async fn next(&mut self) -> Result<Option<EventChunk>, SessionError> {
        loop {
            let wanted = match self.advance()? {
                Advance::Chunk(chunk) => return Ok(Some(chunk)),
                Advance::Ended => return Ok(None),
                Advance::Needs(wanted) => wanted,
            };
            self.stream.fill(READING, wanted, READ_AHEAD_BYTES).await?;
        }
    }

    /// Whether [`DumpStream::next`] can return a chunk without waiting for the network.
    pub fn has_buffered(&self) -> bool {
        let buffered = self.stream.buffered();
        match self.state {
            DumpState::Ended => false,
            DumpState::BetweenEvents => match self.front(buffered) {
                Ok(BufferFront::Needs(_)) => false,
                Ok(BufferFront::Big { event, prefix }) => buffered.len() >= prefix + event.chunk_bytes(),
                Ok(BufferFront::Whole { .. } | BufferFront::End { .. }) | Err(_) => true,
            },
            DumpState::InEvent(event) => event.packet_left > 0 && buffered.len() >= event.chunk_bytes(),
        }
    }

    /// Receives the bytes that have already arrived, without waiting. Returns whether [`DumpStream::next`]
    /// can return a chunk without waiting. With this call, the caller can collect all events that have
    /// arrived, and make them durable with one write.
    pub async fn pull(&mut self) -> Result<bool, SessionError> {
        self.stream.pull(READING, READ_AHEAD_BYTES).await?;
        Ok(self.has_buffered())
    }

    /// Receives bytes and discards them, headers of packets included, without looking at them. Returns their
    /// number. After this call, only this method may be called. It lets a benchmark load a server with many
    /// streams and spend little processor time on receiving them.
    ///
    /// # Errors
    /// [`SessionError::Closed`] or [`SessionError::Io`].
    pub async fn discard(&mut self) -> Result<usize, SessionError> {
        self.stream.discard(READING, READ_AHEAD_BYTES).await
    }

    /// Acknowledges to the source all events up to `position` of its binlog file `file`. Does nothing if the
    /// source does not accept acknowledgements from this stream. Not cancel-safe: a cancelled call may have
    /// sent half a packet, so drop the stream after it.
    ///
    /// # Errors
    /// [`SessionError::Timeout`] or [`SessionError::Io`].
    pub async fn ack(&mut self, file: &str, position: u64) -> Result<(), SessionError> {
        if !self.semi_sync_headers {
            return Ok(());
        }
        let mut payload = Vec::with_capacity(9 + file.len());
        Ack { position, file: file.as_bytes() }
            .encode(&mut payload)
            .map_err(|source| SessionError::Protocol { doing: ACKNOWLEDGING, source })?;
        self.stream.write_packet_aside(ACKNOWLEDGING, &payload).await
    }

    /// Detects whether the source puts a semi-sync header before each event. The source does not announce
    /// this, so it is detected from the first packet. The first packet is an error, or an artificial rotate
    /// event, whose first byte is 0.
    async fn look_at_first_packet(&mut self, asked: bool) -> Result<(), SessionError> {
        self.stream.fill(STARTING, PACKET_HEADER_BYTES + 2, READ_AHEAD_BYTES).await?;
        let buffered = self.stream.buffered();
        let (status, next) = (buffered[PACKET_HEADER_BYTES], buffered[PACKET_HEADER_BYTES + 1]);
        self.semi_sync_headers = asked && status == OK && next == semi_sync::MAGIC;
        if status == ERR {
            self.next().await?;
        }
        Ok(())
    }

    /// Parses the buffered bytes up to the next chunk, or up to the point at which more bytes must arrive.
    fn advance(&mut self) -> Result<Advance, SessionError> {
        loop {
            match self.state {
                DumpState::Ended => return Ok(Advance::Ended),
                DumpState::BetweenEvents => match self.front(self.stream.buffered())? {
                    BufferFront::Needs(wanted) => return Ok(Advance::Needs(wanted)),
                    BufferFront::End { frame_bytes } => {
                        self.stream.take(frame_bytes);
                        self.state = DumpState::Ended;
                    }
                    BufferFront::Whole { header, ack_requested, prefix } => {
                        self.stream.take(prefix);
                        let data = self.stream.take(header.event_length as usize);
                        let chunk = EventChunk { header, first: true, last: true, ack_requested, data };
                        return Ok(Advance::Chunk(chunk));
                    }
                    BufferFront::Big { event, prefix } => {
                        self.stream.take(prefix);
                        self.state = DumpState::InEvent(event);
                    }
                },
                DumpState::InEvent(event) if event.packet_left == 0 => {
                    let Some(header) = PacketHeader::parse(self.stream.buffered()) else {
                        return Ok(Advance::Needs(PACKET_HEADER_BYTES));
                    };
                    let event = event.next_packet(header)?;
                    self.stream.take(PACKET_HEADER_BYTES);
                    self.state = match event.event_left {
                        0 => DumpState::BetweenEvents,
                        _ => DumpState::InEvent(event),
                    };
                }
                DumpState::InEvent(event) => return Ok(self.next_part(event)),
            }
        }
    }

    fn next_part(&mut self, mut event: InEvent) -> Advance {
        let wanted = event.chunk_bytes();
        let buffered = self.stream.buffered().len();
        if buffered < wanted {
            return Advance::Needs(wanted);
        }
        let count = buffered.min(event.packet_left).min(CHUNK_BYTES_MAX);
        let data = self.stream.take(count);
        event.packet_left -= count;
        event.event_left -= count;
        let last = event.event_left == 0;
        let chunk = EventChunk {
            header: event.header,
            first: event.first,
            last,
            ack_requested: event.ack_requested,
            data,
        };
        event.first = false;
        // If an event fills its last packet to the maximum, an empty packet follows. Read it before the next
        // event.
        self.state =
            if last && !event.continued { DumpState::BetweenEvents } else { DumpState::InEvent(event) };
        Advance::Chunk(chunk)
    }

    /// Parses the packet that begins an event. Does not check that packet numbers increase, because a source
    /// restarts the numbers after each acknowledgement for which it waits.
    fn front(&self, buffered: &[u8]) -> Result<BufferFront, SessionError> {
        let wrong = |source| SessionError::Protocol { doing: READING, source };
        let Some(packet) = PacketHeader::parse(buffered) else {
            return Ok(BufferFront::Needs(PACKET_HEADER_BYTES));
        };
        let body = &buffered[PACKET_HEADER_BYTES..];
        if packet.payload_bytes == 0 {
            return Err(wrong(WireError::malformed("binlog stream", "a packet is empty")));
        }
        let Some(status) = body.first() else { return Ok(BufferFront::Needs(PACKET_HEADER_BYTES + 1)) };
        let frame_bytes = PACKET_HEADER_BYTES + packet.payload_bytes;
        match *status {
            OK => self.event_front(packet, body).map_err(wrong),
            EOF if packet.payload_bytes <= ERROR_BYTES_MAX => match buffered.len() < frame_bytes {
                true => Ok(BufferFront::Needs(frame_bytes)),
                false => Ok(BufferFront::End { frame_bytes }),
            },
            ERR if packet.payload_bytes <= ERROR_BYTES_MAX => match body.get(..packet.payload_bytes) {
                None => Ok(BufferFront::Needs(frame_bytes)),
                Some(payload) => {
                    let error = ErrPacket::parse(payload).map_err(wrong)?;
                    Err(SessionError::Server {
                        doing: READING,
                        error: error.into(),
                        statement: StatementPrefix::default(),
                    })
                }
            },
            other => Err(wrong(WireError::malformed(
                "binlog stream",
                format!("a packet begins with {other:#04x}"),
            ))),
        }
    }

    fn event_front(&self, packet: PacketHeader, body: &[u8]) -> Result<BufferFront, WireError> {
        let overhead = 1 + if self.semi_sync_headers { semi_sync::HEADER_BYTES } else { 0 };
        let Some(event_in_packet) = packet.payload_bytes.checked_sub(overhead + EVENT_HEADER_BYTES) else {
            let reason = format!("a packet of {} bytes is too short for an event", packet.payload_bytes);
            return Err(WireError::malformed("binlog stream", reason));
        };
        let event_in_packet = event_in_packet + EVENT_HEADER_BYTES;
        if body.len() < overhead + EVENT_HEADER_BYTES {
            return Ok(BufferFront::Needs(PACKET_HEADER_BYTES + overhead + EVENT_HEADER_BYTES));
        }
        let ack_requested = self.semi_sync_headers && SemiSyncHeader::parse(&body[1..])?.ack_requested;
        let header = EventHeader::parse(&body[overhead..])?;
        let event_bytes = header.event_length as usize;
        let fits = match packet.is_continued() {
            true => event_bytes >= event_in_packet,
            false => event_bytes == event_in_packet,
        };
        if !fits {
            let reason = format!("{event_in_packet} bytes came for an event of {event_bytes} bytes");
            return Err(WireError::malformed("binlog stream", reason));
        }
        let prefix = PACKET_HEADER_BYTES + overhead;
        if event_bytes > CHUNK_BYTES_MAX {
            let event = InEvent {
                header,
                ack_requested,
                first: true,
                event_left: event_bytes,
                packet_left: event_in_packet,
                continued: packet.is_continued(),
                sequence: packet.sequence,
            };
            return Ok(BufferFront::Big { event, prefix });
        }
        match body.len() < overhead + event_bytes {
            true => Ok(BufferFront::Needs(prefix + event_bytes)),
            false => Ok(BufferFront::Whole { header, ack_requested, prefix }),
        }
    }
}

enum Advance {
    Chunk(EventChunk),
    Ended,
    Needs(usize),
}

impl InEvent {
    /// The number of bytes that must arrive before the next chunk of the event is returned.
    fn chunk_bytes(&self) -> usize {
        self.packet_left.min(CHUNK_BYTES_MIN)
    }

    /// Continues the event with its next packet, after a check of the packet's number and length.
    fn next_packet(mut self, packet: PacketHeader) -> Result<Self, SessionError> {
        let due = self.sequence.wrapping_add(1);
        let fits = match packet.is_continued() {
            true => self.event_left >= packet.payload_bytes,
            false => self.event_left == packet.payload_bytes,
        };
        if packet.sequence != due || !fits || !self.continued {
            let reason = format!(
                "packet {} of {} bytes came where packet {due} with the last {} bytes of an event was due",
                packet.sequence, packet.payload_bytes, self.event_left
            );
            let source = WireError::malformed("binlog stream", reason);
            return Err(SessionError::Protocol { doing: READING, source });
        }
        self.sequence = packet.sequence;
        self.packet_left = packet.payload_bytes;
        self.continued = packet.is_continued();
        Ok(self)
    }
}
