//! Runs a program to its end, and measures it and the servers that it works on.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tailwater_sandbox::{ChildProcess, Server};

/// How often a program is looked at.
const LOOKED_EVERY: Duration = Duration::from_millis(5);
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A program with its arguments.
#[derive(Debug, Clone)]
pub struct MeasuredProgram {
    path: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// Gives a program a file as its input, in place of the shell that a user would let do it.
const WITH_INPUT: &str = "input=$1; shift; exec \"$@\" <\"$input\"";

/// What a run came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunCost {
    /// From its start to its end.
    pub seconds: f64,
    /// CPU time of the program, up to 5 ms before its end.
    pub cpu_seconds: f64,
    /// CPU time of the servers meanwhile.
    pub server_cpu_seconds: f64,
    /// The most memory that the program held.
    pub memory_mib: f64,
}

impl RunCost {
    /// One run, and another behind it.
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
    /// A program.
    pub fn new(path: impl Into<OsString>) -> Self {
        Self { path: path.into(), arguments: Vec::new(), environment: Vec::new() }
    }

    /// One of a server's own.
    ///
    /// # Errors
    /// If the server does not come with it.
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

    /// Adds an argument that is a path behind its name.
    pub fn path_argument(mut self, name: &str, path: &Path) -> Self {
        let mut argument = OsString::from(name);
        argument.push(path);
        self.arguments.push(argument);
        self
    }

    /// Has it read its input from a file.
    pub fn input(self, file: &Path) -> Self {
        let Self { path, arguments, environment } = self;
        let shell = ["-c".into(), WITH_INPUT.into(), "sh".into(), file.into(), path];
        Self { path: "/bin/sh".into(), arguments: shell.into_iter().chain(arguments).collect(), environment }
    }

    /// Runs it.
    ///
    /// # Errors
    /// If it fails, with the end of what it said.
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
                bail!("{} does not end", self.path.display());
            }
            tokio::time::sleep(LOOKED_EVERY).await;
        }
        measured.seconds = begin.elapsed().as_secs_f64();
        measured.server_cpu_seconds = cpu().saturating_sub(before).as_secs_f64();
        let status = process.wait(Duration::from_secs(1)).await?;
        if !status.success() {
            let said = std::fs::read_to_string(output).unwrap_or_default();
            let end = said.lines().rev().take(5).collect::<Vec<_>>().join(" | ");
            bail!("{} ended with {status}: {end}", self.path.display());
        }
        Ok(measured)
    }
}

/// What a program of the system says its version is.
///
/// # Errors
/// If it is not installed.
pub fn version(name: &str, package: &str) -> anyhow::Result<String> {
    let said = Command::new(name).arg("--version").output();
    let said = said.with_context(|| {
        format!("{name} is not installed (Debian package {package}; `./dev bench` installs it)")
    })?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}
