//! Tests that the binlog server makes the same stream from a log as the source does for the same request.
//! Compares the streams event by event, including artificial events.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use tailwater_binlog_server::binlog_file_list::{Catalog, SegmentView};
use tailwater_binlog_server::client_error::ClientError;
use tailwater_binlog_server::client_statement::{SqlValue, StatementSession};
use tailwater_binlog_server::stream_filter::{EntryVerdict, EventVerdict, ServedSegment, StreamFilter};
use tailwater_binlog_server::stream_start::{self, ClientDumpRequest, LogHistory, StartDecision};
use tailwater_capture::resume_position::StartPolicy;
use tailwater_log::{LogDir, LogEntry, LogPosition, LogReader};
use tailwater_sandbox::ServerKind;
use tailwater_session::{Connection, DumpRequest as SessionDumpRequest, DumpStart};
use tailwater_wire::binlog_event::{EVENT_HEADER_BYTES, EventHeader, EventType, strip_checksum};
use tailwater_wire::gtid::{Gtid, GtidSet, MariadbGtidList, MariadbPosition, MysqlGtidSet};
use tailwater_wire::protocol::command::{ClientCommand, DumpFlags};
use tailwater_wire::{Flavour, ServerId};

use crate::capture_test_source::{Running, Source, run};

/// The log of a source that was captured from its oldest binlog file on.
struct Log {
    directory: LogDir,
    flavour: Flavour,
    catalog: Catalog,
}

impl Log {
    fn open(path: &std::path::Path, flavour: Flavour) -> Result<Self> {
        let directory = LogDir::open_read_only(path)?;
        let mut segments = Vec::new();
        for segment in directory.segments()? {
            let bytes = fs::read(&segment.path)?;
            let head = EventHeader::parse(bytes.get(4..).context("the segment is empty")?)?.event_length;
            segments.push(SegmentView::new(&segment, 1, u64::from(head)));
        }
        Ok(Self { directory, flavour, catalog: Catalog::new(segments) })
    }

    fn entries(&self) -> Result<Vec<LogEntry>> {
        let mut reader = self.directory.reader(LogPosition::ZERO)?;
        let mut entries = Vec::new();
        while let Some(entry) = reader.try_next()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}

impl LogHistory for Log {
    fn flavour(&self) -> Flavour {
        self.flavour
    }

    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn gtids(&self) -> GtidSet {
        self.directory.gtid_set().unwrap().unwrap()
    }

    fn gtids_before(&self, segment: u64) -> Result<Option<GtidSet>, ClientError> {
        let segments = self.directory.segments().unwrap();
        let of = segments.iter().find(|of| of.number == segment).unwrap();
        Ok(Some(GtidSet::parse(self.flavour, &of.gtids_before).unwrap()))
    }

