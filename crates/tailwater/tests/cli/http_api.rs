//! The HTTP API of a real daemon: roles, limits, audit log, TLS.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use tailwater_config::RelayConfig;
use tailwater_daemon::manager::remote_relay_acker::RemoteRelay;
use tailwater_sandbox::{ChildProcess, ReservedPort};

use super::http_listener::Http;
use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
pub const READER: &str = "reader-0123456789abcdef";
pub const OPERATOR: &str = "operator-0123456789abcdef";

/// A daemon whose source cannot be reached, with a token for each role.
pub struct ApiDaemon {
    pub shell: Shell,
    pub http: Http,
    /// The process of the daemon; absent while the daemon is stopped.
    pub process: Option<ChildProcess>,
}

impl ApiDaemon {
    pub fn start(more: &str) -> Result<Self> {
        let mut daemon = Self::prepare(more)?;
        daemon.run()?;
        Ok(daemon)
    }

    /// Writes the files of the daemon without starting it.
    pub fn prepare(more: &str) -> Result<Self> {
        let shell = Shell::new()?;
        let port = ReservedPort::pick()?.number();
        shell.write("client.cnf", "[client]\nuser=nobody\npassword=x\n")?;
        shell.write("reader.token", &format!("{READER}\n"))?;
        shell.write("operator.token", &format!("{OPERATOR}\n"))?;
        let token = |role: &str, file: &str| {
            format!("[[http.token]]\nname = \"{file}\"\nrole = \"{role}\"\nfile = \"{file}.token\"\n")
        };
        shell.write(
            "tailwater.toml",
            &format!(
                "[log]\ndirectory = \"log\"\n[[source]]\nname = \"orders\"\nhost = \"127.0.0.1\"\nport = 1\n\
                 defaults_file = \"client.cnf\"\nserver_id = 4201\n[http]\nlisten = \"127.0.0.1:{port}\"\n{more}\n{}{}",
                token("read_only", "reader"),
                token("operator", "operator")
            ),
        )?;
        Ok(Self { shell, http: Http { port }, process: None })
    }

