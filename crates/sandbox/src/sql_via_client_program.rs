//! Runs SQL with a server's own client program. This is slow, but does not depend on Tailwater's
//! implementation of the protocol.

use tailwater_wire::Flavour;

use crate::error::SandboxError;
use crate::install::Install;

/// Returns the option that prevents MariaDB's client programs from requesting TLS, which the sandbox's
/// servers do not offer. MySQL's client programs need no such option.
pub(crate) fn skip_tls_option(flavour: Flavour) -> Option<&'static str> {
    match flavour {
        Flavour::MySql => None,
        Flavour::MariaDb => Some("--skip-ssl"),
    }
}

/// The client program and the server for statements of the superuser.
#[derive(Debug, Clone)]
pub(crate) struct SqlClient<'a> {
    pub(crate) install: &'a Install,
    pub(crate) port: u16,
}

impl SqlClient<'_> {
    /// Implements [`crate::Server::sql`].
    pub(crate) async fn run(&self, statements: &str) -> Result<Vec<String>, SandboxError> {
        let name = self.install.kind().client();
        let mut command = tokio::process::Command::from(self.install.tool(name)?);
        command.args(["--no-defaults", "--host=127.0.0.1", "--user=root", "--batch", "--skip-column-names"]);
        command.args(skip_tls_option(self.install.kind().flavour()));
        command.arg(format!("--port={}", self.port)).arg("--execute").arg(statements);
        command.stdin(std::process::Stdio::null()).kill_on_drop(true);
        let output = command
            .output()
            .await
            .map_err(|source| SandboxError::Spawn { program: name.to_owned(), source })?;
        if !output.status.success() {
            return Err(SandboxError::Client {
                program: name.to_owned(),
                status: output.status.to_string(),
                message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }
}
