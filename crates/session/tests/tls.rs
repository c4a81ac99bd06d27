//! Tests of TLS with real servers: every TLS mode, and every kind of failure.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::option_file::ClientOptions;
use tailwater_session::{ConnectOptions, Connection, Endpoint, SessionError, TlsMode, TlsOptions};
use tempfile::TempDir;

use crate::scripted_server::{Peer, options, serve};

/// A certificate authority and the certificates that it issued, as PEM files.
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(name: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        fs::write(folder.path().join("ca.pem"), params.self_signed(&key)?.pem())?;
        Ok(Self { folder, issuer: Issuer::new(params, key) })
    }

    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Issues a certificate. Returns the paths of the certificate and of its key.
    pub fn issue(&self, name: &str, host: &str, last_year: i32) -> Result<(PathBuf, PathBuf)> {
        let mut params = CertificateParams::new(vec![host.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate()?;
        let [certificate_file, key_file] =
            ["cert", "key"].map(|what| self.folder.path().join(format!("{name}-{what}.pem")));
        fs::write(&certificate_file, params.signed_by(&key, &self.issuer)?.pem())?;
        fs::write(&key_file, key.serialize_pem())?;
        Ok((certificate_file, key_file))
    }
}

fn with_tls(options: &ConnectOptions, mode: TlsMode, ca: Option<&Path>) -> ConnectOptions {
    let ca = ca.map(Path::to_owned);
    options.clone().tls(TlsOptions { mode, ca, ..TlsOptions::default() })
}

async fn succeeds(options: &ConnectOptions) -> Result<()> {
    let mut connection = Connection::connect(options).await?;
    ensure!(connection.server().tls);
    let cipher = connection.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'").await?;
    ensure!(
        cipher.first().and_then(|row| row.get_str(1)).is_some_and(|cipher| !cipher.is_empty()),
        "the connection has no TLS cipher"
    );
    Ok(())
}

async fn fails(options: &ConnectOptions, about: &str) -> Result<()> {
    let error =
        Connection::connect(options).await.err().context("the connection succeeded, but it must fail")?;
    ensure!(
        matches!(error, SessionError::Tls { .. }),
        "the connection failed with an unexpected error: {error}"
    );
    ensure!(error.to_string().contains(about), "the connection failed with an unexpected error: {error}");
    Ok(())
}

/// MySQL generates its own certificates, which contain no host name.
#[tokio::test]
async fn tls_modes_work_with_the_certificates_of_mysql() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind)).await?;
    let plain = server.connect_options();
    let ca = server.data().join("ca.pem");
    let other = Authority::new("another authority")?;

    succeeds(&with_tls(&plain, TlsMode::Preferred, None)).await?;
    succeeds(&with_tls(&plain, TlsMode::Required, None)).await?;
    succeeds(&with_tls(&plain, TlsMode::VerifyCa, Some(&ca))).await?;
    fails(&with_tls(&plain, TlsMode::VerifyCa, Some(&other.ca())), "authority").await?;
    // If the options name an authority, it must have issued the server's certificate. MySQL's client differs:
    // with an explicit mode it ignores the authority and prints a warning.
    for mode in [None, Some(TlsMode::Preferred), Some(TlsMode::Required)] {
        let with_ca = |ca: &Path| {
            let ca =
                ClientOptions { tls_mode: mode, tls_ca: Some(ca.to_owned()), ..ClientOptions::default() };
            plain.clone().tls(ca.connect_options().tls)
        };
        succeeds(&with_ca(&ca)).await?;
        fails(&with_ca(&other.ca()), "authority").await?;
    }
    fails(&with_tls(&plain, TlsMode::VerifyFull, Some(&ca)), "another host").await?;
    fails(&with_tls(&plain, TlsMode::VerifyFull, Some(&other.ca())), "authority").await?;

    // Through the socket, a connection works without TLS in every mode.
    let mut connection =
        Connection::connect(&with_tls(&server.socket_options(), TlsMode::VerifyFull, Some(&ca))).await?;
    ensure!(!connection.server().tls);
    connection.ping().await?;

    server.sql("CREATE USER needs_tls@'%' REQUIRE SSL; CREATE USER needs_cert@'%' REQUIRE X509;").await?;
    let needs_tls = ConnectOptions { user: "needs_tls".to_owned(), ..plain.clone() };
    let error = Connection::connect(&with_tls(&needs_tls, TlsMode::Off, None))
        .await
        .err()
        .context("a user that requires TLS connected without TLS")?;
    ensure!(
        matches!(error, SessionError::Denied { .. }),
        "the connection failed with an unexpected error: {error}"
    );
    succeeds(&with_tls(&needs_tls, TlsMode::Required, None)).await?;

    let needs_cert = ConnectOptions { user: "needs_cert".to_owned(), ..plain.clone() };
    let mut with_cert = with_tls(&needs_cert, TlsMode::VerifyCa, Some(&ca));
    let error = Connection::connect(&with_cert)
        .await
        .err()
        .context("a user that requires a client certificate connected without a certificate")?;
    ensure!(
        matches!(error, SessionError::Denied { .. }),
        "the connection failed with an unexpected error: {error}"
    );
    with_cert.tls.certificate = Some(server.data().join("client-cert.pem"));
    with_cert.tls.key = Some(server.data().join("client-key.pem"));
    succeeds(&with_cert).await?;
    Ok(())
}

