//! A container with a clean Debian system, booted by the systemd of that system.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::ChildProcess;

use super::clean_debian_system::CleanRoot;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which a wait checks its condition.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Whether containers can be started here. If not, this function has printed to standard error what is
/// missing. A missing requirement fails no test, because the project does not decide what a machine allows.
pub fn require(image: &Path) -> bool {
    let mut trial = Command::new("systemd-nspawn");
    trial.args(["--quiet", "--register=no", "--keep-unit", "--read-only", "--pipe"]);
    trial.arg(format!("--machine=tailwater-trial-{}", std::process::id()));
    let missing = match trial.arg(format!("--directory={}", image.display())).arg("true").output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    let line = format!("SKIPPED the test of the systemd unit: needs containers of systemd-nspawn: {missing}");
    // The line is not printed with `eprintln!`, because the test harness hides that output if the test
    // passes.
    let _ = writeln!(std::io::stderr(), "{line}");
    false
}

/// A booted system. The container ends when this value is dropped, or when this process ends.
pub struct BootedRoot {
    container: ChildProcess,
}

impl BootedRoot {
    /// Boots a system, and waits until its systemd has started all units. The system uses this machine's
    /// network.
    pub fn boot(root: &CleanRoot, output: &Path) -> Result<Self> {
        let directory = format!("--directory={}", root.path("/").display());
        let machine = format!("--machine=tailwater-{}", std::process::id());
        let options = ["--quiet", "--register=no", "--keep-unit", "--console=pipe", "--boot"];
        let arguments = [directory.as_str(), machine.as_str()].into_iter().chain(options);
        let container = ChildProcess::start("systemd-nspawn", arguments, output)?;
        let booted = Self { container };
        let is_booted = || {
            let state = booted.output("systemctl is-system-running").ok()?;
            let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
            matches!(state.as_str(), "running" | "degraded").then_some(())
        };
        let logged = || std::fs::read_to_string(output).unwrap_or_default();
        until("the system has booted", is_booted).with_context(logged)?;
        Ok(booted)
    }

    /// Runs a shell command in the system, and returns its output. Returns an error if the command fails.
    pub fn run(&self, line: &str) -> Result<String> {
        let output = self.output(line)?;
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "the command {line} ended with {}: {text}{errors}", output.status);
        Ok(format!("{text}{errors}"))
    }

    /// Returns the value of a property of a unit.
    pub fn property(&self, unit: &str, name: &str) -> Result<String> {
        Ok(self.run(&format!("systemctl show --value --property={name} {unit}"))?.trim().to_owned())
    }

    /// Waits until the value of a unit's property satisfies the condition.
    pub fn until_property(&self, unit: &str, name: &str, is: impl Fn(&str) -> bool) -> Result<String> {
        let value = || self.property(unit, name).ok().filter(|value| is(value));
        until(name, value).with_context(|| {
            let journal = self.run(&format!("journalctl --unit={unit} --lines=30 --no-pager"));
            format!("timed out: {name} of {unit} is {:?}: {journal:?}", self.property(unit, name))
        })
    }

    fn output(&self, line: &str) -> Result<Output> {
        let children = format!("/proc/{0}/task/{0}/children", self.container.pid());
        let init = std::fs::read_to_string(children)?;
        ensure!(!init.trim().is_empty(), "the container has no process");
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            init.trim(),
            "--mount",
            "--uts",
            "--ipc",
            "--pid",
            "env",
            "-i",
            "LC_ALL=C.UTF-8",
        ]);
        command.args([
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND=noninteractive",
            "sh",
            "-c",
            line,
        ]);
        command.output().with_context(|| line.to_owned())
    }
}

/// Calls `value` repeatedly until it returns `Some`.
fn until<T>(what: &str, value: impl Fn() -> Option<T>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(value) = value() {
            return Ok(value);
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "timed out after {} s while waiting for this: {what}",
            PATIENCE.as_secs()
        );
        std::thread::sleep(POLL_INTERVAL);
    }
}
