//! Turns configuration into what the rooms take.

pub mod applied_progress;
mod channel;
mod serve;
mod topology;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tailwater_log::{AckMode, Archive, ArchiveStore, LogError, LogOptions, Retention};
use tailwater_relay::CaptureOptions;
use tailwater_relay::resume::StartPolicy;
use tailwater_session::option_file::{ClientOptions, OptionSources};
use tailwater_session::{ConnectOptions, TlsMode};

pub use channel::channels;
pub(crate) use serve::first_line;
pub use serve::{served, serves};
pub use topology::{
    ClusterWiring, ask_daemon, ask_readiness, cluster_led_by, clusters, observe, other_state, put_states,
};

use crate::archiver::{Job, Schedule};
use crate::config::{AckConfig, Config, LogConfig, ServerAddress, SourceConfig, StartConfig, TlsConfig};
use crate::object_archive::{ArchiveAddress, ObjectArchive};

/// One capture per source of the configuration, without its archive: see [`archiving`].
///
/// # Errors
/// If an option file that holds credentials of a source, or of another server of its cluster, cannot be read.
pub fn captures(config: &Config) -> anyhow::Result<Vec<CaptureOptions>> {
    let capture = |source: &SourceConfig| {
        let servers = servers_of(config, source)?;
        Ok(CaptureOptions {
            name: source.name.clone(),
            connect: connect_options(source.server())?,
            server_id: source.server_id,
            semi_sync: source.semi_sync,
            start: start_policy(&source.start),
            heartbeat: Duration::from_millis(source.heartbeat_ms),
            watch_interval: Duration::from_millis(source.watch_ms),
            directory: config.log.directory.join(&source.name),
            log: log_options(&config.log, source),
            // Where there is another server to follow, somebody may order so.
            stays: !servers.is_empty(),
            servers,
        })
    };
    config.sources.iter().map(capture).collect()
}

/// The `[[server]]`s of a source's cluster, by name.
fn servers_of(config: &Config, source: &SourceConfig) -> anyhow::Result<BTreeMap<String, ConnectOptions>> {
    let servers = config.servers.iter().filter(|server| server.source == source.name);
    servers
        .map(|server| {
            let connect = connect_options(server.server());
            let connect = connect.with_context(|| format!("server {}", server.name))?;
            Ok((server.name.clone(), connect))
        })
        .collect()
}

/// The archive of the configuration. Nothing is asked of it yet.
///
/// # Errors
/// If its address makes no sense, or its folder cannot be created.
pub fn archive(config: &Config) -> anyhow::Result<Option<Arc<dyn ArchiveStore>>> {
    let LogConfig { archive, archive_endpoint, archive_region, .. } = &config.log;
    let Some(url) = archive else { return Ok(None) };
    let address = ArchiveAddress {
        url: url.clone(),
        endpoint: archive_endpoint.clone(),
        region: archive_region.clone(),
        path_style: config.log.archive_path_style,
        allow_http: config.log.archive_allow_http,
    };
    let store = ObjectArchive::open(&address);
    let store = store.map_err(|cause| LogError::Archive { action: "open", path: url.into(), cause })?;
    Ok(Some(Arc::new(store)))
}

/// Gives each capture's log its part of the archive, if there is one, and says what is to be archived in the background
/// of them, and how often.
///
/// # Errors
/// As [`archive`].
pub fn archiving(config: &Config, captures: &mut [CaptureOptions]) -> anyhow::Result<(Vec<Job>, Schedule)> {
    let mut jobs = Vec::new();
    if let Some(store) = archive(config)? {
        for capture in captures {
            let archive = Archive::new(Arc::clone(&store), &capture.name);
            capture.log.archive = Some(archive.clone());
            jobs.push(Job { directory: capture.directory.clone(), archive });
        }
    }
    let schedule = Schedule {
        interval: Duration::from_millis(config.log.archive_interval_ms),
        retention: config.log.archive_retention_hours_max.map(hours),
    };
    Ok((jobs, schedule))
}

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours.saturating_mul(3600))
}

fn log_options(config: &LogConfig, source: &SourceConfig) -> LogOptions {
    LogOptions {
        ack: match config.ack_of(source) {
            AckConfig::Durable => AckMode::Durable,
            AckConfig::Received => AckMode::Received,
        },
        preallocate_bytes: config.preallocate_bytes,
        retention: Retention {
            time_max: config.retention_hours_max.map(hours),
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
pub(crate) fn connect_options(server: ServerAddress<'_>) -> anyhow::Result<ConnectOptions> {
    let defaults_file = server.defaults_file.map(Path::to_owned);
    let mut options = OptionSources { defaults_file, groups: Vec::new() }.load()?;
    options.override_with(ClientOptions {
        host: server.host.map(str::to_owned),
        port: server.port,
        socket: server.socket.map(Path::to_owned),
        user: server.user.map(str::to_owned),
        tls_mode: server.tls.map(|mode| match mode {
            TlsConfig::Off => TlsMode::Off,
            TlsConfig::Preferred => TlsMode::Preferred,
            TlsConfig::Required => TlsMode::Required,
            TlsConfig::VerifyCa => TlsMode::VerifyCa,
            TlsConfig::VerifyFull => TlsMode::VerifyFull,
        }),
        tls_ca: server.tls_ca.map(Path::to_owned),
        ..ClientOptions::default()
    });
    Ok(options.connect_options())
}
