//! Converts the configuration to the options of the engines.

mod binlog_server_options;
mod channel_options;
pub mod channel_progress_reader;
mod cluster_topology;
mod receiver_status_from_capture;
mod source_table_columns;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tailwater_apply::ChannelOptions;
use tailwater_binlog_server::{BinlogServer, ServeOptions};
use tailwater_capture::resume_position::StartPolicy;
use tailwater_capture::{CaptureError, CaptureOptions};
use tailwater_log::{AckMode, Archive, ArchiveStore, LogError, LogOptions, Retention};
use tailwater_object_storage::segment_archive::{ArchiveAddress, ObjectArchive};
use tailwater_session::option_file::{ClientOptions, OptionSources};
use tailwater_session::{ConnectOptions, Endpoint, TlsMode};

pub use binlog_server_options::first_line;
pub use binlog_server_options::{served, serves};
pub use channel_options::channels;
pub use cluster_topology::{
    ClusterWiring, ask_daemon, ask_readiness, cluster_led_by, clusters, observe, remote_relay_state,
    set_states,
};
pub use source_table_columns::source_catalogue;

use crate::bearer_token::{NamedToken, read_tokens};
use crate::manager;
use crate::replica_prefetch;
use crate::segment_archiver::{ArchiveJob, ArchiveStatus, Schedule};
use tailwater_config::{
    AckConfig, Config, ConfigError, LogConfig, ServerAddress, SourceConfig, StartConfig, TlsConfig,
};

/// Marks an error of the configuration, or of a file that it names: until the configuration or file is
/// corrected, every start of the daemon ends with the same error. This value is attached as the error's
/// context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigurationRefused;

impl fmt::Display for ConfigurationRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the daemon does not start with this configuration")
    }
}

impl ConfigurationRefused {
    /// Marks an error of [`ResolvedConfig::of`], except an error about a file in the log's folder. Such an
    /// error is not marked, because the disk of this folder is perhaps not mounted yet.
    pub fn mark(error: anyhow::Error) -> anyhow::Error {
        let is_of_log = |cause: &(dyn std::error::Error + 'static)| {
            cause.is::<CaptureError>()
                || cause.downcast_ref().is_some_and(|error| !matches!(error, LogError::Archive { .. }))
        };
        let is_of_log = error.chain().any(is_of_log);
        if is_of_log { error } else { error.context(Self) }
    }
}

/// A configuration together with the files that it names, read before any log is opened or server queried. So
/// `config check` and `run` refuse the same configurations.
#[derive(Debug)]
pub struct ResolvedConfig {
    /// One entry for each `[[source]]`; see [`captures`].
    pub captures: Vec<CaptureOptions>,
    /// One entry for each `[[channel]]`; see [`channels`].
    pub channels: Vec<(String, ChannelOptions, bool)>,
    /// One entry for each `[[serve]]`; see [`serves`].
    pub serves: Vec<(String, ServeOptions)>,
    /// The tokens of `[http]`. They are read only once, because a file may be a pipe.
    pub tokens: Vec<NamedToken>,
}

impl ResolvedConfig {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid, or if the target of a channel is its own source.
    pub fn of(config: &Config) -> anyhow::Result<Self> {
        let (captures, channels, serves) = (captures(config)?, channels(config)?, serves(config)?);
        for capture in &captures {
            let of_source = || format!("source {}", capture.name);
            capture.connect.tls.check().with_context(of_source)?;
            for (name, server) in &capture.servers {
                server.tls.check().with_context(|| format!("server {name}"))?;
            }
        }
        for (source, channel, _) in &channels {
            channel.target.tls.check().with_context(|| format!("channel {}", channel.name))?;
            let captured = captures.iter().find(|capture| capture.name == *source);
            if captured.is_some_and(|capture| is_same(&capture.connect.endpoint, &channel.target.endpoint)) {
                let endpoint = channel.target.endpoint.to_string();
                return Err(ConfigError::onto_itself(&channel.name, source, &endpoint).into());
            }
        }
        for (_, serve) in &serves {
            BinlogServer::check(serve).with_context(|| format!("serve {}", serve.listen))?;
        }
        config.prefetches.iter().try_for_each(replica_prefetch::check)?;
        let tokens = read_tokens(config)?;
        manager::manager_startup::check(config)?;
        clusters(config)?;
        archive_address(config)?;
        Ok(Self { captures, channels, serves, tokens })
    }
}

