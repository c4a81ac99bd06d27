//! `tailwater config`

use crate::cli::{ConfigCommand, Output};
use crate::config::Config;
use crate::exit::Exit;
use crate::wiring;

/// Runs `tailwater config ...`.
///
/// # Errors
/// [`crate::config::ConfigError`], if the file has one.
pub fn config(command: &ConfigCommand, output: Output) -> anyhow::Result<Exit> {
    let ConfigCommand::Check(file) = command;
    let config = Config::load(&file.config)?;
    match output {
        Output::Text => {
            println!("{}: good", file.config.display());
            println!("log: {} (ack = {:?})", config.log.directory.display(), config.log.ack);
            for capture in wiring::captures(&config)? {
                let connect = &capture.connect;
                println!(
                    "source {}: {} as {:?}, server_id {}",
                    capture.name, connect.endpoint, connect.user, capture.server_id
                );
            }
        }
        Output::Json => {
            let sources: Vec<_> = config.sources.iter().map(|source| &source.name).collect();
            println!("{}", serde_json::json!({ "ok": true, "sources": sources }));
        }
    }
    Ok(Exit::Done)
}
