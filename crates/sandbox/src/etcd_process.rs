//! etcd as a child process, for tests of leases and of records in etcd.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::SandboxError;
use crate::external_program::ChildProcess;
use crate::free_port::ReservedPort;
use crate::tool_lookup::Tool;

const ETCD: Tool = Tool { name: "etcd", path: "usr/bin/etcd", package: "etcd-server" };

/// Time limit for etcd to answer after its start.
const START_MAX: Duration = Duration::from_secs(60);

/// TLS certificate of the etcd server.
#[derive(Debug, Clone)]
pub struct EtcdTls {
    /// PEM file of the certificate.
    pub certificate: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
}

/// An etcd cluster with one member on the loopback address. It ends with this process.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    folder: PathBuf,
    ports: EtcdPorts,
    options: EtcdServerOptions,
    process: ChildProcess,
}

#[derive(Debug, Clone, Default)]
struct EtcdServerOptions {
    tls: Option<EtcdTls>,
    /// The greatest size of the database, in bytes; `None` for the default of etcd.
    quota_bytes: Option<u64>,
}

#[derive(Debug)]
struct EtcdPorts {
    client: ReservedPort,
    peer: ReservedPort,
    /// Port of the health and metrics endpoint, which does not use TLS.
    metrics: ReservedPort,
}

impl Etcd {
    /// Returns the path of etcd: from the cache, where `./dev setup` stores it, or from the system. If etcd
    /// is missing, prints a line on standard error and returns `None`. The test must then end.
    ///
    /// # Panics
    /// If etcd is missing while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too.
    pub fn require() -> Option<PathBuf> {
        ETCD.require()
    }

    /// Starts etcd with its data in `folder`, and waits until it answers.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if etcd cannot be started or does not answer within a minute.
    pub async fn start(program: &Path, folder: &Path) -> Result<Self, SandboxError> {
        Self::start_as(program, folder, EtcdServerOptions::default()).await
    }

    /// Does the same as [`Etcd::start`], for clients that use TLS.
    ///
    /// # Errors
    /// The same as for [`Etcd::start`].
    pub async fn start_tls(program: &Path, folder: &Path, tls: EtcdTls) -> Result<Self, SandboxError> {
        Self::start_as(program, folder, EtcdServerOptions { tls: Some(tls), quota_bytes: None }).await
    }

    /// Does the same as [`Etcd::start`], with a database of at most `quota_bytes`. When it is full, etcd
    /// refuses writes but still renews leases.
    ///
    /// # Errors
    /// The same as for [`Etcd::start`].
    pub async fn start_with_quota(
        program: &Path,
        folder: &Path,
        quota_bytes: u64,
    ) -> Result<Self, SandboxError> {
        Self::start_as(program, folder, EtcdServerOptions { tls: None, quota_bytes: Some(quota_bytes) }).await
    }

    async fn start_as(
        program: &Path,
        folder: &Path,
        options: EtcdServerOptions,
    ) -> Result<Self, SandboxError> {
        let ports = EtcdPorts {
            client: ReservedPort::pick()?,
            peer: ReservedPort::pick()?,
            metrics: ReservedPort::pick()?,
        };
        let process = spawn(program, folder, &ports, &options)?;
        let etcd = Self { program: program.to_owned(), folder: folder.to_owned(), ports, options, process };
        etcd.wait().await?;
        Ok(etcd)
    }

    /// Returns the URL for clients.
    pub fn endpoint(&self) -> String {
        client_url(&self.ports, self.options.tls.as_ref())
    }

    /// Freezes etcd with SIGSTOP, like a hung machine.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if etcd has ended.
    pub fn pause(&mut self) -> Result<(), SandboxError> {
        self.process.pause()
    }

    /// Resumes etcd with SIGCONT.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if etcd has ended.
    pub fn resume(&mut self) -> Result<(), SandboxError> {
        self.process.resume()
    }

    /// Kills etcd and starts it again with the same data and ports.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`], as for [`Etcd::start`].
    pub async fn restart(self) -> Result<Self, SandboxError> {
        self.start_again(false).await
    }

    /// Kills etcd and starts it again without its data. All keys are lost, and revisions start from 1.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`], as for [`Etcd::start`], and if the data cannot be removed.
    pub async fn recreate(self) -> Result<Self, SandboxError> {
        self.start_again(true).await
    }

    async fn start_again(self, without_data: bool) -> Result<Self, SandboxError> {
        let Self { program, folder, ports, options, process } = self;
        process.kill().await?;
        if without_data {
            let removed = std::fs::remove_dir_all(folder.join("data"));
            removed
                .map_err(|source| SandboxError::Spawn { program: program.display().to_string(), source })?;
        }
        let process = spawn(&program, &folder, &ports, &options)?;
        let etcd = Self { program, folder, ports, options, process };
        etcd.wait().await?;
        Ok(etcd)
    }

    async fn wait(&self) -> Result<(), SandboxError> {
        let deadline = Instant::now() + START_MAX;
        while !is_healthy(self.ports.metrics.number()).await {
            if Instant::now() >= deadline {
                let program = self.program.display().to_string();
                let log = self.folder.join("etcd.log");
                let source = std::io::Error::other(format!("etcd does not answer; see {}", log.display()));
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

fn client_url(ports: &EtcdPorts, tls: Option<&EtcdTls>) -> String {
    match tls {
        Some(_) => format!("https://127.0.0.1:{}", ports.client.number()),
        None => url(&ports.client),
    }
}

fn spawn(
    program: &Path,
    folder: &Path,
    ports: &EtcdPorts,
    options: &EtcdServerOptions,
) -> Result<ChildProcess, SandboxError> {
    let (client, peer) = (client_url(ports, options.tls.as_ref()), url(&ports.peer));
    let data = folder.join("data").display().to_string();
    let mut arguments = vec![
        "--name=one".to_owned(),
        format!("--data-dir={data}"),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=one={peer}"),
        format!("--listen-metrics-urls={}", url(&ports.metrics)),
    ];
    arguments.extend(options.quota_bytes.map(|bytes| format!("--quota-backend-bytes={bytes}")));
    if let Some(tls) = &options.tls {
        arguments.push(format!("--cert-file={}", tls.certificate.display()));
        arguments.push(format!("--key-file={}", tls.key.display()));
    }
    ChildProcess::start(program, arguments, &folder.join("etcd.log"))
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
