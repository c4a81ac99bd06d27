//! Connection options of commands that connect to a server as a client.

use tailwater_session::ConnectOptions;
use tailwater_session::option_file::{ClientOptions, OptionSources};

use crate::arguments::ServerArgs;

/// Returns the connection options. The command line overrides the option file and the environment.
///
/// # Errors
/// If the option file cannot be read.
pub(super) fn connect_options(arguments: &ServerArgs) -> anyhow::Result<ConnectOptions> {
    let sources = OptionSources { defaults_file: arguments.defaults_file.clone(), groups: Vec::new() };
    let mut options = sources.load()?;
    options.override_with(ClientOptions {
        host: arguments.host.clone(),
        port: arguments.port,
        socket: arguments.socket.clone(),
        user: arguments.user.clone(),
        tls_mode: arguments.ssl_mode,
        tls_ca: arguments.ssl_ca.clone(),
        tls_certificate: arguments.ssl_cert.clone(),
        tls_key: arguments.ssl_key.clone(),
        ..ClientOptions::default()
    });
    // As in the mysql client, a port without a socket means TCP.
    if arguments.port.is_some() && arguments.socket.is_none() {
        options.socket = None;
    }
    Ok(options.connect_options())
}
