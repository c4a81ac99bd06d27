//! HAProxy routes clients to the primary that the daemon reports. The test uses the configuration in
//! docs/how-to/haproxy.md.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tailwater_sandbox::{HaProxy, ReservedPort, Server, ServerKind, require};
use tailwater_session::{ConnectOptions, Connection, Endpoint, TlsMode, TlsOptions};
use tailwater_wire::Flavour;

use crate::cli::http_listener::{Http, daemon, follower, member, unlock, written_by};
use crate::shell_session::Shell;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn haproxy_routes_clients_to_the_primary_mariadb() -> Result<()> {
    clients_follow_the_primary(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn haproxy_routes_clients_to_the_primary_mysql() -> Result<()> {
    clients_follow_the_primary(ServerKind::Mysql97).await
}

async fn clients_follow_the_primary(kind: ServerKind) -> Result<()> {
    let (Some(_), Some(program)) = (require(kind), HaProxy::require()) else { return Ok(()) };
    let shell = Shell::new()?;
    shell.write("http.token", TOKEN)?;
    let (mut trial, port) = daemon(&shell, kind, "token_file = \"http.token\"").await?;
    let second = follower(kind, 12, "second").await?;
    // The first primary is configured as a server too. The documentation page also lists a second daemon.
    // That daemon does not run in this test, and HAProxy must work without it.
    trial.add_channel(&member("db1", &trial.primary))?;
    trial.add_channel(&member("db2", &second))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial.primary.sql("CREATE DATABASE shop").await?;
    second.create_replication_user().await?;
    second.replicate(&trial.replica_of_relay()).await?;
    second.sql("SET GLOBAL read_only = 1").await?;
    let http = Http { port: port.number() };

    let ports = HaproxyPorts::new()?;
    let config = shell.path().join("haproxy.cfg");
    std::fs::write(&config, ports.config(&trial.primary, &second, port.number())?)?;
    let haproxy = HaProxy::start(&program, &config)?;
    let to = |port: &ReservedPort| client(port.number());
    wait_until_connected_to(&to(&ports.write), 1).await.with_context(|| logged(&haproxy))?;
    wait_until_connected_to(&to(&ports.read), 12).await.with_context(|| logged(&haproxy))?;

    // HAProxy routes no readers to a replica whose replication is stopped.
    second
        .sql(if kind == ServerKind::Mysql97 { "STOP REPLICA SQL_THREAD" } else { "STOP SLAVE SQL_THREAD" })
        .await?;
    wait_until_refused(&to(&ports.read)).await?;
    second
        .sql(if kind == ServerKind::Mysql97 { "START REPLICA SQL_THREAD" } else { "START SLAVE SQL_THREAD" })
        .await?;
    wait_until_connected_to(&to(&ports.read), 12).await?;

    // A session with the old primary. The failover must end it.
    let (mut session, found) = connect_to(&to(&ports.write)).await?;
    ensure!(found == 1);

    // The steps of a failover: first no server is primary, then another server is primary and the log follows
    // it.
    ensure!(http.order("stop", "0123456789abcdef-another-token", &json!({ "token": 7 }))?.0 == 401);
    let (code, body) = http.order("stop", TOKEN, &json!({ "token": 7 }))?;
    ensure!(
        code == 200 && body["acker"]["stopped_since_ms"].is_number(),
        "the order to stop was not obeyed: {body}"
    );
    wait_until_refused(&to(&ports.write)).await?;
    wait_for_end(&mut session).await?;
    ensure!(second.wait_for_gtids(&written_by(&trial.primary).await?, PATIENCE).await?);
    promote(&second).await?;
    // Both servers accept writes now. The daemon reports neither as primary until the log follows it.
    ensure!(http.ask("GET", "/primary/db1")?.0 == 503 && http.ask("GET", "/primary/db2")?.0 == 503);
    let (code, body) = http.order("follow", TOKEN, &json!({ "token": 6, "server": "db2" }))?;
    ensure!(
        code == 409 && body["code"] == "TW-RELAY-0015",
        "an order with a lower lease term was not refused: {code} {body}"
    );
    let (code, body) = http.order("follow", TOKEN, &json!({ "token": 7, "server": "db2" }))?;
    ensure!(
        code == 200 && body["acker"]["follows"] == "db2" && body["is_streaming"] == true,
        "the order to follow db2 was not obeyed: {code} {body}"
    );
    wait_until_connected_to(&to(&ports.write), 12).await.with_context(|| logged(&haproxy))?;

    // The former primary restarts and is writable. HAProxy routes no clients to it.
    if kind.flavour() == Flavour::MariaDb {
        // The server needs a moment to start.
        trial.primary.kill().await?;
        trial.primary.start_again().await?;
    }
    trial.primary.sql(&format!("{} SET GLOBAL read_only = 0", unlock(kind))).await?;
    let body = http.until("/primary/db1", 503, |body| body["reason"] == "the log follows db2")?;
    ensure!(body["server"] == "db1");
    let (code, body) = http.ask("GET", "/replica/db1")?;
    ensure!(code == 503, "HAProxy could route readers to the former primary: {body}");
    for _ in 0..10 {
        let (_, found) = connect_to(&to(&ports.write)).await?;
        ensure!(found == 12);
    }
    wait_until_refused(&to(&ports.read)).await?;
    let (code, body) = http.ask("GET", "/primary?source=primary")?;
    ensure!(code == 200 && body["server"] == "db2", "the daemon does not report db2 as the primary: {body}");
    haproxy.stop().await?;
    trial.kill_relay().await
}

/// Promotes a replica that has applied everything: enables semi-sync and makes the replica writable.
async fn promote(replica: &Server) -> Result<()> {
    let kind = replica.kind();
    replica
        .sql(match kind.flavour() {
            Flavour::MySql => "STOP REPLICA; RESET REPLICA ALL",
            Flavour::MariaDb => "STOP SLAVE; RESET SLAVE ALL",
        })
        .await?;
    replica.enable_semi_sync_source().await?;
    replica.sql(&format!("{} SET GLOBAL read_only = 0", unlock(kind))).await?;
    Ok(())
}

/// The ports on which HAProxy listens.
struct HaproxyPorts {
    write: ReservedPort,
    read: ReservedPort,
    daemons: ReservedPort,
    absent: ReservedPort,
}

impl HaproxyPorts {
    fn new() -> Result<Self> {
        let pick = ReservedPort::pick;
        Ok(Self { write: pick()?, read: pick()?, daemons: pick()?, absent: pick()? })
    }

    /// Returns the configuration from the documentation page, with the addresses of this test and shorter
    /// intervals.
    fn config(&self, db1: &Server, db2: &Server, daemon: u16) -> Result<String> {
        let page = include_str!("../../../../docs/how-to/haproxy.md");
        let config = page.split("```haproxy\n").nth(1).and_then(|rest| rest.split("```").next());
        let mut config = config.context("the page has no configuration")?.to_owned();
        // In the page, the daemon of this test is listed second. The daemon that is listed first does not
        // run.
        for (from, to) in [
            ("127.0.0.1:3300", format!("127.0.0.1:{}", self.write.number())),
            ("127.0.0.1:3301", format!("127.0.0.1:{}", self.read.number())),
            ("127.0.0.1:8079", format!("127.0.0.1:{}", self.daemons.number())),
            ("port 8079", format!("port {}", self.daemons.number())),
            // The intervals are shorter only to make the test shorter.
            ("inter 500ms fastinter 200ms downinter 500ms", "inter 100ms".to_owned()),
            ("db1.internal:3306", format!("127.0.0.1:{}", db1.port())),
            ("db2.internal:3306", format!("127.0.0.1:{}", db2.port())),
            ("relay1.internal:8080", format!("127.0.0.1:{}", self.absent.number())),
            ("relay2.internal:8080", format!("127.0.0.1:{daemon}")),
        ] {
            ensure!(config.contains(from), "the configuration in the page does not contain {from}");
            config = config.replace(from, &to);
        }
        ensure!(
            !config.contains(".internal"),
            "the configuration still has host names of the example: {config}"
        );
        Ok(config)
    }
}

fn client(port: u16) -> ConnectOptions {
    let tls = TlsOptions { mode: TlsMode::Off, ..TlsOptions::default() };
    ConnectOptions::new(Endpoint::tcp("127.0.0.1", port), "root").password("").tls(tls)
}

async fn server_id(connection: &mut Connection) -> Result<u32> {
    let rows = connection.query("SELECT @@server_id").await?;
    Ok(rows.rows.first().and_then(|row| row.get_str(0)).context("the server returned no row")?.parse()?)
}

/// Waits until a new client is connected to the server with this server id.
async fn wait_until_connected_to(there: &ConnectOptions, wanted: u32) -> Result<()> {
    let started = Instant::now();
    loop {
        let found = async { server_id(&mut Connection::connect(there).await?).await }.await;
        if found.as_ref().is_ok_and(|found| *found == wanted) {
            return Ok(());
        }
        ensure!(started.elapsed() < PATIENCE, "new clients are not connected to server {wanted}: {found:?}");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Opens a session through HAProxy, and returns it with the id of its server. On a busy machine, a health
/// check may exceed its limit of 0.1 s. Then HAProxy refuses clients for a moment.
async fn connect_to(there: &ConnectOptions) -> Result<(Connection, u32)> {
    let started = Instant::now();
    loop {
        let found = async {
            let mut connection = Connection::connect(there).await?;
            let id = server_id(&mut connection).await?;
            Ok::<_, anyhow::Error>((connection, id))
        };
        match found.await {
            Ok(found) => return Ok(found),
            Err(error) => ensure!(started.elapsed() < PATIENCE, "HAProxy refuses clients: {error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Waits until HAProxy refuses new clients.
async fn wait_until_refused(there: &ConnectOptions) -> Result<()> {
    let started = Instant::now();
    while Connection::connect(there).await.is_ok() {
        ensure!(started.elapsed() < PATIENCE, "HAProxy still accepts clients");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    Ok(())
}

/// Waits until a session has ended.
async fn wait_for_end(session: &mut Connection) -> Result<()> {
    let started = Instant::now();
    while session.query("SELECT 1").await.is_ok() {
        ensure!(started.elapsed() < PATIENCE, "HAProxy did not close the session with the former primary");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    Ok(())
}

fn logged(haproxy: &HaProxy) -> String {
    std::fs::read_to_string(haproxy.log()).unwrap_or_default()
}

impl Http {
    fn order(&self, order: &str, token: &str, body: &Value) -> Result<(u16, Value)> {
        let body = body.to_string();
        self.say(&format!(
            "POST /acker/primary/{order} HTTP/1.0\r\nauthorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    }
}
