//! Events of a running server, asked for as a replica would, from its oldest binlog file to the present end.

use anyhow::Context;
use rand::Rng;
use tailwater_log::stats::Collector;
use tailwater_session::{ConnectOptions, Connection, DumpRequest, DumpStart, EventChunk, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription, Rotate, verify_checksum,
};
use tailwater_wire::print::EventLocation;

use super::progress;

/// Feeds everything that the server has, or everything from `start` on.
///
/// # Errors
/// If the server cannot be reached, refuses, or sends what cannot be understood.
pub(super) async fn read(
    connect: &ConnectOptions,
    start: Option<&str>,
    collector: &mut Collector,
) -> anyhow::Result<()> {
    let mut connection = Connection::connect(connect).await?;
    let files = binlog_files(&mut connection).await?;
    let (file, position) = match start {
        None => (files.first().map(|(file, _)| file.clone()).unwrap_or_default(), 4),
        Some(text) => {
            let parsed =
                text.rsplit_once(':').and_then(|(file, at)| Some((file.to_owned(), at.parse().ok()?)));
            parsed.with_context(|| format!("--start {text}: want FILE:POS, such as binlog.000042:4"))?
        }
    };
    let behind = files.iter().skip_while(|(name, _)| *name != file).map(|(_, bytes)| bytes).sum::<u64>();
    let bar = progress(&connect.endpoint.to_string(), behind.saturating_sub(position))?;
    // Unlike that of any replica, as far as chance goes: the server would end that one's stream for ours.
    let server_id = rand::rng().random_range(0x8000_0000..=u32::MAX);
    let request = DumpRequest {
        non_blocking: true,
        ..DumpRequest::new(server_id, DumpStart::FilePosition { file, position })
    };
    let mut stream = connection.dump(request).await?;
    let mut place = Place { flavour: stream.flavour(), file: String::new(), start: 0, end: 0, passing: None };
    while let Some(chunk) = stream.next().await? {
        bar.inc(chunk.data.len() as u64);
        place.take(&chunk, collector).with_context(|| format!("event at {}:{}", place.file, place.start))?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// The binlog files with their sizes, oldest first. None if the user may not see them: then it is not known how far
/// there is to go.
async fn binlog_files(connection: &mut Connection) -> anyhow::Result<Vec<(String, u64)>> {
    let result = match connection.query("SHOW BINARY LOGS").await {
        Err(SessionError::Server { .. }) => return Ok(Vec::new()),
        result => result?,
    };
    let file = |row: &tailwater_session::Row| Some((row.get_str(0)?.to_owned(), row.get_u64(1)?));
    Ok(result.rows.iter().filter_map(file).collect())
}

/// Where the stream stands in the server's files.
struct Place {
    flavour: Flavour,
    file: String,
    /// The present event's.
    start: u64,
    /// Behind it.
    end: u64,
    /// Of what stands in no file, only this is taken.
    passing: Option<Vec<u8>>,
}

impl Place {
    fn take(&mut self, chunk: &EventChunk, collector: &mut Collector) -> anyhow::Result<()> {
        let header = &chunk.header;
        if chunk.first {
            self.passing = made_up(header).then(Vec::new);
            if self.passing.is_none() {
                self.start = self.end;
                self.end += u64::from(header.event_length);
            }
        }
        if let Some(event) = &mut self.passing {
            // Rotate events and format descriptions are small.
            if event.len() < 1 << 16 {
                event.extend_from_slice(&chunk.data);
            }
            if chunk.last {
                let event = std::mem::take(event);
                self.made_up(header, &event, collector)?;
            }
            return Ok(());
        }
        let place = EventLocation { file: &self.file, offset: self.start };
        collector.chunk(place, header, &chunk.data, chunk.last)?;
        Ok(())
    }

    /// An event that stands in no file.
    fn made_up(
        &mut self,
        header: &EventHeader,
        event: &[u8],
        collector: &mut Collector,
    ) -> anyhow::Result<()> {
        let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        match header.event_type {
            EventType::ROTATE => {
                // The first one comes before any format description, so only its own bytes tell whether it has a checksum.
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

/// Whether the server made an event up for the stream: then it stands in no file.
fn made_up(header: &EventHeader) -> bool {
    match header.event_type {
        EventType::HEARTBEAT | EventType::HEARTBEAT_V2 => true,
        // MariaDB 11.4 and later write no position into events inside a transaction, but into these.
        EventType::ROTATE
        | EventType::FORMAT_DESCRIPTION
        | EventType::MARIADB_GTID_LIST
        | EventType::PREVIOUS_GTIDS => header.is_artificial() || header.end_log_pos == 0,
        _ => header.is_artificial(),
    }
}
