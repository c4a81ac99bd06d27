//! The command-line clients of MySQL and MariaDB log in to this crate's server: with every plugin, with
//! hashes from real servers, and over every kind of connection.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Install, Server, ServerKind, ServerSpec, require, shared};
use tailwater_session::Connection;
use tailwater_session::server::{Credential, ServerOptions, ServerTls};
use tailwater_wire::Flavour;
use tailwater_wire::protocol::authentication_plugin::ed25519_public_key;

use crate::test_server::{PASSWORD, Served, with_account};

/// How a client connects to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channel {
    Plain,
    /// A TCP connection without TLS, over which the client may request the server's RSA key.
    PlainWithKey,
    Tls,
}

/// The command of a client program, with the options that it needs.
fn client(install: &Install, channel: Channel) -> Result<Command> {
    let kind = install.kind();
    let mut command = install.tool(kind.client())?;
    command.args([
        "--no-defaults",
        "--protocol=tcp",
        "--batch",
        "--skip-column-names",
        "--execute=SELECT who",
    ]);
    let plugins = match kind.flavour() {
        Flavour::MySql => install.plugins(),
        Flavour::MariaDb => install.root().join("usr/lib/x86_64-linux-gnu/libmariadb3/plugin"),
    };
    command.arg(format!("--plugin-dir={}", plugins.display()));
    match (kind.flavour(), channel) {
        (Flavour::MySql, Channel::Plain) => command.arg("--ssl-mode=DISABLED"),
        (Flavour::MySql, Channel::PlainWithKey) => {
            command.args(["--ssl-mode=DISABLED", "--get-server-public-key"])
        }
        (Flavour::MySql, Channel::Tls) => command.arg("--ssl-mode=REQUIRED"),
        (Flavour::MariaDb, Channel::Plain | Channel::PlainWithKey) => command.arg("--skip-ssl"),
        (Flavour::MariaDb, Channel::Tls) => command.args(["--ssl", "--skip-ssl-verify-server-cert"]),
    };
    Ok(command)
}

/// Runs a statement with the client. Returns the output, or the error message.
async fn run(
    mut command: Command,
    served: &Served,
    user: &str,
    password: &str,
) -> Result<Result<String, String>> {
    let host = command.get_args().any(|argument| argument.to_string_lossy().starts_with("--host="));
    if !host {
        command.arg("--host=127.0.0.1");
    }
    command.arg(format!("--port={}", served.address.port())).arg(format!("--user={user}"));
    command.arg(format!("--password={password}")).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    Ok(match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    })
}

fn options(flavour: Flavour, credentials: &[Credential]) -> ServerOptions {
    let mut options = with_account(flavour, credentials);
    options.tls = ServerTls::Generated;
    options
}

/// Checks that a login with the right password succeeds and a login with a wrong password fails. `credential`
/// names the credential in messages; it must begin with "ed25519" if the client uses that plugin.
async fn logs_in(install: &Install, channel: Channel, served: &Served, credential: &str) -> Result<()> {
    let login = format!("login with {credential}, with the client of {} over {channel:?}", install.kind());
    // Log in twice: at the second login the server may have the hash in its cache.
    for _ in 0..2 {
        let printed = run(client(install, channel)?, served, "u", PASSWORD).await?;
        let printed = printed.map_err(anyhow::Error::msg).with_context(|| format!("the {login} failed"))?;
        let expected = if channel == Channel::Tls { "u\ttls\t" } else { "u\tplain\t" };
        ensure!(printed.starts_with(expected), "the {login} printed unexpected rows: {printed}");
    }
    for (user, password) in [("u", "wrong"), ("nobody", PASSWORD), ("u", ""), ("nobody", "")] {
        let error = run(client(install, channel)?, served, user, password).await?.err();
        let error = error.with_context(|| format!("{user} logged in with {password:?} ({login})"))?;
        // With ed25519 the client sends a signature even for an empty password.
        let used = if password.is_empty() && !credential.starts_with("ed25519") { "NO" } else { "YES" };
        let expected = format!("Access denied for user '{user}'@'127.0.0.1' (using password: {used})");
        ensure!(
            error.contains("ERROR 1045 (28000)") && error.contains(&expected),
            "the {login} printed an unexpected error: {error}"
        );
    }
    Ok(())
}

