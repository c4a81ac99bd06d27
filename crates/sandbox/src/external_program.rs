//! Child processes other than database servers that must not outlive this process: relays under test, and
//! other tools.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::child_process_lifetime::{self, Lifetime, ProcessLimits, Program};
use crate::error::SandboxError;

/// A running program. The kernel kills it when this process ends. Dropping this value kills it too.
#[derive(Debug)]
pub struct ChildProcess {
    name: String,
    child: Child,
}

impl ChildProcess {
    /// Starts the program `path` with `arguments`. Its output is appended to the file `output`.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if the program cannot be started.
    pub fn start(
        path: impl Into<OsString>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
        output: &Path,
    ) -> Result<Self, SandboxError> {
        Self::start_with(path, arguments, [], output)
    }

    /// Does the same as [`Self::start`], with variables added to the program's environment.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if the program cannot be started.
    pub fn start_with(
        path: impl Into<OsString>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        output: &Path,
    ) -> Result<Self, SandboxError> {
        let mut program = Program::new(path);
        program.environment.extend(environment);
        for argument in arguments {
            program.arg(argument);
        }
        let name = program.path.to_string_lossy().into_owned();
        let child =
            child_process_lifetime::spawn(&program, output, Lifetime::WithOwner, ProcessLimits::default())?;
        Ok(Self { name, child })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process is running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the process with SIGKILL, and waits until it has ended.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if the process cannot be signalled or waited for.
    pub async fn kill(mut self) -> Result<ExitStatus, SandboxError> {
        if self.is_running() {
            self.signal(Signal::KILL)?;
        }
        self.wait(Duration::from_secs(60)).await
    }

    /// Sends SIGTERM and waits until the process has ended. If that takes longer than `patience`, sends
    /// SIGKILL and returns an error.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if the process cannot be signalled, or does not end.
    pub async fn terminate(mut self, patience: Duration) -> Result<ExitStatus, SandboxError> {
        if self.is_running() {
            self.signal(Signal::TERM)?;
        }
        self.wait(patience).await
    }

    /// Waits until the process has ended.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if the process does not end within `patience`.
    pub async fn wait(&mut self, patience: Duration) -> Result<ExitStatus, SandboxError> {
        let failed = |source| SandboxError::Spawn { program: self.name.clone(), source };
        match child_process_lifetime::wait_until(&mut self.child, Instant::now() + patience)
            .await
            .map_err(failed)?
        {
            Some(status) => Ok(status),
            None => Err(failed(std::io::Error::other(format!(
                "the process is still running after {} s",
                patience.as_secs()
            )))),
        }
    }

    /// Freezes the process with SIGSTOP, like a hung machine.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if the process cannot be signalled.
    pub fn pause(&mut self) -> Result<(), SandboxError> {
        self.signal(Signal::STOP)
    }

    /// Resumes the process with SIGCONT after [`ChildProcess::pause`].
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if the process cannot be signalled.
    pub fn resume(&mut self) -> Result<(), SandboxError> {
        self.signal(Signal::CONT)
    }

    fn signal(&mut self, signal: Signal) -> Result<(), SandboxError> {
        let failed = |source| SandboxError::Spawn { program: self.name.clone(), source };
        // After the process was waited for, the kernel may give its process id to another process.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return Err(failed(std::io::Error::other("the process has ended")));
        }
        child_process_lifetime::signal(self.child.id(), signal).map_err(failed)
    }

    /// Returns the peak memory so far in bytes; `None` if the process has ended.
    pub fn memory_bytes_max(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    }

    /// Returns the CPU time used so far, user and system time together; `None` if the process has ended.
    pub fn cpu_time(&self) -> Option<Duration> {
        child_process_lifetime::cpu_time(self.child.id())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if self.is_running() {
            // A failure cannot be reported here. If the kill fails, the kernel kills the child when this
            // process ends.
            let _ = self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_signalled_only_while_it_exists() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let output = folder.path().join("output");
        let mut process =
            ChildProcess::start("/bin/sh", ["-c", "echo began; exec sleep 60"], &output).expect("start");
        assert!(process.is_running() && process.cpu_time().is_some());
        process.pause().expect("pause");
        process.resume().expect("resume");
        assert!(process.wait(Duration::from_millis(50)).await.is_err());
        let pid = process.pid();
        let status = process.kill().await.expect("kill");
        assert!(!status.success() && child_process_lifetime::start_ticks(pid).is_none());

        let mut short = ChildProcess::start("/bin/sh", ["-c", "exit 3"], &output).expect("start");
        assert_eq!(short.wait(Duration::from_secs(20)).await.expect("wait").code(), Some(3));
        assert!(short.pause().is_err() && short.resume().is_err());
        assert_eq!(short.terminate(Duration::from_secs(1)).await.expect("ended").code(), Some(3));
    }
}
