//! HAProxy as a child process, for tests of the HTTP health checks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::SandboxError;
use crate::external_program::ChildProcess;
use crate::tool_lookup::{Tool, library_path};

const HAPROXY: Tool = Tool { name: "haproxy", path: "usr/sbin/haproxy", package: "haproxy" };

/// A running HAProxy. It ends with this process.
#[derive(Debug)]
pub struct HaProxy {
    process: ChildProcess,
    log: PathBuf,
}

impl HaProxy {
    /// Returns the path of HAProxy: from the cache, where `./dev setup` stores it, or from the system. If
    /// HAProxy is missing, prints a line on standard error and returns `None`. The test must then end.
    ///
    /// # Panics
    /// If HAProxy is missing while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too.
    pub fn require() -> Option<PathBuf> {
        HAPROXY.require()
    }

    /// Starts HAProxy in the foreground with the configuration file `config`. The output goes to
    /// `haproxy.log` in the same folder.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if HAProxy cannot be started.
    pub fn start(program: &Path, config: &Path) -> Result<Self, SandboxError> {
        let log = config.with_file_name("haproxy.log");
        // -db runs HAProxy in the foreground without forking, so that it ends with this process.
        let arguments = ["-db".into(), "-f".into(), config.as_os_str().to_owned()];
        let process = ChildProcess::start_with(program, arguments, library_path(program), &log)?;
        Ok(Self { process, log })
    }

    /// Returns the file with the output of HAProxy.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Stops HAProxy.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if HAProxy has already ended.
    pub async fn stop(self) -> Result<(), SandboxError> {
        self.process.terminate(Duration::from_secs(10)).await?;
        Ok(())
    }
}
