//! `tailwater top` in a terminal of 80x24, with a daemon on real servers: every screen, the keys, a daemon
//! that hangs, is killed and starts again, and how the terminal is left.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{Ledger, Server, ServerKind, TmuxTerminal, Workload, WorkloadSpec, require};

use crate::cli::http_listener::follower;
use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_in_a_terminal_mariadb() -> Result<()> {
    top_in_a_terminal(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_in_a_terminal_mysql() -> Result<()> {
    top_in_a_terminal(ServerKind::Mysql97).await
}

#[test]
fn top_needs_a_terminal_or_a_daemon() -> Result<()> {
    let shell = Shell::new()?;
    shell.write(
        "tailwater.toml",
        "[log]\ndirectory = \"log\"\n[[source]]\nname = \"orders\"\nhost = \"127.0.0.1\"\nport = 1\nserver_id = 4201\n",
    )?;
    shell.run("top -c tailwater.toml")?.exits(1).stderr_has(&["not a terminal", "--once"]);
    shell.run("top -c tailwater.toml --once")?.exits(1).stderr_has(&["TW-CTL-0001", "`tailwater run`"]);
    shell
        .run("top -c tailwater.toml --once --output json")?
        .exits(1)
        .stderr_has(&["tailwater status --output json"]);
    shell.run("top")?.exits(2).stderr_has(&["--config <FILE>"]);
    shell.run("top -c absent.toml --once")?.exits(1).stderr_has(&["TW-CFG-0001"]);
    Ok(())
}

/// A primary that Tailwater captures and manages, a replica that reads the log from it, and the target of a
/// channel.
struct Daemon {
    trial: Trial,
    replica: Server,
    target: Server,
}

impl Daemon {
    async fn start(shell: &Shell, kind: ServerKind) -> Result<Self> {
        let mut trial = Trial::start(TrialSpec {
            kind,
            durability: TrialDurability::Full,
            options: Vec::new(),
            ack: AckMode::Durable,
            program: PathBuf::from(PROGRAM),
            folder: shell.path().to_owned(),
        })
        .await?;
        let (replica, target) = tokio::try_join!(follower(kind, 11, "db2"), follower(kind, 12, "target"))?;
        trial.manage(&[&replica], "automatic = false")?;
        trial.add_channel(&format!(
            "\n[[channel]]\nname = \"reports\"\nsource = \"primary\"\nsocket = \"{}\"\nuser = \"root\"\ntls = \"off\"\n",
            target.socket().display()
        ))?;
        trial.start_relay()?;
        trial.wait_captured().await?;
        replica.replicate(&trial.replica_of_relay()).await?;
        replica.sql("SET GLOBAL read_only = 1").await?;
        Ok(Self { trial, replica, target })
    }
}

/// A terminal in which the program runs.
struct Top(TmuxTerminal);

impl Top {
    fn open(program: &Path, folder: &Path) -> Result<Self> {
        let environment = [("LC_ALL", "C.UTF-8")];
        Ok(Self(TmuxTerminal::open(program, folder, (80, 24), &environment)?))
    }

    fn command(&self, arguments: &str) -> Result<()> {
        self.0.type_text(&format!("'{PROGRAM}' top -c tailwater.toml {arguments}"))?;
        Ok(self.0.press(&["Enter"])?)
    }

    /// Waits until the screen contains all these texts and satisfies the condition.
    fn shows_if(&self, texts: &[&str], condition: impl Fn(&str) -> bool) -> Result<String> {
        let is_shown = |screen: &str| texts.iter().all(|text| screen.contains(text)) && condition(screen);
        let screen = self.0.wait_for(PATIENCE, is_shown);
        let screen = screen.map_err(|screen| anyhow!("the screen does not show {texts:?}:\n{screen}"))?;
        if let Some(folder) = std::env::var_os("TOP_SCREENS") {
            let number = std::fs::read_dir(&folder)?.count();
            std::fs::write(Path::new(&folder).join(format!("{number:03}.txt")), &screen)?;
        }
        Ok(screen)
    }

    fn shows(&self, texts: &[&str]) -> Result<String> {
        self.shows_if(texts, |_| true)
    }

    /// Waits until a line of the screen ends with this text. A shell prompt may come before the text.
    fn shows_line(&self, text: &str) -> Result<String> {
        self.shows_if(&[text], |screen| screen.lines().any(|line| line.ends_with(text)))
    }

    /// Presses keys, and waits until the screen contains the texts.
    fn press(&self, keys: &[&str], texts: &[&str]) -> Result<String> {
        self.0.press(keys)?;
        self.shows(texts)
    }
}

/// Returns the words of the line that begins with `first`.
fn words<'s>(screen: &'s str, first: &str) -> Vec<&'s str> {
    let line = screen.lines().find(|line| line.split_whitespace().next() == Some(first));
    line.unwrap_or_default().split_whitespace().collect()
}

