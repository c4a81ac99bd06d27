//! `tailwater sandbox`

use std::io::{self, Write};

use anyhow::Context;
use serde_json::json;
use tailwater_sandbox::install::Progress;
use tailwater_sandbox::standing::{self, Role, StandingServer, UpSpec};
use tailwater_sandbox::{Cache, ServerKind};
use tailwater_wire::Flavour;

use crate::cli::{Output, SandboxCommand, ServerFamily};
use crate::demo::choose_server;
use crate::exit::Exit;
use crate::trial::provide;

/// Runs `tailwater sandbox ...`.
///
/// # Errors
/// If a server cannot be fetched, started or stopped.
pub async fn sandbox(command: &SandboxCommand, output: Output) -> anyhow::Result<Exit> {
    let cache = Cache::locate()?;
    let mut out = io::stdout().lock();
    match command {
        SandboxCommand::Install { server } => {
            for kind in ServerKind::ALL {
                let wanted = server.is_none_or(|family| family_of(kind) == family);
                if wanted {
                    let install = provide(kind)?;
                    match output {
                        Output::Text => writeln!(out, "{kind}: {}", install.root().display())?,
                        Output::Json => {
                            writeln!(out, "{}", json!({ "server": kind.name(), "root": install.root() }))?;
                        }
                    }
                }
            }
        }
        SandboxCommand::Up { server, series, count, semi_sync, options } => {
            let spec = UpSpec {
                kind: choose_server(*server, series.as_deref())?,
                count: *count,
                semi_sync: *semi_sync,
                options: options.clone(),
            };
            let started = standing::up(&cache, &spec, tell).await;
            let servers = started.context(
                "start the servers (those before the one that failed go on: `tailwater sandbox down` ends them)",
            )?;
            for server in &servers {
                print_server(&mut out, server, output)?;
            }
        }
        SandboxCommand::List => {
            let servers = standing::list(&cache)?;
            if servers.is_empty() && output == Output::Text {
                writeln!(out, "no servers: `tailwater sandbox up --server mariadb` starts one")?;
            }
            for server in &servers {
                print_server(&mut out, server, output)?;
            }
        }
        SandboxCommand::Down { names } => {
            for server in standing::down(&cache, names).await? {
                match output {
                    Output::Text => writeln!(out, "{}: stopped, its data removed", server.name)?,
                    Output::Json => writeln!(out, "{}", json!({ "name": server.name, "running": false }))?,
                }
            }
        }
    }
    Ok(Exit::Done)
}

/// What goes on while a server is fetched, for people.
fn tell(progress: Progress) {
    // Bytes trickle in ten times a second; what is fetched, and that it is done, is told anyway.
    if !matches!(progress, Progress::Downloaded { .. }) {
        eprintln!("{progress}");
    }
}

fn print_server(out: &mut impl Write, server: &StandingServer, output: Output) -> anyhow::Result<()> {
    let running = server.is_running();
    if output == Output::Json {
        let commands: serde_json::Map<_, _> =
            server.commands().into_iter().map(|(what, command)| (what.to_owned(), command.into())).collect();
        let mut line = serde_json::to_value(server)?;
        line["running"] = running.into();
        line["commands"] = commands.into();
        writeln!(out, "{line}")?;
        return Ok(());
    }
    let role = match server.role {
        Role::Standalone => "",
        Role::Source => ", semi-sync source: its commits wait for an acknowledgement",
        Role::Replica => ", semi-sync replica",
    };
    let state = if running { "" } else { " (its process is gone)" };
    writeln!(out, "{}: {} on 127.0.0.1:{}{role}{state}", server.name, server.version, server.port)?;
    for (what, command) in server.commands() {
        writeln!(out, "  {:<12} {command}", format!("{what}:"))?;
    }
    writeln!(out, "  {:<12} {}", "data:", server.data.display())?;
    Ok(())
}

fn family_of(kind: ServerKind) -> ServerFamily {
    match kind.flavour() {
        Flavour::MySql => ServerFamily::Mysql,
        Flavour::MariaDb => ServerFamily::Mariadb,
    }
}
