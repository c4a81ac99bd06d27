//! `tailwater sandbox`

use anyhow::bail;
use tailwater_sandbox::ServerKind;

use crate::cli::{Output, SandboxCommand, ServerFamily};
use crate::exit::Exit;
use crate::trial::provide;
use tailwater_wire::Flavour;

/// Runs `tailwater sandbox ...`.
///
/// # Errors
/// If a server cannot be fetched, started or stopped.
pub async fn sandbox(command: &SandboxCommand, output: Output) -> anyhow::Result<Exit> {
    match command {
        SandboxCommand::Install { server } => {
            for kind in ServerKind::ALL {
                let wanted = server.is_none_or(|family| family_of(kind) == family);
                if wanted {
                    let install = provide(kind)?;
                    match output {
                        Output::Text => println!("{kind}: {}", install.root().display()),
                        Output::Json => {
                            println!(
                                "{}",
                                serde_json::json!({ "server": kind.name(), "root": install.root() })
                            );
                        }
                    }
                }
            }
            Ok(Exit::Done)
        }
        _ => bail!("later"),
    }
}

fn family_of(kind: ServerKind) -> ServerFamily {
    match kind.flavour() {
        Flavour::MySql => ServerFamily::Mysql,
        Flavour::MariaDb => ServerFamily::Mariadb,
    }
}
