//! etcd as a plain process, for tests of what is kept in it.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cache::Cache;
use crate::error::SandboxError;
use crate::owned::OwnedProcess;
use crate::port::ReservedPort;
use crate::process;

/// How long it may take until it answers.
const START_MAX: Duration = Duration::from_secs(60);

/// A cluster of one member on loopback. It ends with its owner.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    folder: PathBuf,
    client: ReservedPort,
    peer: ReservedPort,
    process: OwnedProcess,
}

impl Etcd {
    /// The program: in the cache, where `./dev setup` puts it, or of the system. `None` means that a test ends at once, and
    /// one loud line has named it.
    ///
    /// # Panics
    /// If it is missing while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too.
    pub fn require() -> Option<PathBuf> {
        let cached = Cache::locate().ok().map(|cache| cache.root().join("tools/etcd/usr/bin/etcd"));
        let found = cached.filter(|path| path.is_file()).or_else(|| process::on_path(OsStr::new("etcd")));
        if found.is_some() {
            return found;
        }
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a test");
        let line = format!("SKIPPED {name}: needs etcd: run ./dev setup, or install the package etcd-server");
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        assert!(!set("CI") || set("TAILWATER_ALLOW_MISSING_SERVERS"), "{line}");
        // Not `eprintln!`, whose output the test harness hides for tests that pass.
        let _ = writeln!(std::io::stderr(), "{line}");
        None
    }

    /// Starts it with its data in `folder`, and waits until it answers.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if it cannot be started or does not answer within a minute.
    pub async fn start(program: &Path, folder: &Path) -> Result<Self, SandboxError> {
        let (client, peer) = (ReservedPort::pick()?, ReservedPort::pick()?);
        let process = spawn(program, folder, &client, &peer)?;
        let etcd = Self { program: program.to_owned(), folder: folder.to_owned(), client, peer, process };
        etcd.wait().await?;
        Ok(etcd)
    }

    /// Where clients reach it.
    pub fn endpoint(&self) -> String {
        url(&self.client)
    }

    /// Stops it with SIGSTOP, as a hung machine would.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if it has ended.
    pub fn pause(&mut self) -> Result<(), SandboxError> {
        self.process.pause()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if it has ended.
    pub fn resume(&mut self) -> Result<(), SandboxError> {
        self.process.resume()
    }

    /// SIGKILL, and a new start on the same data and ports.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] as [`Etcd::start`].
    pub async fn restart(self) -> Result<Self, SandboxError> {
        let Self { program, folder, client, peer, process } = self;
        process.kill().await?;
        let process = spawn(&program, &folder, &client, &peer)?;
        let etcd = Self { program, folder, client, peer, process };
        etcd.wait().await?;
        Ok(etcd)
    }

    async fn wait(&self) -> Result<(), SandboxError> {
        let deadline = Instant::now() + START_MAX;
        while !is_healthy(self.client.number()).await {
            if Instant::now() >= deadline {
                let program = self.program.display().to_string();
                let log = self.folder.join("etcd.log");
                let source = std::io::Error::other(format!("it does not answer; see {}", log.display()));
                return Err(SandboxError::Spawn { program, source });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn url(port: &ReservedPort) -> String {
    format!("http://127.0.0.1:{}", port.number())
}

fn spawn(
    program: &Path,
    folder: &Path,
    client: &ReservedPort,
    peer: &ReservedPort,
) -> Result<OwnedProcess, SandboxError> {
    let (client, peer) = (url(client), url(peer));
    let data = folder.join("data").display().to_string();
    let arguments = [
        "--name=one".to_owned(),
        format!("--data-dir={data}"),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=one={peer}"),
    ];
    OwnedProcess::start(program, arguments, &folder.join("etcd.log"))
}

async fn is_healthy(port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.take(4096).read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).contains("true"))
    };
    matches!(tokio::time::timeout(Duration::from_secs(2), ask).await, Ok(Ok(true)))
}
