//! Binds and serves the control socket, and the address of `[http]`.

use std::fmt;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use tailwater_config::Config;
use tailwater_daemon::bearer_token::NamedToken;
use tailwater_daemon::control_api::Control;
use tailwater_daemon::control_socket::socket_of;
use tailwater_daemon::daemon_lifecycle::FrontEnd;
use tailwater_session::server::tls_acceptor;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::audit_log::AuditLog;
use crate::authentication::AccessControl;
use crate::listener::ConnectionServer;
use crate::openapi;

/// Returns the routes of the page.
pub type PageRoutes = fn(Arc<Control>, Arc<AccessControl>) -> Router;

/// The control socket and the HTTP listener of a daemon.
#[derive(Default)]
pub struct HttpFrontEnd {
    page: Option<PageRoutes>,
    tokens: Vec<NamedToken>,
    listener: Option<(TcpListener, Option<TlsAcceptor>)>,
}

impl fmt::Debug for HttpFrontEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFrontEnd").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl HttpFrontEnd {
    /// A front end that also serves the page.
    pub fn with_page(page: PageRoutes) -> Self {
        Self { page: Some(page), ..Self::default() }
    }
}

impl FrontEnd for HttpFrontEnd {
    fn bind(&mut self, config: &Config, tokens: Vec<NamedToken>) -> anyhow::Result<()> {
        self.tokens = tokens;
        let Some(http) = &config.http else { return Ok(()) };
        let tls = match (&http.tls_certificate, &http.tls_key) {
            (Some(certificate), Some(key)) => Some(tls_acceptor(certificate, key).context("http")?),
            _ => None,
        };
        let listener = std::net::TcpListener::bind(http.listen)
            .and_then(|listener| {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)
            })
            .with_context(|| format!("http: cannot listen at {}", http.listen))?;
        self.listener = Some((listener, tls));
        Ok(())
    }

    fn serve(&mut self, config: &Config, control: &Arc<Control>) -> anyhow::Result<JoinSet<()>> {
        let faults = control.state().file_faults.clone();
        let audit_log = AuditLog::new(&config.log.directory, faults);
        let anonymous = config.http.iter().flat_map(|http| http.anonymous.iter().copied());
        let listener = self.listener.take();
        let is_tls = listener.as_ref().is_some_and(|(_, tls)| tls.is_some());
        let access = AccessControl::new(
            std::mem::take(&mut self.tokens),
            anonymous,
            audit_log.clone(),
            is_tls,
            self.page.is_some(),
        );
        let access = Arc::new(access);
        let page = self.page.map(|page| page(Arc::clone(control), Arc::clone(&access)));
        let router = openapi::router(Arc::clone(control), page.unwrap_or_default(), access);
        let server = ConnectionServer::new(router);
        let mut tasks = JoinSet::new();
        tasks.spawn(audit_log.retry_forever());
        tasks.spawn(server.clone().serve_unix(bind_socket(&socket_of(&config.log.directory))?));
        if let Some((listener, tls)) = listener {
            tasks.spawn(server.serve_tcp(listener, tls));
        }
        Ok(tasks)
    }
}

/// Creates the control socket.
fn bind_socket(socket: &Path) -> anyhow::Result<UnixListener> {
    // A killed daemon may have left its socket here. No running daemon uses it, because only one daemon can
    // hold the lock of the folder.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", socket.display()));
        }
        _ => {}
    }
    let listener =
        UnixListener::bind(socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600))
        .with_context(|| format!("cannot restrict the permissions of {}", socket.display()))?;
    Ok(listener)
}
