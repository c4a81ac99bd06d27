//! `tailwater config`

use std::collections::BTreeMap;

use tailwater_log::AckMode;

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
            println!("log: {}", config.log.directory.display());
            for capture in wiring::captures(&config)? {
                let connect = &capture.connect;
                println!(
                    "source {}: {} as {}, server_id {}, ack = {}",
                    capture.name,
                    connect.endpoint,
                    connect.user,
                    capture.server_id,
                    match capture.log.ack {
                        AckMode::Durable => "durable",
                        AckMode::Received => "received",
                    }
                );
            }
        }
        Output::Json => {
            let sources: Vec<_> = config.sources.iter().map(|source| &source.name).collect();
            let acks: BTreeMap<_, _> =
                config.sources.iter().map(|source| (&source.name, config.log.ack_of(source))).collect();
            println!("{}", serde_json::json!({ "ok": true, "sources": sources, "ack": acks }));
        }
    }
    Ok(Exit::Done)
}
