//! Unmodified replicas and binlog readers of all servers log in to this crate's server.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::server::{Credential, ServerTls};
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::protocol::command::ClientCommand;
use tokio::sync::mpsc;

use crate::test_server::{PASSWORD, Served, with_account};

/// What the server received from a client: the login, and the first command after it.
#[derive(Debug)]
struct Seen {
    tls: bool,
    attributes: Vec<(String, String)>,
    first: Vec<u8>,
}

async fn serve(flavour: Flavour, credential: Credential) -> Result<(Served, mpsc::UnboundedReceiver<Seen>)> {
    let mut options = with_account(flavour, &[credential]);
    options.tls = ServerTls::Generated;
    let (seen, all_seen) = mpsc::unbounded_channel();
    let served = Served::start_with(options, move |mut session| {
        let seen = seen.clone();
        async move {
            if let Ok(Some(payload)) = session.read_command().await {
                let (tls, attributes) = (session.is_tls(), session.client_attributes().to_vec());
                let _ = seen.send(Seen { tls, attributes, first: payload.to_vec() });
            }
            // The text of this error does not matter: on any error the replica disconnects and connects
            // again.
            let _ = session.write_error(1053, "08S01", "Server shutdown in progress").await;
        }
    })
    .await?;
    Ok((served, all_seen))
}

/// The hash that MySQL stores for a password. To verify it at the first login, the server needs the password
/// itself.
fn stored_hash() -> Result<Credential> {
    let hash = "$A$00A$pt\x1d\x0fX=pw\x7f\x1c\x14?GOW\x04|\x17YYJo4oTDYcQc16O2V04Ac.xHsbPRGxtssFMuDXhepYUU2";
    Credential::parse_hash(hash).map_err(anyhow::Error::msg)
}

/// Checks that the server refused no login. An interrupted login is allowed, because a replica that is
/// stopped during a login disconnects.
fn only_breaks_off(served: &Served) -> Result<()> {
    let refused =
        served.refusals().into_iter().find(|error| matches!(error, SessionError::LoginRefused { .. }));
    refused.map_or(Ok(()), |error| Err(error.into()))
}

on_each_server!(replicas_log_in, binlog_readers_log_in);

async fn replicas_log_in(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind).option("--server-id=77")).await?;
    let ways: &[(&str, bool, bool)] = match kind.flavour() {
        // Each case: the connection options, whether they use TLS, and whether the server knows only a hash
        // of the password.
        Flavour::MySql => &[
            ("SOURCE_SSL=0, GET_SOURCE_PUBLIC_KEY=0", false, false),
            ("SOURCE_SSL=0, GET_SOURCE_PUBLIC_KEY=1", false, true),
            ("SOURCE_SSL=1, GET_SOURCE_PUBLIC_KEY=0", true, true),
        ],
        Flavour::MariaDb => &[
            ("MASTER_SSL=0, MASTER_SSL_VERIFY_SERVER_CERT=0", false, false),
            ("MASTER_SSL=1, MASTER_SSL_VERIFY_SERVER_CERT=0", true, false),
        ],
    };
    for (way, tls, hashed) in ways {
        let credential = if *hashed { stored_hash()? } else { Credential::password(PASSWORD) };
        let (served, mut seen) = serve(kind.flavour(), credential).await?;
        let port = served.address.port();
        let (change, start, stop) = match kind.flavour() {
            Flavour::MySql => (
                format!(
                    "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_USER='u', \
                     SOURCE_PASSWORD='{PASSWORD}', SOURCE_CONNECT_RETRY=1, {way}"
                ),
                "START REPLICA IO_THREAD",
                "STOP REPLICA",
            ),
            Flavour::MariaDb => (
                format!(
                    "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='u', \
                     MASTER_PASSWORD='{PASSWORD}', MASTER_CONNECT_RETRY=1, {way}"
                ),
                "START SLAVE IO_THREAD",
                "STOP SLAVE",
            ),
        };
        // Use this crate's client, because the character set of the command-line client may lack the
        // characters of the password.
        let mut connection = Connection::connect(&server.connect_options()).await?;
        connection.execute(&change).await?;
        connection.execute(start).await?;
        let first = seen.recv().await.context("no replica logged in")?;
        ensure!(
            first.tls == *tls,
            "the replica with the options {way} must log in with TLS or without it as configured: {first:?}"
        );
        let asks = matches!(ClientCommand::parse(&first.first)?, ClientCommand::Query(_));
        ensure!(
            asks,
            "the first command of the replica with the options {way} is not a query: {}",
            first.first.escape_ascii()
        );
        connection.execute(stop).await?;
        only_breaks_off(&served)?;
    }
    Ok(())
}

