//! `tailwater sandbox`

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use serde_json::json;
use tailwater_sandbox::background_servers::{self, DetachedRole, DetachedServer, StopMode, UpSpec};
use tailwater_sandbox::install::InstallProgress;
use tailwater_sandbox::{Cache, ServerKind};
use tailwater_wire::Flavour;

use crate::arguments::{SandboxCommand, ServerFamily};
use crate::demo::choose_server;
use crate::fault_trial::ensure_installed;

/// Runs `tailwater sandbox ...` and prints the result, as JSON if `as_json` is true, otherwise as text.
///
/// # Errors
/// If a server cannot be downloaded, started or stopped.
pub async fn sandbox(command: &SandboxCommand, as_json: bool) -> anyhow::Result<()> {
    let cache = Cache::locate()?;
    let mut out = io::stdout().lock();
    match command {
        SandboxCommand::Install { server } => {
            for kind in ServerKind::ALL {
                let wanted = server.is_none_or(|family| family_of(kind) == family);
                if wanted {
                    let install = ensure_installed(kind)?;
                    match as_json {
                        false => writeln!(out, "{kind}: {}", install.root().display())?,
                        true => {
                            writeln!(out, "{}", json!({ "server": kind.name(), "root": install.root() }))?;
                        }
                    }
                }
            }
        }
        SandboxCommand::Up { server, series, count, port, semi_sync, options } => {
            let spec = UpSpec {
                kind: choose_server(*server, series.as_deref())?,
                count: *count,
                port: *port,
                semi_sync: *semi_sync,
                options: options.clone(),
            };
            let started = background_servers::up(&cache, &spec, print_progress).await;
            let servers = started.context(
                "cannot start all servers (those that started before the failure keep running: `tailwater sandbox down` stops them)",
            )?;
            for server in &servers {
                print_server(&mut out, server, as_json)?;
            }
            if let (Some(config), false) = (servers.first().and_then(|first| first.config.as_ref()), as_json)
            {
                print_config(&mut out, config)?;
            }
        }
        SandboxCommand::Stop { names } => {
            for server in background_servers::stop(&cache, names, StopMode::Shutdown).await? {
                print_ended(&mut out, &server, "stopped", as_json)?;
            }
        }
        SandboxCommand::Kill { names } => {
            for server in background_servers::stop(&cache, names, StopMode::Kill).await? {
                print_ended(&mut out, &server, "killed", as_json)?;
            }
        }
        SandboxCommand::Start { names } => {
            for server in background_servers::start(&cache, names).await? {
                print_server(&mut out, &server, as_json)?;
            }
        }
        SandboxCommand::List => {
            let servers = background_servers::list(&cache)?;
            if servers.is_empty() && !as_json {
                writeln!(out, "no servers: `tailwater sandbox up --server mariadb` starts one")?;
            }
            for server in &servers {
                print_server(&mut out, server, as_json)?;
            }
        }
        SandboxCommand::Down { names } => {
            for server in background_servers::down(&cache, names).await? {
                print_ended(&mut out, &server, "stopped, and its data was deleted", as_json)?;
            }
        }
    }
    Ok(())
}

/// Prints the progress of a download.
fn print_progress(progress: InstallProgress) {
    // Byte counts arrive ten times a second and are not printed. Only the start and the end of a download are
    // printed.
    if !matches!(progress, InstallProgress::Downloaded { .. }) {
        eprintln!("{progress}");
    }
}

/// Prints the path of the cluster's configuration, and the commands that use it.
fn print_config(out: &mut impl Write, config: &Path) -> anyhow::Result<()> {
    let path = config.display();
    let text = std::fs::read_to_string(config).with_context(|| format!("cannot read {path}"))?;
    writeln!(out, "\n# {path}\n{text}")?;
    writeln!(out, "# Commits wait until this command runs: tailwater run -c {path}")?;
    writeln!(out, "# Then: tailwater manager status -c {path}")?;
    Ok(())
}

fn print_ended(
    out: &mut impl Write,
    server: &DetachedServer,
    what: &str,
    as_json: bool,
) -> anyhow::Result<()> {
    match as_json {
        false => writeln!(out, "{}: {what}", server.name)?,
        true => writeln!(out, "{}", json!({ "name": server.name, "running": false }))?,
    }
    Ok(())
}

fn print_server(out: &mut impl Write, server: &DetachedServer, as_json: bool) -> anyhow::Result<()> {
    let running = server.is_running();
    if as_json {
        let commands: serde_json::Map<_, _> =
            server.commands().into_iter().map(|(what, command)| (what.to_owned(), command.into())).collect();
        let mut line = serde_json::to_value(server)?;
        line["running"] = running.into();
        line["commands"] = commands.into();
        writeln!(out, "{line}")?;
        return Ok(());
    }
    let role = match server.role {
        DetachedRole::Standalone => "",
        DetachedRole::Source => ", semi-sync source: commits wait for an acknowledgement",
        DetachedRole::Replica => ", replica that may become the source",
    };
    let state = if running { "" } else { " (not running: `tailwater sandbox start` starts it again)" };
    writeln!(out, "{}: {} on 127.0.0.1:{}{role}{state}", server.name, server.version, server.port)?;
    for (what, command) in server.commands() {
        writeln!(out, "  {:<12} {command}", format!("{what}:"))?;
    }
    writeln!(out, "  {:<12} {}", "data:", server.data.display())?;
    if let Some(config) = &server.config {
        writeln!(out, "  {:<12} {}", "tailwater:", config.display())?;
    }
    Ok(())
}

fn family_of(kind: ServerKind) -> ServerFamily {
    match kind.flavour() {
        Flavour::MySql => ServerFamily::Mysql,
        Flavour::MariaDb => ServerFamily::Mariadb,
    }
}
