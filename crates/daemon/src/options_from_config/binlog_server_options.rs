//! Converts `[[serve]]` sections to the options of binlog servers.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tailwater_binlog_server::{SHARED_TAIL_BYTES_MAX, ServeOptions, ServedLog};
use tailwater_capture::Capture;
use tailwater_session::server::{Accounts, ConnectionLimits, Credential, ServerTls};
use tailwater_session::{Endpoint, TlsMode};
use tailwater_topology::{ListenerPlan, RelayPlan, RemoteRelayPlan};
use uuid::Uuid;

use super::connect_options;
use super::receiver_status_from_capture::CaptureReceiver;
use tailwater_config::{
    Config, ConfigError, RelayConfig, ServeConfig, ServeTlsConfig, SourceConfig, UserConfig,
};

/// Returns the options of one binlog server for each `[[serve]]`, with the name of its source.
///
/// # Errors
/// If a password file cannot be read, or a hash or password is invalid.
pub fn serves(config: &Config) -> anyhow::Result<Vec<(String, ServeOptions)>> {
    config
        .serves
        .iter()
        .map(|serve| {
            let options = serve_options(config, serve).with_context(|| format!("serve {}", serve.listen))?;
            Ok((serve.source.clone(), options))
        })
        .collect()
}

/// Returns the log that a binlog server serves.
///
/// # Errors
/// If the option file with the source's credentials cannot be read.
pub fn served(source: &SourceConfig, capture: &Capture) -> anyhow::Result<ServedLog> {
    let connect = connect_options(source.server())?;
    let (source_host, source_port) = match &connect.endpoint {
        Endpoint::Tcp { host, port } => (host.clone(), *port),
        Endpoint::Unix { path } => (path.display().to_string(), 0),
    };
    Ok(ServedLog {
        log: capture.log(),
        receiver: Arc::new(CaptureReceiver(capture.status())),
        source_host,
        source_port,
        source_tls: !matches!(connect.tls.mode, TlsMode::Off | TlsMode::Preferred),
        source_user: connect.user,
    })
}

fn serve_options(config: &Config, serve: &ServeConfig) -> anyhow::Result<ServeOptions> {
    let source = config.sources.iter().find(|source| source.name == serve.source);
    let source = source.ok_or_else(|| anyhow!("there is no source {:?}", serve.source))?;
    let (server_id, server_uuid) = identity_of(source, serve)?;
    let mut accounts = Accounts::new();
    for user in &serve.users {
        accounts.add(&user.name, &credentials(user).with_context(|| format!("user {:?}", user.name))?)?;
    }
    let tls = match (serve.tls, &serve.tls_certificate, &serve.tls_key) {
        (ServeTlsConfig::Off, ..) => ServerTls::Off,
        (_, Some(certificate), Some(key)) => {
            ServerTls::Files { certificate: certificate.clone(), key: key.clone() }
        }
        _ => ServerTls::Generated,
    };
    Ok(ServeOptions {
        name: serve.source.clone(),
        listen: serve.listen,
        server_id,
        server_uuid,
        accounts,
        admins: serve
            .users
            .iter()
            .filter(|user| user.admin)
            .map(|user| user.name.clone())
            .collect::<HashSet<_>>(),
        tls,
        require_tls: serve.tls == ServeTlsConfig::Required,
        limits: ConnectionLimits {
            connections_max: serve.connections_max,
            write_timeout: Some(Duration::from_millis(serve.write_timeout_ms)),
            ..ConnectionLimits::default()
        },
        shared_tail_bytes_max: SHARED_TAIL_BYTES_MAX,
    })
}

/// Returns the `server_id` and the `server_uuid` that replicas see.
///
/// # Errors
/// If the configuration's `server_uuid` is invalid.
pub(super) fn identity_of(source: &SourceConfig, serve: &ServeConfig) -> anyhow::Result<(u32, String)> {
    let server_id = serve.server_id.unwrap_or(source.server_id);
    let uuid = match &serve.server_uuid {
        Some(uuid) => Uuid::parse_str(uuid).context("invalid server_uuid")?.to_string(),
        None => own_uuid(&serve.source, server_id),
    };
    Ok((server_id, uuid))
}

/// Returns the password in the first line of a file.
///
/// # Errors
/// If the file cannot be read, or its first line is empty.
pub fn first_line(file: &Path) -> Result<String, ConfigError> {
    let text = tailwater_files::read_user_file_text(file, 1 << 20)
        .map_err(|error| ConfigError::of_file(file, format!("the password cannot be read: {error}")))?;
    match text.lines().next().unwrap_or_default() {
        "" => {
            Err(ConfigError::of_file(file, "the first line of the file is empty; it must hold the password"))
        }
        password => Ok(password.to_owned()),
    }
}

/// Returns the wiring of a relay on another machine, with the identity that its replicas see.
///
/// # Errors
/// If the configuration's `serve_server_uuid` is invalid.
pub(super) fn other_relay(relay: &RelayConfig) -> anyhow::Result<RemoteRelayPlan> {
    let source = relay.source_there.as_ref().unwrap_or(&relay.source);
    let uuid = match &relay.serve_server_uuid {
        Some(uuid) => Uuid::parse_str(uuid).context("invalid serve_server_uuid")?.to_string(),
        None => own_uuid(source, relay.server_id),
    };
    let listeners = relay.serves.iter().map(|address| ListenerPlan {
        address: address.clone(),
        server_id: relay.server_id,
        uuid: uuid.clone(),
    });
    Ok(RemoteRelayPlan {
        name: relay.name.clone(),
        relay: RelayPlan {
            server_id: relay.server_id,
            semi_sync: true,
            listeners: listeners.collect(),
            state: None,
        },
        silent: None,
    })
}

fn credentials(user: &UserConfig) -> anyhow::Result<Vec<Credential>> {
    if let Some(password) = &user.password {
        return Ok(vec![Credential::password(password.clone())]);
    }
    if let Some(file) = &user.password_file {
        return Ok(vec![Credential::password(first_line(file)?)]);
    }
    user.hash
        .0
        .iter()
        .map(|hash| Credential::parse_hash(hash).map_err(|error| anyhow!("hash: {error}")))
        .collect()
}

/// Derives the `server_uuid`. It is the same at each start. It differs between the relays of one source,
/// because each relay has its own `server_id`.
fn own_uuid(source: &str, server_id: u32) -> String {
    let name = format!("tailwater/{source}/{server_id}");
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::own_uuid;

    #[test]
    fn a_relay_keeps_its_uuid_and_no_other_relay_has_the_same() {
        assert_eq!(own_uuid("orders", 4201), own_uuid("orders", 4201));
        assert_ne!(own_uuid("orders", 4201), own_uuid("orders", 4202));
        assert_ne!(own_uuid("orders", 4201), own_uuid("stock", 4201));
    }
}
