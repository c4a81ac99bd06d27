//! Clients that commit small inserts, and measure how long their commits take.

use std::time::{Duration, Instant};

use tailwater_sandbox::Server;
use tailwater_session::Connection;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Number of clients.
const CLIENTS: usize = 4;
/// Pause between two commits of a client, so that the machine has time for the dump.
const PAUSE: Duration = Duration::from_millis(5);

/// How long the commits of the clients took.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommitWaits {
    /// The longest commit, in milliseconds.
    pub longest_ms: f64,
    /// The 99th percentile of the commit times, in milliseconds.
    pub p99_ms: f64,
}

/// The running clients.
#[derive(Debug)]
pub struct ConcurrentWriters {
    stop: CancellationToken,
    clients: JoinSet<anyhow::Result<Vec<f64>>>,
}

impl ConcurrentWriters {
    /// Starts the clients.
    ///
    /// # Errors
    /// If the clients' table cannot be created.
    pub async fn start(server: &Server) -> anyhow::Result<Self> {
        let mut connection = Connection::connect(&server.socket_options()).await?;
        connection.execute("CREATE DATABASE IF NOT EXISTS tw_writes").await?;
        let table =
            "CREATE TABLE IF NOT EXISTS tw_writes.w (id BIGINT AUTO_INCREMENT PRIMARY KEY, t VARCHAR(100))";
        connection.execute(table).await?;
        connection.close().await;
        let stop = CancellationToken::new();
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let (stop, options) = (stop.clone(), server.socket_options());
            clients.spawn(async move {
                let mut connection = Connection::connect(&options).await?;
                let mut waits = Vec::new();
                while !stop.is_cancelled() {
                    let begin = Instant::now();
                    connection.execute("INSERT INTO tw_writes.w (t) VALUES (REPEAT('w', 100))").await?;
                    waits.push(begin.elapsed().as_secs_f64() * 1e3);
                    tokio::time::sleep(PAUSE).await;
                }
                connection.close().await;
                Ok(waits)
            });
        }
        Ok(Self { stop, clients })
    }

    /// Stops the clients.
    ///
    /// # Errors
    /// If a client has failed.
    pub async fn stop(mut self) -> anyhow::Result<CommitWaits> {
        self.stop.cancel();
        let mut waits = Vec::new();
        while let Some(client) = self.clients.join_next().await {
            waits.extend(client??);
        }
        waits.sort_by(f64::total_cmp);
        let at = |share: f64| waits.get((waits.len() as f64 * share) as usize).copied();
        Ok(CommitWaits {
            longest_ms: waits.last().copied().unwrap_or(f64::NAN),
            p99_ms: at(0.99).unwrap_or(f64::NAN),
        })
    }
}