    fn source_uuid(&self) -> Option<[u8; 16]> {
        None
    }
}

fn first_event(reader: &mut LogReader) -> Result<Vec<u8>> {
    let mut event = Vec::new();
    reader.try_next()?.context("the log has no first entry")?;
    reader.next_event()?.context("the entry has no first event")?;
    reader.read_event(&mut event)?;
    Ok(event)
}

/// The stream that the binlog server makes from the log for a request.
fn ours(log: &Log, request: &ClientDumpRequest, server_id: u32) -> Result<Vec<Vec<u8>>> {
    let begin = match stream_start::decide(request, log) {
        StartDecision::Begin(begin) => begin,
        other => bail!("the stream does not start: {other:?}"),
    };
    let from = begin.from;
    let mut filter = StreamFilter::new(request, begin, log.flavour, ServerId(server_id));
    let state = || match log.gtids() {
        GtidSet::MariaDb(state) => state,
        GtidSet::MySql(_) => unreachable!("only a MariaDB stream needs the binlog state"),
    };
    let mut sent = Vec::new();
    for number in from.segment.. {
        let Some(file) = log.catalog.of_segment(number) else { break };
        let segment = ServedSegment { file: &file.name, epoch: 1, source_offset: 4 };
        let mut reader = log.directory.reader(LogPosition { segment: number, offset: 4 })?;
        let head = first_event(&mut reader)?;
        sent.extend(
            filter
                .enter(segment, &head)
                .map_err(|refusal| anyhow::anyhow!("the filter refused a segment: {refusal}"))?,
        );
        while let Some(entry) = reader.try_next()? {
            if entry.position.segment != number {
                break;
            }
            if entry.position < from {
                continue;
            }
            send(&mut filter, &entry, &mut reader, &state, &mut sent)
                .map_err(|refusal| anyhow::anyhow!("the filter refused an entry: {refusal}"))?;
        }
    }
    sent.extend(filter.idle());
    Ok(sent)
}

fn send(
    filter: &mut StreamFilter,
    entry: &LogEntry,
    reader: &mut LogReader,
    state: &dyn Fn() -> tailwater_wire::gtid::MariadbBinlogState,
    sent: &mut Vec<Vec<u8>>,
) -> Result<(), ClientError> {
    if let EntryVerdict::Send(before) = filter.entry(entry, state)? {
        sent.extend(before);
        while let Some(header) = reader.next_event().unwrap() {
            let mut event = Vec::new();
            reader.read_event(&mut event).unwrap();
            match filter.event(&header, &event)? {
                EventVerdict::Send { .. } => sent.push(event),
                EventVerdict::Replace(event) => sent.push(event),
                EventVerdict::Skip => {}
            }
        }
    }
    sent.extend(filter.end_entry()?.events);
    Ok(())
}

/// The stream that the source sends for a request.
async fn theirs(source: &Source, start: DumpStart, annotate: bool) -> Result<Vec<Vec<u8>>> {
    let connection = Connection::connect(&source.server.replication_options()).await?;
    // The heartbeat period is so long that the source sends no periodic heartbeats. It sends only heartbeats
    // that announce a position.
    let heartbeat = std::time::Duration::from_secs(600);
    let asked =
        SessionDumpRequest { annotate, heartbeat, non_blocking: true, ..SessionDumpRequest::new(99, start) };
    let mut stream = connection.dump(asked).await?;
    let mut events = Vec::new();
    let mut event = Vec::new();
    while let Some(chunk) = stream.next().await? {
        event.extend_from_slice(&chunk.data);
        if chunk.last {
            events.push(std::mem::take(&mut event));
        }
    }
    Ok(events)
}

/// Parses the commands of Tailwater's own stream request as the binlog server does.
fn request(flavour: Flavour, start: &DumpStart, annotate: bool) -> Result<ClientDumpRequest> {
    let mut session = StatementSession::new();
    let mut set = |name: &str, value: &str| {
        session
            .set_variable(name, SqlValue::Text(value.to_owned()))
            .map_err(|refusal| anyhow::anyhow!("a variable of the client was refused: {refusal}"))
    };
    set("master_binlog_checksum", "CRC32")?;
    if flavour == Flavour::MariaDb {
        set("mariadb_slave_capability", "4")?;
    }
    let flags = if annotate { DumpFlags::SEND_ANNOTATE_ROWS } else { DumpFlags::default() };
    let flags = if flavour == Flavour::MariaDb { flags } else { DumpFlags::default() };
    let server_id = ServerId(99);
    let by_file = |file, position| ClientCommand::BinlogDump { position, flags, server_id, file };
    let command = match start {
        DumpStart::FilePosition { file, position } => by_file(file.as_bytes(), u32::try_from(*position)?),
        DumpStart::MysqlGtid { set_block } => {
            ClientCommand::BinlogDumpGtid { flags, server_id, file: b"", position: 4, set_block }
        }
        DumpStart::MariadbGtid { connect_state } => {
            set("slave_connect_state", connect_state)?;
            by_file(b"", 4)
        }
    };
    let request =
        ClientDumpRequest::new(&command, &session, flavour).context("the command is not a dump command")?;
    request.map_err(|refusal| anyhow::anyhow!("the dump command was refused: {refusal}"))
}

fn shown(event: &[u8]) -> String {
    match EventHeader::parse(event) {
        Ok(header) => format!("{header:?} {:?}", &event[19..event.len().min(120)]),
        Err(error) => error.to_string(),
    }
}

/// An artificial GTID list without its checksum and sorted by domain, because the server lists the domains in
/// hash table order. Any other event is returned unchanged.
fn canonical(event: &[u8]) -> Result<Vec<u8>> {
    let header = EventHeader::parse(event)?;
    if header.event_type != EventType::MARIADB_GTID_LIST || !header.is_artificial() {
        return Ok(event.to_vec());
    }
    let (head, body) = event.split_at(EVENT_HEADER_BYTES);
    let mut list = MariadbGtidList::decode(strip_checksum(body)?)?;
    list.gtids.sort_by_key(|gtid| gtid.domain);
    Ok([head, &list.encode()?].concat())
}

async fn compare(source: &Source, log: &Log, start: DumpStart, annotate: bool) -> Result<()> {
    let server_id = source.server.sql("SELECT @@server_id").await?[0].parse()?;
    let ours = ours(log, &request(log.flavour, &start, annotate)?, server_id)?;
    let theirs = theirs(source, start.clone(), annotate).await?;
    for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let same = canonical(ours)? == canonical(theirs)?;
        ensure!(
            same,
            "event {index} of the stream from {start:?} differs:\nTailwater {}\nsource    {}",
            shown(ours),
            shown(theirs)
        );
    }
    let more = |events: &[Vec<u8>], from: usize| events.get(from).map(|event| shown(event));
    // MariaDB writes a checkpoint event a moment after it has started a file. The log may not have it yet.
    let note = |event: &Vec<u8>| event.get(4) == Some(&EventType::MARIADB_BINLOG_CHECKPOINT.0);
    let rest = theirs.get(ours.len()..);
    ensure!(
        rest.is_some_and(|rest| rest.iter().all(note)),
        "the streams from {start:?} end differently: Tailwater's continues with {:?}, the source's with {:?}",
        more(&ours, theirs.len()),
        more(&theirs, ours.len())
    );
    Ok(())
}

