//! Turns configuration into what the rooms take.

mod serve;

use std::time::Duration;

use tailwater_log::{AckMode, LogOptions, Retention};
use tailwater_relay::CaptureOptions;
use tailwater_relay::resume::StartPolicy;
use tailwater_session::option_file::{ClientOptions, OptionSources};
use tailwater_session::{ConnectOptions, TlsMode};

pub use serve::{served, serves};

use crate::config::{AckConfig, Config, LogConfig, SourceConfig, StartConfig, TlsConfig};

/// One capture per source of the configuration.
///
/// # Errors
/// If an option file that holds a source's credentials cannot be read.
pub fn captures(config: &Config) -> anyhow::Result<Vec<CaptureOptions>> {
    let log = log_options(&config.log);
    let capture = |source: &SourceConfig| {
        Ok(CaptureOptions {
            name: source.name.clone(),
            connect: connect_options(source)?,
            server_id: source.server_id,
            semi_sync: source.semi_sync,
            start: start_policy(&source.start),
            heartbeat: Duration::from_millis(source.heartbeat_ms),
            watch_interval: Duration::from_millis(source.watch_ms),
            directory: config.log.directory.join(&source.name),
            log: log.clone(),
        })
    };
    config.sources.iter().map(capture).collect()
}

fn log_options(config: &LogConfig) -> LogOptions {
    LogOptions {
        ack: match config.ack {
            AckConfig::Durable => AckMode::Durable,
            AckConfig::Received => AckMode::Received,
        },
        preallocate_bytes: config.preallocate_bytes,
        retention: Retention {
            time_max: config.retention_hours_max.map(|hours| Duration::from_secs(hours.saturating_mul(3600))),
            bytes_max: config.retention_bytes_max,
        },
        ..LogOptions::default()
    }
}

fn start_policy(start: &StartConfig) -> StartPolicy {
    match start {
        StartConfig::Current => StartPolicy::Current,
        StartConfig::Oldest => StartPolicy::Oldest,
        StartConfig::Position { file, position } => {
            StartPolicy::Position { file: file.clone(), position: *position }
        }
    }
}

/// What the configuration says beats what the option file and the environment say.
fn connect_options(source: &SourceConfig) -> anyhow::Result<ConnectOptions> {
    let sources = OptionSources { defaults_file: source.defaults_file.clone(), groups: Vec::new() };
    let mut options = sources.load()?;
    options.override_with(ClientOptions {
        host: source.host.clone(),
        port: source.port,
        socket: source.socket.clone(),
        user: source.user.clone(),
        tls_mode: source.tls.map(|mode| match mode {
            TlsConfig::Off => TlsMode::Off,
            TlsConfig::Preferred => TlsMode::Preferred,
            TlsConfig::Required => TlsMode::Required,
            TlsConfig::VerifyCa => TlsMode::VerifyCa,
            TlsConfig::VerifyFull => TlsMode::VerifyFull,
        }),
        tls_ca: source.tls_ca.clone(),
        ..ClientOptions::default()
    });
    Ok(options.connect_options())
}
