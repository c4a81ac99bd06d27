//! TLS for clients, with the operator's certificate or a generated one.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

use crate::error::SessionError;
use crate::server::server_options::ServerTls;

/// The TLS configuration for clients.
#[derive(Clone)]
pub(super) struct ServerCertificate {
    pub(super) acceptor: TlsAcceptor,
    /// The SHA256 digest of the certificate.
    pub(super) fingerprint: [u8; 32],
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate").finish_non_exhaustive()
    }
}

impl ServerCertificate {
    /// Loads or generates the certificate. `None` if the server does not offer TLS.
    pub(super) fn load(tls: &ServerTls) -> Result<Option<Self>, SessionError> {
        let (chain, key) = match tls {
            ServerTls::Off => return Ok(None),
            ServerTls::Files { certificate, key } => (read_chain(certificate)?, read_key(key)?),
            ServerTls::Generated => generate().map_err(|error| refused(error.to_string()))?,
        };
        let Some(fingerprint) = chain.first().map(|certificate| Sha256::digest(certificate).into()) else {
            return Err(refused("the certificate file holds no certificate".to_owned()));
        };
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| match tls {
                ServerTls::Files { certificate, key } => {
                    let (certificate, key) = (certificate.display(), key.display());
                    refused(format!("cannot use certificate {certificate} with key {key}: {error}"))
                }
                _ => refused(error.to_string()),
            })?;
        Ok(Some(Self { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint }))
    }
}

/// Returns the server side of TLS with a certificate and key of the operator, in PEM files.
///
/// # Errors
/// [`SessionError::ServerTls`] if a file cannot be read, or certificate and key cannot be used.
pub fn tls_acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, SessionError> {
    let files = ServerTls::Files { certificate: certificate.to_owned(), key: key.to_owned() };
    let loaded = ServerCertificate::load(&files)?;
    loaded.map(|loaded| loaded.acceptor).ok_or_else(|| refused("there is no certificate".to_owned()))
}

fn refused(reason: String) -> SessionError {
    SessionError::ServerTls { reason }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, SessionError> {
    let refused = |reason: String| refused(format!("cannot read certificate {}: {reason}", path.display()));
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| refused(error.to_string()))?;
    match chain.is_empty() {
        true => Err(refused("the file holds no certificate".to_owned())),
        false => Ok(chain),
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, SessionError> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| refused(format!("cannot read key {}: {error}", path.display())))
}

/// Generates a self-signed certificate. The certificate names no host, because the server's host name is
/// unknown.
fn generate() -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "Tailwater, generated at start");
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(2099, 12, 31);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok((vec![certificate.der().clone()], key))
}
