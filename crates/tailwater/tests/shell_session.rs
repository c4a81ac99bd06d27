//! A helper for tests that read like shell sessions: a folder, command lines of the program, and the expected
//! output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_tailwater");

/// Returns the program that tests start and kill before the program under test continues its work. If
/// `TAILWATER_EARLIER_BUILD` names an earlier build, this is the earlier build, so each of these tests also
/// tests an upgrade. Otherwise it is the program under test.
pub fn earlier_program() -> PathBuf {
    std::env::var_os(EARLIER_BUILD).map_or_else(|| PROGRAM.into(), PathBuf::from)
}

/// Environment variable with the path of an earlier build.
pub const EARLIER_BUILD: &str = "TAILWATER_EARLIER_BUILD";

/// A folder in which the program runs.
pub struct Shell {
    folder: TempDir,
    environment: Vec<(&'static str, PathBuf)>,
}

impl Shell {
    pub fn new() -> Result<Self> {
        Ok(Self { folder: tempfile::tempdir()?, environment: Vec::new() })
    }

    pub fn set(&mut self, name: &'static str, value: PathBuf) {
        self.environment.push((name, value));
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        std::fs::write(self.path().join(name), text).context(name.to_owned())
    }

    /// Runs `tailwater` in the folder with these arguments, separated by spaces.
    pub fn run(&self, words: &str) -> Result<Ran> {
        self.finish(Command::new(PROGRAM).args(words.split_whitespace()), words)
    }

    /// Runs a shell command in which the word `tailwater` runs the program under test.
    pub fn bash(&self, line: &str) -> Result<Ran> {
        let script = format!("set -o pipefail; tailwater() {{ '{PROGRAM}' \"$@\"; }}; {line}");
        self.finish(Command::new("bash").arg("-c").arg(script), line)
    }

    fn finish(&self, command: &mut Command, words: &str) -> Result<Ran> {
        let command = command.current_dir(self.path()).envs(self.environment.iter().cloned());
        let output = command.output().with_context(|| words.to_owned())?;
        Ok(Ran { words: words.to_owned(), output })
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    words: String,
    output: Output,
}

impl Ran {
    pub fn bytes(&self) -> &[u8] {
        &self.output.stdout
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Parses standard output as one JSON object per line.
    pub fn json(&self) -> Result<Vec<Value>> {
        let lines = self.text();
        let parse = |line: &str| {
            serde_json::from_str(line).with_context(|| {
                format!("{}: standard output has a line that is not JSON: {line}", self.words)
            })
        };
        lines.lines().map(parse).collect()
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.output.status.code(),
            Some(code),
            "{}: {}{}",
            self.words,
            self.errors(),
            self.start()
        );
        self
    }

    /// Checks that standard output contains each of these texts.
    #[track_caller]
    pub fn says(self, all: &[&str]) -> Self {
        let text = self.text();
        for wanted in all {
            assert!(
                text.contains(wanted),
                "{}: standard output does not contain {wanted:?}: {}",
                self.words,
                self.start()
            );
        }
        self
    }

    /// Checks that standard error contains each of these texts.
    #[track_caller]
    pub fn stderr_has(self, all: &[&str]) -> Self {
        let text = self.errors();
        for wanted in all {
            assert!(
                text.contains(wanted),
                "{}: standard error does not contain {wanted:?}: {text}",
                self.words
            );
        }
        self
    }

    /// Checks that standard output contains none of these texts.
    #[track_caller]
    pub fn stdout_lacks(self, all: &[&str]) -> Self {
        let text = self.text();
        for unwanted in all {
            assert!(
                !text.contains(unwanted),
                "{}: standard output contains {unwanted:?}, which is not expected",
                self.words
            );
        }
        self
    }

    fn start(&self) -> String {
        self.text().chars().take(4000).collect()
    }
}