    /// Starts the process, and waits until it listens.
    pub fn run(&mut self) -> Result<()> {
        let folder = self.shell.path();
        let arguments = ["run".to_owned(), "-c".into(), folder.join("tailwater.toml").display().to_string()];
        self.process = Some(ChildProcess::start(PROGRAM, arguments, &folder.join("relay.log"))?);
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.http.port)).is_err() {
            let log = || std::fs::read_to_string(self.shell.path().join("relay.log"));
            ensure!(started.elapsed() < PATIENCE, "the daemon does not listen: {}", log()?);
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sends a request with a token, and returns the status code and the body.
    pub fn ask(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> Result<(u16, Value)> {
        self.http.say(&request(method, path, token, body))
    }
}

fn request(method: &str, path: &str, token: Option<&str>, body: &str) -> String {
    let authorization = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    format!(
        "{method} {path} HTTP/1.0\r\n{authorization}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Every operation in the OpenAPI document, with a name in the place of each parameter.
fn operations() -> Result<Vec<(String, String)>> {
    let document = serde_json::to_value(tailwater_http_api::openapi::document())?;
    let paths = document["paths"].as_object().context("the document has no paths")?;
    let mut operations = Vec::new();
    for (path, methods) in paths {
        let path = path.replace("{name}", "absent").replace("{source}", "absent").replace("{id}", "absent");
        ensure!(!path.contains('{'), "{path} has a parameter that this test does not know");
        let methods = methods.as_object().context("a path has no methods")?;
        operations.extend(methods.keys().map(|method| (method.to_uppercase(), path.clone())));
    }
    ensure!(operations.len() > 20, "the document has only {} operations", operations.len());
    Ok(operations)
}

#[test]
fn every_operation_checks_the_role_of_the_caller() -> Result<()> {
    let daemon = ApiDaemon::start("")?;
    for (method, path) in operations()? {
        for token in [None, Some("wrong-0123456789abcdef")] {
            let (code, body) = daemon.ask(&method, &path, token, "{}")?;
            ensure!(
                code == 401 && body["message"].is_string(),
                "{method} {path} with the token {token:?} must get 401: {code} {body}"
            );
        }
        // The response to a request for an event stream does not end. Another test reads such a stream.
        if path.ends_with("/events") {
            continue;
        }
        let (code, body) = daemon.ask(&method, &path, Some(READER), "{}")?;
        let is_refused =
            code == 403 && body["message"].as_str().is_some_and(|text| text.contains("operator"));
        ensure!(
            is_refused == (method != "GET"),
            "{method} {path} with the reader's token got an unexpected response: {code} {body}"
        );
        let (code, body) = daemon.ask(&method, &path, Some(OPERATOR), "{}")?;
        ensure!(
            ![401, 403, 405, 500].contains(&code),
            "{method} {path} with the operator's token got an unexpected response: {code} {body}"
        );
        ensure!(
            code < 300 || body["message"].is_string(),
            "{method} {path}: a failure without a message: {body}"
        );
    }
    let (code, document) = daemon.ask("GET", "/api/v1/openapi.json", Some(READER), "")?;
    ensure!(code == 200 && document == serde_json::to_value(tailwater_http_api::openapi::document())?);
    // Requests of load balancers need no token. Requests of monitoring systems need one, unless the
    // configuration lists their paths.
    ensure!(daemon.ask("GET", "/healthz", None, "")?.0 == 200);
    ensure!(daemon.ask("GET", "/primary/orders", None, "")?.0 == 503);
    for path in ["/metrics", "/status"] {
        ensure!(
            daemon.ask("GET", path, None, "")?.0 == 401,
            "a request for {path} without a token is not refused"
        );
        ensure!(
            daemon.ask("GET", path, Some(READER), "")?.0 == 200,
            "a request for {path} with the reader's token is refused"
        );
    }
    let (code, body) = daemon.ask("GET", "/api/v1/channels?show_values=true", Some(READER), "")?;
    ensure!(code == 403, "a reader must not see row values: {code} {body}");
    ensure!(daemon.ask("GET", "/api/v1/channels?show_values=true", Some(OPERATOR), "")?.0 == 200);
    Ok(())
}

#[test]
fn changes_of_known_callers_are_in_the_audit_log() -> Result<()> {
    let daemon = ApiDaemon::start("")?;
    daemon.ask("POST", "/api/v1/captures/orders/stop", Some(OPERATOR), "{\"token\":7}")?;
    daemon.ask("POST", "/api/v1/captures/orders/start", Some(READER), "{\"token\":8}")?;
    daemon.ask("POST", "/api/v1/captures/orders/start", None, "{\"token\":9}")?;
    daemon.ask("GET", "/api/v1/status", Some(OPERATOR), "")?;
    let text = std::fs::read_to_string(daemon.shell.path().join("log/audit.log"))?;
    let entries: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let seen: Vec<_> = entries
        .iter()
        .map(|entry| (entry["caller"].as_str(), entry["status"].as_u64(), entry["body"].as_str()))
        .collect();
    ensure!(
        seen == [(Some("operator"), Some(200), Some("{\"token\":7}")), (Some("reader"), Some(403), Some("")),],
        "the audit log has wrong entries: {text}"
    );
    ensure!(
        entries[0]["path"] == "/api/v1/captures/orders/stop" && entries[0]["peer"].is_string(),
        "the audit log lacks the path or the client's address: {text}"
    );
    ensure!(!text.contains(READER) && !text.contains(OPERATOR), "the audit log has a token: {text}");
    Ok(())
}

/// The paths that `/api/v1/captures` had in earlier versions.
#[test]
fn the_earlier_paths_of_captures_do_the_same() -> Result<()> {
    let daemon = ApiDaemon::start("")?;
    let text = daemon.http.text(&request("GET", "/acker/orders", Some(OPERATOR), ""))?;
    let link = "link: </api/v1/captures/orders>; rel=\"successor-version\"";
    ensure!(text.contains(link), "the present path is not named: {text}");
    for (order, body) in [("stop", "{\"token\":7}"), ("start", "{\"token\":8}")] {
        for (path, token) in [("/acker", READER), ("/api/v1/captures", READER)] {
            let (code, answer) = daemon.ask("POST", &format!("{path}/orders/{order}"), Some(token), body)?;
            ensure!(code == 403, "{path}: an order with a read-only token was answered with {code} {answer}");
        }
        let (code, answer) = daemon.ask("POST", &format!("/acker/orders/{order}"), Some(OPERATOR), body)?;
        ensure!(code == 200 && answer["server_id"] == 4201, "{code} {answer}");
        let (code, present) = daemon.ask("GET", "/api/v1/captures/orders", Some(OPERATOR), "")?;
        ensure!(code == 200 && answer["acker"] == present, "{answer} {present}");
        ensure!(present["stopped_since_ms"].is_u64() == (order == "stop"), "{order}: {present}");
    }
    // A refusal has the same code at both paths.
    for path in ["/acker/orders/stop", "/api/v1/captures/orders/stop"] {
        let (code, answer) = daemon.ask("POST", path, Some(OPERATOR), "{\"token\":3}")?;
        ensure!(code == 409 && answer["code"] == "TW-RELAY-0015", "{path}: {code} {answer}");
    }
    let audit = std::fs::read_to_string(daemon.shell.path().join("log/audit.log"))?;
    ensure!(audit.matches("\"path\":\"/acker/orders/").count() == 5, "{audit}");
    Ok(())
}

#[test]
fn invalid_requests_get_a_failure_with_its_cause() -> Result<()> {
    let daemon = ApiDaemon::start("")?;
    let order = "/api/v1/captures/orders/stop";
    let long = format!("{{\"gtids\":\"{}\"}}", "x".repeat(5 << 20));
    for (method, path, body, expected, cause) in [
        ("POST", order, "", 400, "token"),
        ("POST", order, "{", 400, "EOF"),
        ("POST", order, "[]", 400, "expected"),
        ("POST", order, "{\"token\":-1}", 400, "-1"),
        ("POST", order, "{\"token\":1,\"force\":true}", 400, "force"),
        ("GET", "/api/v1/channels?show=true", "", 400, "show"),
        ("POST", "/api/v1/channels/a%2Fb/stop", "", 404, "a/b"),
        ("POST", "/api/v1/channels/%FF/stop", "", 400, "UTF-8"),
        ("DELETE", "/api/v1/channels", "", 405, "method"),
        ("GET", "/api/v1/absent", "", 404, "path"),
        ("PUT", "/api/v1/channels/c/filters", long.as_str(), 413, "longer than"),
    ] {
        let (code, answer) = daemon.ask(method, path, Some(OPERATOR), body)?;
        let message = answer["message"].as_str().or(answer["reason"].as_str()).unwrap_or_default();
        ensure!(
            code == expected && message.contains(cause),
            "{method} {path} must get {expected}, but got {code} {answer}"
        );
    }
    Ok(())
}

/// Clients that send their requests slowly, and clients that read event streams, occupy connections. The
/// daemon still answers other clients at once.
#[test]
fn slow_clients_and_event_streams_do_not_delay_others() -> Result<()> {
    const SLOW: usize = 500;
    const STREAMS: usize = 200;
    raise_open_files();
    let daemon = ApiDaemon::start("")?;
    let open = || TcpStream::connect(("127.0.0.1", daemon.http.port));
    let slow: Vec<_> = (0..SLOW)
        .map(|_| {
            let mut stream = open()?;
            stream.write_all(b"GET /api/v1/status HTTP/1.1\r\nhost:")?;
            Ok(stream)
        })
        .collect::<Result<_>>()?;
    let events =
        request("GET", "/api/v1/events", Some(READER), "").replace("HTTP/1.0", "HTTP/1.1\r\nhost: x");
    let streams: Vec<_> = (0..STREAMS)
        .map(|_| {
            let mut stream = open()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(events.as_bytes())?;
            let mut lines = BufReader::new(stream).lines();
            let status = lines.next().context("the connection was closed")??;
            ensure!(status.contains("200"), "the request for events got another status than 200: {status}");
            lines
                .by_ref()
                .find(|line| line.as_ref().is_ok_and(|line| line == "event: change"))
                .context("the stream ended without an event")??;
            Ok(lines)
        })
        .collect::<Result<_>>()?;
    for _ in 0..20 {
        ensure!(daemon.ask("GET", "/primary/orders", None, "")?.0 == 503);
        ensure!(daemon.ask("GET", "/api/v1/status", Some(READER), "")?.0 == 200);
    }
    // The number of event streams is limited. After a stream is closed, the daemon accepts another one.
    let further: Vec<_> = (STREAMS..256)
        .map(|_| {
            let mut stream = open()?;
            stream.write_all(events.as_bytes())?;
            Ok(stream)
        })
        .collect::<Result<_>>()?;
    let is_full = || Ok::<_, anyhow::Error>(status_of(&events, daemon.http.port)? == 503);
    let started = Instant::now();
    while !is_full()? {
        ensure!(started.elapsed() < PATIENCE, "the daemon must refuse a 257th event stream");
    }
    drop(further);
    let started = Instant::now();
    while is_full()? {
        ensure!(
            started.elapsed() < PATIENCE,
            "the daemon accepts no new event stream after others were closed"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    drop((slow, streams));
    Ok(())
}

/// Returns the status code in the first line of a response.
fn status_of(request: &str, port: u16) -> Result<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut line = String::new();
    BufReader::new(&mut stream).read_line(&mut line)?;
    line.split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .with_context(|| format!("the first line has no status code: {line:?}"))
}

/// Allows this process and its children as many open files as the system allows.
fn raise_open_files() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    // If this call fails, the test later fails to open a connection.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
}

#[tokio::test]
async fn the_listener_offers_tls() -> Result<()> {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let folder = tempfile::tempdir()?;
    let (chain, key) = (folder.path().join("http.pem"), folder.path().join("http.key"));
    std::fs::write(&chain, certificate.cert.pem())?;
    std::fs::write(&key, certificate.signing_key.serialize_pem())?;
    let daemon = ApiDaemon::start(&format!("tls_certificate = {chain:?}\ntls_key = {key:?}"))?;
    let relay = |url: String| {
        RemoteRelay::of(&RelayConfig {
            name: "relay2".to_owned(),
            source: "orders".to_owned(),
            source_there: None,
            url,
            token_file: daemon.shell.path().join("operator.token"),
            ca_file: Some(chain.clone()),
            server_id: 4201,
            serves: Vec::new(),
            serve_server_uuid: None,
            connect_timeout_ms: 1_000,
            timeout_ms: 12_000,
        })
    };
    let status = relay(format!("https://localhost:{}", daemon.http.port))?.status().await;
    let status = status.map_err(|error| anyhow!("{}", error.message))?;
    ensure!(
        status.server_id == 4201 && !status.is_streaming,
        "the state of the capture is wrong: {status:?}"
    );
    // A client without TLS gets no answer.
    ensure!(daemon.ask("GET", "/healthz", None, "").is_err());
    Ok(())
}
