//! The messages of the daemon in the journal of systemd. The test is the journal: it reads the entries from
//! the socket, in the native protocol (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/). The tests of the package
//! use a real journal.

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tailwater_sandbox::ChildProcess;

use super::http_api::ApiDaemon;
use crate::shell_session::PROGRAM;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Puts the folder with the socket where programs look for the journal, in a mount namespace of its own, and
/// starts the program. `$1` is that folder, `$2` the file that `JOURNAL_STREAM` names, `$3` the program.
const START: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && \
     mount --bind \"$1\" /run/systemd/journal && \
     JOURNAL_STREAM=$(stat -L -c %d:%i \"$2\") exec \"$3\" run -c \"$4\"";

/// A channel whose target cannot be reached.
const CHANNEL: &str = "[[channel]]\nname = \"reports\"\nsource = \"orders\"\nhost = \"127.0.0.1\"\nport = 2\n\
     defaults_file = \"client.cnf\"\n";

type Entry = BTreeMap<String, String>;

/// A daemon with a socket in the place of the journal's.
struct JournalDaemon {
    daemon: ApiDaemon,
    journal: UnixDatagram,
    _process: ChildProcess,
}

impl JournalDaemon {
    /// `stream` is the file that systemd would have connected to standard error. Returns `None` if this
    /// process may not mount file systems.
    fn start(more: &str, stream: &str) -> Result<Option<Self>> {
        let trial = Command::new("unshare").args(["--mount", "true"]).output();
        if !trial.as_ref().is_ok_and(|ran| ran.status.success()) {
            eprintln!("SKIPPED: this test needs the right to mount: {trial:?}");
            return Ok(None);
        }
        let daemon = ApiDaemon::prepare(more)?;
        let folder = daemon.shell.path().join("journal");
        std::fs::create_dir(&folder)?;
        let journal = UnixDatagram::bind(folder.join("socket"))?;
        journal.set_read_timeout(Some(Duration::from_millis(200)))?;
        let text = |path: &Path| path.display().to_string();
        let config = text(&daemon.shell.path().join("tailwater.toml"));
        let arguments = ["--mount", "--propagation", "private", "sh", "-c", START, "sh"].map(str::to_owned);
        let arguments = arguments.into_iter().chain([text(&folder), stream.into(), PROGRAM.into(), config]);
        let process = ChildProcess::start("unshare", arguments, &daemon.shell.path().join("relay.log"))?;
        Ok(Some(Self { daemon, journal, _process: process }))
    }

    /// Waits for an entry that satisfies a condition.
    fn until(&self, condition: impl Fn(&Entry) -> bool) -> Result<Entry> {
        let (started, mut seen) = (Instant::now(), Vec::new());
        let mut buffer = vec![0; 1 << 20];
        while started.elapsed() < PATIENCE {
            let Ok(length) = self.journal.recv(&mut buffer) else { continue };
            // The daemon tries the socket with an empty entry.
            let entry = parse(&buffer[..length])?;
            if condition(&entry) {
                return Ok(entry);
            }
            seen.push(entry);
        }
        bail!("no entry of the journal is the expected one: {seen:?}; standard error: {}", self.lines()?)
    }

    /// What the daemon has written to standard error.
    fn lines(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.daemon.shell.path().join("relay.log"))?)
    }
}

/// Parses an entry: `NAME=VALUE` and a line feed; or `NAME`, a line feed, the length of the value in 8 bytes,
/// the value, and a line feed. If a name occurs twice, the first value counts.
fn parse(mut bytes: &[u8]) -> Result<Entry> {
    let mut entry = Entry::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|byte| *byte == b'\n').context("a line without an end")?;
        let (line, rest) = (std::str::from_utf8(&bytes[..end])?, &bytes[end + 1..]);
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => {
                bytes = rest;
                (name, value.to_owned())
            }
            None => {
                let (length, rest) = rest.split_first_chunk::<8>().context("no length")?;
                let length = usize::try_from(u64::from_le_bytes(*length))?;
                ensure!(
                    rest.get(length) == Some(&b'\n'),
                    "the value of the journal field {line} does not have the length that precedes it"
                );
                bytes = &rest[length + 1..];
                (line, std::str::from_utf8(&rest[..length])?.to_owned())
            }
        };
        let is_legal = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        ensure!(name.chars().all(is_legal) && !name.starts_with('_'), "journald drops the field {name:?}");
        entry.entry(name.to_owned()).or_insert(value);
    }
    Ok(entry)
}