/// The hash that a real server stores for an account created with the clause `identified`.
async fn stored(server: &Server, identified: &str) -> Result<String> {
    // Do not use the command-line client: its character set may lack the characters of the password.
    let mut connection = Connection::connect(&server.connect_options()).await?;
    // Other tests use the same server, so the user name must be unique.
    let user = format!("hashed{}", connection.server().connection_id);
    connection.execute(&format!("CREATE USER {user}@'%' {identified}")).await?;
    let query = format!("SELECT authentication_string FROM mysql.user WHERE user = '{user}'");
    let hash = connection
        .query(&query)
        .await?
        .scalar()
        .context("the server stores no hash for the account")?
        .to_owned();
    connection.execute(&format!("DROP USER {user}@'%'")).await?;
    Ok(hash)
}

async fn clients_log_in_with_configured_passwords(kind: ServerKind) -> Result<()> {
    let Some(install) = require(kind) else { return Ok(()) };
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let served = Served::start(options(flavour, &[Credential::password(PASSWORD)])).await?;
        for channel in [Channel::Plain, Channel::Tls] {
            logs_in(&install, channel, &served, &format!("a stored password on {flavour:?}")).await?;
        }
        // Whatever plugin the client uses first, the server requests one that both support.
        let plugins = match kind.flavour() {
            Flavour::MySql => &["mysql_native_password", "caching_sha2_password"][..],
            Flavour::MariaDb => &["mysql_native_password", "caching_sha2_password", "client_ed25519"],
        };
        for plugin in plugins {
            let mut command = client(&install, Channel::Tls)?;
            command.arg(format!("--default-auth={plugin}"));
            let printed = run(command, &served, "u", PASSWORD).await?.map_err(anyhow::Error::msg);
            ensure!(
                printed.with_context(|| format!("login with {plugin} on {flavour:?}"))?.starts_with("u\ttls")
            );
        }
    }
    Ok(())
}

/// Clients log in with the hashes that MySQL 9.7 stores. To verify such a hash the server needs the password
/// itself, so the client needs TLS or the server's key.
async fn clients_log_in_with_hashes_of_mysql(kind: ServerKind) -> Result<()> {
    let (Some(install), Some(_)) = (require(kind), require(ServerKind::Mysql97)) else { return Ok(()) };
    let server = shared(ServerKind::Mysql97).await?;
    let hash = stored(&server, &format!("IDENTIFIED BY '{PASSWORD}'")).await?;
    ensure!(hash.starts_with("$A$00"), "MySQL stored a hash of an unexpected form: {hash:?}");
    let as_hex: String = hash.bytes().map(|byte| format!("{byte:02X}")).collect();
    let credentials = [hash, format!("0x{as_hex}")].map(|text| Credential::parse_hash(&text));
    for (credential, channel) in credentials.into_iter().zip([Channel::Tls, Channel::PlainWithKey]) {
        let credential = credential.map_err(anyhow::Error::msg)?;
        for flavour in [Flavour::MySql, Flavour::MariaDb] {
            if channel == Channel::PlainWithKey && flavour != kind.flavour() {
                // Skip this combination: each server generates an RSA key, and that takes long in a debug
                // build.
                continue;
            }
            let served = Served::start(options(flavour, std::slice::from_ref(&credential))).await?;
            logs_in(&install, channel, &served, &format!("caching_sha2_password on {flavour:?}")).await?;
            // Now the server knows the fast hash, so the client needs neither TLS nor a key.
            let printed = run(client(&install, Channel::Plain)?, &served, "u", PASSWORD).await?;
            ensure!(printed.map_err(anyhow::Error::msg)?.starts_with("u\tplain"));
        }
    }
    Ok(())
}

async fn clients_log_in_with_hashes_of_mariadb(kind: ServerKind) -> Result<()> {
    let (Some(install), Some(_)) = (require(kind), require(ServerKind::Mariadb118)) else { return Ok(()) };
    let server = Server::start(ServerSpec::new(ServerKind::Mariadb118)).await?;
    server.sql("INSTALL SONAME 'auth_ed25519'").await?;
    let make = |plugin: &str| format!("IDENTIFIED VIA {plugin} USING PASSWORD('{PASSWORD}')");
    let native = stored(&server, &make("mysql_native_password")).await?;
    let ed25519 = stored(&server, &make("ed25519")).await?;
    ensure!(native.starts_with('*') && ed25519.len() == 43);
    ensure!(
        ed25519 == base64_of(&ed25519_public_key(PASSWORD.as_bytes())),
        "MariaDB stored an ed25519 hash of an unexpected form: {ed25519}"
    );
    for (plugin, hash) in [("mysql_native_password", native), ("ed25519", ed25519)] {
        if plugin == "ed25519" && kind.flavour() == Flavour::MySql {
            // MySQL's clients do not support ed25519.
            continue;
        }
        let credential = Credential::parse_hash(&hash).map_err(anyhow::Error::msg)?;
        for flavour in [Flavour::MySql, Flavour::MariaDb] {
            let served = Served::start(options(flavour, std::slice::from_ref(&credential))).await?;
            for channel in [Channel::Plain, Channel::Tls] {
                logs_in(&install, channel, &served, &format!("{plugin} on {flavour:?}")).await?;
            }
        }
    }
    Ok(())
}

