//! Readers of a binlog stream, from a source or from Tailwater. They read every byte and store nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use tailwater_session::{ConnectOptions, Connection, DumpRequest, DumpStart, DumpStream};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::EventType;
use tailwater_wire::gtid::GtidSet;
use tokio::task::JoinHandle;

/// Requests the stream from the first byte of the oldest binlog file.
pub fn from_the_oldest(server_id: u32) -> DumpRequest {
    DumpRequest::new(server_id, DumpStart::FilePosition { file: String::new(), position: 4 })
}

/// Requests the stream from the current end of the server's binlog.
///
/// # Errors
/// If the server does not answer.
pub async fn from_now(source: &ConnectOptions, server_id: u32) -> anyhow::Result<DumpRequest> {
    let mut connection = Connection::connect(source).await?;
    let (flavour, variable) = match connection.server().flavour {
        Flavour::MySql => (Flavour::MySql, "gtid_executed"),
        Flavour::MariaDb => (Flavour::MariaDb, "gtid_binlog_pos"),
    };
    let answer = connection.query(&format!("SELECT @@global.{variable}")).await?;
    let text = answer.scalar().context("the server has no GTIDs")?;
    let start = match flavour {
        Flavour::MySql => match GtidSet::parse(flavour, text)? {
            GtidSet::MySql(set) => DumpStart::MysqlGtid { set_block: set.encode() },
            GtidSet::MariaDb(_) => anyhow::bail!("the GTID set has the format of the other flavour"),
        },
        Flavour::MariaDb => DumpStart::MariadbGtid { connect_state: text.to_owned() },
    };
    connection.close().await;
    Ok(DumpRequest::new(server_id, start))
}

/// Reads the whole binlog of a server, from the oldest file, with `readers` connections at the same time.
/// Returns MB/s of all connections together.
///
/// # Errors
/// If a stream breaks, or ends before `bytes_min` bytes.
pub async fn catch_up(source: &ConnectOptions, readers: u32, bytes_min: u64) -> anyhow::Result<f64> {
    let begin = Instant::now();
    let tasks: Vec<JoinHandle<anyhow::Result<u64>>> = (0..readers)
        .map(|reader| {
            let source = source.clone();
            tokio::spawn(async move {
                let request = DumpRequest { non_blocking: true, ..from_the_oldest(900 + reader) };
                let mut stream = Connection::connect(&source).await?.dump(request).await?;
                let mut bytes = 0;
                while let Some(chunk) = stream.next().await? {
                    bytes += chunk.data.len() as u64;
                }
                Ok(bytes)
            })
        })
        .collect();
    let mut total = 0;
    for task in tasks {
        let bytes = task.await??;
        ensure!(bytes >= bytes_min, "a stream ended after {bytes} of {bytes_min} bytes");
        total += bytes;
    }
    Ok(total as f64 / 1e6 / begin.elapsed().as_secs_f64())
}

/// Readers that follow a server until they are dropped. They receive all bytes and do not look at them: the
/// replicas of a real source run on other machines.
#[derive(Debug)]
pub struct BinlogReaders {
    tasks: Vec<JoinHandle<()>>,
    bytes: Arc<AtomicU64>,
}

impl BinlogReaders {
    /// Connects `readers` readers, which read everything from now on.
    ///
    /// # Errors
    /// If a reader cannot connect.
    pub async fn follow(source: &ConnectOptions, now: &ConnectOptions, readers: u32) -> anyhow::Result<Self> {
        let bytes = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for reader in 0..readers {
            let request = from_now(now, 1_000 + reader).await?;
            let mut stream = Connection::connect(source).await?.dump(request).await?;
            let bytes = Arc::clone(&bytes);
            tasks.push(tokio::spawn(async move {
                while let Ok(count) = stream.discard().await {
                    bytes.fetch_add(count as u64, Ordering::Relaxed);
                }
            }));
        }
        Ok(Self { tasks, bytes })
    }

    /// Returns the number of bytes that all readers have read, and the number of connected readers.
    pub fn read(&self) -> (u64, usize) {
        let connected = self.tasks.iter().filter(|task| !task.is_finished()).count();
        (self.bytes.load(Ordering::Relaxed), connected)
    }
}

impl Drop for BinlogReaders {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Records when each transaction has arrived completely. Transactions are identified by the bytes of their
/// first event.
#[derive(Debug)]
pub struct ArrivalRecorder {
    task: JoinHandle<anyhow::Result<HashMap<Bytes, Instant>>>,
    stop: tokio_util::sync::CancellationToken,
}

impl ArrivalRecorder {
    /// Starts recording with the next transaction.
    ///
    /// # Errors
    /// If the recorder cannot connect.
    pub async fn start(
        source: &ConnectOptions,
        now: &ConnectOptions,
        server_id: u32,
    ) -> anyhow::Result<Self> {
        let request = from_now(now, server_id).await?;
        let stream = Connection::connect(source).await?.dump(request).await?;
        let stop = tokio_util::sync::CancellationToken::new();
        let task = tokio::spawn(note_arrivals(stream, stop.clone()));
        Ok(Self { task, stop })
    }

    /// Returns when each transaction arrived.
    ///
    /// # Errors
    /// If the stream broke.
    pub async fn finish(self) -> anyhow::Result<HashMap<Bytes, Instant>> {
        // Waits until transactions that are still being sent have arrived, because they count too.
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.stop.cancel();
        self.task.await?
    }
}

async fn note_arrivals(
    mut stream: DumpStream,
    stop: tokio_util::sync::CancellationToken,
) -> anyhow::Result<HashMap<Bytes, Instant>> {
    let mut arrivals = HashMap::new();
    let mut open = None;
    loop {
        let chunk = tokio::select! {
            () = stop.cancelled() => return Ok(arrivals),
            chunk = stream.next() => chunk?,
        };
        let Some(chunk) = chunk else { return Ok(arrivals) };
        match chunk.header.event_type {
            EventType::GTID | EventType::MARIADB_GTID => open = Some(Bytes::copy_from_slice(&chunk.data)),
            EventType::XID if chunk.last => {
                if let Some(key) = open.take() {
                    arrivals.insert(key, Instant::now());
                }
            }
            _ => {}
        }
    }
}
