//! A daemon with the page, on real servers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use tailwater_lab::fault_trial::managed_cluster::start_candidate;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{BrowserTools, ChromeDriver, ReservedPort, Server, ServerKind, ServerSpec, require};

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
    _shell: Shell,
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
        Ok(Some(Self { trial, followers, target, tools, port, _shell: shell }))
    }

    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
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

    pub async fn stop(mut self) -> Result<()> {
        self.trial.kill_relay().await
    }
}