on_each_server!(
    clients_log_in_with_configured_passwords,
    clients_log_in_with_hashes_of_mysql,
    clients_log_in_with_hashes_of_mariadb,
    tls_is_required
);

async fn tls_is_required(kind: ServerKind) -> Result<()> {
    let Some(install) = require(kind) else { return Ok(()) };
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let mut options = options(flavour, &[Credential::password(PASSWORD)]);
        options.require_tls = true;
        let served = Served::start(options).await?;
        let error = run(client(&install, Channel::Plain)?, &served, "u", PASSWORD).await?.err();
        let error = error.context("a login without TLS succeeded, but it must fail")?;
        ensure!(error.contains("ERROR 3159"), "the client printed an unexpected error: {error}");
        let printed = run(client(&install, Channel::Tls)?, &served, "u", PASSWORD).await?;
        ensure!(printed.map_err(anyhow::Error::msg)?.starts_with("u\ttls"));
    }
    Ok(())
}

/// An administrator of MySQL can raise the number of hash rounds. The hash contains this number in
/// hexadecimal digits.
#[tokio::test]
async fn hashes_with_more_rounds_are_verified() -> Result<()> {
    let kind = ServerKind::Mysql97;
    let Some(install) = require(kind) else { return Ok(()) };
    let server =
        Server::start(ServerSpec::new(kind).option("--caching-sha2-password-digest-rounds=11000")).await?;
    let hash = stored(&server, &format!("IDENTIFIED BY '{PASSWORD}'")).await?;
    ensure!(hash.starts_with("$A$00B$"), "the hash has an unexpected number of rounds: {:?}", &hash[..7]);
    let credential = Credential::parse_hash(&hash).map_err(anyhow::Error::msg)?;
    let served = Served::start(options(Flavour::MySql, &[credential])).await?;
    logs_in(&install, Channel::Tls, &served, "a hash of 11000 rounds").await
}

/// 32 bytes in base64, as MariaDB writes them.
fn base64_of(key: &[u8; 32]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = |at: usize| {
        let word = u16::from_be_bytes([key[at / 8], key.get(at / 8 + 1).copied().unwrap_or(0)]);
        usize::from(word << (at % 8) >> 10)
    };
    (0..43).map(|index| char::from(ALPHABET[bits(6 * index)])).collect()
}

/// A client without TLS and without the server's key must not send its password, and must print the reason.
#[tokio::test]
async fn a_password_is_not_sent_unprotected() -> Result<()> {
    let kind = ServerKind::Mysql97;
    let Some(install) = require(kind) else { return Ok(()) };
    let server = shared(kind).await?;
    let hash = stored(&server, &format!("IDENTIFIED BY '{PASSWORD}'")).await?;
    let credential = Credential::parse_hash(&hash).map_err(anyhow::Error::msg)?;
    let served = Served::start(options(Flavour::MySql, &[credential])).await?;
    let error = run(client(&install, Channel::Plain)?, &served, "u", PASSWORD).await?.err();
    let error = error.context("a login without TLS and without the key succeeded, but it must fail")?;
    ensure!(error.contains("requires secure connection"), "the client printed an unexpected error: {error}");
    Ok(())
}

/// Clients of MariaDB 11.4 and later verify the server's certificate by default. They use the password to
/// verify a self-signed certificate.
#[tokio::test]
async fn mariadb_clients_verify_the_self_signed_certificate_by_password() -> Result<()> {
    let kind = ServerKind::Mariadb118;
    let Some(install) = require(kind) else { return Ok(()) };
    let ed25519 = base64_of(&ed25519_public_key(PASSWORD.as_bytes()));
    let ed25519 = Credential::parse_hash(&ed25519).map_err(anyhow::Error::msg)?;
    for credential in [Credential::password(PASSWORD), ed25519] {
        let served = Served::start(options(Flavour::MariaDb, std::slice::from_ref(&credential))).await?;
        let mut command = client(&install, Channel::Tls)?;
        // Do not use an address: these clients accept any certificate of 127.0.0.1.
        command.args(["--ssl-verify-server-cert", "--host=localhost"]);
        let printed = run(command, &served, "u", PASSWORD).await?.map_err(anyhow::Error::msg);
        let printed =
            printed.with_context(|| format!("the login with the credential {credential:?} failed"))?;
        ensure!(printed.starts_with("u\ttls"), "the client printed unexpected rows: {printed}");
    }
    Ok(())
}