async fn top_in_a_terminal(kind: ServerKind) -> Result<()> {
    let (Some(_), Some(tmux)) = (require(kind), TmuxTerminal::require()) else { return Ok(()) };
    let shell = Shell::new()?;
    let Daemon { mut trial, mut replica, target } = Daemon::start(&shell, kind).await?;
    prepare(&trial.primary.connect_options()).await?;
    let spec = WorkloadSpec { pause: Duration::from_millis(5), ..WorkloadSpec::new(2) };
    let load = Workload::start(trial.primary.connect_options(), &spec, Arc::new(Ledger::new()));
    let top = Top::open(&tmux, shell.path())?;
    top.command("")?;
    screens_with_writes(&top, &shell)?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);

    failed_channel(&top, &trial, &target).await?;
    replica.kill().await?;
    let clusters = top.press(&["3"], &["CLUSTER primary", "NO ANSWER", "! server db2"])?;
    ensure!(clusters.contains("what to do"), "the screen shows no remedy:\n{clusters}");

    silence_of_the_daemon(&top, &mut trial).await?;
    end_of_the_program(&top, &shell)?;
    loss_of_the_terminal(top, &shell)
}

/// Checks every screen while clients write.
fn screens_with_writes(top: &Top, shell: &Shell) -> Result<()> {
    let writes = |screen: &str| {
        let source = words(screen, "primary");
        source.contains(&"streaming") && source.iter().any(|word| word.ends_with("iB"))
    };
    let overview =
        top.shows_if(&["[1 Overview]", "SEMI-SYNC", "in force", "READER", "db2", "LOG DISK"], writes)?;
    let too_wide = |screen: &str| screen.lines().any(|line| line.chars().count() > 80);
    ensure!(!too_wide(&overview), "a line is too wide:\n{overview}");
    let channels = top.press(&["2"], &["[2 Channels]", "sorted by name", "> reports", "running", " of 4"])?;
    ensure!(!too_wide(&channels), "a line is too wide:\n{channels}");
    top.press(&["s"], &["sorted by lag"])?;
    let have_applied = |screen: &str| {
        let of_worker = |number| words(screen, number).iter().rev().nth(1)?.parse::<u64>().ok();
        ["1", "2", "3", "4"].into_iter().filter_map(of_worker).sum::<u64>() > 0
    };
    top.0.press(&["Enter"])?;
    top.shows_if(&["CHANNEL reports", "transactions/s", "WORKER", "CONFLICTS"], have_applied)?;
    top.press(
        &["Escape", "Tab"],
        &["[3 Clusters]", "CLUSTER primary", "manual failover", "failover now", "ok"],
    )?;
    top.press(&["Tab"], &["[4 Trends]", "written", "captured trx", "applied rows", "replica lag", "█"])?;
    top.press(&["Tab"], &["[5 Jobs]", "No jobs."])?;
    top.press(&["?"], &["pause: the screen stays"])?;
    top.press(&["Escape", "1", "p"], &["PAUSED", "[1 Overview]"])?;
    top.press(&["p"], &["p pause"])?;
    let once = shell.run("top -c tailwater.toml --once")?.exits(0);
    let once = once.says(&["[1 Overview]", "primary", "streaming", "in force", "db2", "LOG DISK"]).text();
    ensure!(
        !once.contains('\x1b') && !too_wide(&once),
        "the output has colours, or a line is too wide: {once}"
    );
    let rate = words(&once, "primary").iter().filter(|word| word.ends_with("iB") || **word == "B").count();
    ensure!(rate == 1, "the output has no write rate: {once}");
    let ascii = shell.run("top -c tailwater.toml --once --screen trends --ascii")?.exits(0);
    ensure!(ascii.text().is_ascii(), "the output has characters that are not ASCII: {}", ascii.text());
    Ok(())
}

