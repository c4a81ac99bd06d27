//! Runs commands of the operator: without a shell, within a time, and with what they print kept.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// What is kept of what a hook prints, in bytes, of each of its two streams.
const OUTPUT_BYTES_MAX: usize = 8 << 10;

/// How long a hook's output is waited for once the hook itself has ended: what it left running may hold its output open.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(100);

/// How a hook is told what to do, besides the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookArguments {
    /// Its command as it stands.
    #[default]
    AsGiven,
    /// Behind its command `--command=stop|start` and the hosts, as scripts made for `master_ip_failover_script` of MHA have it.
    Mha,
}

/// A command of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Its name.
    pub name: String,
    /// The program, and its arguments.
    pub command: Vec<String>,
    /// What comes behind them.
    pub arguments: HookArguments,
    /// How long it may take.
    pub time_limit: Duration,
}

/// What a hook is called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPurpose {
    /// To make sure that the old primary takes no more writes.
    Fence,
    /// To lead clients to the new primary.
    Route,
}

/// A server as hooks are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookServer {
    /// Its name in the configuration.
    pub name: String,
    /// Its host, or its socket.
    pub host: String,
    /// Its port; 0 for a socket.
    pub port: u16,
}

/// What hooks are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookContext {
    /// What it is called for.
    pub purpose: HookPurpose,
    /// The failover's or switchover's name, as in its record.
    pub run: String,
    /// The term of the lease: never the same again, and higher than all before.
    pub term: u64,
    /// The old primary.
    pub old: HookServer,
    /// The new primary, once there is one.
    pub new: Option<HookServer>,
    /// All that the new primary has executed, once it is known.
    pub gtids: Option<String>,
}

/// How it ended; with what it printed, the front of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookOutcome {
    /// It says that it is done.
    Done(String),
    /// It says that it is not, or could not be run.
    Failed(String),
    /// It took too long and was killed, or was ended by somebody else: nobody knows.
    Unknown(String),
}

impl HookContext {
    /// What stands in the hook's environment, documented in docs/reference/hooks.md.
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

    /// The options of MHA that say something here.
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

/// Runs a hook, and waits for it, no longer than its time. Beyond that it is killed with everything that it started and
/// that did not leave its process group.
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
    // A group of its own, so that all of it can be killed, and nothing but it.
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

/// Kills the child's process group. The child has not been waited for, so its number is still its own.
async fn kill_group(child: &mut Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(group) = group {
        // It may have ended by itself in this moment.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait().await;
}

type CapturedOutput = std::sync::Arc<std::sync::Mutex<Vec<u8>>>;

/// Reads to the end, so that the hook is never kept waiting, and keeps the front.
fn keep(mut stream: impl AsyncRead + Unpin + Send + 'static) -> (CapturedOutput, JoinHandle<()>) {
    let kept = CapturedOutput::default();
    let shared = CapturedOutput::clone(&kept);
    let reading = tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            let mut kept = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
    let kept = kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    String::from_utf8_lossy(&kept).into_owned()
}
