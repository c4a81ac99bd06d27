//! Streams that share the end of the log get the same bytes as the log has, whatever their speeds, the
//! writer's syncs, truncations and new files, and the size of the tail.
//!
//! `TAILWATER_SEED=n` repeats the random choices of one run.

use std::collections::{BTreeMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use tailwater_binlog_server::{
    BinlogServer, LogReceiver, ReceiverState, ReceiverStatus, ServeOptions, ServedLog,
};
use tailwater_log::LogWriter;
use tailwater_session::server::{Accounts, ConnectionLimits, Credential, ServerTls};
use tailwater_session::{
    ConnectOptions, Connection, DumpRequest, DumpStart, DumpStream, Endpoint, TlsMode, TlsOptions,
};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::EventType;
use tokio::sync::watch;

use crate::binlog_server_with_replicas::{READER, READER_PASSWORD};
use crate::capture_test_source::{PATIENCE, run};
use crate::support::binlog_generator::Source;
use crate::support::synthetic_capture::{append, begin_file, open, rotate, transact};

/// The number of streams of one log.
const STREAMS: u32 = 6;

/// The number of steps of the writer.
const STEPS: u32 = 150;

/// A random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// The capture of a source that exists only in this test.
#[derive(Debug)]
struct SyntheticReceiver(watch::Sender<u64>);

impl LogReceiver for SyntheticReceiver {
    fn status(&self) -> ReceiverStatus {
        ReceiverStatus { state: ReceiverState::Streaming, last_failure: None }
    }

    fn source_variables(&self) -> BTreeMap<String, String> {
        [("binlog_checksum".to_owned(), "CRC32".to_owned())].into()
    }

    fn source_now_us(&self) -> u64 {
        SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_micros() as u64)
    }

    fn clock_steps(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    fn appended_ago_ms(&self) -> Option<u64> {
        None
    }

    fn followed_server(&self) -> Option<ConnectOptions> {
        None
    }
}

/// Serves the log of a writer.
async fn serve(writer: &LogWriter, tail_bytes: usize) -> Result<BinlogServer> {
    let mut accounts = Accounts::new();
    accounts.add(READER, &[Credential::password(READER_PASSWORD)])?;
    let options = ServeOptions {
        name: "log".into(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        server_id: 4300,
        server_uuid: "7a11a7e5-0000-4000-8000-000000004300".into(),
        accounts,
        admins: HashSet::new(),
        tls: ServerTls::Off,
        require_tls: false,
        limits: ConnectionLimits { connections_per_second_max: 10_000, ..ConnectionLimits::default() },
        shared_tail_bytes_max: tail_bytes,
    };
    let served = ServedLog {
        log: writer.handle(),
        receiver: Arc::new(SyntheticReceiver(watch::Sender::new(0))),
        source_host: "127.0.0.1".into(),
        source_port: 0,
        source_user: "nobody".into(),
        source_tls: false,
    };
    Ok(BinlogServer::start(options, served).await?)
}

/// Requests the whole log.
async fn dump(server: &BinlogServer, flavour: Flavour, server_id: u32) -> Result<DumpStream> {
    let tls = TlsOptions { mode: TlsMode::Off, ..TlsOptions::default() };
    let endpoint = Endpoint::tcp("127.0.0.1", server.address().port());
    let account = ConnectOptions::new(endpoint, READER).password(READER_PASSWORD).tls(tls);
    let start = match flavour {
        Flavour::MySql => DumpStart::MysqlGtid { set_block: vec![0; 8] },
        Flavour::MariaDb => DumpStart::MariadbGtid { connect_state: String::new() },
    };
    Ok(Connection::connect(&account).await?.dump(DumpRequest::new(server_id, start)).await?)
}

/// Reads a stream up to `bytes` bytes of the source's files, with random pauses. Returns these bytes.
async fn read(
    mut stream: DumpStream,
    mut random: Random,
    mut bytes: watch::Receiver<Option<u64>>,
) -> Result<Vec<u8>> {
    // Some streams are always fast, and some fall out of the tail again and again.
    let pauses = random.below(3) * 8;
    let mut received = Vec::new();
    loop {
        let wanted = *bytes.borrow_and_update();
        if wanted.is_some_and(|wanted| received.len() as u64 >= wanted) {
            return Ok(received);
        }
        let chunk = tokio::select! {
            chunk = stream.next() => chunk?.context("the stream ended")?,
            _ = bytes.changed(), if wanted.is_none() => continue,
        };
        let of_file = !chunk.header.is_artificial() && chunk.header.event_type != EventType::HEARTBEAT;
        if of_file {
            received.extend_from_slice(&chunk.data);
        }
        if random.below(512) < pauses {
            tokio::time::sleep(Duration::from_millis(random.below(4))).await;
        }
    }
}

/// Writes random transactions, and returns the source's files without their magic bytes.
async fn write(writer: &mut LogWriter, source: &mut Source, random: &mut Random) -> Result<Vec<u8>> {
    let mut files = Vec::new();
    for _ in 0..STEPS {
        match random.below(40) {
            0 => {
                writer.sync()?;
                let mut ended = source.clone();
                ended.rotate();
                files.extend_from_slice(&ended.file[4..]);
                rotate(writer, source)?;
            }
            // The source sends a part of a transaction, and then other events at the same offset.
            1..4 => {
                let (bytes, number) = (source.file.len(), source.number());
                let sizes = [random.below(3_000_000) as usize, 10];
                let lost = source.transaction(&sizes, || 7);
                let events = 1 + random.below(lost.events.len() as u64 - 1) as usize;
                lost.events[..events].iter().try_for_each(|event| append(writer, event))?;
                if random.below(2) == 0 {
                    writer.flush()?;
                }
                writer.rollback_partial()?;
                source.rewind(bytes, number);
            }
            4 => {
                transact(writer, source, &[random.below(1 << 20) as usize])?;
            }
            _ => {
                for _ in 0..random.below(30) {
                    transact(writer, source, &[random.below(300) as usize])?;
                }
            }
        }
        match random.below(4) {
            0 => writer.sync_in_background().map(drop)?,
            1 => writer.flush().map(drop)?,
            _ => writer.sync().map(drop)?,
        }
        if random.below(3) == 0 {
            tokio::time::sleep(Duration::from_millis(random.below(6))).await;
        }
    }
    writer.sync()?;
    files.extend_from_slice(&source.file[4..]);
    Ok(files)
}

async fn streams_equal_the_log(flavour: Flavour, tail_bytes: usize, seed: u64) -> Result<()> {
    let mut random = Random(seed);
    let directory = tempfile::tempdir()?;
    let mut source = Source::new(flavour);
    let mut writer = open(directory.path());
    begin_file(&mut writer, &mut source)?;
    writer.sync()?;
    let server = serve(&writer, tail_bytes).await?;
    let (bytes, _) = watch::channel(None);
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        let stream = dump(&server, flavour, 900 + number).await?;
        let random = Random(random.below(u64::MAX));
        streams.push(tokio::spawn(read(stream, random, bytes.subscribe())));
    }
    let files = write(&mut writer, &mut source, &mut random).await?;
    bytes.send_replace(Some(files.len() as u64));
    for (number, stream) in streams.into_iter().enumerate() {
        let received = tokio::time::timeout(PATIENCE, stream)
            .await
            .with_context(|| format!("stream {number} does not get the end of the log"))???;
        let same = received.iter().zip(&files).take_while(|(received, written)| received == written).count();
        ensure!(
            received == files,
            "stream {number} got {} bytes, the source wrote {}; they differ from byte {same} on",
            received.len(),
            files.len()
        );
    }
    server.stop().await;
    writer.close()?;
    Ok(())
}

fn check(flavour: Flavour) -> Result<()> {
    let chosen = std::env::var("TAILWATER_SEED").ok().and_then(|text| text.parse().ok());
    let seed = chosen.unwrap_or_else(|| u64::from(std::process::id()));
    // No block at all; a block or two; the size in use.
    for tail_bytes in [0, 200 << 10, tailwater_binlog_server::SHARED_TAIL_BYTES_MAX] {
        run(streams_equal_the_log(flavour, tail_bytes, seed))
            .with_context(|| format!("failed with TAILWATER_SEED={seed} and a tail of {tail_bytes} bytes"))?;
    }
    Ok(())
}

#[test]
fn streams_of_any_speed_equal_the_files_of_mysql() -> Result<()> {
    check(Flavour::MySql)
}

#[test]
fn streams_of_any_speed_equal_the_files_of_mariadb() -> Result<()> {
    check(Flavour::MariaDb)
}
