//! Sends the binlog stream of one client: reads the log, sends the events that the client lacks, and waits
//! for more.

use std::ops::ControlFlow;
use std::time::Duration;

use tailwater_log::{DurableState, LogEntry, LogError, LogPosition, LogReader, RetentionPin};
use tailwater_session::SessionError;
use tailwater_session::server::{ClientSession, EventReceiver, EventSender};
use tailwater_wire::binlog_event::{EventHeader, EventType, FIRST_EVENT_OFFSET};
use tailwater_wire::gtid::{GtidSet, MariadbBinlogState};
use tailwater_wire::protocol::semi_sync::Ack;
use tailwater_wire::{Flavour, ServerId};
use tokio::sync::watch;
use tracing::{debug, info};

use super::client_error::ClientError;
use super::connected_clients::{ClientRegistration, ClientStream};
use super::listener::ServerShared;
use super::shared_tail::TailStep;
use super::stream_filter::{EntryVerdict, EventVerdict, ServedSegment, StreamFilter};
use super::stream_start::{ClientDumpRequest, LogHistory, RequestedStart, StreamStart};

/// How many bytes are buffered before they are sent.
const SEND_BYTES: usize = 256 << 10;

/// How many entries and events are processed before other tasks may run. The limit matters when the client
/// already has most of the log, because the loop then sends nothing for a long time.
const STEPS_MAX: usize = 4096;

/// How many bytes of an event are read from the log at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Sends a client its stream until the connection ends or the client has everything that it requested.
/// `holding` prevents purges until the stream has a retention pin of its own. The caller must subscribe
/// `clock_steps` before the client can query the time. Then the stream notices every later step of the
/// source's clock.
pub(super) async fn send(
    client: ClientSession,
    shared: &ServerShared,
    registered: &ClientRegistration,
    clock_steps: watch::Receiver<u64>,
    request: ClientDumpRequest,
    begin: StreamStart,
    holding: RetentionPin,
) -> Result<(), SessionError> {
    let semi_sync = request.semi_sync;
    let stream = ClientStream {
        server_id: request.server_id,
        is_replica: request.is_replica(),
        sent: (begin.file.clone(), begin.position),
        acknowledged: None,
        semi_sync,
        by_gtids: !matches!(request.from, RequestedStart::FilePosition { .. }),
    };
    let displaced = registered.begin_stream(stream);
    if displaced > 0 {
        info!(server_id = request.server_id, "disconnected an older connection of the same replica");
    }
    info!(
        server_id = request.server_id,
        file = begin.file,
        position = begin.position,
        semi_sync,
        "stream begins"
    );
    let log = &shared.served.log;
    let tail = if semi_sync { log.subscribe() } else { shared.pace.subscribe() };
    // A client that waits for new events receives only durable bytes. So request prompt syncs of the log
    // while this client is connected.
    let _prompt_sync = request.wait_for_more.then(|| log.prompt_sync());
    // Purges keep the events that a disconnected replica needs, because it reconnects under the same server
    // id. Other programs do not reconnect.
    let is_replica = request.is_replica();
    let watermark = match is_replica {
        true => log.register_persistent_reader(&format!("replica {}", request.server_id), begin.from),
        false => log.register_reader(&format!("reader {}", client.peer()), begin.from),
    };
    drop(holding);
    let (mut sender, mut receiver) = client.into_event_stream(semi_sync);
    let opened = log.reader(LogPosition { segment: begin.from.segment, offset: FIRST_EVENT_OFFSET });
    let reader = match opened {
        Ok(reader) => reader,
        Err(error) => {
            let refusal = ClientError::dump(error.to_string());
            return sender.finish_error(refusal.code, refusal.sqlstate, &refusal.message).await;
        }
    };
    let flavour = shared.served.log.source().map_or(Flavour::MySql, |source| source.flavour);
    let mut sending = BinlogSender {
        shared,
        wait_for_more: request.wait_for_more,
        heartbeat_period: request.heartbeat_period,
        semi_sync,
        clock_steps: is_replica.then_some(clock_steps),
        filter: StreamFilter::new(&request, begin.clone(), flavour, ServerId(shared.options.server_id)),
        reader,
        state: ReadState::Between,
        segment: 0,
        begin: Some(begin),
    };
    sending.run(&mut sender, &mut receiver, tail, registered, &watermark).await
}

