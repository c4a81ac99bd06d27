//! Child processes that cannot outlive this process.
//!
//! A server must end with the process that started it, even if that process is killed with SIGKILL and cannot
//! run any code. Only the kernel can guarantee that. It sends the parent-death signal (`PR_SET_PDEATHSIG`) to
//! a child when its parent ends. Three rules make this safe without `unsafe` code:
//!
//! - `setpriv --pdeathsig KILL` (util-linux, on every Debian) sets the signal in the child before the server
//!   is executed. The setting is kept over `execve`. The alternative would be a shell that waits for the end
//!   of a pipe and then kills the server. But that needs one more process for each server, and the server
//!   keeps running if the shell is killed.
//! - The kernel sends the signal when the *thread* that forked the child ends, not when its process ends. So
//!   one thread that never ends forks all children.
//! - The parent could die before the child has requested the signal. So after `setpriv`, a line of shell
//!   compares the parent's process id with the expected one before it executes the server.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::error::SandboxError;

/// How long a child process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// The kernel kills the child when this process ends.
    WithOwner,
    /// The child keeps running after this process ends. Its process id is stored in a file.
    Detached,
}

/// A program with its arguments and additional environment variables. The program also inherits the
/// environment of this process, and nothing else.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) path: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

impl Program {
    pub(crate) fn new(path: impl Into<OsString>) -> Self {
        Self { path: path.into(), arguments: Vec::new(), environment: Vec::new() }
    }

    pub(crate) fn arg(&mut self, argument: impl Into<OsString>) -> &mut Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn display(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

/// Limits that are set on a child process before it starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProcessLimits {
    /// Maximum size of a file that the process can write, in KiB. It simulates a full disk for one process.
    pub(crate) file_kib_max: Option<u64>,
}

/// Starts `program` in its own process group, so that Ctrl-C in a terminal signals this process and not the
/// servers. Standard output and error are appended to `log`.
pub(crate) fn spawn(
    program: &Program,
    log: &Path,
    lifetime: Lifetime,
    limits: ProcessLimits,
) -> Result<Child, SandboxError> {
    let failed = |source| SandboxError::Spawn { program: program.display(), source };
    let output = fs::OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;

    let mut script = String::new();
    if let Some(blocks) = limits.file_kib_max {
        // The unit of `ulimit -f` in POSIX shells is 512 bytes.
        script.push_str(&format!("ulimit -f {}; ", blocks.saturating_mul(2)));
    }
    let mut command = match lifetime {
        Lifetime::WithOwner => {
            script.push_str("[ \"$PPID\" = \"$0\" ] || exit 75; exec \"$@\"");
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--", "/bin/sh", "-c"]);
            command
        }
        Lifetime::Detached => {
            script.push_str("exec \"$@\"");
            let mut command = Command::new("/bin/sh");
            command.arg("-c");
            command
        }
    };
    command.arg(script).arg(std::process::id().to_string()).arg(&program.path).args(&program.arguments);
    command.envs(program.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    on_forking_thread(command).map_err(|source| match (lifetime, source.kind()) {
        (Lifetime::WithOwner, io::ErrorKind::NotFound) => {
            SandboxError::Spawn { program: "setpriv (package util-linux)".to_owned(), source }
        }
        _ => failed(source),
    })
}

type SpawnRequest = (Command, mpsc::SyncSender<io::Result<Child>>);

/// Runs `spawn` on the one thread that lives as long as the process (see the module's documentation).
fn on_forking_thread(command: Command) -> io::Result<Child> {
    static REQUESTS: OnceLock<Option<mpsc::Sender<SpawnRequest>>> = OnceLock::new();
    let gone = || io::Error::other("the thread that starts processes has ended");
    let requests = REQUESTS.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<SpawnRequest>();
        let body = move || {
            for (mut command, answer) in receiver {
                // If the receiver was dropped, the handle of the child is dropped too. The child then ends
                // with this process.
                let _ = answer.send(command.spawn());
            }
        };
        thread::Builder::new().name("sandbox-spawn".to_owned()).spawn(body).ok().map(|_| sender)
    });
    let (sender, receiver) = mpsc::sync_channel(1);
    requests.as_ref().ok_or_else(gone)?.send((command, sender)).map_err(|_| gone())?;
    receiver.recv().map_err(|_| gone())?
}

/// Runs a program until it ends, and returns its output.
pub(crate) fn run_to_end(program: &Program, stdin: Stdio) -> Result<std::process::Output, SandboxError> {
    let spawn = |source| SandboxError::Spawn { program: program.display(), source };
    program.command().stdin(stdin).output().map_err(spawn)
}

/// Sends a signal to a process whose identity is certain: a child that was not waited for yet, or a process
/// whose start time was just compared.
pub(crate) fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    rustix::process::kill_process(pid, signal).map_err(io::Error::from)
}

/// Waits until the child has ended, without blocking the thread. Returns `None` if it still runs at
/// `deadline`.
pub(crate) async fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Returns the start time of a process in clock ticks since boot. Process ids are reused; the id and the
/// start time together identify a process. `None` if the process does not exist or is a zombie.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start_ticks(&stat)
}

/// Returns the CPU time that a process has used so far, user and system time together.
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    // A clock tick is 10 ms on each Linux kernel of Debian.
    Some(Duration::from_millis((user + system) * 10))
}

fn parse_start_ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name in parentheses. It may contain any characters, also parentheses
    // and spaces.
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // `rest` begins with field 3 (state). The start time is field 22.
    fields.nth(18)?.parse().ok()
}

/// Returns the full path of a program on `PATH`, if there is one.
pub(crate) fn on_path(name: &OsStr) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Server programs are in sbin folders, which are often not on the PATH of an ordinary user.
    let sbin = ["/usr/local/sbin", "/usr/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(sbin).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_parsed_after_any_program_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 19";
        assert_eq!(parse_start_ticks(&format!("12 (a) b (c)) {fields}")), Some(4711));
        assert_eq!(parse_start_ticks(&format!("12 (x) Z{}", &fields[1..])), None);
        assert_eq!(parse_start_ticks("12 (x"), None);
        assert_eq!(parse_start_ticks("12 (x) S 1"), None);
        assert!(start_ticks(std::process::id()).is_some());
    }

    #[test]
    fn a_child_with_the_expected_parent_runs() {
        // `setpriv` alone does not cover the case that the parent dies before the child requests the signal,
        // so the script compares the parent's process id. Here the parent is the expected one, so the child
        // must run.
        let folder = tempfile::tempdir().expect("temporary folder");
        let log = folder.path().join("log");
        let mut program = Program::new("/bin/sh");
        program.arg("-c").arg("echo ran; ulimit -f");
        let limits = ProcessLimits { file_kib_max: Some(64) };
        let mut child = spawn(&program, &log, Lifetime::WithOwner, limits).expect("spawn");
        assert!(child.wait().expect("wait").success());
        assert_eq!(fs::read_to_string(&log).expect("log"), "ran\n128\n");
    }
}
