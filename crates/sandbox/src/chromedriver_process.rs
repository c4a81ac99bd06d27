//! A headless Chromium, driven by chromedriver, for tests of the page.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::SandboxError;
use crate::external_program::ChildProcess;
use crate::tool_lookup::Tool;

const CHROMIUM: Tool = Tool { name: "chromium", path: "usr/bin/chromium", package: "chromium" };
const DRIVER: Tool = Tool { name: "chromedriver", path: "usr/bin/chromedriver", package: "chromium-driver" };
/// The accessibility checks, which a browser executes.
const AXE: Tool = Tool { name: "axe-core", path: "package/axe.min.js", package: "npm" };

/// A running chromedriver. It ends with this process.
#[derive(Debug)]
pub struct ChromeDriver {
    process: ChildProcess,
    port: u16,
}

/// The programs and the script that tests of the page need.
#[derive(Debug, Clone)]
pub struct BrowserTools {
    /// Chromium.
    pub chromium: PathBuf,
    /// chromedriver.
    pub driver: PathBuf,
    /// The script of axe-core.
    pub axe: PathBuf,
}

impl ChromeDriver {
    /// Returns the paths of Chromium, chromedriver and axe-core, which `./dev setup` installs. If one of them
    /// is missing, prints a line on standard error and returns `None`. The test must then end.
    ///
    /// # Panics
    /// If one of them is missing while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too.
    pub fn require() -> Option<BrowserTools> {
        Some(BrowserTools { chromium: CHROMIUM.require()?, driver: DRIVER.require()?, axe: AXE.require()? })
    }

    /// Starts chromedriver at a loopback port. The output of chromedriver goes to the file `output`.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if it cannot be started.
    pub fn start(program: &Path, port: u16, output: &Path) -> Result<Self, SandboxError> {
        let process = ChildProcess::start(program, [format!("--port={port}")], output)?;
        Ok(Self { process, port })
    }

    /// Returns the URL at which chromedriver accepts commands.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Writes a script to `folder` that starts Chromium. The kernel kills Chromium when chromedriver ends.
    /// Otherwise Chromium would keep running after a failed test, because the test kills only chromedriver.
    ///
    /// # Errors
    /// [`SandboxError::File`] if the script cannot be written.
    pub fn browser_program(chromium: &Path, folder: &Path) -> Result<PathBuf, SandboxError> {
        let path = folder.join("chromium");
        let script = format!("#!/bin/sh\nexec setpriv --pdeathsig KILL -- '{}' \"$@\"\n", chromium.display());
        let written = std::fs::write(&path, script)
            .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o755)));
        written.map_err(|source| SandboxError::File { action: "write", path: path.clone(), source })?;
        Ok(path)
    }

    /// Returns the options with which Chromium must be started: without a window, without requests of its
    /// own to other machines, and with a profile in `profile`.
    pub fn browser_arguments(profile: &Path) -> Vec<String> {
        let fixed = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
        ];
        let profile = format!("--user-data-dir={}", profile.display());
        fixed.map(str::to_owned).into_iter().chain([profile]).collect()
    }

    /// Stops chromedriver.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if it has already ended.
    pub async fn stop(self) -> Result<(), SandboxError> {
        self.process.terminate(Duration::from_secs(10)).await?;
        Ok(())
    }
}