/// Returns requests for streams by GTIDs. The streams start in different parts of the log and leave out
/// different transactions.
fn by_gtids(entries: &[LogEntry], flavour: Flavour) -> Result<Vec<DumpStart>> {
    let gtids: Vec<_> = entries.iter().filter_map(|entry| entry.gtid.clone()).collect();
    let mut starts = Vec::new();
    for eighth in 0..=8 {
        let count = gtids.len() * eighth / 8;
        let mut set = MysqlGtidSet::new();
        let mut position = MariadbPosition::new();
        for (index, gtid) in gtids.iter().enumerate() {
            match gtid {
                // Add all transactions up to this part of the log, and some later ones, so that the set has
                // holes.
                Gtid::MySql(gtid) if index < count || index % 7 < eighth / 2 => drop(set.insert(gtid)?),
                Gtid::MariaDb(gtid) if index < count => position.advance(*gtid),
                _ => {}
            }
        }
        starts.push(match flavour {
            Flavour::MySql => DumpStart::MysqlGtid { set_block: set.encode() },
            Flavour::MariaDb => DumpStart::MariadbGtid { connect_state: position.to_string() },
        });
    }
    Ok(starts)
}

async fn check(kind: ServerKind) -> Result<()> {
    let mut options = vec!["--max-binlog-size=32768"];
    // With its GTID index, MariaDB 11.8 can start a stream in the middle of a file. Tailwater has no such
    // index, and starts a stream by GTIDs at the beginning of a file.
    options.extend((kind == ServerKind::Mariadb118).then_some("--binlog-gtid-index=OFF"));
    let Some(mut source) = Source::start(kind, &options).await? else { return Ok(()) };
    let flavour = source.flavour();
    let mut options = source.options("log", 11);
    options.semi_sync = false;
    options.start = StartPolicy::Oldest;
    let capture = Running::start(options)?;
    source.prepare().await?;
    if flavour == Flavour::MariaDb {
        source.server.sql("SET gtid_domain_id=3; CREATE DATABASE other; DROP DATABASE other").await?;
    }
    source.write(60).await?;
    source.rotate().await?;
    source.write(20).await?;
    source.until_complete("log").await?;
    capture.stop().await?;

    let log = Log::open(&source.log("log"), flavour)?;
    let entries = log.entries()?;
    ensure!(log.catalog.files().len() > 2, "the log has too few binlog files for a comparison");
    let mut starts = by_gtids(&entries, flavour)?;
    starts.push(DumpStart::FilePosition { file: String::new(), position: 4 });
    for entry in entries.iter().step_by(entries.len() / 10) {
        let place =
            log.catalog.place(entry.position).context("the catalog does not locate an entry of the log")?;
        starts.push(DumpStart::FilePosition { file: place.file, position: place.position });
    }
    for start in starts {
        compare(&source, &log, start.clone(), true).await?;
        if flavour == Flavour::MariaDb {
            compare(&source, &log, start, false).await?;
        }
    }
    Ok(())
}

#[test]
fn tailwater_and_mysql_97_send_the_same_stream() -> Result<()> {
    run(check(ServerKind::Mysql97))
}

#[test]
fn tailwater_and_mariadb_1011_send_the_same_stream() -> Result<()> {
    run(check(ServerKind::Mariadb1011))
}

#[test]
fn tailwater_and_mariadb_118_send_the_same_stream() -> Result<()> {
    run(check(ServerKind::Mariadb118))
}