/// A replica of MariaDB 11.8 verifies the source's certificate by default. It uses the password to verify a
/// self-signed certificate.
#[tokio::test]
async fn a_mariadb_replica_verifies_the_self_signed_certificate_by_password() -> Result<()> {
    let kind = ServerKind::Mariadb118;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind).option("--server-id=78")).await?;
    let (served, mut seen) = serve(kind.flavour(), Credential::password(PASSWORD)).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    let port = served.address.port();
    // Do not use an address: replicas accept any certificate of 127.0.0.1.
    let change = format!(
        "CHANGE MASTER TO MASTER_HOST='localhost', MASTER_PORT={port}, MASTER_USER='u', MASTER_PASSWORD='{PASSWORD}', \
         MASTER_CONNECT_RETRY=1, MASTER_SSL=1, MASTER_SSL_VERIFY_SERVER_CERT=1"
    );
    connection.execute(&change).await?;
    connection.execute("START SLAVE IO_THREAD").await?;
    let first = tokio::time::timeout(std::time::Duration::from_secs(60), seen.recv()).await;
    let first = match first {
        Ok(first) => first.context("the server has stopped")?,
        Err(_) => {
            let status = connection.query("SHOW SLAVE STATUS").await?;
            let error = status.column("Last_IO_Error").and_then(|column| status.first()?.get_str(column));
            anyhow::bail!("the replica did not log in: {error:?}");
        }
    };
    ensure!(first.tls);
    connection.execute("STOP SLAVE").await?;
    only_breaks_off(&served)
}

async fn binlog_readers_log_in(kind: ServerKind) -> Result<()> {
    let Some(install) = require(kind) else { return Ok(()) };
    let program = match kind.flavour() {
        Flavour::MySql => "mysqlbinlog",
        Flavour::MariaDb => "mariadb-binlog",
    };
    for tls in [false, true] {
        let (served, mut seen) = serve(kind.flavour(), Credential::password(PASSWORD)).await?;
        let mut command = install.tool(program)?;
        command.args(["--no-defaults", "--read-from-remote-server", "--host=127.0.0.1", "--protocol=tcp"]);
        command.arg(match (kind.flavour(), tls) {
            (Flavour::MySql, false) => "--ssl-mode=DISABLED",
            (Flavour::MySql, true) => "--ssl-mode=REQUIRED",
            (Flavour::MariaDb, false) => "--skip-ssl",
            (Flavour::MariaDb, true) => "--ssl",
        });
        command.arg(format!("--port={}", served.address.port())).arg("--user=u");
        command.arg(format!("--password={PASSWORD}")).arg("binlog.000001").stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let text = String::from_utf8_lossy(&output.stderr);
        let first = seen.try_recv().with_context(|| text.clone().into_owned())?;
        ensure!(
            first.tls == tls && text.contains("Server shutdown"),
            "the binlog reader printed an unexpected error: {text}"
        );
        let program =
            first.attributes.iter().find(|(name, _)| name == "program_name" || name == "_client_name");
        ensure!(
            program.is_some_and(|(_, value)| !value.is_empty()),
            "the login must name the client program: {first:?}"
        );
    }
    Ok(())
}
