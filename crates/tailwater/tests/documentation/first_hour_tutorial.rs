//! Runs the code blocks of docs/first-hour.md unchanged, one after the other in one shell, and compares their
//! output with the page.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{ChildProcess, ReservedPort, ServerKind};

use super::markdown::{CodeBlock, code_blocks, workspace};
use crate::shell_session::PROGRAM;

/// Time limit for all blocks of the page. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(300);
/// Start of the line that is printed before the output of each block.
const MARK: &str = "@@ block at line ";

/// Returns the blocks that a reader with this server pastes, and the output that the page shows.
fn blocks_for(page: &str, server: &str) -> Vec<CodeBlock> {
    // Another test runs the block `package` in a clean system. The block `packages` installs server programs;
    // this test provides wrapper scripts for them instead.
    let is_left_out = |label: &String| {
        ["package", "packages"].contains(&label.as_str())
            || (["mariadb", "mysql"].contains(&label.as_str()) && label != server)
    };
    code_blocks(page).into_iter().filter(|block| !block.labels.iter().any(is_left_out)).collect()
}

/// Returns the parts of a line that are the same in each run of the page. Numbers, GTIDs and the width of
/// columns differ between runs.
fn comparable(line: &str) -> String {
    let mut text = String::new();
    for word in line.split_whitespace() {
        // The UUID of a MySQL server.
        let is_hex = |letter: char| letter.is_ascii_hexdigit() || letter == '-';
        let uuid =
            word.get(..36).filter(|start| start.matches('-').count() == 4 && start.chars().all(is_hex));
        let word = uuid.map_or(word.to_owned(), |uuid| word.replacen(uuid, "0", 1));
        let mut previous = ' ';
        for letter in word.chars() {
            // A digit that is part of a name, such as db1, is the same in each run.
            let is_number = letter.is_ascii_digit() && !previous.is_alphabetic();
            if !(is_number && text.ends_with('0')) {
                text.push(if is_number { '0' } else { letter });
            }
            previous = if letter.is_ascii_digit() && previous.is_alphabetic() { previous } else { letter };
        }
        text.push(' ');
    }
    text.trim_end().to_owned()
}

/// Whether a line of output is the line of the page; `...` within a line matches any text.
fn is_same(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (comparable(shown), comparable(printed));
    let Some((start, rest)) = shown.split_once("...") else { return shown == printed };
    let Some(mut printed) = printed.strip_prefix(start.trim_end()) else { return false };
    let mut parts = rest.split("...").map(str::trim).peekable();
    while let Some(part) = parts.next() {
        let found = if parts.peek().is_none() { printed.ends_with(part) } else { printed.contains(part) };
        if !found {
            return false;
        }
        printed = printed.split_once(part).map_or("", |(_, rest)| rest);
    }
    true
}

/// Fails unless the lines that the page shows were printed, in that order.
fn compare(block: &CodeBlock, printed: &str) -> Result<()> {
    let mut lines = printed.lines();
    for shown in block.text.lines().filter(|line| line.trim() != "..." && !line.trim().is_empty()) {
        let found = lines.any(|line| is_same(shown, line));
        ensure!(
            found,
            "line {}: {shown:?} was not printed (after the lines before it):\n{printed}",
            block.line
        );
    }
    Ok(())
}

/// Returns a script that runs the blocks, and prints a line with the block's position before each block.
fn script(blocks: &[CodeBlock]) -> String {
    let blocks = blocks.iter().filter(|block| block.language == "sh");
    // A reader stops at a command that fails, and so does the script.
    let start = "set -eo pipefail\n".to_owned();
    blocks.fold(start, |script, block| script + &format!("echo '{MARK}{}'\n{}", block.line, block.text))
}

/// Returns what the block at a line has printed.
fn printed_by(line: usize, output: &str) -> Option<&str> {
    let (_, rest) = output.split_once(&format!("{MARK}{line}\n"))?;
    Some(rest.split_once(MARK).map_or(rest, |(own, _)| own))
}

async fn follow_the_page(kind: ServerKind) -> Result<()> {
    let Some(install) = tailwater_sandbox::require(kind) else { return Ok(()) };
    let page = std::fs::read_to_string(workspace().join("docs/first-hour.md"))?;
    let blocks = blocks_for(&page, kind.client());
    ensure!(
        blocks.iter().filter(|block| block.language == "sh").count() >= 12,
        "the page has too few shell blocks: {blocks:#?}"
    );

    let folder = tempfile::tempdir()?;
    let programs = install.write_wrappers(folder.path())?;
    std::os::unix::fs::symlink(PROGRAM, programs.join("tailwater"))?;
    let (script_file, output) = (folder.path().join("script"), folder.path().join("output"));
    std::fs::write(&script_file, script(&blocks))?;
    let ports = (0..4).map(|_| ReservedPort::pick()).collect::<Result<Vec<_>, _>>()?;
    let mut environment =
        vec![("HOME".into(), folder.path().into()), ("PATH".into(), with_first(&programs)?)];
    for (name, port) in ["DB1", "DB2", "DB3", "LOG"].into_iter().zip(&ports) {
        environment.push((name.into(), port.number().to_string().into()));
    }
    let mut shell = ChildProcess::start_with("bash", [&script_file], environment, &output)?;
    let ended = shell.wait(PATIENCE).await;
    let output = std::fs::read_to_string(&output)?;
    let logs = || {
        let log = std::fs::read_to_string(folder.path().join("first-hour/tailwater.log")).unwrap_or_default();
        format!("{output}\ntailwater.log:\n{log}")
    };
    let status = ended.with_context(logs)?;
    ensure!(status.success(), "the script of the page ended with {status}: {}", logs());

    let mut last = 0;
    for block in blocks {
        match block.language.as_str() {
            "sh" => last = block.line,
            // The text before the first shell block is a diagram, not an output.
            "text" if last > 0 => {
                compare(&block, printed_by(last, &output).context("the block has printed nothing")?)?
            }
            _ => {}
        }
    }
    ensure!(
        !folder.path().join("first-hour").exists(),
        "the folder of the page still exists after its last block"
    );
    Ok(())
}

fn with_first(folder: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").context("PATH is not set")?;
    Ok(std::env::join_paths(std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path)))?)
}

#[tokio::test]
async fn the_first_hour_works_on_mariadb() -> Result<()> {
    follow_the_page(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn the_first_hour_works_on_mysql() -> Result<()> {
    follow_the_page(ServerKind::Mysql97).await
}

#[test]
fn output_is_compared_except_for_numbers() {
    assert!(is_same("shop  streaming 1:325 in step", "shop streaming  12:9 in step"));
    assert!(!is_same("shop streaming", "shop waiting"));
    assert!(is_same("db1 primary ..., semi-sync", "db1  primary  127.0.0.1:5, mysql, semi-sync"));
    assert!(!is_same("db1 primary ...", "db1 replica ..."));
    assert!(!is_same("db1 is primary", "db2 is primary"));
    assert!(is_same(
        "GTIDs 3f0c8b94-e6dd-11f1-89cf-02fc00000001:1-4",
        "GTIDs 6f0c8b94-e6dd-11f1-89cf-02fc00000001:1-30"
    ));
    let block =
        CodeBlock { line: 1, language: "text".into(), labels: Vec::new(), text: "a 1\n...\nb 2\n".into() };
    assert!(compare(&block, "a 7\nx\nb 3\n").is_ok());
    assert!(compare(&block, "b 3\na 7\n").is_err());
}