/// The stream of one client.
struct BinlogSender<'a> {
    shared: &'a ServerShared,
    wait_for_more: bool,
    heartbeat_period: Option<Duration>,
    semi_sync: bool,
    /// Signals that the source's clock stepped, so this server gave the client a wrong time. `None` for
    /// programs that are not replicas, because they do not query the time.
    clock_steps: Option<watch::Receiver<u64>>,
    filter: StreamFilter,
    reader: LogReader,
    state: ReadState,
    /// The number of the segment that is being read.
    segment: u64,
    /// Where the stream starts. `None` after the sender has reached this position.
    begin: Option<StreamStart>,
}

/// What the sender reads next from the log.
enum ReadState {
    /// The next entry.
    Between,
    /// The next event of an entry.
    InEntry(EntryRange),
    /// The next bytes of an event. The client may already have received the event's first bytes.
    InEvent(EntryRange),
}

/// Where an entry starts and ends.
#[derive(Clone, Copy)]
struct EntryRange {
    /// The offset of the entry's first byte in the source's binlog file.
    source_start: u64,
    /// The position in the log after the entry's last byte.
    end: LogPosition,
}

/// What the sender did with the shared tail.
enum SharedStep {
    /// It added transactions to the send buffer.
    Sent,
    /// The stream has everything that the tail has.
    AtEnd,
    /// The stream is not in the tail.
    ReadLog,
}

/// Why the sender adds no more bytes to the send buffer.
enum FillResult {
    /// The buffer is full, and the log has more to send.
    More,
    /// The end of the log is reached.
    AtEnd,
    /// The client has everything that it requested.
    Complete,
    /// The source's clock stepped, so the time that the client got from this server is wrong.
    ClockStepped,
}

