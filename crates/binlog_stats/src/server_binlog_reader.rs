//! Reads the binlog of a running server with the replica protocol, from its oldest file to its current end.

use rand::Rng;
use tailwater_session::{ConnectOptions, Connection, DumpRequest, DumpStart, EventChunk, SessionError};
use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription, Rotate, verify_checksum,
};
use tailwater_wire::event_printer::EventLocation;
use tailwater_wire::{Flavour, WireError};

use crate::{Collector, ReadProgress, StatsError};

/// Passes all events of the server's binlog to the collector, or all events from a file and offset on.
///
/// # Errors
/// [`StatsError::Server`] if the server cannot be reached, or ends the stream; [`StatsError::Event`] if it
/// sends data that cannot be parsed.
pub async fn read_server(
    connect: &ConnectOptions,
    start: Option<(String, u64)>,
    collector: &mut Collector,
    progress: &mut dyn ReadProgress,
) -> Result<(), StatsError> {
    let failed = |cause: SessionError| StatsError::Server {
        server: connect.endpoint.to_string(),
        cause: Box::new(cause),
    };
    let mut connection = Connection::connect(connect).await.map_err(failed)?;
    let files = binlog_files(&mut connection).await.map_err(failed)?;
    let oldest = || (files.first().map(|(file, _)| file.clone()).unwrap_or_default(), 4);
    let (file, position) = start.unwrap_or_else(oldest);
    let bytes_total = files.iter().skip_while(|(name, _)| *name != file).map(|(_, bytes)| bytes).sum::<u64>();
    progress.start(&connect.endpoint.to_string(), bytes_total.saturating_sub(position));
    // The server id is random, so that most likely no replica has the same id. The server would end the
    // stream of a replica with the same id.
    let server_id = rand::rng().random_range(0x8000_0000..=u32::MAX);
    let request = DumpRequest {
        non_blocking: true,
        ..DumpRequest::new(server_id, DumpStart::FilePosition { file, position })
    };
    let mut stream = connection.dump(request).await.map_err(failed)?;
    let mut place = StreamPosition {
        flavour: stream.flavour(),
        file: String::new(),
        start: 0,
        end: 0,
        artificial_event: None,
    };
    while let Some(chunk) = stream.next().await.map_err(failed)? {
        progress.advance(chunk.data.len() as u64);
        place.take(&chunk, collector).map_err(|cause| StatsError::event(&place.file, place.start)(cause))?;
    }
    Ok(())
}

/// The binlog files with their sizes, oldest first. Empty if the account lacks the privilege to list them;
/// the total size is then unknown.
async fn binlog_files(connection: &mut Connection) -> Result<Vec<(String, u64)>, SessionError> {
    let result = match connection.query("SHOW BINARY LOGS").await {
        Err(SessionError::Server { .. }) => return Ok(Vec::new()),
        result => result?,
    };
    let file = |row: &tailwater_session::TextRow| Some((row.get_str(0)?.to_owned(), row.get_u64(1)?));
    Ok(result.rows.iter().filter_map(file).collect())
}

/// The position of the stream in the server's binlog files.
struct StreamPosition {
    flavour: Flavour,
    file: String,
    /// The offset of the current event.
    start: u64,
    /// The offset after the current event.
    end: u64,
    /// The bytes of an artificial event, which is in no binlog file.
    artificial_event: Option<Vec<u8>>,
}

impl StreamPosition {
    fn take(&mut self, chunk: &EventChunk, collector: &mut Collector) -> Result<(), WireError> {
        let header = &chunk.header;
        if chunk.first {
            self.artificial_event = header.is_made_for_stream().then(Vec::new);
            if self.artificial_event.is_none() {
                self.start = self.end;
                self.end += u64::from(header.event_length);
            }
        }
        if let Some(event) = &mut self.artificial_event {
            // Rotate and format description events are smaller than 64 KiB, so the bytes of larger events are
            // not stored.
            if event.len() < 1 << 16 {
                event.extend_from_slice(&chunk.data);
            }
            if chunk.last {
                let event = std::mem::take(event);
                self.artificial(header, &event, collector)?;
            }
            return Ok(());
        }
        let place = EventLocation { file: &self.file, offset: self.start };
        collector.chunk(place, header, &chunk.data, chunk.last)?;
        Ok(())
    }

    /// Processes an artificial event.
    fn artificial(
        &mut self,
        header: &EventHeader,
        event: &[u8],
        collector: &mut Collector,
    ) -> Result<(), WireError> {
        let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        match header.event_type {
            EventType::ROTATE => {
                // The first rotate event comes before any format description event, so only its own bytes
                // show whether it has a checksum.
                let algorithm = match verify_checksum(event) {
                    Ok(()) => ChecksumAlgorithm::Crc32,
                    Err(_) => ChecksumAlgorithm::Off,
                };
                let body = &body[..body.len().saturating_sub(algorithm.trailer_bytes())];
                let rotate = Rotate::parse(body, &FormatDescription::assumed(self.flavour, algorithm))?;
                self.file = String::from_utf8_lossy(rotate.file_name).into_owned();
                self.end = rotate.position;
            }
            EventType::FORMAT_DESCRIPTION => {
                collector.assume_format(EventLocation { file: &self.file, offset: 4 }, header, event)?;
            }
            _ => {}
        }
        Ok(())
    }
}
