//! Runs a program to its end, and measures the program and the servers that it uses.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tailwater_sandbox::{ChildProcess, Server};

/// Interval between two samples of CPU time and memory.
const SAMPLING_INTERVAL: Duration = Duration::from_millis(5);
/// Time limit for a program.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A program with its arguments.
#[derive(Debug, Clone)]
pub struct MeasuredProgram {
    path: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// A shell script that opens a file as the input of a program.
const INPUT_REDIRECTION: &str = "input=$1; shift; exec \"$@\" <\"$input\"";

/// What a run of a program cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunCost {
    /// The duration, in seconds.
    pub seconds: f64,
    /// The CPU time of the program, in seconds. It is read every 5 ms, so the last 5 ms may be missing.
    pub cpu_seconds: f64,
    /// The CPU time of the servers in the same time, in seconds.
    pub server_cpu_seconds: f64,
    /// The peak memory of the program, in MiB.
    pub memory_mib: f64,
}

impl RunCost {
    /// Adds up two consecutive runs.
    pub fn then(self, next: Self) -> Self {
        Self {
            seconds: self.seconds + next.seconds,
            cpu_seconds: self.cpu_seconds + next.cpu_seconds,
            server_cpu_seconds: self.server_cpu_seconds + next.server_cpu_seconds,
            memory_mib: self.memory_mib.max(next.memory_mib),
        }
    }
}

impl MeasuredProgram {
    /// The program at a path, without arguments.
    pub fn new(path: impl Into<OsString>) -> Self {
        Self { path: path.into(), arguments: Vec::new(), environment: Vec::new() }
    }

    /// Returns one of a server's own programs.
    ///
    /// # Errors
    /// If the server is installed without this program.
    pub fn of_server(server: &Server, name: &str) -> anyhow::Result<Self> {
        let command: Command = server.tool(name)?;
        let set =
            |(name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)| Some((name.into(), value?.into()));
        Ok(Self {
            path: command.get_program().into(),
            arguments: command.get_args().map(Into::into).collect(),
            environment: command.get_envs().filter_map(set).collect(),
        })
    }

    /// Adds arguments.
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds an argument that consists of a name and a path.
    pub fn path_argument(mut self, name: &str, path: &Path) -> Self {
        let mut argument = OsString::from(name);
        argument.push(path);
        self.arguments.push(argument);
        self
    }

    /// Makes the program read its input from a file.
    pub fn input(self, file: &Path) -> Self {
        let Self { path, arguments, environment } = self;
        let shell = ["-c".into(), INPUT_REDIRECTION.into(), "sh".into(), file.into(), path];
        Self { path: "/bin/sh".into(), arguments: shell.into_iter().chain(arguments).collect(), environment }
    }

    /// Runs the program.
    ///
    /// # Errors
    /// If the program fails; with the end of its output.
    pub async fn run(&self, servers: &[&Server], output: &Path) -> anyhow::Result<RunCost> {
        let cpu = || servers.iter().filter_map(|server| server.cpu_time()).sum::<Duration>();
        let before = cpu();
        let begin = Instant::now();
        let environment = self.environment.iter().cloned();
        let mut process = ChildProcess::start_with(&self.path, &self.arguments, environment, output)?;
        let mut measured = RunCost::default();
        loop {
            if let Some(bytes) = process.memory_bytes_max() {
                measured.memory_mib = bytes as f64 / f64::from(1 << 20);
            }
            if let Some(time) = process.cpu_time() {
                measured.cpu_seconds = time.as_secs_f64();
            }
            if !process.is_running() {
                break;
            }
            if begin.elapsed() > PATIENCE {
                bail!("{} did not end within the time limit", self.path.display());
            }
            tokio::time::sleep(SAMPLING_INTERVAL).await;
        }
        measured.seconds = begin.elapsed().as_secs_f64();
        measured.server_cpu_seconds = cpu().saturating_sub(before).as_secs_f64();
        let status = process.wait(Duration::from_secs(1)).await?;
        if !status.success() {
            let text = std::fs::read_to_string(output).unwrap_or_default();
            let end = text.lines().rev().take(5).collect::<Vec<_>>().join(" | ");
            bail!("{} ended with {status}: {end}", self.path.display());
        }
        Ok(measured)
    }
}

/// Returns the version of an installed program, from its `--version`.
///
/// # Errors
/// If the program is not installed.
pub fn version(name: &str, package: &str) -> anyhow::Result<String> {
    let text = Command::new(name).arg("--version").output();
    let text = text.with_context(|| {
        format!("{name} is not installed (Debian package {package}; `./dev bench` installs it)")
    })?;
    Ok(String::from_utf8_lossy(&text.stdout).trim().to_owned())
}