fn field<'a>(entry: &'a Entry, name: &str) -> &'a str {
    entry.get(name).map_or("", String::as_str)
}

#[test]
fn the_journal_gets_messages_with_their_fields() -> Result<()> {
    let Some(daemon) = JournalDaemon::start(CHANNEL, "/proc/self/fd/2")? else { return Ok(()) };
    let of_source = daemon.until(|entry| field(entry, "TAILWATER_SOURCE") == "orders")?;
    ensure!(field(&of_source, "SYSLOG_IDENTIFIER") == "tailwater", "{of_source:?}");
    ensure!(field(&of_source, "CODE_FILE").ends_with(".rs"), "{of_source:?}");
    let of_channel = daemon.until(|entry| {
        field(entry, "TAILWATER_CHANNEL") == "reports" && field(entry, "TAILWATER_CODE").starts_with("TW-")
    })?;
    ensure!(field(&of_channel, "PRIORITY") == "4", "a warning has another priority: {of_channel:?}");
    ensure!(field(&of_channel, "MESSAGE").contains("127.0.0.1"), "{of_channel:?}");
    let lines = daemon.lines()?;
    ensure!(lines.is_empty(), "messages are also on standard error: {lines}");
    Ok(())
}

/// If the output of the daemon is redirected, it is lines, although the variable is set.
#[test]
fn a_redirected_daemon_writes_lines() -> Result<()> {
    let Some(daemon) = JournalDaemon::start("", "/dev/null")? else { return Ok(()) };
    let started = Instant::now();
    let is_json = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).is_ok_and(|message| message["message"].is_string())
    };
    while !daemon.lines()?.lines().any(is_json) {
        ensure!(started.elapsed() < PATIENCE, "no message is a line of JSON: {}", daemon.lines()?);
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut buffer = [0; 1];
    ensure!(daemon.journal.recv(&mut buffer).is_err(), "the journal got an entry");
    Ok(())
}

#[test]
fn the_format_can_be_chosen() -> Result<()> {
    let text = "[messages]\nformat = \"text\"\n";
    let Some(daemon) = JournalDaemon::start(text, "/proc/self/fd/2")? else { return Ok(()) };
    let started = Instant::now();
    while !daemon.lines()?.contains(" WARN capture{source=orders}: ") {
        ensure!(started.elapsed() < PATIENCE, "no message is a line of text: {}", daemon.lines()?);
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(!daemon.lines()?.contains('\u{1b}'), "colours in a file");
    drop(daemon);

    let journal = "[messages]\nformat = \"journal\"\n";
    let Some(daemon) = JournalDaemon::start(journal, "/dev/null")? else { return Ok(()) };
    daemon.until(|entry| field(entry, "TAILWATER_SOURCE") == "orders")?;
    drop(daemon);
    // Without a journal.
    let daemon = ApiDaemon::prepare(journal)?;
    if !Path::new("/run/systemd/journal/socket").exists() {
        let refused = daemon.shell.run("run -c tailwater.toml")?.exits(78);
        refused.stderr_has(&["messages.format = \"journal\": the journal cannot be reached"]);
    }
    let wrong = ApiDaemon::prepare("[messages]\nformat = \"syslog\"\n")?;
    wrong.shell.run("config check -c tailwater.toml")?.exits(1).stderr_has(&[
        "TW-CFG-0002",
        "format",
        "journal",
    ]);
    Ok(())
}
