//! Runs commands of the operator: without a shell, within a time limit, keeping what they print.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// How much output of a hook is kept, in bytes, for each of its two streams.
const OUTPUT_BYTES_MAX: usize = 8 << 10;

/// How long to wait for a hook's output after the hook has exited: a process that it left running may hold
/// the stream open.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(100);

/// How a hook receives its task, besides the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookArguments {
    /// The configured command without further arguments.
    #[default]
    AsGiven,
    /// Adds `--command=stop|start` and the hosts, as scripts for MHA's `master_ip_failover_script` expect.
    Mha,
}

/// A command of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Its name.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Arguments added to the command.
    pub arguments: HookArguments,
    /// How long it may run.
    pub time_limit: Duration,
}

/// What a hook is run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPurpose {
    /// To ensure that the old primary takes no more writes.
    Fence,
    /// To route clients to the new primary.
    Route,
}

/// A server as hooks see it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookServer {
    /// Its name.
    pub name: String,
    /// Its host or socket path.
    pub host: String,
    /// Its port; 0 for a socket.
    pub port: u16,
}

/// What a hook receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookContext {
    /// What the hook is run for.
    pub purpose: HookPurpose,
    /// Id of the failover or switchover, as in its audit record.
    pub run: String,
    /// The lease term; higher than all earlier ones.
    pub term: u64,
    /// The old primary.
    pub old: HookServer,
    /// The new primary, once chosen.
    pub new: Option<HookServer>,
    /// All transactions that the new primary has executed, once known.
    pub gtids: Option<String>,
}

/// How a hook exited, with the beginning of its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookOutcome {
    /// It reported success.
    Done(String),
    /// It reported failure, or could not be started.
    Failed(String),
    /// It was killed, by the time limit or by another process, so its effect is unknown.
    Unknown(String),
}

impl HookContext {
    /// The hook's environment, documented in docs/reference/hooks.md.
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

    /// Arguments in the form that MHA uses.
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

/// Runs a hook and waits for it up to its time limit. After that it is killed, with every process that it
/// started in its process group.
pub async fn run(hook: &Hook, situation: &HookContext) -> HookOutcome {
    let Some((program, arguments)) = hook.command.split_first() else {
        return HookOutcome::Failed(format!("hook {}: no command", hook.name));
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(situation.environment(hook));
    if hook.arguments == HookArguments::Mha {
        command.args(situation.mha_arguments());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Its own process group, so that the whole group can be killed and nothing else.
    command.process_group(0).kill_on_drop(true);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return HookOutcome::Failed(format!("hook {}: {program}: {error}", hook.name)),
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
        Ok(Err(error)) => HookOutcome::Unknown(format!("hook {}: {error}: {printed}", hook.name)),
        Err(_) => HookOutcome::Unknown(format!(
            "hook {}: killed after {} s: {printed}",
            hook.name,
            hook.time_limit.as_secs_f64()
        )),
    }
}

/// Kills the child's process group. The child has not been waited for, so its process id is still its own.
async fn kill_group(child: &mut Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(group) = group {
        // The group may have exited in the meantime.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait().await;
}

type CapturedOutput = std::sync::Arc<parking_lot::Mutex<Vec<u8>>>;

/// Reads the stream to its end, so that the hook never blocks on it, and keeps the beginning.
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
