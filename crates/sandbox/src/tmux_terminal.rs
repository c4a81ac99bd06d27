//! A terminal of a given size, made by tmux, for tests of programs that draw.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::error::SandboxError;
use crate::external_program::ChildProcess;
use crate::tool_lookup::{Tool, library_path};

const TMUX: Tool = Tool { name: "tmux", path: "usr/bin/tmux", package: "tmux" };

/// How often the screen is read while a test waits for a text on it.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time limit for the start of the tmux server.
const START_MAX: Duration = Duration::from_secs(10);

/// A terminal with a shell. It ends when this value is dropped, and with this process.
#[derive(Debug)]
pub struct TmuxTerminal {
    program: PathBuf,
    socket: PathBuf,
    _server: ChildProcess,
}

impl TmuxTerminal {
    /// Returns the path of tmux: from the cache, where `./dev setup` stores it, or from the system. If tmux
    /// is missing, prints a line on standard error and returns `None`. The test must then end.
    ///
    /// # Panics
    /// If tmux is missing while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too.
    pub fn require() -> Option<PathBuf> {
        TMUX.require()
    }

    /// Opens a terminal of the given size, which runs `sh` in `folder` with the given environment variables.
    /// tmux reads no configuration of the user.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] or [`SandboxError::Client`] if tmux cannot be started.
    pub fn open(
        program: &Path,
        folder: &Path,
        (columns, lines): (u16, u16),
        environment: &[(&str, &str)],
    ) -> Result<Self, SandboxError> {
        let (socket, log) = (folder.join("tmux.sock"), folder.join("tmux.log"));
        // `-D` keeps the tmux server in the foreground. Otherwise it would detach itself and outlive this
        // process.
        let foreground = ["-f", "/dev/null", "-D", "-S"].map(OsString::from);
        let arguments = foreground.into_iter().chain([socket.clone().into_os_string()]);
        let server = ChildProcess::start_with(program, arguments, library_path(program), &log)?;
        let terminal = Self { program: program.to_owned(), socket, _server: server };
        let started = Instant::now();
        while !terminal.socket.exists() && started.elapsed() < START_MAX {
            std::thread::sleep(POLL_INTERVAL);
        }
        let mut command = terminal.command();
        command.args(["new-session", "-d", "-s", "test"]).current_dir(folder);
        command.args(["-x", &columns.to_string(), "-y", &lines.to_string()]);
        for (name, value) in environment {
            command.arg("-e").arg(format!("{name}={value}"));
        }
        command.arg("sh").env_remove("TMUX");
        terminal.run(command)?;
        Ok(terminal)
    }

    /// Types keys, with tmux's names of keys: `q`, `Enter`, `Down`, `C-c`.
    ///
    /// # Errors
    /// [`SandboxError::Client`] if the terminal has ended.
    pub fn press(&self, keys: &[&str]) -> Result<(), SandboxError> {
        let mut command = self.command();
        command.args(["send-keys", "-t", "test"]).args(keys);
        self.run(command).map(drop)
    }

    /// Types a text as it is.
    ///
    /// # Errors
    /// [`SandboxError::Client`] if the terminal has ended.
    pub fn type_text(&self, text: &str) -> Result<(), SandboxError> {
        let mut command = self.command();
        command.args(["send-keys", "-t", "test", "-l", text]);
        self.run(command).map(drop)
    }

    /// Changes the size of the terminal.
    ///
    /// # Errors
    /// [`SandboxError::Client`] if the terminal has ended.
    pub fn resize(&self, columns: u16, lines: u16) -> Result<(), SandboxError> {
        let mut command = self.command();
        command.args(["resize-window", "-t", "test"]);
        command.args(["-x", &columns.to_string(), "-y", &lines.to_string()]);
        self.run(command).map(drop)
    }

    /// Returns the text on the screen, without spaces at the ends of lines.
    ///
    /// # Errors
    /// [`SandboxError::Client`] if the terminal has ended.
    pub fn screen(&self) -> Result<String, SandboxError> {
        let mut command = self.command();
        command.args(["capture-pane", "-p", "-t", "test"]);
        self.run(command)
    }

    /// Waits until the screen satisfies the condition, and returns its text. Returns the last text as the
    /// error if that takes too long.
    ///
    /// # Errors
    /// The text of the screen, or of the error of tmux.
    pub fn wait_for(&self, patience: Duration, condition: impl Fn(&str) -> bool) -> Result<String, String> {
        let started = Instant::now();
        loop {
            let screen = self.screen().map_err(|error| error.to_string())?;
            if condition(&screen) {
                return Ok(screen);
            }
            if started.elapsed() > patience {
                return Err(screen);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-u", "-S"]).arg(&self.socket).envs(library_path(&self.program));
        command
    }

    fn run(&self, mut command: Command) -> Result<String, SandboxError> {
        let program = self.program.display().to_string();
        let output = command.output();
        let output = output.map_err(|source| SandboxError::Spawn { program: program.clone(), source })?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(SandboxError::Client { program, status: output.status.to_string(), message });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
