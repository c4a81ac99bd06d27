//! Prometheus as a child process, and promtool, for tests of metrics and alert rules.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{FileContext, SandboxError};
use crate::external_program::ChildProcess;
use crate::free_port::ReservedPort;
use crate::tool_lookup::Tool;

const PROMETHEUS: Tool = Tool { name: "prometheus", path: "usr/bin/prometheus", package: "prometheus" };

/// How often Prometheus scrapes, and evaluates the rules.
const INTERVAL_MS: u64 = 500;

/// A running Prometheus, which keeps its data in a folder of the test. It ends with this process.
#[derive(Debug)]
pub struct Prometheus {
    process: ChildProcess,
    port: ReservedPort,
    log: PathBuf,
}

impl Prometheus {
    /// Returns the path of Prometheus: from the cache, where `./dev setup` stores it, or from the system. If
    /// Prometheus is missing, prints a line on standard error and returns `None`. The test must then end.
    ///
    /// # Panics
    /// If Prometheus is missing while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too.
    pub fn require() -> Option<PathBuf> {
        PROMETHEUS.require()
    }

    /// Starts Prometheus. It scrapes the daemons at `targets` (`host:port`) as the job `tailwater`, with the
    /// bearer token in `token_file` if one is given. It evaluates the alert rules of the file `rules`. All
    /// files that Prometheus writes are in `folder`.
    ///
    /// # Errors
    /// [`SandboxError`] if the configuration cannot be written, or if Prometheus cannot be started.
    pub fn start(
        program: &Path,
        folder: &Path,
        targets: &[String],
        token_file: Option<&Path>,
        rules: &Path,
    ) -> Result<Self, SandboxError> {
        let authorization = token_file.map(|file| {
            format!("    authorization: {{ credentials_file: {:?} }}\n", file.display().to_string())
        });
        let config = format!(
            "global: {{ scrape_interval: {INTERVAL_MS}ms, scrape_timeout: {INTERVAL_MS}ms, evaluation_interval: {INTERVAL_MS}ms }}\n\
             rule_files: [{:?}]\n\
             scrape_configs:\n  - job_name: tailwater\n    static_configs: [{{ targets: {targets:?} }}]\n{}",
            rules.display().to_string(),
            authorization.unwrap_or_default()
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config).on_path("write", &file)?;
        let (port, log) = (ReservedPort::pick()?, folder.join("prometheus.log"));
        let arguments = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.join("prometheus-data").display()),
            format!("--web.listen-address=127.0.0.1:{}", port.number()),
        ];
        let process = ChildProcess::start(program, arguments, &log)?;
        Ok(Self { process, port, log })
    }

    /// Returns the port of Prometheus's HTTP API.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the file with the output of Prometheus.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Stops Prometheus.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if it has already ended.
    pub async fn stop(self) -> Result<(), SandboxError> {
        self.process.terminate(Duration::from_secs(10)).await?;
        Ok(())
    }
}
