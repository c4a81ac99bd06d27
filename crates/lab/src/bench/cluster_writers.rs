//! Clients that know all servers of a cluster, and commit on the server that accepts writes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use tailwater_sandbox::Server;
use tailwater_session::{ConnectOptions, Connection};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a client pauses between two rows, so that a replica on the same machine can keep up.
pub const PAUSE: Duration = Duration::from_millis(5);
/// How long a client pauses after no server accepted its row.
const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// Time limit for the answer of a server. After that time the client closes the connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Creates the account of the clients, to which `read_only` applies, and their table.
///
/// # Errors
/// With the server's error message.
pub async fn prepare_writers(primary: &Server) -> anyhow::Result<()> {
    primary
        .sql(
            "CREATE USER app@'%' IDENTIFIED BY 'app'; CREATE DATABASE tw_bench; GRANT ALL ON tw_bench.* TO app@'%';
             CREATE TABLE tw_bench.rows_written (client INT, number INT, PRIMARY KEY (client, number))",
        )
        .await?;
    Ok(())
}

/// An acknowledged row, and when it was acknowledged.
#[derive(Debug, Clone, Copy)]
struct CommittedRow {
    client: u32,
    number: u32,
    at: Instant,
}

/// The running clients. Each of them writes to the server that accepts writes.
#[derive(Debug)]
pub struct ClusterWriters {
    committed: Arc<Mutex<Vec<CommittedRow>>>,
    stop: CancellationToken,
    clients: JoinSet<()>,
}

impl ClusterWriters {
    /// Starts `clients` clients of these servers. The first server is the primary.
    pub fn start(servers: &[&Server], clients: u32) -> Self {
        let committed = Arc::new(Mutex::new(Vec::new()));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let links = servers.iter().map(|server| WriterConnection::new(app_options(server))).collect();
            let client = WriterClient { number, links, committed: Arc::clone(&committed) };
            tasks.spawn(client.write(stop.clone()));
        }
        Self { committed, stop, clients: tasks }
    }

    /// Returns the longest time without a commit of any client between the moments `from` and `until`. It may
    /// start at the last commit before `from`.
    ///
    /// # Errors
    /// If there was no commit before `from`, or no commit ended the pause.
    pub fn longest_pause(&self, from: Instant, until: Instant) -> anyhow::Result<Duration> {
        let mut times: Vec<_> = locked(&self.committed).iter().map(|row| row.at).collect();
        times.sort_unstable();
        longest_pause(&times, from, until)
    }

    /// Returns the number of acknowledged commits so far.
    pub fn commits(&self) -> usize {
        locked(&self.committed).len()
    }

    /// Stops the clients, and checks that every acknowledged row is on the primary.
    ///
    /// # Errors
    /// If a row is missing.
    pub async fn finish(mut self, primary: &Server) -> anyhow::Result<()> {
        self.stop.cancel();
        while self.clients.join_next().await.is_some() {}
        let there: HashSet<String> =
            primary.sql("SELECT client, number FROM tw_bench.rows_written").await?.into_iter().collect();
        let committed = locked(&self.committed);
        let missing =
            committed.iter().filter(|row| !there.contains(&format!("{}\t{}", row.client, row.number)));
        let missing: Vec<_> = missing.map(|row| (row.client, row.number)).collect();
        ensure!(missing.is_empty(), "{} lacks commits: {missing:?}", primary.name());
        Ok(())
    }
}

/// Returns the longest interval between two consecutive moments of the sorted `times`, from the last moment
/// before `from` up to `until`.
fn longest_pause(times: &[Instant], from: Instant, until: Instant) -> anyhow::Result<Duration> {
    let before =
        times.iter().rposition(|at| *at <= from).context("no client has written before the switchover")?;
    let behind = times.partition_point(|at| *at <= until);
    let times = times.get(before..behind).unwrap_or_default();
    let pauses = times.windows(2).map(|pair| pair[1].duration_since(pair[0]));
    let longest = pauses.max().context("no client has written after the switchover")?;
    // If no client has written for longer than the longest pause, the clients have stopped writing. A
    // switchover does not explain that, so it is an error.
    let last = times.last().map_or(Duration::ZERO, |last| until.duration_since(*last));
    ensure!(last <= longest, "no client has written for {last:?}");
    Ok(longest)
}

fn locked(committed: &Mutex<Vec<CommittedRow>>) -> parking_lot::MutexGuard<'_, Vec<CommittedRow>> {
    committed.lock()
}

fn app_options(server: &Server) -> ConnectOptions {
    ConnectOptions { user: "app".into(), password: "app".into(), ..server.connect_options() }
}

struct WriterClient {
    number: u32,
    links: Vec<WriterConnection>,
    committed: Arc<Mutex<Vec<CommittedRow>>>,
}

impl WriterClient {
    async fn write(mut self, stop: CancellationToken) {
        let (mut at, mut refusals) = (0, 0);
        let mut number = 0;
        while !stop.is_cancelled() {
            // A row whose outcome is unknown is not written again, so each attempt has a new number.
            number += 1;
            if self.links[at].insert(self.number, number).await {
                let row = CommittedRow { client: self.number, number, at: Instant::now() };
                locked(&self.committed).push(row);
                refusals = 0;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            at = (at + 1) % self.links.len();
            refusals += 1;
            if refusals % self.links.len() == 0 {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// A client's connection to a server. It is opened when needed, and opened again after it broke.
struct WriterConnection {
    options: ConnectOptions,
    connection: Option<Connection>,
}

impl WriterConnection {
    fn new(options: ConnectOptions) -> Self {
        Self { options, connection: None }
    }

    /// Whether the server acknowledged the row.
    async fn insert(&mut self, client: u32, number: u32) -> bool {
        let done = tokio::time::timeout(ANSWER_WITHIN, self.try_insert(client, number)).await;
        done.unwrap_or_else(|_| {
            self.connection = None;
            false
        })
    }

    async fn try_insert(&mut self, client: u32, number: u32) -> bool {
        // The connection is taken out of `self`, and is put back only after the server has answered. So a
        // connection with an interrupted request is dropped.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match Connection::connect(&self.options).await {
                Ok(connection) => connection,
                Err(_) => return false,
            },
        };
        let sql = format!("INSERT INTO tw_bench.rows_written VALUES ({client}, {number})");
        match connection.execute(&sql).await {
            Ok(_) => {
                self.connection = Some(connection);
                true
            }
            Err(error) => {
                if matches!(error, tailwater_session::SessionError::Server { .. }) {
                    self.connection = Some(connection);
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pause_starts_at_the_last_commit_before_the_switchover() {
        let zero = Instant::now();
        let at = |ms: u64| zero + Duration::from_millis(ms);
        let times: Vec<_> = [0, 500, 510, 600, 605, 1500].map(at).into();
        let longest = |from, until| longest_pause(&times, at(from), at(until)).ok();
        assert_eq!(longest(520, 650), Some(Duration::from_millis(90)));
        assert_eq!(longest(599, 605), Some(Duration::from_millis(90)));
        assert_eq!(longest(400, 605), Some(Duration::from_millis(500)));
        // These cases are errors: the last pause has not ended, no client wrote after the switchover, and no
        // client wrote before it.
        assert_eq!(longest(520, 1400), None);
        assert_eq!(longest(1500, 1600), None);
        assert_eq!(longest_pause(&times[1..], at(400), at(605)).ok(), None);
    }
}
