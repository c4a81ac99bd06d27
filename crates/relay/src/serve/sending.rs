//! One client's stream: reads the log, sends what the client lacks, and waits for more.

use std::ops::ControlFlow;
use std::time::Duration;

use tailwater_log::{Durable, Entry, LogError, LogPosition, LogReader, Watermark};
use tailwater_session::SessionError;
use tailwater_session::server::{ClientSession, EventReceiver, EventSender};
use tailwater_wire::Flavour;
use tailwater_wire::event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription,
};
use tailwater_wire::gtid::GtidSet;
use tailwater_wire::protocol::semi_sync::Ack;
use tokio::sync::watch;
use tracing::{debug, info};

use super::catalog::{FIRST_EVENT, Place, served_name};
use super::clients::{Registered, Stream};
use super::filter::{self, Filter, Verdict};
use super::history::LogView;
use super::refusal::Refusal;
use super::server::Shared;
use super::start::{Begin, DumpRequest, From, History};

/// So much is collected before it is sent.
const SEND_BYTES: usize = 256 << 10;

/// How much of an event is taken from the log at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Sends a client its stream, until it goes, is told to, or has all that it asked for.
pub(super) async fn send(
    client: ClientSession,
    shared: &Shared,
    registered: &Registered,
    request: DumpRequest,
    begin: Begin,
) -> Result<(), SessionError> {
    let semi_sync = request.semi_sync;
    let stream = Stream {
        server_id: request.server_id,
        sent: (begin.file.clone(), begin.position),
        acknowledged: None,
        semi_sync,
        by_gtids: !matches!(request.from, From::FilePosition { .. }),
    };
    let ended = registered.begin_stream(stream);
    if ended > 0 {
        info!(server_id = request.server_id, "an older connection of the same replica is ended");
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
    // Replicas come again under the same server id, and find what they need then too; programs that only look do not.
    let is_replica = request.wait_for_more && request.server_id > 1;
    let watermark = match is_replica {
        true => log.register_remembered_reader(&format!("replica {}", request.server_id), begin.from),
        false => log.register_reader(&format!("reader {}", client.peer()), begin.from),
    };
    let (mut sender, mut receiver) = client.into_event_stream(semi_sync);
    let opened = log.reader(LogPosition { segment: begin.from.segment, offset: FIRST_EVENT });
    let reader = match opened {
        Ok(reader) => reader,
        Err(error) => {
            let refusal = Refusal::dump(error.to_string());
            return sender.finish_error(refusal.code, refusal.sqlstate, &refusal.message).await;
        }
    };
    let mut sending = Sending {
        shared,
        filter: Filter::new(&request, begin.skip.clone()),
        checksum: request.checksum.unwrap_or(ChecksumAlgorithm::Off),
        request,
        reader,
        state: State::Between,
        segment: 0,
        epoch: 1,
        place: Place { file: begin.file.clone(), position: begin.position },
        begin: Some(begin),
        format: None,
        skipped: false,
    };
    sending.run(&mut sender, &mut receiver, tail, registered, &watermark).await
}

/// A stream that runs.
struct Sending<'a> {
    shared: &'a Shared,
    request: DumpRequest,
    filter: Filter,
    reader: LogReader,
    state: State,
    /// The segment that is read.
    segment: u64,
    /// Of the segment.
    epoch: u32,
    /// Where the stream stands, as the client knows it.
    place: Place,
    /// Where it is to begin, until it has.
    begin: Option<Begin>,
    /// The segment's.
    format: Option<FormatDescription>,
    /// Of made-up events: at first as the client says, then as the log's events have it.
    checksum: ChecksumAlgorithm,
    /// Transactions were left out since the last event.
    skipped: bool,
}

/// Where the reader stands.
enum State {
    /// Between two entries.
    Between,
    /// In an entry, between two events.
    InEntry(Entry, Verdict),
    /// In an event that goes out.
    InEvent(Entry, Verdict),
}

/// Why filling the buffer stopped.
enum Filled {
    /// There is more to read.
    Enough,
    /// The log has no more.
    AtEnd,
    /// The client has all that it asked for.
    Complete,
}