/// The target lacks a table, so the channel fails. The screens then say what to do.
async fn failed_channel(top: &Top, trial: &Trial, target: &Server) -> Result<()> {
    trial.primary.sql("CREATE DATABASE lost; CREATE TABLE lost.t (name VARCHAR(40) PRIMARY KEY)").await?;
    let mut tries = 0;
    while target.sql("DROP DATABASE lost").await.is_err() {
        tries += 1;
        ensure!(tries < 600, "the channel does not create the database: {}", trial.relay_log_tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    trial.primary.sql("INSERT INTO lost.t VALUES ('Zaphod')").await?;
    let overview = top.press(&["1"], &["! channel reports: TW-APP-", "what to do", "PROBLEM"])?;
    ensure!(!overview.contains("Zaphod"), "a row value is shown:\n{overview}");
    top.press(&["Enter"], &["PROBLEMS: ", "tailwater channel"])?;
    top.press(&["2"], &["FAILED", "TW-APP-", "what to do"])?;
    Ok(())
}

/// The daemon hangs, resumes, is killed, and starts again.
async fn silence_of_the_daemon(top: &Top, trial: &mut Trial) -> Result<()> {
    trial.relay().ok_or_else(|| anyhow!("the daemon is not running"))?.pause()?;
    top.press(
        &["1"],
        &["NO ANSWER for", "No answer from the daemon since", "it may hang", "below is its last state"],
    )?;
    // The keyboard still works.
    top.press(&["2"], &["[2 Channels]", "NO ANSWER for"])?;
    trial.relay().ok_or_else(|| anyhow!("the daemon is not running"))?.resume()?;
    top.shows_if(&["[2 Channels]"], |screen| !screen.contains("NO ANSWER"))?;
    trial.kill_relay().await?;
    top.press(
        &["1"],
        &["NO ANSWER for", "TW-CTL-0001", "`tailwater run`", "below is its last state", "SOURCE"],
    )?;
    trial.start_relay()?;
    top.shows_if(&["streaming", "up "], |screen| !screen.contains("NO ANSWER"))?;
    Ok(())
}

/// The program works at all sizes of the terminal. However the program ends, it restores the terminal.
fn end_of_the_program(top: &Top, shell: &Shell) -> Result<()> {
    for (columns, lines, text) in [(10, 3, "[1 Overvie"), (200, 50, "ACKERS"), (80, 24, "SEMI-SYNC\n")] {
        top.0.resize(columns, lines)?;
        top.shows_if(&[text], |screen| screen.lines().count() == usize::from(lines))?;
    }
    let is_restored = |mark: &str| -> Result<()> {
        // The program must have ended, because otherwise it would receive the keys.
        top.shows_if(&[], |screen| !screen.contains("Overview"))?;
        top.0.type_text(&format!("stty -a > {mark}.stty; echo {mark}=$?"))?;
        top.0.press(&["Enter"])?;
        top.shows_line(&format!("{mark}=0"))?;
        let settings = std::fs::read_to_string(shell.path().join(format!("{mark}.stty")))?;
        ensure!(
            settings.contains(" icanon") && settings.contains(" echo "),
            "{mark}: the terminal is still in raw mode: {settings}"
        );
        Ok(())
    };
    top.0.press(&["q"])?;
    is_restored("quit")?;
    for (signal, mark) in [("TERM", "term"), ("HUP", "hup"), ("INT", "int")] {
        let run = format!("exec {PROGRAM} top -c tailwater.toml --screen clusters");
        top.0.type_text(&format!("clear; sh -c 'echo $$ > pid; {run}'; echo {mark}-exit=$?"))?;
        top.0.press(&["Enter"])?;
        top.shows(&["[3 Clusters]"])?;
        shell.bash(&format!("kill -{signal} $(cat pid)"))?.exits(0);
        top.shows_line(&format!("{mark}-exit=0"))?;
        is_restored(mark)?;
    }
    top.command("")?;
    top.shows(&["[1 Overview]"])?;
    top.0.press(&["C-c"])?;
    is_restored("interrupt")
}

/// The program ends with its terminal, for example when an SSH connection breaks.
fn loss_of_the_terminal(top: Top, shell: &Shell) -> Result<()> {
    top.0.type_text(&format!("clear; echo $$ > pid; exec {PROGRAM} top -c tailwater.toml"))?;
    top.0.press(&["Enter"])?;
    top.shows(&["[1 Overview]"])?;
    let pid = std::fs::read_to_string(shell.path().join("pid"))?;
    let stat = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
    // A process that has ended stays a zombie until it is waited for.
    let runs = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    ensure!(runs(), "the program does not run: {pid}");
    drop(top);
    let started = Instant::now();
    while runs() {
        ensure!(started.elapsed() < PATIENCE, "the program keeps running without a terminal: {pid}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
