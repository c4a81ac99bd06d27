//! The files that packages need: completion scripts, manual pages and the default configuration.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tailwater::arguments::Cli;

use crate::shell_session::Shell;

/// Returns the visible subcommands of a command, with their full names.
fn subcommands(command: &clap::Command, prefix: &str) -> Vec<(String, clap::Command)> {
    let visible = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
    visible
        .flat_map(|one| {
            let name = format!("{prefix}-{}", one.get_name());
            let below = subcommands(one, &name);
            std::iter::once((name, one.clone())).chain(below)
        })
        .collect()
}

#[test]
fn every_command_has_a_manual_page() -> Result<()> {
    let shell = Shell::new()?;
    shell.run("man pages/man1")?.exits(0).says(&["manual pages are in pages/man1"]);
    let folder = shell.path().join("pages/man1");
    let root = Cli::definition();
    let mut all = subcommands(&root, "tailwater");
    all.push(("tailwater".to_owned(), root));
    ensure!(all.len() > 50, "clap knows only {} commands", all.len());
    let expected: BTreeSet<String> = all.iter().map(|(name, _)| format!("{name}.1")).collect();
    let written = std::fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.file_name()));
    let written = written.collect::<Result<Vec<_>, _>>()?;
    let written = written.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    assert_eq!(expected, written);
    for (name, command) in &all {
        let page = std::fs::read_to_string(folder.join(format!("{name}.1")))?;
        ensure!(
            page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"),
            "the page {name} has no NAME or SYNOPSIS section: {page}"
        );
        for option in
            command.get_arguments().filter(|one| !one.is_hide_set()).filter_map(|one| one.get_long())
        {
            let shown = format!("\\-\\-{}", option.replace('-', "\\-"));
            ensure!(page.contains(&shown), "the page {name} does not explain --{option}: {page}");
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        ensure!(!about.is_empty(), "{name} has no description");
    }
    let written = shell.run("man other --output json")?.exits(0).json()?;
    ensure!(
        written[0]["pages"].as_array().is_some_and(|pages| pages.len() == all.len()),
        "the number of manual pages is wrong: {written:?}"
    );
    shell.write("file", "")?;
    shell.run("man file/man1")?.exits(1).stderr_has(&["create file/man1"]);
    has_no_warnings(&folder)
}

/// Checks that the program that formats manual pages accepts all pages. A machine without that program skips
/// the check.
fn has_no_warnings(folder: &std::path::Path) -> Result<()> {
    if Command::new("groff").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let page = entry?.path();
        let ran = Command::new("groff").args(["-man", "-ww", "-Tutf8", "-z"]).arg(&page).output()?;
        let warnings = String::from_utf8_lossy(&ran.stderr);
        ensure!(
            ran.status.success() && warnings.is_empty(),
            "man reports warnings for {}: {warnings}",
            page.display()
        );
    }
    Ok(())
}

/// Bash accepts the script, and completes commands and options with it.
#[test]
fn bash_completes_commands() -> Result<()> {
    let shell = Shell::new()?;
    let script = shell.run("completions bash")?.exits(0).text();
    shell.write("tailwater.bash", &script)?;
    shell.bash("bash -n tailwater.bash")?.exits(0);
    let complete = |words: &str| -> Result<BTreeSet<String>> {
        let mut all: Vec<&str> = words.split(' ').collect();
        let last = all.len() - 1;
        let (current, previous) = (all[last], all[last - 1]);
        all[last] = if current == "_" { "" } else { current };
        let quoted: Vec<String> = all.iter().map(|word| format!("'{word}'")).collect();
        let line = format!(
            "source tailwater.bash; COMP_WORDS=({}); COMP_CWORD={last}; \
             _tailwater tailwater '{}' '{previous}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            quoted.join(" "),
            all[last]
        );
        Ok(shell.bash(&line)?.exits(0).text().lines().map(str::to_owned).collect())
    };
    let commands = complete("tailwater _")?;
    for command in Cli::definition().get_subcommands().filter(|one| !one.is_hide_set()) {
        ensure!(
            commands.contains(command.get_name()),
            "bash does not complete the command {}: {commands:?}",
            command.get_name()
        );
    }
    assert_eq!(complete("tailwater stat")?, BTreeSet::from(["status".to_owned()]));
    ensure!(complete("tailwater channel s")?.contains("skip"));
    assert_eq!(complete("tailwater dump --form")?, BTreeSet::from(["--format".to_owned()]));
    ensure!(complete("tailwater status --output _")?.contains("json"));
    for other in ["zsh", "fish"] {
        shell.run(&format!("completions {other}"))?.exits(0).says(&["tailwater", "status", "channel"]);
    }
    shell.run("completions csh")?.exits(2).stderr_has(&["[possible values: bash, zsh, fish]"]);
    Ok(())
}

#[test]
fn the_default_configuration_is_printed_and_accepted() -> Result<()> {
    let shell = Shell::new()?;
    let text = shell.run("config default")?.exits(0).text();
    ensure!(
        text.contains("\n[[source]]\n") && text.contains("\n#[manager]\n"),
        "the default configuration lacks [[source]] or a comment with [manager]: {text}"
    );
    // Uses the file as its comments explain, with a server that refuses connections at once.
    shell
        .bash("tailwater config default | sed 's/^host = .*/host = \"127.0.0.1\"\\nport = 1/' > new.toml")?;
    let checked = shell.run("config check -c new.toml")?.exits(0);
    checked.says(&[
        "new.toml: good",
        "/var/lib/tailwater/log",
        "source orders",
        "server_id 4201",
        "ack = durable",
    ]);
    let json = shell.run("config default --output json")?.exits(0).json()?;
    assert_eq!(json[0]["toml"].as_str().context("the answer has no TOML text")?, text);
    shell.bash("tailwater config default | head -1")?.exits(0).says(&["# Tailwater"]);
    Ok(())
}

#[test]
fn the_error_for_a_misspelled_key_suggests_the_nearest_key() -> Result<()> {
    let shell = Shell::new()?;
    let source = "[log]\ndirectory = \"log\"\n[[source]]\nname = \"orders\"\nhost = \"127.0.0.1\"\nport = 1\nserver_id = 4201\n";
    for (line, complaints) in [
        ("hartbeat_ms = 500", ["line 8", "unknown field `hartbeat_ms`", "did you mean `heartbeat_ms`?"]),
        ("ssl_ca = \"ca.pem\"", ["line 8", "unknown field `ssl_ca`", "did you mean `tls_ca`?"]),
        ("tls = \"require\"", ["line 8", "unknown variant `require`", "did you mean `required`?"]),
        ("[mangaer]", ["line 8", "unknown field `mangaer`", "did you mean `manager`?"]),
        ("archive = \"s3://b\"", ["line 8", "unknown field `archive`", "`archive` is a key of [log]"]),
    ] {
        shell.write("wrong.toml", &format!("{source}{line}\n"))?;
        let ran = shell.run("config check -c wrong.toml")?.exits(1);
        ran.stderr_has(&["TW-CFG-0002"]).stderr_has(&complaints);
    }
    shell.write("wrong.toml", &format!("{source}retries = 3\n"))?;
    let ran = shell.run("config check -c wrong.toml")?.exits(1);
    ensure!(
        !ran.errors().contains("did you mean"),
        "a key without a similar name got a suggestion: {}",
        ran.errors()
    );
    Ok(())
}
