//! A daemon with the page, on real servers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tailwater_lab::fault_trial::managed_cluster::start_candidate;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{
    BrowserTools, ChromeDriver, Link, ReservedPort, Server, ServerKind, ServerSpec, require,
};

use super::browser::Browser;
use crate::shell_session::{PROGRAM, Shell};

/// Tokens of the two roles.
pub const OPERATOR: &str = "operator-0123456789abcdef0123456789";
pub const READER: &str = "reader-0123456789abcdef0123456789ab";

/// A primary with two replicas that read from the log, a channel to another server, a manager, and the page.
pub struct PageDaemon {
    pub trial: Trial,
    pub followers: Vec<Server>,
    pub target: Server,
    pub tools: BrowserTools,
    port: ReservedPort,
    shell: Shell,
}

/// A dump that the daemon lists, over a link whose speed the test controls.
pub struct RunningDump {
    pub child: Child,
    pub link: Link,
    pub arguments: Vec<String>,
}

impl PageDaemon {
    /// Starts the servers, the channel and the daemon. Returns `None` if a program is missing.
    pub async fn start(kind: ServerKind) -> Result<Option<Self>> {
        let (Some(_), Some(tools)) = (require(kind), ChromeDriver::require()) else { return Ok(None) };
        let shell = Shell::new()?;
        shell.write("operator.token", &format!("{OPERATOR}\n"))?;
        shell.write("reader.token", &format!("{READER}\n"))?;
        let spec = TrialSpec {
            kind,
            durability: TrialDurability::Full,
            options: vec!["--log-slave-updates=1".to_owned()],
            ack: AckMode::Durable,
            program: PathBuf::from(PROGRAM),
            folder: shell.path().to_owned(),
        };
        let target = ServerSpec::new(kind).name("target").options(["--server-id=21"]);
        let (trial, two, three, target) = tokio::join!(
            Trial::start(spec),
            start_candidate(kind, 2),
            start_candidate(kind, 3),
            Server::start(target)
        );
        let (mut trial, followers, target) = (trial?, vec![two?, three?], target?);
        trial.manage(&followers.iter().collect::<Vec<_>>(), "lease_ttl_ms = 10000")?;
        let port = ReservedPort::pick()?;
        trial.add_channel(&format!(
            "\n[http]\nlisten = \"127.0.0.1:{}\"\n\
             [[http.token]]\nname = \"anna\"\nrole = \"operator\"\nfile = \"operator.token\"\n\
             [[http.token]]\nname = \"screen\"\nrole = \"read_only\"\nfile = \"reader.token\"\n\
             [[channel]]\nname = \"reports\"\nsource = \"primary\"\nsocket = \"{}\"\nuser = \"root\"\ntls = \"off\"\n",
            port.number(),
            target.socket().display()
        ))?;
        trial.start_relay()?;
        trial.wait_captured().await?;
        for follower in &followers {
            follower.replicate(&trial.replica_of_relay()).await?;
        }
        trial
            .primary
            .sql("CREATE DATABASE shop; CREATE TABLE shop.orders (id INT PRIMARY KEY, note TEXT)")
            .await?;
        trial.wait_until_observed().await?;
        Ok(Some(Self { trial, followers, target, tools, port, shell }))
    }

    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
    }

    /// Starts a dump of a new table of 4 MiB, of which so many bytes arrive each second.
    pub async fn start_slow_dump(&self, bytes_per_second: u64) -> Result<RunningDump> {
        let primary = &self.trial.primary;
        primary.sql("CREATE TABLE shop.bulk (id INT PRIMARY KEY, t TEXT)").await?;
        for first in (0..4000).step_by(500) {
            let rows: Vec<_> = (first..first + 500)
                .map(|row| format!("({row}, REPEAT(LPAD(HEX({row} * 7919), 32, '-'), 32))"))
                .collect();
            primary.sql(&format!("INSERT INTO shop.bulk VALUES {}", rows.join(","))).await?;
        }
        let link = Link::open(primary.address()).await?;
        link.set_bandwidth(Some(bytes_per_second));
        let folder = self.shell.path();
        let words = format!(
            "dump {} --table shop.bulk --workers 1 --chunk-rows-max 20 --host 127.0.0.1 --user root --port {} --daemon {}",
            folder.join("dump").display(),
            link.port(),
            folder.join("log/control.sock").display()
        );
        let arguments: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        let mut command = Command::new(PROGRAM);
        command.args(&arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(RunningDump { child: command.spawn()?, link, arguments })
    }

    /// Returns a browser that has logged in with this token.
    pub async fn visit(&self, token: &str) -> Result<Browser> {
        let browser = Browser::start(&self.tools, &self.base()).await?;
        browser.log_in(token).await?;
        browser.find("#live").await?;
        Ok(browser)
    }

    /// Sends a request without a browser. Returns the status and the head of the response.
    pub fn ask(&self, request: &str, headers: &str, body: &str) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port.number()))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: tailwater\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        )?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response)?;
        let response = String::from_utf8_lossy(&response).into_owned();
        let status = response
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .context("the response has no status")?;
        Ok((status, response))
    }

    /// A job, as the API returns it.
    pub fn job(&self, id: u64) -> Result<Value> {
        self.api(&format!("GET /api/v1/jobs/{id}"), "")
    }

    /// Registers a job, reports this end of it, and returns its number.
    pub fn end_job(&self, kind: &str, end: &Value) -> Result<u64> {
        let registration = json!({"kind": kind, "subject": "db2:3306 with db1:3306"});
        let job = self.api("POST /api/v1/jobs", &registration.to_string())?;
        let id = job["id"].as_u64().with_context(|| format!("no number: {job}"))?;
        self.api(&format!("POST /api/v1/jobs/{id}/end"), &end.to_string())?;
        Ok(id)
    }

    fn api(&self, request: &str, body: &str) -> Result<Value> {
        let headers = format!("Authorization: Bearer {OPERATOR}\r\nContent-Type: application/json\r\n");
        let (status, response) = self.ask(request, &headers, body)?;
        let (_, body) = response.split_once("\r\n\r\n").context("no body")?;
        ensure!(status < 300, "{request}: {response}");
        Ok(serde_json::from_str(body)?)
    }

    pub async fn stop(mut self) -> Result<()> {
        self.trial.kill_relay().await
    }
}