/// Whether two addresses are the same server, as far as the addresses alone can show.
fn is_same(one: &Endpoint, other: &Endpoint) -> bool {
    let canonical = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp { host, port } => {
            let is_here = matches!(host.as_str(), "localhost" | "::1" | "[::1]") || host.starts_with("127.");
            Endpoint::tcp(if is_here { "localhost".to_owned() } else { host.to_ascii_lowercase() }, *port)
        }
        unix => unix.clone(),
    };
    canonical(one) == canonical(other)
}

/// Checks the address of the archive. Creates no folder.
fn archive_address(config: &Config) -> anyhow::Result<()> {
    match archive_at(config) {
        Some(address) if address.folder().is_none() => {
            let store = ObjectArchive::open_existing(&address);
            store.map_err(|cause| LogError::Archive { action: "open", path: address.url.into(), cause })?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns the options of one capture for each source. They do not include the archive, which [`archiving`]
/// adds.
///
/// # Errors
/// If an option file with credentials of a source, or of another server of its cluster, cannot be read.
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
            source_check_interval: Duration::from_millis(source.semi_sync_check_ms),
            directory: config.log.directory.join(&source.name),
            log: log_options(&config.log, source),
            // If the cluster has another server, the manager may order the capture to follow that server.
            wait_when_refused: !servers.is_empty(),
            servers,
        })
    };
    config.sources.iter().map(capture).collect()
}

/// Returns the `[[server]]` sections of a source's cluster, by name.
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

/// Opens the archive of the configuration. Sends no request.
///
/// # Errors
/// If the archive's address is invalid, or its folder cannot be created.
pub fn archive(config: &Config) -> anyhow::Result<Option<Arc<dyn ArchiveStore>>> {
    let Some(address) = archive_at(config) else { return Ok(None) };
    let store = ObjectArchive::open(&address);
    let store =
        store.map_err(|cause| LogError::Archive { action: "open", path: address.url.into(), cause })?;
    Ok(Some(Arc::new(store)))
}

fn archive_at(config: &Config) -> Option<ArchiveAddress> {
    let LogConfig { archive, archive_endpoint, archive_region, .. } = &config.log;
    Some(ArchiveAddress {
        url: archive.clone()?,
        endpoint: archive_endpoint.clone(),
        region: archive_region.clone(),
        path_style: config.log.archive_path_style,
        allow_http: config.log.archive_allow_http,
    })
}

/// Sets the archive in the options of each capture, if an archive is configured. Returns the logs to archive
/// in the background, and the schedule.
///
/// # Errors
/// The errors of [`archive`].
pub fn archiving(
    config: &Config,
    captures: &mut [CaptureOptions],
) -> anyhow::Result<(Vec<ArchiveJob>, Schedule)> {
    let mut jobs = Vec::new();
    if let Some(store) = archive(config)? {
        for capture in captures {
            let archive = Archive::new(Arc::clone(&store), &capture.name);
            capture.log.archive = Some(archive.clone());
            let (directory, status) = (capture.directory.clone(), ArchiveStatus::of(&archive));
            jobs.push(ArchiveJob { directory, archive, status });
        }
    }
    let schedule = archive_schedule(&config.log);
    Ok((jobs, schedule))
}

/// Returns how often segments are archived, and how long archived segments are kept.
pub fn archive_schedule(config: &LogConfig) -> Schedule {
    Schedule {
        interval: Duration::from_millis(config.archive_interval_ms),
        retention: config.archive_retention_hours_max.map(hours),
    }
}

/// Returns how long and up to which size segments are kept.
pub fn retention(config: &LogConfig) -> Retention {
    Retention { time_max: config.retention_hours_max.map(hours), bytes_max: config.retention_bytes_max }
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
        retention: retention(config),
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

/// Returns the options of a connection to a server. The configuration takes precedence over the option file
/// and the environment.
pub fn connect_options(server: ServerAddress<'_>) -> anyhow::Result<ConnectOptions> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_ca_verifies_the_server_in_every_tls_mode() {
        let option_file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(option_file.path(), "[client]\nskip-ssl-verify-server-cert\n").unwrap();
        for (tls, mode) in [
            (None, TlsMode::VerifyCa),
            (Some(TlsConfig::Preferred), TlsMode::VerifyCa),
            (Some(TlsConfig::Required), TlsMode::VerifyCa),
            (Some(TlsConfig::VerifyFull), TlsMode::VerifyFull),
            (Some(TlsConfig::Off), TlsMode::Off),
        ] {
            let server = ServerAddress {
                host: Some("db1"),
                port: None,
                socket: None,
                user: None,
                defaults_file: Some(option_file.path()),
                tls,
                tls_ca: Some(Path::new("ca.pem")),
            };
            assert_eq!(connect_options(server).unwrap().tls.mode, mode, "the TLS mode is wrong for {tls:?}");
        }
    }
}
