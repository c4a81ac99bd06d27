//! Runs hooks, the commands of the operator. A hook runs without a shell and within a time limit. The manager
//! keeps the beginning of its output.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// How many bytes of each output stream of a hook (stdout, stderr) the manager keeps.
const OUTPUT_BYTES_MAX: usize = 8 << 10;

/// How long to wait for the rest of a hook's output after the hook has exited. A process that the hook left
/// running may keep the output stream open.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(100);

/// Which arguments a hook receives, in addition to its environment variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookArguments {
    /// The configured command without further arguments.
    #[default]
    AsGiven,
    /// Adds `--command=stop|start` and the hosts, as scripts written for MHA's `master_ip_failover_script`
    /// expect.
    Mha,
}

/// A hook: a command of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Name of the hook.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Arguments added to the command.
    pub arguments: HookArguments,
    /// How long the hook may run before it is killed.
    pub time_limit: Duration,
}

/// Why a hook is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPurpose {
    /// The hook must ensure that the old primary takes no more writes.
    Fence,
    /// The hook must route clients to the new primary.
    Route,
}

/// The data of a server that hooks receive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookServer {
    /// Name of the server.
    pub name: String,
    /// Host or socket path of the server.
    pub host: String,
    /// Port of the server; 0 for a socket.
    pub port: u16,
}

/// The data that a hook receives about the failover or switchover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookContext {
    /// Why the hook is run.
    pub purpose: HookPurpose,
    /// Id of the failover or switchover, as in its audit record.
    pub run: String,
    /// The lease term of the failover or switchover, which is higher than all earlier terms.
    pub term: u64,
    /// The old primary.
    pub old: HookServer,
    /// The new primary; `None` before one is chosen.
    pub new: Option<HookServer>,
    /// All transactions that the new primary has executed; `None` before they are known.
    pub gtids: Option<String>,
}

/// How a hook exited, with the beginning of its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookOutcome {
    /// The hook exited with status 0.
    Done(String),
    /// The hook exited with another status, or could not be started.
    Failed(String),
    /// The hook was killed, after its time limit or by another process, so its effect is unknown.
    Unknown(String),
}

impl HookContext {
    /// Returns the environment variables of the hook; docs/reference/hooks.md documents each variable.
    fn environment(&self, hook: &Hook) -> BTreeMap<&'static str, String> {
        let mut variables = BTreeMap::from([
            ("TAILWATER_HOOK", hook.name.clone()),
            ("TAILWATER_COMMAND", self.purpose.command().to_owned()),
            ("TAILWATER_RUN", self.run.clone()),
            ("TAILWATER_TERM", self.term.to_string()),
            ("TAILWATER_OLD_NAME", self.old.name.clone()),
            ("TAILWATER_OLD_HOST", self.old.host.clone()),
            ("TAILWATER_OLD_PORT", self.old.port.to_string()),
        ]);
        if let Some(new) = &self.new {
            variables.insert("TAILWATER_NEW_NAME", new.name.clone());
            variables.insert("TAILWATER_NEW_HOST", new.host.clone());
            variables.insert("TAILWATER_NEW_PORT", new.port.to_string());
        }
        variables.extend(self.gtids.iter().map(|gtids| ("TAILWATER_GTIDS", gtids.clone())));
        variables
    }

    /// Returns the arguments that MHA passes to its scripts.
    fn mha_arguments(&self) -> Vec<String> {
        let mut out = vec![format!("--command={}", self.purpose.command())];
        let mut hook_server = |prefix: &str, hook_server: &HookServer| {
            out.push(format!("--{prefix}_host={}", hook_server.host));
            out.push(format!("--{prefix}_ip={}", hook_server.host));
            out.push(format!("--{prefix}_port={}", hook_server.port));
        };
        hook_server("orig_master", &self.old);
        if let Some(new) = &self.new {
            hook_server("new_master", new);
        }
        out
    }
}

impl HookPurpose {
    fn command(self) -> &'static str {
        match self {
            Self::Fence => "stop",
            Self::Route => "start",
        }
    }
}

/// Runs a hook and waits for it, at most for its time limit. After the limit, the hook and all processes of
/// its process group are killed.
pub async fn run(hook: &Hook, situation: &HookContext) -> HookOutcome {
    let Some((program, arguments)) = hook.command.split_first() else {
        return HookOutcome::Failed(format!("hook {} has no command", hook.name));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    // Do not pass the daemon's own environment variables to the hook, because they may contain passwords.
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"TAILWATER_") {
            command.env_remove(name);
        }
    }
    command.envs(situation.environment(hook));
    if hook.arguments == HookArguments::Mha {
        command.args(situation.mha_arguments());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The hook gets its own process group, so that a kill reaches every process of the hook and no other
    // process.
    command.process_group(0).kill_on_drop(true);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return HookOutcome::Failed(format!("hook {}: cannot start {program}: {error}", hook.name));
        }
    };
    let outputs = [child.stdout.take().map(keep), child.stderr.take().map(keep)];
    let ended = tokio::time::timeout(hook.time_limit, child.wait()).await;
    if ended.is_err() {
        kill_group(&mut child).await;
    }
    let mut printed = String::new();
    for output in outputs.into_iter().flatten() {
        printed.push_str(&collect(output).await);
    }
    let printed = printed.trim_end();
    match ended {
        Ok(Ok(status)) if status.success() => HookOutcome::Done(printed.to_owned()),
        Ok(Ok(status)) if status.code().is_some() => {
            HookOutcome::Failed(format!("hook {}: {status}: {printed}", hook.name))
        }
        Ok(Ok(status)) => HookOutcome::Unknown(format!("hook {}: {status}: {printed}", hook.name)),
        Ok(Err(error)) => HookOutcome::Unknown(format!(
            "hook {}: cannot read its exit status: {error}: {printed}",
            hook.name
        )),
        Err(_) => HookOutcome::Unknown(format!(
            "hook {} was killed after {} s: {printed}",
            hook.name,
            hook.time_limit.as_secs_f64()
        )),
    }
}

/// Kills the process group of the hook. The exit status of the hook has not been read yet, so the system
/// cannot have given its process id to another process.
async fn kill_group(child: &mut Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(group) = group {
        // An error means only that the group has exited by itself in the meantime.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait().await;
}

type CapturedOutput = std::sync::Arc<parking_lot::Mutex<Vec<u8>>>;

/// Reads the stream to its end, so that the hook never blocks on a full pipe. Keeps only the beginning.
fn keep(mut stream: impl AsyncRead + Unpin + Send + 'static) -> (CapturedOutput, JoinHandle<()>) {
    let kept = CapturedOutput::default();
    let shared = CapturedOutput::clone(&kept);
    let reading = tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            let mut kept = shared.lock();
            let room = OUTPUT_BYTES_MAX.saturating_sub(kept.len());
            kept.extend_from_slice(&buffer[..length.min(room)]);
        }
    });
    (kept, reading)
}

async fn collect((kept, mut reading): (CapturedOutput, JoinHandle<()>)) -> String {
    if tokio::time::timeout(OUTPUT_PATIENCE, &mut reading).await.is_err() {
        reading.abort();
    }
    let kept = kept.lock();
    String::from_utf8_lossy(&kept).into_owned()
}
