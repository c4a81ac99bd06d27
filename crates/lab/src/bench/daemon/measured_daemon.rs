//! A daemon with many sources, and requests to its HTTP listener.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tailwater_sandbox::{ChildProcess, ReservedPort, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fault_trial::TrialFolder;

/// How long the daemon may take to capture all sources, and to answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long servers are probed after a request (docs/reference/http.md).
const PROBES_AFTER_REQUEST: Duration = Duration::from_secs(31);
const TOKEN: &str = "bench-0123456789abcdef";

/// A source of the daemon.
pub struct SourceSpec<'a> {
    pub name: String,
    pub primary: &'a Server,
    pub replicas: &'a [Server],
}

/// A running daemon.
#[derive(Debug)]
pub struct MeasuredDaemon {
    folder: TrialFolder,
    port: ReservedPort,
    process: ChildProcess,
}

impl MeasuredDaemon {
    /// Starts a daemon with these sources. `more` is added to its configuration.
    ///
    /// # Errors
    /// If a file cannot be written, or the daemon cannot be started.
    pub async fn start(sources: &[SourceSpec<'_>], semi_sync: bool, more: &str) -> anyhow::Result<Self> {
        let (folder, port) = (TrialFolder::new(None)?, ReservedPort::pick()?);
        let mut text = format!(
            "[log]\ndirectory = \"log\"\n[http]\nlisten = \"127.0.0.1:{}\"\ntoken_file = \"token\"\n{more}",
            port.number()
        );
        for (index, SourceSpec { name, primary, replicas }) in sources.iter().enumerate() {
            let number = 4_201 + index;
            let _ = write!(
                text,
                "\n[[source]]\nname = \"{name}\"\nserver_id = {number}\nsemi_sync = {semi_sync}\n{}",
                address(primary)
            );
            for replica in *replicas {
                let of = replica.name();
                let _ = write!(
                    text,
                    "\n[[server]]\nname = \"{name}-{of}\"\nsource = \"{name}\"\n{}",
                    address(replica)
                );
            }
        }
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).with_context(|| name.to_owned())
        };
        write("root.cnf", "[client]\nuser=root\npassword=\n")?;
        write("token", &format!("{TOKEN}\n"))?;
        write("tailwater.toml", &text)?;
        let config = folder.path().join("tailwater.toml");
        let arguments = ["run".as_ref(), "-c".as_ref(), config.as_os_str()];
        let output = folder.path().join("daemon.log");
        let process = ChildProcess::start(&std::env::current_exe()?, arguments, &output)?;
        Ok(Self { folder, port, process })
    }

    /// Waits until the daemon reads the streams of this number of sources.
    ///
    /// # Errors
    /// If this takes too long.
    pub async fn wait_captured(&self, sources: usize) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            let snapshot = self.get("/api/v1/snapshot").await;
            let snapshot = snapshot.and_then(|body| Ok(serde_json::from_slice::<serde_json::Value>(&body)?));
            let captures = snapshot.as_ref().ok().and_then(|snapshot| snapshot["captures"].as_array());
            let streaming = captures.into_iter().flatten().filter(|one| one["state"] == "streaming").count();
            if streaming == sources {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                let messages = std::fs::read_to_string(self.folder.path().join("daemon.log"))?;
                let last: Vec<_> = messages.lines().rev().take(5).collect();
                bail!("{streaming} of {sources} sources are captured: {last:?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// How long the daemon probes servers after the last request.
    pub fn probes_end_after(&self) -> Duration {
        PROBES_AFTER_REQUEST
    }

    /// Returns the body of an answer.
    ///
    /// # Errors
    /// If the daemon does not answer with 200.
    pub async fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.get_as(path, &format!("authorization: Bearer {TOKEN}")).await
    }

    /// Returns the body of an answer to a request with this header.
    ///
    /// # Errors
    /// If the daemon does not answer with 200.
    pub async fn get_as(&self, path: &str, header: &str) -> anyhow::Result<Vec<u8>> {
        let (head, body) = self.ask(&format!("GET {path} HTTP/1.0\r\n{header}\r\n\r\n")).await?;
        ensure!(head.starts_with("HTTP/1.0 200"), "{path}: {head}");
        Ok(body)
    }

    /// Logs in at the page, and returns the header of the session.
    ///
    /// # Errors
    /// If the daemon refuses.
    pub async fn log_in(&self) -> anyhow::Result<String> {
        let body = format!("token={TOKEN}");
        let request = format!(
            "POST /login HTTP/1.0\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (head, _) = self.ask(&request).await?;
        let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = cookie.with_context(|| format!("the login was refused: {head}"))?;
        Ok(format!("cookie: {}", cookie.split(';').next().unwrap_or_default()))
    }

    async fn ask(&self, request: &str) -> anyhow::Result<(String, Vec<u8>)> {
        let exchange = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port.number())).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::with_capacity(1 << 20);
            stream.read_to_end(&mut answer).await?;
            anyhow::Ok(answer)
        };
        let answer =
            tokio::time::timeout(PATIENCE, exchange).await.context("the daemon does not answer")??;
        let end =
            answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").context("the answer has no head")?;
        Ok((String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end + 4..].to_vec()))
    }

    /// The CPU time that the daemon has used.
    ///
    /// # Errors
    /// If the daemon has ended.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.process.cpu_time().context("the daemon has ended")
    }

    /// The most memory that the daemon has used, in bytes.
    ///
    /// # Errors
    /// If the daemon has ended.
    pub fn memory_bytes_max(&self) -> anyhow::Result<u64> {
        self.process.memory_bytes_max().context("the daemon has ended")
    }

    /// Stops the daemon.
    ///
    /// # Errors
    /// If it ends with an error.
    pub async fn stop(self) -> anyhow::Result<()> {
        let status = self.process.terminate(PATIENCE).await?;
        ensure!(status.success(), "the daemon ended with {status}");
        Ok(())
    }
}

/// The keys with the address of a server, and the account.
fn address(server: &Server) -> String {
    format!("host = \"127.0.0.1\"\nport = {}\ndefaults_file = \"root.cnf\"\ntls = \"off\"\n", server.port())
}