impl BinlogSender<'_> {
    async fn run(
        &mut self,
        sender: &mut EventSender,
        receiver: &mut EventReceiver,
        mut tail: watch::Receiver<DurableState>,
        registered: &ClientRegistration,
        watermark: &RetentionPin,
    ) -> Result<(), SessionError> {
        loop {
            // Mark the log's state as seen before reading, so that a later change ends the wait below.
            tail.mark_unchanged();
            let filled = self.fill_allow_blocking(sender);
            let filled = match filled {
                Ok(filled) => filled,
                Err(refusal) => {
                    info!(code = refusal.code, "a client's stream ended with an error: {}", refusal.message);
                    return sender.finish_error(refusal.code, refusal.sqlstate, &refusal.message).await;
                }
            };
            tokio::select! {
                () = self.shared.stop.cancelled() => return Ok(()),
                () = registered.stop().cancelled() => return end_stream(registered, sender).await,
                sent = sender.flush() => sent?,
            }
            let (file, position) = self.filter.position();
            registered.set_sent(file, position);
            watermark.advance(self.reader.position());
            match filled {
                FillResult::More => {
                    tokio::task::yield_now().await;
                    continue;
                }
                FillResult::Complete => return sender.finish_eof().await,
                FillResult::ClockStepped => {
                    log_clock_step_disconnect();
                    return Ok(());
                }
                FillResult::AtEnd if !self.wait_for_more => return sender.finish_eof().await,
                FillResult::AtEnd => {}
            }
            let waiting = self.wait(sender, receiver, &mut tail, registered);
            if waiting.await?.is_break() {
                return Ok(());
            }
        }
    }

    /// Waits until the log has grown. Returns `ControlFlow::Break` if the stream has ended.
    async fn wait(
        &mut self,
        sender: &mut EventSender,
        receiver: &mut EventReceiver,
        tail: &mut watch::Receiver<DurableState>,
        registered: &ClientRegistration,
    ) -> Result<ControlFlow<()>, SessionError> {
        // A client that set no heartbeat period gets no heartbeats.
        let period = self.heartbeat_period.unwrap_or(Duration::MAX / 4);
        let mut heartbeat = std::pin::pin!(tokio::time::sleep(period));
        let mut log_is_open = true;
        loop {
            tokio::select! {
                () = self.shared.stop.cancelled() => return Ok(ControlFlow::Break(())),
                () = registered.stop().cancelled() => {
                    return end_stream(registered, sender).await.map(ControlFlow::Break);
                }
                () = stepped(self.clock_steps.as_mut()) => {
                    log_clock_step_disconnect();
                    return Ok(ControlFlow::Break(()));
                }
                changed = tail.changed(), if log_is_open => {
                    if changed.is_ok() {
                        return Ok(ControlFlow::Continue(()));
                    }
                    // This process does not write the log any more. The connection stays open, and the client
                    // gets heartbeats.
                    log_is_open = false;
                }
                packet = receiver.next() => match packet? {
                    None => return Ok(ControlFlow::Break(())),
                    Some(packet) => self.record_ack(&packet, registered),
                },
                () = &mut heartbeat => {
                    sender.push_event(&self.filter.heartbeat(), false);
                    sender.flush().await?;
                    heartbeat.as_mut().reset(tokio::time::Instant::now() + period);
                }
            }
        }
    }

    fn record_ack(&self, packet: &[u8], registered: &ClientRegistration) {
        match Ack::parse(packet) {
            Ok(ack) => registered.set_acknowledged(&String::from_utf8_lossy(ack.file), ack.position),
            Err(error) => debug!("a packet from the client is not a semi-sync acknowledgement: {error}"),
        }
    }

    /// Fills the send buffer. The thread may block, except in the newest segment, because older segments may
    /// have to be read from a disk or from the archive.
    fn fill_allow_blocking(&mut self, sender: &mut EventSender) -> Result<FillResult, ClientError> {
        let newest = self.shared.served.log.durable().position.segment;
        let at_newest = self.segment == newest;
        let filled =
            if at_newest { self.fill(sender) } else { tokio::task::block_in_place(|| self.fill(sender)) };
        filled.map_err(|failure| match failure {
            SendFailure::Refused(refusal) => refusal,
            SendFailure::Log(error) => {
                let (file, position) = self.filter.position();
                let code = error.code();
                ClientError::dump(format!(
                    "Tailwater's log cannot be read after {file}:{position}: {code}: {error}"
                ))
            }
        })
    }

    fn fill(&mut self, sender: &mut EventSender) -> Result<FillResult, SendFailure> {
        // Looked at once, because a stream that reads the log must not lock the tail for every entry.
        let tail_begin = self.shared.tail.begin();
        for _ in 0..STEPS_MAX {
            if sender.buffered() >= SEND_BYTES {
                break;
            }
            match std::mem::replace(&mut self.state, ReadState::Between) {
                ReadState::InEvent(span) => {
                    let chunk = self.reader.read_event_chunk(CHUNK_BYTES)?;
                    if chunk.is_empty() {
                        self.state = ReadState::InEntry(span);
                    } else {
                        sender.push(chunk);
                        self.state = ReadState::InEvent(span);
                    }
                }
                ReadState::InEntry(span) => match self.reader.next_event()? {
                    Some(header) => self.event(sender, span, &header)?,
                    None => {
                        if self.end_entry(sender)? {
                            return Ok(FillResult::Complete);
                        }
                    }
                },
                // Check for a clock step only between entries: some replicas that do not use GTIDs cannot
                // resume inside a transaction.
                ReadState::Between if self.clock_steps.as_ref().is_some_and(has_stepped) => {
                    return Ok(FillResult::ClockStepped);
                }
                ReadState::Between => match self.shared_tail_step(sender, tail_begin) {
                    SharedStep::Sent => {}
                    SharedStep::AtEnd => return Ok(self.at_end(sender)),
                    SharedStep::ReadLog => {
                        if let Some(filled) = self.next_entry(sender)? {
                            return Ok(filled);
                        }
                    }
                },
            }
        }
        Ok(FillResult::More)
    }

    /// Sends whole transactions from the tail that all streams share, if this stream has reached it.
    fn shared_tail_step(&mut self, sender: &mut EventSender, tail_begin: Option<LogPosition>) -> SharedStep {
        // Semi-sync streams are woken at every commit, and their packets have further headers.
        if self.semi_sync
            || self.begin.is_some()
            || tail_begin.is_none_or(|begin| self.reader.position() < begin)
        {
            return SharedStep::ReadLog;
        }
        let (block, first_packet) = match self.shared.tail.step(self.reader.position()) {
            TailStep::Take(block, first_packet) => (block, first_packet),
            TailStep::Wait if self.wait_for_more => return SharedStep::AtEnd,
            // A stream that does not wait gets everything that is durable now.
            TailStep::Wait | TailStep::ReadLog => return SharedStep::ReadLog,
        };
        if !self.filter.sends_all_of(block.summary()) || !self.reader.move_forward(block.end()) {
            return SharedStep::ReadLog;
        }
        if let Some(heartbeat) = self.filter.send_all_of(block.summary()) {
            sender.push_event(&heartbeat, false);
        }
        sender.push_shared(block.packets(), first_packet);
        SharedStep::Sent
    }

    fn at_end(&mut self, sender: &mut EventSender) -> FillResult {
        if let Some(heartbeat) = self.filter.idle() {
            sender.push_event(&heartbeat, false);
        }
        FillResult::AtEnd
    }

    /// Starts the next entry of the log. Returns a result if nothing more can be added now.
    fn next_entry(&mut self, sender: &mut EventSender) -> Result<Option<FillResult>, SendFailure> {
        match self.reader.try_next()? {
            None => return Ok(Some(self.at_end(sender))),
            Some(entry) if entry.position.offset == FIRST_EVENT_OFFSET => {
                self.enter_segment(sender, &entry)?;
            }
            Some(entry) => {
                if self.entry(sender, entry)? {
                    return Ok(Some(FillResult::Complete));
                }
            }
        }
        Ok(None)
    }

    /// Enters a segment. The reader is at the segment's beginning, the format description event.
    fn enter_segment(&mut self, sender: &mut EventSender, head: &LogEntry) -> Result<(), SendFailure> {
        let number = head.position.segment;
        let vanished = || {
            SendFailure::Refused(ClientError::dump(format!(
                "segment {number} of the log was purged while it was read"
            )))
        };
        let view = self.shared.log_snapshot().ok_or_else(vanished)?;
        let file = view.catalog().of_segment(number).ok_or_else(vanished)?;
        let place = view.catalog().place(head.position).ok_or_else(vanished)?;
        let segment = ServedSegment { file: &file.name, epoch: file.epoch(), source_offset: place.position };
        let mut event = Vec::new();
        self.reader.next_event()?;
        self.reader.read_event(&mut event)?;
        for event in self.filter.enter(segment, &event).map_err(SendFailure::Refused)? {
            sender.push_event(&event, false);
        }
        self.segment = number;
        // A client that requested the very end of a file continues in the next file. If the source crashed,
        // there is no rotate event between the files.
        if self.begin.as_ref().is_some_and(|begin| begin.from <= head.position) {
            self.begin = None;
        }
        Ok(())
    }

    /// Decides whether an entry of the log is sent, and starts sending it. Returns true if the client has
    /// everything that it requested.
    fn entry(&mut self, sender: &mut EventSender, entry: LogEntry) -> Result<bool, SendFailure> {
        if let Some(begin) = &self.begin {
            if entry.end() <= begin.from {
                return Ok(false);
            }
            if entry.position == begin.from {
                self.begin = None;
            }
        }
        let log = &self.shared.served.log;
        let log_state = || match log.gtid_set() {
            Some(GtidSet::MariaDb(state)) => state,
            _ => MariadbBinlogState::new(),
        };
        match self.filter.entry(&entry, &log_state).map_err(SendFailure::Refused)? {
            EntryVerdict::Skip => self.end_entry(sender),
            EntryVerdict::Send(artificial) => {
                for event in artificial {
                    sender.push_event(&event, false);
                }
                self.state =
                    ReadState::InEntry(EntryRange { source_start: entry.source_start(), end: entry.end() });
                Ok(false)
            }
        }
    }

    /// Sends the artificial events that follow an entry. Returns true if the client has everything that it
    /// requested.
    fn end_entry(&mut self, sender: &mut EventSender) -> Result<bool, SendFailure> {
        let after = self.filter.end_entry().map_err(SendFailure::Refused)?;
        for event in after.events {
            sender.push_event(&event, false);
        }
        Ok(after.ends)
    }

    /// Starts an event of an entry.
    fn event(
        &mut self,
        sender: &mut EventSender,
        span: EntryRange,
        header: &EventHeader,
    ) -> Result<(), SendFailure> {
        let at = self.reader.event_position();
        let mut whole = Vec::new();
        if header.event_type == EventType::ROTATE {
            self.reader.read_event(&mut whole)?;
        }
        let verdict = self.filter.event(header, &whole).map_err(SendFailure::Refused)?;
        self.state = ReadState::InEntry(span);
        // The stream may start in the middle of a transaction: a replica that does not use GTIDs requests
        // this position if it lost its connection there. Replicas of MariaDB 11.4 and later then request a
        // wrong position: for an event without an end position, they add the event's length without its
        // checksum. No source can serve a wrong position.
        if let Some(begin) = self.begin.take_if(|begin| at >= begin.from)
            && at != begin.from
        {
            return Err(SendFailure::Refused(ClientError::dump(format!(
                "bogus data in log event; the first event '{}' at {} was requested, but no event begins at this \
                 offset; start at offset {}, where the transaction around it begins, or connect by GTIDs",
                begin.file, begin.position, span.source_start
            ))));
        }
        if self.begin.is_some() {
            return Ok(());
        }
        match verdict {
            EventVerdict::Skip => {}
            EventVerdict::Replace(event) => sender.push_event(&event, false),
            EventVerdict::Send { .. } if !whole.is_empty() => sender.push_event(&whole, false),
            EventVerdict::Send { ends_transaction } => {
                // Only the last event of the log requests an acknowledgement. The acknowledgement covers all
                // events that are sent before it.
                let wants_ack = self.semi_sync
                    && ends_transaction
                    && span.end == self.shared.served.log.durable().position;
                sender.begin_event(u64::from(header.event_length), wants_ack);
                self.state = ReadState::InEvent(span);
            }
        }
        Ok(())
    }
}

