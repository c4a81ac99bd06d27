//! Reads the events of the binlog: from the source, like a replica.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tailwater_session::{ConnectOptions, Connection, DumpRequest, DumpStart, EventChunk};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription, Rotate, verify_checksum,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::change_decoder::EVENT_BYTES_MAX;
use crate::error::PrefetchError;
use crate::read_window::{AppliedPosition, FilePlace};

/// How many events wait to be decoded. The source keeps the rest.
pub(crate) const QUEUED_EVENTS: usize = 32;

/// The maximum size of the events that wait to be decoded, in bytes.
const QUEUED_BYTES: usize = 2 * EVENT_BYTES_MAX;

/// An event of the binlog.
#[derive(Debug)]
pub(crate) struct FeedEvent {
    pub(crate) header: EventHeader,
    /// The event; cut after [`EVENT_BYTES_MAX`].
    pub(crate) bytes: Vec<u8>,
    /// The binlog file, and the offset after the event in it.
    pub(crate) file: Arc<str>,
    pub(crate) end: u64,
    /// Whether the source made the event for this stream, so that it is in no file.
    pub(crate) is_artificial: bool,
    /// The event's share of [`QUEUED_BYTES`], once it waits.
    share: Option<OwnedSemaphorePermit>,
}

impl FeedEvent {
    pub(crate) fn new(
        header: EventHeader,
        bytes: Vec<u8>,
        file: Arc<str>,
        end: u64,
        is_artificial: bool,
    ) -> Self {
        Self { header, bytes, file, end, is_artificial, share: None }
    }

    pub(crate) fn place(&self) -> FilePlace {
        FilePlace { file: self.file.to_string(), offset: self.end }
    }
}

/// Where a feed sends its events. Events wait for room by number and by size.
pub(crate) struct FeedSender {
    out: mpsc::Sender<Result<FeedEvent, PrefetchError>>,
    room: Arc<Semaphore>,
}

impl FeedSender {
    pub(crate) fn channel() -> (Self, FeedReceiver) {
        let (out, events) = mpsc::channel(QUEUED_EVENTS);
        (Self { out, room: Arc::new(Semaphore::new(QUEUED_BYTES)) }, events)
    }

    /// Sends an event or the last error. Returns false if the receiver was dropped.
    pub(crate) async fn send(&self, event: Result<FeedEvent, PrefetchError>) -> bool {
        let event = match event {
            Ok(mut event) => {
                let share = u32::try_from(event.bytes.len().min(EVENT_BYTES_MAX)).unwrap_or(u32::MAX);
                event.share = Arc::clone(&self.room).acquire_many_owned(share).await.ok();
                Ok(event)
            }
            error => error,
        };
        self.out.send(event).await.is_ok()
    }

    /// Completes when the receiver is dropped.
    pub(crate) async fn closed(&self) {
        self.out.closed().await;
    }
}

/// Events of the binlog, as they come.
pub(crate) type FeedReceiver = mpsc::Receiver<Result<FeedEvent, PrefetchError>>;

/// Starts to read the source's binlog after `applied`. The task ends when the receiver is dropped.
pub(crate) async fn read_source(
    source: &ConnectOptions,
    applied: &AppliedPosition,
) -> Result<FeedReceiver, PrefetchError> {
    // The stream may pause for long while the prefetch is far ahead.
    let options = ConnectOptions { read_timeout: None, ..source.clone() };
    let mut connection = Connection::connect(&options).await.map_err(PrefetchError::source)?;
    let patience = "SET SESSION net_write_timeout = 31536000";
    connection.execute(patience).await.map_err(PrefetchError::source)?;
    let start = match applied {
        AppliedPosition::Mysql(set) => DumpStart::MysqlGtid { set_block: set.encode() },
        AppliedPosition::Mariadb(position) => DumpStart::MariadbGtid { connect_state: position.to_string() },
        AppliedPosition::File(place) => {
            DumpStart::FilePosition { file: place.file.clone(), position: place.offset.max(4) }
        }
    };
    // The server id is random, so that most likely no replica has the same.
    let server_id = rand::rng().random_range(0x8000_0000..=u32::MAX);
    let request = DumpRequest {
        annotate: false,
        heartbeat: Duration::from_secs(5),
        ..DumpRequest::new(server_id, start)
    };
    let stream = connection.dump(request).await.map_err(PrefetchError::source)?;
    let (out, events) = FeedSender::channel();
    tokio::spawn(async move {
        let mut assembler = EventAssembler::new(stream.flavour());
        let mut stream = stream;
        loop {
            let next = tokio::select! {
                next = stream.next() => next,
                () = out.closed() => return,
            };
            let event = match next {
                Ok(Some(chunk)) => assembler.take(&chunk),
                Ok(None) => Some(Err(assembler.ended())),
                Err(error) => Some(Err(PrefetchError::source(error))),
            };
            let Some(event) = event else { continue };
            let is_last = event.is_err();
            if !out.send(event).await || is_last {
                return;
            }
        }
    });
    Ok(events)
}

/// Joins the chunks of events, and follows their position in the source's files.
struct EventAssembler {
    flavour: Flavour,
    file: Arc<str>,
    end: u64,
    bytes: Vec<u8>,
}

impl EventAssembler {
    fn new(flavour: Flavour) -> Self {
        Self { flavour, file: Arc::from(""), end: 0, bytes: Vec::new() }
    }

    fn ended(&self) -> PrefetchError {
        PrefetchError::StreamEnded { file: self.file.to_string(), position: self.end }
    }

    fn take(&mut self, chunk: &EventChunk) -> Option<Result<FeedEvent, PrefetchError>> {
        if chunk.first {
            self.bytes.clear();
        }
        let room = EVENT_BYTES_MAX.saturating_sub(self.bytes.len()).min(chunk.data.len());
        self.bytes.extend_from_slice(&chunk.data[..room]);
        if !chunk.last {
            return None;
        }
        let header = chunk.header;
        let is_artificial = header.is_made_for_stream();
        if !is_artificial {
            self.end += u64::from(header.event_length);
        } else if header.event_type == EventType::ROTATE
            && let Err(error) = self.rotate()
        {
            return Some(Err(error));
        }
        let bytes = std::mem::take(&mut self.bytes);
        Some(Ok(FeedEvent::new(header, bytes, Arc::clone(&self.file), self.end, is_artificial)))
    }

    fn rotate(&mut self) -> Result<(), PrefetchError> {
        // The first rotate event comes before any format description event, so only its own bytes show
        // whether it has a checksum.
        let algorithm = match verify_checksum(&self.bytes) {
            Ok(()) => ChecksumAlgorithm::Crc32,
            Err(_) => ChecksumAlgorithm::Off,
        };
        let body = self.bytes.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        let body = &body[..body.len().saturating_sub(algorithm.trailer_bytes())];
        let format = FormatDescription::assumed(self.flavour, algorithm);
        let rotate = Rotate::parse(body, &format).map_err(|error| PrefetchError::Event {
            file: self.file.to_string(),
            position: self.end,
            error,
        })?;
        self.file = String::from_utf8_lossy(rotate.file_name).into();
        self.end = rotate.position;
        Ok(())
    }
}