async fn tls_modes_work_with_our_certificates(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let authority = Authority::new("the authority")?;
    let (certificate, key) = authority.issue("server", "localhost", 2099)?;
    let (expired, expired_key) = authority.issue("expired", "localhost", 2010)?;
    let ssl = |certificate: &Path, key: &Path| {
        vec![
            format!("--ssl-ca={}", authority.ca().display()),
            format!("--ssl-cert={}", certificate.display()),
            format!("--ssl-key={}", key.display()),
        ]
    };
    let mut server = Server::start(ServerSpec::new(kind).options(ssl(&certificate, &key))).await?;
    let by_address = server.connect_options();
    let by_name =
        ConnectOptions { endpoint: Endpoint::tcp("localhost", server.port()), ..by_address.clone() };
    let ca = authority.ca();
    let other = Authority::new("another authority")?;

    succeeds(&with_tls(&by_name, TlsMode::VerifyFull, Some(&ca))).await?;
    succeeds(&with_tls(&by_address, TlsMode::VerifyCa, Some(&ca))).await?;
    fails(&with_tls(&by_address, TlsMode::VerifyFull, Some(&ca)), "another host").await?;
    fails(&with_tls(&by_name, TlsMode::VerifyFull, Some(&other.ca())), "authority").await?;
    fails(&with_tls(&by_name, TlsMode::VerifyCa, Some(&other.ca())), "authority").await?;
    succeeds(&with_tls(&by_address, TlsMode::Required, None)).await?;

    server.restart(Some(ssl(&expired, &expired_key))).await?;
    fails(&with_tls(&by_name, TlsMode::VerifyFull, Some(&ca)), "renew").await?;
    fails(&with_tls(&by_name, TlsMode::VerifyCa, Some(&ca)), "renew").await?;
    succeeds(&with_tls(&by_name, TlsMode::Required, None)).await?;
    Ok(())
}

#[tokio::test]
async fn tls_modes_work_with_our_certificates_mariadb_1011() -> Result<()> {
    tls_modes_work_with_our_certificates(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn tls_modes_work_with_our_certificates_mariadb_118() -> Result<()> {
    tls_modes_work_with_our_certificates(ServerKind::Mariadb118).await
}

#[tokio::test]
async fn tls_modes_work_with_our_certificates_mysql_97() -> Result<()> {
    tls_modes_work_with_our_certificates(ServerKind::Mysql97).await
}

#[tokio::test]
async fn only_modes_that_allow_it_connect_to_a_server_without_tls() -> Result<()> {
    for (mode, connects) in [
        (TlsMode::Off, true),
        (TlsMode::Preferred, true),
        (TlsMode::Required, false),
        (TlsMode::VerifyCa, false),
        (TlsMode::VerifyFull, false),
    ] {
        let (endpoint, task) = serve(async |mut peer: Peer| {
            let _ = peer.log_in().await;
            peer.read_to_end().await?;
            Ok(peer.received)
        })
        .await?;
        match Connection::connect(&with_tls(&options(endpoint), mode, None)).await {
            Ok(connection) => ensure!(connects && !connection.server().tls, "TLS mode {mode:?}"),
            Err(error) => {
                ensure!(
                    !connects && matches!(error, SessionError::TlsNotOffered { .. }),
                    "with TLS mode {mode:?}, the login failed with an unexpected error: {error}"
                );
                ensure!(task.await??.is_empty(), "with TLS mode {mode:?}, the client sent bytes without TLS");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_error_names_an_unusable_tls_file() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = tailwater_sandbox::shared(kind).await?;
    let plain = server.connect_options();
    let folder = tempfile::tempdir()?;
    let garbage = folder.path().join("garbage.pem");
    fs::write(&garbage, "no certificate")?;
    let missing = folder.path().join("missing.pem");
    let authority = Authority::new("the authority")?;
    let (certificate, _) = authority.issue("client", "client", 2099)?;

    let mut half = with_tls(&plain, TlsMode::Required, None);
    half.tls.certificate = Some(certificate);
    let mut no_key = half.clone();
    no_key.tls.key = Some(missing.clone());
    for (options, about) in [
        (with_tls(&plain, TlsMode::VerifyCa, None), "need a CA file"),
        (with_tls(&plain, TlsMode::VerifyFull, Some(&missing)), "missing.pem"),
        (with_tls(&plain, TlsMode::VerifyCa, Some(&garbage)), "garbage.pem: holds no certificate"),
        (half, "given together"),
        (no_key, "missing.pem"),
    ] {
        let error = Connection::connect(&options)
            .await
            .err()
            .context("the client connected with unusable TLS files")?;
        ensure!(
            matches!(error, SessionError::TlsOptions { .. }),
            "the connection failed with an unexpected error: {error}"
        );
        ensure!(error.to_string().contains(about), "the connection failed with an unexpected error: {error}");
    }
    Ok(())
}