/// Why the sender cannot fill the send buffer.
enum SendFailure {
    Refused(ClientError),
    Log(LogError),
}

impl From<LogError> for SendFailure {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

/// Logs why the server disconnects a replica. The replica reconnects immediately and reads the source's time
/// again.
fn log_clock_step_disconnect() {
    info!("disconnecting the replica so that it reads the source's clock again");
}

fn has_stepped(clock_steps: &watch::Receiver<u64>) -> bool {
    clock_steps.has_changed().unwrap_or(false)
}

/// Completes when the source's clock has stepped after the client got the time.
async fn stepped(clock_steps: Option<&mut watch::Receiver<u64>>) {
    if let Some(clock_steps) = clock_steps
        && clock_steps.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Ends a stream that another connection or an administrator has cancelled. If the same replica connected
/// again, its older connection gets the error that MySQL and MariaDB send in this case. If an administrator
/// killed the connection, it is only closed, and the client reconnects.
async fn end_stream(registered: &ClientRegistration, sender: &mut EventSender) -> Result<(), SessionError> {
    if !registered.is_displaced() {
        return Ok(());
    }
    let message = "A replica with the same server_uuid/server_id as this replica has connected to the source";
    sender.finish_error(ClientError::FATAL_ERROR_READING_BINLOG, "HY000", message).await
}