impl Sending<'_> {
    async fn run(
        &mut self,
        sender: &mut EventSender,
        receiver: &mut EventReceiver,
        mut tail: watch::Receiver<Durable>,
        registered: &Registered,
        watermark: &Watermark,
    ) -> Result<(), SessionError> {
        loop {
            // What comes while this reads is a change that the wait below sees.
            tail.mark_unchanged();
            let filled = self.fill_somewhere(sender);
            let filled = match filled {
                Ok(filled) => filled,
                Err(refusal) => {
                    info!(code = refusal.code, "stream ended: {}", refusal.message);
                    return sender.finish_error(refusal.code, refusal.sqlstate, &refusal.message).await;
                }
            };
            tokio::select! {
                () = self.shared.stop.cancelled() => return Ok(()),
                () = registered.stop().cancelled() => return ended_by(registered, sender).await,
                sent = sender.flush() => sent?,
            }
            registered.sent(&self.place.file, self.place.position);
            watermark.advance(self.reader.position());
            match filled {
                Filled::Enough => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Filled::Complete => return sender.finish_eof().await,
                Filled::AtEnd if !self.request.wait_for_more => return sender.finish_eof().await,
                Filled::AtEnd => {}
            }
            let waiting = self.wait(sender, receiver, &mut tail, registered);
            if waiting.await?.is_break() {
                return Ok(());
            }
        }
    }

    /// Waits until the log has grown; breaks if the stream is over.
    async fn wait(
        &self,
        sender: &mut EventSender,
        receiver: &mut EventReceiver,
        tail: &mut watch::Receiver<Durable>,
        registered: &Registered,
    ) -> Result<ControlFlow<()>, SessionError> {
        // A client that wants none is never sent any.
        let period = self.request.heartbeat_period.unwrap_or(Duration::MAX / 4);
        let mut heartbeat = std::pin::pin!(tokio::time::sleep(period));
        loop {
            tokio::select! {
                () = self.shared.stop.cancelled() => return Ok(ControlFlow::Break(())),
                () = registered.stop().cancelled() => {
                    return ended_by(registered, sender).await.map(ControlFlow::Break);
                }
                changed = tail.changed() => {
                    if changed.is_ok() {
                        return Ok(ControlFlow::Continue(()));
                    }
                    // Nobody will tell any more; the client may go on asking whether we are there.
                    std::future::pending::<()>().await;
                }
                packet = receiver.next() => match packet? {
                    None => return Ok(ControlFlow::Break(())),
                    Some(packet) => self.acknowledged(&packet, registered),
                },
                () = &mut heartbeat => {
                    if let Ok(event) = self.heartbeat() {
                        sender.push_event(&event, false);
                    }
                    sender.flush().await?;
                    heartbeat.as_mut().reset(tokio::time::Instant::now() + period);
                }
            }
        }
    }

    fn acknowledged(&self, packet: &[u8], registered: &Registered) {
        match Ack::parse(packet) {
            Ok(ack) => registered.acknowledged(&String::from_utf8_lossy(ack.file), ack.position),
            Err(error) => debug!("a packet of the client that is no acknowledgement: {error}"),
        }
    }

    fn heartbeat(&self) -> Result<Vec<u8>, Refusal> {
        let Place { file, position } = &self.place;
        let server_id = self.shared.options.server_id;
        filter::heartbeat(server_id, self.checksum, self.request.heartbeat_v2, file, *position)
            .map_err(|error| Refusal::dump(error.to_string()))
    }

    /// Fills the buffer, where that may take time: what is not in the newest segment may have to come from a disk, or from
    /// the archive.
    fn fill_somewhere(&mut self, sender: &mut EventSender) -> Result<Filled, Refusal> {
        let newest = self.shared.served.log.durable().position.segment;
        let at_newest = self.segment == newest;
        let filled =
            if at_newest { self.fill(sender) } else { tokio::task::block_in_place(|| self.fill(sender)) };
        filled.map_err(|failure| match failure {
            Failure::Refused(refusal) => refusal,
            Failure::Log(error) => Refusal::dump(format!(
                "Tailwater's log cannot be read on behind {}:{}: {}: {error}",
                self.place.file,
                self.place.position,
                error.code()
            )),
        })
    }

    fn fill(&mut self, sender: &mut EventSender) -> Result<Filled, Failure> {
        if self.filter.is_at_its_end() && self.format.is_some() {
            return self.complete(sender);
        }
        while sender.buffered() < SEND_BYTES {
            match std::mem::replace(&mut self.state, State::Between) {
                State::InEvent(entry, verdict) => {
                    let chunk = self.reader.read_event_chunk(CHUNK_BYTES)?;
                    if chunk.is_empty() {
                        self.state = State::InEntry(entry, verdict);
                    } else {
                        sender.push(chunk);
                        self.state = State::InEvent(entry, verdict);
                    }
                }
                State::InEntry(entry, verdict) => match self.reader.next_event()? {
                    Some(header) => self.event(sender, entry, verdict, &header)?,
                    None => {
                        if self.end_entry(sender, &entry, verdict)? {
                            return self.complete(sender);
                        }
                    }
                },
                State::Between => match self.reader.try_next()? {
                    None => {
                        self.tell_skipped(sender)?;
                        return Ok(Filled::AtEnd);
                    }
                    Some(entry) => {
                        if self.entry(sender, entry)? {
                            return self.complete(sender);
                        }
                    }
                },
            }
        }
        Ok(Filled::Enough)
    }

    /// Begins an entry; true if the stream is complete.
    fn entry(&mut self, sender: &mut EventSender, entry: Entry) -> Result<bool, Failure> {
        if entry.position.segment != self.segment {
            self.enter_segment(sender, entry.position.segment)?;
        }
        let is_head = entry.position.offset == FIRST_EVENT;
        if let Some(begin) = &self.begin
            && !is_head
        {
            if entry.end() <= begin.from {
                return Ok(false);
            }
            if entry.position >= begin.from {
                self.begin = None;
            }
        }
        let verdict = match entry.is_transaction() {
            false => Verdict { send: true, list_after: false, last: false },
            true => {
                let log = &self.shared.served.log;
                let log_state = || match log.gtid_set() {
                    Some(GtidSet::MariaDb(state)) => Some(state),
                    _ => None,
                };
                self.filter.transaction(entry.gtid.as_ref(), log_state).map_err(Failure::Refused)?
            }
        };
        if !verdict.send {
            self.skipped = true;
            return self.end_entry(sender, &entry, verdict);
        }
        if !is_head {
            self.tell_skipped(sender)?;
        }
        self.state = State::InEntry(entry, verdict);
        Ok(false)
    }

    /// Notes that an entry is done with; true if the stream is complete.
    fn end_entry(
        &mut self,
        sender: &mut EventSender,
        entry: &Entry,
        verdict: Verdict,
    ) -> Result<bool, Failure> {
        // The head of a segment that begins in mid-file stands nowhere in the source's file.
        self.place.position = self.place.position.max(entry.source_end);
        if verdict.list_after {
            self.push_gtid_list(sender, false)?;
        }
        Ok(verdict.last)
    }

    /// A MySQL replica learns from a heartbeat that its position has moved beyond what was left out.
    fn tell_skipped(&mut self, sender: &mut EventSender) -> Result<(), Failure> {
        if std::mem::take(&mut self.skipped) && self.is_mysql() {
            let event = self.heartbeat().map_err(Failure::Refused)?;
            sender.push_event(&event, false);
        }
        Ok(())
    }

    fn complete(&mut self, sender: &mut EventSender) -> Result<Filled, Failure> {
        self.push_gtid_list(sender, true)?;
        Ok(Filled::Complete)
    }

    fn push_gtid_list(&self, sender: &mut EventSender, until_reached: bool) -> Result<(), Failure> {
        let Some(state) = self.filter.mariadb_state() else { return Ok(()) };
        let server_id = self.shared.options.server_id;
        let event = filter::gtid_list(server_id, self.checksum, state, until_reached, self.place.position);
        sender.push_event(&event.map_err(made_up)?, false);
        Ok(())
    }

    fn is_mysql(&self) -> bool {
        self.format.as_ref().is_some_and(|format| format.flavour() == Flavour::MySql)
    }

    /// Tells the client which file follows.
    fn enter_segment(&mut self, sender: &mut EventSender, segment: u64) -> Result<(), Failure> {
        self.tell_skipped(sender)?;
        let view = self.shared.log_view().ok_or_else(|| vanished(segment))?;
        let file = view.catalog().of_segment(segment).ok_or_else(|| vanished(segment))?;
        self.epoch = file.epoch();
        if self.segment != 0 {
            self.place = place_of(&view, segment)?;
        }
        self.segment = segment;
        let server_id = self.shared.options.server_id;
        let Place { file, position } = &self.place;
        let event = filter::artificial_rotate(server_id, self.checksum, file, *position).map_err(made_up)?;
        sender.push_event(&event, false);
        Ok(())
    }

    /// Begins an event.
    fn event(
        &mut self,
        sender: &mut EventSender,
        entry: Entry,
        verdict: Verdict,
        header: &EventHeader,
    ) -> Result<(), Failure> {
        let at = self.reader.event_position();
        self.state = State::InEntry(entry.clone(), verdict);
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            return self.format_description(sender);
        }
        // The stream may begin in the middle of a transaction: MySQL's replicas that go by position do so.
        if self.begin.as_ref().is_some_and(|begin| at < begin.from) {
            return Ok(());
        }
        if let Some(begin) = self.begin.take()
            && at != begin.from
            && begin.from.offset != FIRST_EVENT
        {
            return Err(Failure::Refused(Refusal::dump(format!(
                "bogus data in log event; the first event '{}' at {} is asked for, but no event begins there",
                begin.file, begin.position
            ))));
        }
        if header.event_type == EventType::ROTATE && self.epoch > 1 {
            return self.rotate(sender);
        }
        if !self.filter.sends(header) {
            return Ok(());
        }
        let length = u64::from(header.event_length);
        let end = LogPosition { segment: at.segment, offset: at.offset + length };
        // One acknowledgement is asked for what goes out together.
        let wants_ack = self.request.semi_sync
            && entry.is_transaction()
            && end == entry.end()
            && end == self.shared.served.log.durable().position;
        sender.begin_event(length, wants_ack);
        self.state = State::InEvent(entry, verdict);
        Ok(())
    }

    fn format_description(&mut self, sender: &mut EventSender) -> Result<(), Failure> {
        let mut event = Vec::new();
        self.reader.read_event(&mut event)?;
        let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        let format = FormatDescription::parse(body).map_err(made_up)?;
        let checksum = format.checksum.unwrap_or(ChecksumAlgorithm::Off);
        if self.request.checksum.is_none() && checksum != ChecksumAlgorithm::Off {
            let (replica, source) = match format.flavour() {
                Flavour::MySql => ("Replica", "source"),
                Flavour::MariaDb => ("Slave", "master"),
            };
            return Err(Failure::Refused(Refusal::dump(format!(
                "{replica} can not handle replication events with the checksum that {source} is configured to log"
            ))));
        }
        let in_mid_file = self.place.position > FIRST_EVENT;
        filter::head(&mut event, &format, in_mid_file, self.filter.resumes());
        self.checksum = checksum;
        self.format = Some(format);
        sender.push_event(&event, false);
        if self.begin.as_ref().is_some_and(|begin| begin.from.offset == FIRST_EVENT) {
            self.begin = None;
        }
        Ok(())
    }

    /// A rotate event of a source whose files are served under other names.
    fn rotate(&mut self, sender: &mut EventSender) -> Result<(), Failure> {
        let mut event = Vec::new();
        self.reader.read_event(&mut event)?;
        if let Some(format) = &self.format {
            event = filter::renamed_rotate(&event, format, |name| served_name(name, self.epoch))
                .map_err(made_up)?;
        }
        sender.push_event(&event, false);
        Ok(())
    }
}

fn place_of(view: &LogView, segment: u64) -> Result<Place, Failure> {
    view.catalog().place(LogPosition { segment, offset: FIRST_EVENT }).ok_or_else(|| vanished(segment))
}

/// Why filling the buffer failed.
enum Failure {
    Refused(Refusal),
    Log(LogError),
}

impl std::convert::From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

fn vanished(segment: u64) -> Failure {
    Failure::Refused(Refusal::dump(format!("segment {segment} of the log was purged while it was read")))
}

fn made_up(error: tailwater_wire::WireError) -> Failure {
    Failure::Refused(Refusal::dump(format!("{}: {error}", error.code())))
}

/// Ends a stream that somebody wants ended. A replica of which there are two is told so, in the servers' words; one that
/// was killed just loses its connection, and comes again.
async fn ended_by(registered: &Registered, sender: &mut EventSender) -> Result<(), SessionError> {
    if !registered.is_displaced() {
        return Ok(());
    }
    let message = "A replica with the same server_uuid/server_id as this replica has connected to the source";
    sender.finish_error(Refusal::FATAL_ERROR_READING_BINLOG, "HY000", message).await
}
