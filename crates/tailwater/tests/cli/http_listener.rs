//! Requests of load balancers and monitoring systems to the daemon's HTTP listener.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use tailwater_config::RelayConfig;
use tailwater_daemon::manager::remote_relay_acker::RemoteRelay;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_manager::action_executor::{AckerControl, AckerError};
use tailwater_manager::lossless_rules::AckerStop;
use tailwater_manager::model::LeaseToken;
use tailwater_sandbox::{ReservedPort, Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;
use tailwater_topology::probe_failure::ProbeFailure;
use tailwater_wire::Flavour;

use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn http_checks_reflect_the_state_of_the_servers_mariadb() -> Result<()> {
    checks_follow_the_servers(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn http_checks_reflect_the_state_of_the_servers_mysql() -> Result<()> {
    checks_follow_the_servers(ServerKind::Mysql97).await
}

async fn checks_follow_the_servers(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (mut trial, port) = daemon(&shell, kind, "").await?;
    let beside = follower(kind, 12, "beside").await?;
    trial.add_channel(&member("db2", &beside))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    beside.replicate(&trial.replica_of_relay()).await?;

    let http = Http { port: port.number() };
    http.until("/primary/primary", 200, |body| body["ok"] == true && body["server"] == "primary")?;
    let (code, body) = http.ask("GET", "/primary")?;
    ensure!(
        code == 200 && body["server"] == "primary" && body["source"] == "primary",
        "/primary does not report the primary: {body}"
    );
    let address = format!("127.0.0.1:{}", trial.primary.port());
    ensure!(body["address"] == address.as_str(), "the address of the primary is wrong: {body}");
    http.until("/replica/db2?lag=5", 200, |body| body["lag_seconds"].is_number())?;
    let (code, body) = http.ask("GET", "/primary/db2")?;
    ensure!(
        code == 503 && body["reason"] == "the log follows primary",
        "/primary/db2 is not refused with the expected reason: {body}"
    );
    let (code, body) = http.ask("GET", "/replica/primary")?;
    ensure!(
        code == 503 && body["reason"] == "the server is the primary",
        "/replica/primary is not refused with the expected reason: {body}"
    );
    ensure!(http.ask("GET", "/healthz")?.0 == 200);
    let (code, body) = http.ask("GET", "/status")?;
    ensure!(
        code == 200 && body["clusters"][0]["nodes"][0]["role"] == "primary",
        "/status does not report the primary: {body}"
    );
    // Some load balancers send these methods.
    for method in ["HEAD", "OPTIONS"] {
        ensure!(http.ask(method, "/primary/primary")?.0 == 200, "{method} is not answered with 200");
    }
    ensure!(http.ask("POST", "/primary/primary")?.0 == 405);
    ensure!(http.ask("GET", "/primary/absent")?.0 == 404);
    ensure!(http.ask("GET", "/replica/db2?lag=soon")?.0 == 400);

    // A writable server is not necessarily the primary: a former primary that restarts is writable too.
    beside.sql(&format!("{} SET GLOBAL read_only = 0", unlock(kind))).await?;
    trial.primary.sql("SET GLOBAL read_only = 1").await?;
    http.until("/primary/primary", 503, |body| body["reason"] == "the server is read-only")?;
    ensure!(http.ask("GET", "/primary/db2")?.0 == 503);
    trial.primary.sql(&format!("{} SET GLOBAL read_only = 0", unlock(kind))).await?;
    http.until("/primary/primary", 200, |_| true)?;

    beside
        .sql(if kind == ServerKind::Mysql97 { "STOP REPLICA SQL_THREAD" } else { "STOP SLAVE SQL_THREAD" })
        .await?;
    http.until("/replica/db2?lag=1000", 503, |body| {
        body["reason"].as_str().is_some_and(|reason| reason.contains("SqlStopped"))
    })?;
    trial.primary.kill().await?;
    http.until("/primary/primary", 503, |body| {
        body["reason"].as_str().is_some_and(|reason| reason.contains("refused"))
    })?;
    trial.kill_relay().await
}

/// With a manager and `[http]`, the daemon probes each server only once per interval, over one connection at
/// a time.
#[tokio::test]
async fn manager_and_http_listener_share_their_probes() -> Result<()> {
    const INTERVAL_MS: u128 = 100;
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (mut trial, port) = daemon(&shell, kind, "").await?;
    let beside = follower(kind, 12, "beside").await?;
    trial.add_channel(&member("db2", &beside))?;
    trial.add_channel(&format!("\n[manager]\n[manager.pace]\npoll_ms = {INTERVAL_MS}\n"))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    // Each probe executes SHOW REPLICA STATUS exactly once. Returns the number of times that the server has
    // executed that statement, and the number of its connections.
    let count = async || -> Result<(u128, u128)> {
        let variables = "'Com_show_replica_status', 'Connections'";
        let rows = beside.sql(&format!("SHOW GLOBAL STATUS WHERE Variable_name IN ({variables})")).await?;
        let value = |name: &str| -> Result<u128> {
            let row = rows
                .iter()
                .find(|row| row.starts_with(name))
                .with_context(|| format!("the server has no status variable {name}"))?;
            Ok(row.trim_start_matches(name).trim().parse()?)
        };
        Ok((value("Com_show_replica_status")?, value("Connections")?))
    };
    let started = Instant::now();
    while count().await?.0 == 0 {
        ensure!(started.elapsed() < PATIENCE, "the manager does not probe db2: {}", trial.relay_log_tail());
    }
    let http = Http { port: port.number() };
    for asks in [false, true] {
        let (started, (probes, connections)) = (Instant::now(), count().await?);
        while started.elapsed() < Duration::from_secs(4) {
            if asks {
                for path in ["/primary", "/replica/db2", "/status"] {
                    http.ask("GET", path)?;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (probes, connections) = (count().await?.0 - probes, count().await?.1 - connections);
        let limit = started.elapsed().as_millis() / INTERVAL_MS + 2;
        ensure!(
            probes > 0 && probes <= limit,
            "with HTTP requests: {asks}; the server was probed {probes} times, expected at most {limit}"
        );
        // The queries that count the probes use connections too.
        ensure!(
            connections <= limit + 3,
            "with HTTP requests: {asks}; the server got {connections} connections, expected about one for each of {limit} probes"
        );
    }
    trial.kill_relay().await
}

/// A manager on another machine reads the state of the daemon's acker over HTTP, and sends orders to it.
#[tokio::test]
async fn a_relay_accepts_orders_over_http() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    shell.write("http.token", "0123456789abcdef0123456789abcdef\n")?;
    shell.write("other.token", "another0123456789abcdef0123456789\n")?;
    let (mut trial, port) = daemon(&shell, kind, "token_file = \"http.token\"").await?;
    let relay = |url: String, token: &str, server_id| {
        RemoteRelay::of(&RelayConfig {
            name: "relay2".to_owned(),
            source: "orders".to_owned(),
            source_there: Some("primary".to_owned()),
            url,
            token_file: shell.path().join(token),
            ca_file: None,
            server_id,
            serves: Vec::new(),
            serve_server_uuid: None,
            connect_timeout_ms: 1_000,
            timeout_ms: 12_000,
        })
    };
    let url = format!("http://127.0.0.1:{}/", port.number());
    let right = relay(url.clone(), "http.token", 4201)?;
    ensure!(right.status().await.is_err_and(|unreached| unreached.failure == ProbeFailure::Refused));
    let refused = |answer: Result<(), AckerError>| match answer {
        Err(AckerError::Refused(reason)) => Ok(reason),
        other => Err(anyhow!("the order was not refused: {other:?}")),
    };
    refused(right.stop(LeaseToken(1)).await.map(drop))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial.primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)").await?;

    let reason = refused(relay(url.clone(), "other.token", 4201)?.stop(LeaseToken(1)).await.map(drop))?;
    ensure!(reason.contains("401"), "the reason does not contain status 401: {reason}");
    // A relay that reports another name than the configured name is rejected.
    let answer = relay(url.clone(), "http.token", 4202)?.read().await;
    let is_told = |reason: &str| reason.contains("server_id 4201") && reason.contains("4202");
    ensure!(
        matches!(&answer, Err(AckerError::Unknown(reason)) if is_told(reason)),
        "another relay's answer was accepted: {answer:?}"
    );

    let look = right.status().await.map_err(|unreached| anyhow!("{}", unreached.message))?;
    ensure!(
        look.is_streaming && look.acknowledges && look.heard_ago_ms.is_some(),
        "the relay does not stream or does not acknowledge: {look:?}"
    );
    let report = right.read().await.map_err(|error| anyhow!("{error:?}"))?;
    ensure!(
        report.acker.name == "relay2" && report.acker.stop == AckerStop::Unknown,
        "the acker's report is unexpected: {report:?}"
    );
    let report = right.stop(LeaseToken(3)).await.map_err(|error| anyhow!("{error:?}"))?;
    ensure!(
        report.acker.stop == AckerStop::Persistent && report.acker.durable,
        "the acker has not stopped persistently: {report:?}"
    );
    let held = report.acker.holds.context("the acker reports no GTIDs")?;
    ensure!(
        held.to_string().replace('\n', "") == written_by(&trial.primary).await?,
        "the acker holds {held}, which are not the GTIDs that the primary has written"
    );
    // The stopped acker acknowledges no further commit.
    let mut client = Connection::connect(&trial.primary.connect_options()).await?;
    let commit = tokio::spawn(async move { client.execute("INSERT INTO shop.t VALUES (1)").await.map(drop) });
    let http = Http { port: port.number() };
    http.until("/primary/primary", 503, |body| {
        body["reason"].as_str().is_some_and(|reason| reason.contains("stopped by order"))
    })?;
    let reason = refused(right.start(LeaseToken(2)).await)?;
    ensure!(reason.starts_with("TW-RELAY-0015"), "the order is not refused with TW-RELAY-0015: {reason}");
    ensure!(!commit.is_finished());
    let reason = refused(right.follow(LeaseToken(3), "db9").await)?;
    ensure!(reason.starts_with("TW-RELAY-0016"), "the order is not refused with TW-RELAY-0016: {reason}");
    right.start(LeaseToken(3)).await.map_err(|error| anyhow!("{error:?}"))?;
    tokio::time::timeout(PATIENCE, commit).await???;
    http.until("/primary/primary", 200, |_| true)?;
    trial.kill_relay().await
}

/// A client that sends nothing, or too much, occupies a connection slot only for a limited time. Meanwhile
/// the daemon answers other clients.
#[test]
fn invalid_http_requests_are_answered_or_closed() -> Result<()> {
    let shell = Shell::new()?;
    let port = ReservedPort::pick()?;
    shell.write("client.cnf", "[client]\nuser=nobody\npassword=x\n")?;
    shell.write(
        "tailwater.toml",
        &format!(
            "[log]\ndirectory = \"log\"\n[[source]]\nname = \"orders\"\nhost = \"127.0.0.1\"\nport = 1\n\
             defaults_file = \"client.cnf\"\nserver_id = 4201\n{}",
            section(port.number(), "")
        ),
    )?;
    let arguments =
        ["run".to_owned(), "-c".into(), shell.path().join("tailwater.toml").display().to_string()];
    let _daemon =
        tailwater_sandbox::ChildProcess::start(PROGRAM, arguments, &shell.path().join("relay.log"))?;
    let http = Http { port: port.number() };
    let started = Instant::now();
    while http.ask("GET", "/healthz").is_err() {
        ensure!(
            started.elapsed() < PATIENCE,
            "the daemon does not start: {}",
            std::fs::read_to_string(shell.path().join("relay.log"))?
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let silent = TcpStream::connect(("127.0.0.1", port.number()))?;
    for request in ["\x16\x03\x01\x02\x00\x01\x00", "GET / HTTP/9.9\r\n\r\n", "\r\n\r\n\r\n", "\0\0\0\0"] {
        let mut stream = TcpStream::connect(("127.0.0.1", port.number()))?;
        stream.write_all(request.as_bytes())?;
        stream.shutdown(std::net::Shutdown::Write)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        ensure!(
            !answer.starts_with(b"HTTP/1.1 2"),
            "the invalid request {request:?} was accepted: {}",
            String::from_utf8_lossy(&answer)
        );
    }
    let long = format!("GET /primary/{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(64 << 10));
    let mut stream = TcpStream::connect(("127.0.0.1", port.number()))?;
    let _ = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    ensure!(
        !answer.starts_with(b"HTTP/1.1 2"),
        "a request with a path that is too long was accepted: {}",
        String::from_utf8_lossy(&answer)
    );
    let (code, body) = http.ask("GET", "/primary/orders")?;
    ensure!(
        code == 503 && body["ok"] == false,
        "a source that cannot be reached is reported as a primary: {body}"
    );
    drop(silent);
    Ok(())
}

/// Starts a primary, and configures a daemon with `[http]`. The daemon is not started.
pub async fn daemon(shell: &Shell, kind: ServerKind, http: &str) -> Result<(Trial, ReservedPort)> {
    let mut trial = Trial::start(TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    })
    .await?;
    let port = ReservedPort::pick()?;
    trial.add_channel(&section(port.number(), http))?;
    Ok((trial, port))
}

fn section(port: u16, more: &str) -> String {
    format!(
        "\n[http]\nlisten = \"127.0.0.1:{port}\"\nanonymous = [\"checks\", \"metrics\", \"status\"]\nlook_interval_ms = 100\n{more}\n"
    )
}

pub async fn follower(kind: ServerKind, id: u32, name: &str) -> Result<Server> {
    let id = format!("--server-id={id}");
    let (updates, plugin) = match kind.flavour() {
        Flavour::MySql => ("--log-replica-updates=1", "--plugin-load-add=semisync_source.so"),
        Flavour::MariaDb => ("--log-slave-updates=1", "--rpl-semi-sync-master-enabled=0"),
    };
    let options = [id.as_str(), updates, plugin, "--log-bin=binlog", "--sync-binlog=0"];
    Ok(Server::start(ServerSpec::new(kind).name(name).options(options)).await?)
}

/// Returns the GTID set of everything that a server has written.
pub async fn written_by(server: &Server) -> Result<String> {
    let variable = match server.kind().flavour() {
        Flavour::MySql => "gtid_executed",
        Flavour::MariaDb => "gtid_binlog_state",
    };
    Ok(server.sql(&format!("SELECT @@global.{variable}")).await?.concat().replace("\\n", ""))
}

/// Returns the configuration of a `[[server]]` of the trial's cluster.
pub fn member(name: &str, server: &Server) -> String {
    format!(
        "\n[[server]]\nname = \"{name}\"\nsource = \"primary\"\nhost = \"127.0.0.1\"\nport = {}\nuser = \"root\"\ntls = \"off\"\n",
        server.port()
    )
}

/// Returns the statement that must run before `read_only` can be switched off on a server of this kind.
pub fn unlock(kind: ServerKind) -> &'static str {
    match kind {
        ServerKind::Mysql97 => "SET GLOBAL super_read_only = 0;",
        _ => "",
    }
}

/// The daemon's HTTP listener.
pub struct Http {
    pub port: u16,
}

impl Http {
    /// Sends a request, and returns the status code and the body.
    pub fn ask(&self, method: &str, path: &str) -> Result<(u16, Value)> {
        self.say(&format!("{method} {path} HTTP/1.0\r\n\r\n"))
    }

    /// Sends a request, and returns the whole response.
    pub fn text(&self, request: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    pub fn say(&self, request: &str) -> Result<(u16, Value)> {
        let text = self.text(request)?;
        let (head, body) = text.split_once("\r\n\r\n").with_context(|| text.clone())?;
        let code =
            head.split(' ').nth(1).and_then(|code| code.parse().ok()).with_context(|| head.to_owned())?;
        Ok((code, serde_json::from_str(body).unwrap_or_default()))
    }

    pub fn until(&self, path: &str, wanted: u16, condition: impl Fn(&Value) -> bool) -> Result<Value> {
        let started = Instant::now();
        loop {
            let answer = self.ask("GET", path);
            if let Ok((code, body)) = &answer
                && *code == wanted
                && condition(body)
            {
                return Ok(body.clone());
            }
            ensure!(started.elapsed() < PATIENCE, "{path} does not answer with {wanted}: {answer:?}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}
