//! HAProxy as a child process, for tests of the health checks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::child_process::ChildProcess;
use crate::error::SandboxError;
use crate::tool::{Tool, library_path};

const HAPROXY: Tool = Tool { name: "haproxy", path: "usr/sbin/haproxy", package: "haproxy" };

/// A load balancer. It ends with this process.
#[derive(Debug)]
pub struct HaProxy {
    process: ChildProcess,
    log: PathBuf,
}

impl HaProxy {
    /// The program: in the cache, where `./dev setup` puts it, or of the system. `None` means that a test
    /// ends at once, and one loud line has named it.
    ///
    /// # Panics
    /// If it is missing while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too.
    pub fn require() -> Option<PathBuf> {
        HAPROXY.require()
    }

    /// Starts it in the foreground with the configuration in `config`; its output goes to `haproxy.log` in
    /// the same folder.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if it cannot be started.
    pub fn start(program: &Path, config: &Path) -> Result<Self, SandboxError> {
        let log = config.with_file_name("haproxy.log");
        // -db: no fork, so that it ends with its owner.
        let arguments = ["-db".into(), "-f".into(), config.as_os_str().to_owned()];
        let process = ChildProcess::start_with(program, arguments, library_path(program), &log)?;
        Ok(Self { process, log })
    }

    /// Its output file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Ends it.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if it has already ended.
    pub async fn stop(self) -> Result<(), SandboxError> {
        self.process.terminate(Duration::from_secs(10)).await?;
        Ok(())
    }
}
