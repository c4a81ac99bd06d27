//! Clients that reach the primary through a proxy, and clients that stay connected to one server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_sandbox::network_link::Link;
use tailwater_sandbox::{Ledger, Server, Workload, WorkloadSpec};
use tailwater_session::{ConnectOptions, Endpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::cluster_health_wait::PATIENCE;
use super::test_cluster::Cluster;

/// Interval at which the proxy asks the daemon for the name of the primary.
const ASK: Duration = Duration::from_millis(50);

/// Number of the first client that stays connected to one server.
const CONNECTED_CLIENT_FIRST: u32 = 1000;

/// All clients of a cluster. They share one ledger.
pub struct Clients {
    ledger: Arc<Ledger>,
    load: Workload,
    router: JoinHandle<()>,
    next_connected_client: AtomicU32,
}

/// Returns the connection options of an account that `read_only` prevents from writing.
fn as_app(server: &Server) -> ConnectOptions {
    ConnectOptions { user: "app".into(), password: "app".into(), ..server.connect_options() }
}

impl Clients {
    pub fn start(cluster: &Cluster) -> Result<Self> {
        let front = Arc::clone(&cluster.front);
        let mut target = as_app(&cluster.trial.primary);
        target.endpoint = Endpoint::tcp("127.0.0.1", front.port());
        let router = tokio::spawn(route(front, cluster.http(), cluster.addresses()?));
        let ledger = Arc::<Ledger>::default();
        let spec = WorkloadSpec {
            pause: Duration::from_millis(10),
            reconnect: 10 * PATIENCE,
            ..WorkloadSpec::new(6)
        };
        let load = Workload::start(target, &spec, Arc::clone(&ledger));
        Ok(Self { ledger, load, router, next_connected_client: AtomicU32::new(CONNECTED_CLIENT_FIRST) })
    }

    /// Starts clients that connect only to this server, whether it is the primary or not.
    pub fn load_of_server(&self, server: &Server) -> Workload {
        let connections = 4;
        let first_worker = self.next_connected_client.fetch_add(connections, Ordering::Relaxed);
        let pause = Duration::from_millis(5);
        let spec =
            WorkloadSpec { first_worker, pause, reconnect: 10 * PATIENCE, ..WorkloadSpec::new(connections) };
        Workload::start(as_app(server), &spec, Arc::clone(&self.ledger))
    }

    /// Waits until the primary has acknowledged `more` further commits.
    pub async fn more_commits(&mut self, more: u64) -> Result<()> {
        let acknowledged = |load: &Workload| load.counters().snapshot().acknowledged;
        let wanted = acknowledged(&self.load) + more;
        let started = Instant::now();
        while acknowledged(&self.load) < wanted {
            ensure!(!self.load.is_over(), "the clients gave up");
            ensure!(
                started.elapsed() < PATIENCE,
                "the primary acknowledges no further commits: {:?}",
                self.load.counters().snapshot()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Checks that this server has every commit that has been acknowledged so far. The clients continue
    /// meanwhile.
    pub async fn compare(&self, server: &Server) -> Result<()> {
        let known = Ledger::new();
        self.ledger.for_each(|id, entry| known.record(id, entry));
        let report = known.compare_with_server(&server.connect_options()).await?;
        let wrong = report.missing.count + report.altered.count + report.failed_but_present.count;
        ensure!(wrong == 0, "{} lacks acknowledged commits: {report:?}", server.name());
        Ok(())
    }

    /// Stops all clients, and returns their ledger.
    pub async fn finish(self) -> Result<Arc<Ledger>> {
        let Self { ledger, load, router, .. } = self;
        let report = tokio::time::timeout(PATIENCE, load.finish()).await.context("the clients do not end")?;
        router.abort();
        ensure!(report.errors.is_empty(), "clients gave up with errors: {:?}", report.errors);
        Ok(ledger)
    }
}

/// Acts as a load balancer: asks the daemon for the primary, routes the clients to it, and closes their
/// connections to other servers. While the daemon does not answer, the clients stay connected as they are.
async fn route(front: Arc<Link>, http: u16, servers: BTreeMap<String, SocketAddr>) {
    let mut leads: Option<String> = None;
    loop {
        let asked = tokio::time::timeout(Duration::from_secs(2), ask(http)).await;
        if let Ok(Ok(now)) = asked
            && now != leads
        {
            front.refuse();
            if let Some(address) = now.as_ref().and_then(|name| servers.get(name)) {
                front.set_target(*address);
                front.restore();
            }
            leads = now;
        }
        tokio::time::sleep(ASK).await;
    }
}

/// Asks the daemon for the name of the primary. Returns `None` if there is no primary.
async fn ask(port: u16) -> Result<Option<String>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET /primary HTTP/1.0\r\n\r\n").await?;
    let mut text = String::new();
    stream.take(64 << 10).read_to_string(&mut text).await?;
    let (_, body) = text.split_once("\r\n\r\n").context("the answer of the daemon has no body")?;
    let body: Value = serde_json::from_str(body)?;
    let server = body["server"].as_str().filter(|_| body["ok"] == true);
    Ok(server.map(str::to_owned))
}
