//! The client of this crate logs in to the server of this crate.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tailwater_session::server::{Acceptor, Accounts, Credential, ServerTls};
use tailwater_session::{Connection, Endpoint, SessionError, TlsMode, TlsOptions};
use tailwater_wire::Flavour;

use crate::test_server::{PASSWORD, Served, options};
use crate::tls::Authority;

const FLAVOURS: [Flavour; 2] = [Flavour::MySql, Flavour::MariaDb];

#[tokio::test]
async fn a_session_receives_commands_and_sends_answers() -> Result<()> {
    for flavour in FLAVOURS {
        let served = Served::start(options(flavour)).await?;
        let mut connection = Connection::connect(&served.connect_options().database("any")).await?;
        let info = connection.server().clone();
        ensure!(
            info.flavour == flavour && !info.tls && info.connection_id == 1,
            "the client reports wrong properties of the server: {info:?}"
        );
        let expected = if flavour == Flavour::MySql { (9, 7, 0) } else { (10, 11, 18) };
        ensure!(info.version == expected, "the client reports wrong properties of the server: {info:?}");
        connection.ping().await?;
        let result = connection.query("SELECT who").await?;
        let row = result.first().context("the query returned no row")?;
        ensure!(row.get_str(0) == Some("u") && row.get_str(1) == Some("plain") && row.get_u64(2) == Some(1));
        ensure!(row.get_str(3) == Some("SELECT who") && row.get(4).is_none());
        ensure!(result.columns[2].name == "id");
        ensure!(connection.query("EMPTY").await?.rows.is_empty());
        ensure!(connection.execute("DO anything").await?.affected_rows == 7);
        let error = connection
            .query("ERROR")
            .await
            .err()
            .context("the statement succeeded although the server answers it with an error")?;
        ensure!(error.server_error().is_some_and(|error| error.number == 1064 && error.sql_state == "42000"));
        let rows = connection.query("ROWS 5000").await?.rows;
        ensure!(rows.len() == 5000);
        for (index, row) in rows.iter().enumerate() {
            ensure!(row.get_u64(0) == Some(index as u64) && row.get(1).map(<[u8]>::len) == Some(index % 300));
        }
        connection.close().await;
        served.until_connections(0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn logins_with_wrong_credentials_are_refused() -> Result<()> {
    for flavour in FLAVOURS {
        let served = Served::start(options(flavour)).await?;
        let right = served.connect_options();
        for (user, password, used) in [
            ("u", "wrong", "YES"),
            ("nobody", PASSWORD, "YES"),
            ("u", "", "NO"),
            ("", PASSWORD, "YES"),
            ("", "", "NO"),
        ] {
            let mut options = right.clone().password(password);
            options.user = user.to_owned();
            let error = Connection::connect(&options)
                .await
                .err()
                .context("the client logged in with wrong credentials")?;
            let refused =
                error.server_error().context("the login failed without an error packet from the server")?;
            ensure!(
                (refused.number, refused.sql_state.as_str()) == (1045, "28000"),
                "the login failed with an unexpected error: {error}"
            );
            let message = format!("Access denied for user '{user}'@'127.0.0.1' (using password: {used})");
            ensure!(
                refused.message.expose() == message,
                "the error packet has an unexpected message: {refused}"
            );
            let refusal = served.refusal().await?;
            ensure!(
                matches!(&refusal, SessionError::LoginRefused { user: logged, .. } if logged == user),
                "the server recorded an unexpected reason for the refused login: {refusal}"
            );
        }
        Connection::connect(&right).await?;
        served.until_connections(0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn clients_use_tls_with_a_generated_certificate() -> Result<()> {
    for flavour in FLAVOURS {
        let mut server = options(flavour);
        server.tls = ServerTls::Generated;
        let served = Served::start(server).await?;
        for (mode, tls) in [(TlsMode::Off, "plain"), (TlsMode::Required, "tls")] {
            let mut options = served.connect_options();
            options.tls.mode = mode;
            let mut connection = Connection::connect(&options).await?;
            ensure!(connection.query("SELECT 1").await?.first().and_then(|row| row.get_str(1)) == Some(tls));
        }
    }
    Ok(())
}

#[tokio::test]
async fn empty_passwords_and_unsupported_accounts_are_refused() -> Result<()> {
    let mut accounts = Accounts::new();
    accounts.add("one", &[Credential::password("x")])?;
    for (user, credentials) in [
        ("one", vec![Credential::password("y")]),
        ("", vec![Credential::password("y")]),
        ("two", vec![]),
        ("two", vec![Credential::password("y"), Credential::password("")]),
    ] {
        let error = accounts.add(user, &credentials).err().context("an invalid account was accepted")?;
        ensure!(error.code() == "TW-SES-0026", "the account was rejected with an unexpected error: {error}");
    }
    ensure!(accounts.len() == 1);
    Ok(())
}

#[tokio::test]
async fn clients_use_tls_with_the_operators_certificate() -> Result<()> {
    let authority = Authority::new("the authority")?;
    let (certificate, key) = authority.issue("server", "localhost", 2099)?;
    let (_, other_key) = authority.issue("other", "localhost", 2099)?;
    let files = |certificate: &Path, key: &Path| {
        let mut options = options(Flavour::MySql);
        options.tls = ServerTls::Files { certificate: certificate.to_owned(), key: key.to_owned() };
        options
    };
    let served = Served::start(files(&certificate, &key)).await?;
    for (ca, mode, trusted) in [
        (authority.ca(), TlsMode::VerifyCa, true),
        (authority.ca(), TlsMode::VerifyFull, true),
        (Authority::new("another authority")?.ca(), TlsMode::VerifyCa, false),
    ] {
        let mut options = served.connect_options();
        options.endpoint = Endpoint::tcp("localhost", served.address.port());
        options.tls = TlsOptions { mode, ca: Some(ca), ..TlsOptions::default() };
        let connected = Connection::connect(&options).await;
        ensure!(
            connected.is_ok() == trusted,
            "the login with TLS mode {mode:?} ended with: {:?}",
            connected.err()
        );
    }
    ensure!(
        matches!(served.refusal().await?, SessionError::Tls { .. }),
        "the server must record that a client does not trust its certificate"
    );

    let folder = tempfile::tempdir()?;
    let (missing, garbage) = (folder.path().join("missing.pem"), folder.path().join("garbage.pem"));
    std::fs::write(&garbage, "no certificate")?;
    for (certificate, key, about) in [
        (&missing, &key, "missing.pem"),
        (&certificate, &missing, "missing.pem"),
        (&garbage, &key, "holds no certificate"),
        (&certificate, &garbage, "garbage.pem"),
        (&certificate, &other_key, "server-cert.pem"),
    ] {
        let error = Acceptor::new(files(certificate, key))
            .err()
            .context("invalid certificate files were accepted")?;
        ensure!(
            error.code() == "TW-SES-0027" && error.to_string().contains(about),
            "the certificate files were rejected with an unexpected error: {error}"
        );
    }
    let mut without_tls = options(Flavour::MySql);
    without_tls.require_tls = true;
    let error =
        Acceptor::new(without_tls).err().context("the option `require_tls` was accepted without TLS")?;
    ensure!(error.code() == "TW-SES-0027", "the options were rejected with an unexpected error: {error}");
    Ok(())
}
