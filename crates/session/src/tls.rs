//! TLS with the library rustls, and the modes of certificate verification.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::connection_options::{TlsMode, TlsOptions};
use crate::error::SessionError;

/// Runs the TLS handshake with a server that agreed to use TLS.
pub(crate) async fn start(
    stream: TcpStream,
    host: &str,
    endpoint: &str,
    options: &TlsOptions,
) -> Result<TlsStream<TcpStream>, SessionError> {
    let config = client_config(options)?;
    let failed = |reason: String| SessionError::Tls { endpoint: endpoint.to_owned(), reason };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| failed(format!("{host:?} is neither a host name nor an address")))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|error| failed(explain(&error, options)))
}

/// Reads the files that the options name and checks that they are usable.
pub(crate) fn check(options: &TlsOptions) -> Result<(), SessionError> {
    match options.mode {
        TlsMode::Off => Ok(()),
        _ => client_config(options).map(drop),
    }
}

/// Returns the cause and the remedy of a failed handshake, if they are known.
fn explain(error: &std::io::Error, options: &TlsOptions) -> String {
    use rustls::{CertificateError, Error};
    let advice = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(reason)) => match reason {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the certificate is for another host; connect by the host name in the certificate, or use mode verify-ca"
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "the certificate does not come from the authority in the CA file; is it the right file?"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "renew the server's certificate"
            }
            _ => "the server's certificate is invalid",
        },
        Some(Error::AlertReceived(_)) if options.certificate.is_none() => {
            "the server may require a client certificate"
        }
        Some(Error::AlertReceived(_)) => "the server may have rejected the client certificate",
        _ => return error.to_string(),
    };
    format!("{error} ({advice})")
}

fn client_config(options: &TlsOptions) -> Result<ClientConfig, SessionError> {
    let refused = |reason: String| SessionError::TlsOptions { reason };
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?;
    let check = match options.mode {
        TlsMode::Off | TlsMode::Preferred | TlsMode::Required => CertificateCheck::Nothing,
        TlsMode::VerifyCa => CertificateCheck::Authority(read_authorities(options)?),
        TlsMode::VerifyFull => {
            let roots = Arc::new(read_authorities(options)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
            CertificateCheck::All(verifier.map_err(|error| refused(error.to_string()))?)
        }
    };
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(CertificateVerifier { check, provider }));
    match (&options.certificate, &options.key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(certificate), Some(key)) => {
            let chain = read_certificates(certificate)?;
            let key_der = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| refused(format!("cannot read client key {}: {error}", key.display())))?;
            builder.with_client_auth_cert(chain, key_der).map_err(|error| {
                refused(format!("cannot use client certificate {}: {error}", certificate.display()))
            })
        }
        _ => Err(refused("a client certificate and its key must be given together".to_owned())),
    }
}

fn read_authorities(options: &TlsOptions) -> Result<RootCertStore, SessionError> {
    let Some(path) = &options.ca else {
        let reason = "modes verify-ca and verify-full need a CA file".to_owned();
        return Err(SessionError::TlsOptions { reason });
    };
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|error| SessionError::TlsOptions {
            reason: format!("cannot use CA file {}: {error}", path.display()),
        })?;
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SessionError> {
    let refused =
        |reason: String| SessionError::TlsOptions { reason: format!("{}: {reason}", path.display()) };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| refused(error.to_string()))?;
    if certificates.is_empty() {
        return Err(refused("holds no certificate".to_owned()));
    }
    Ok(certificates)
}

/// How much of the server's certificate is verified.
#[derive(Debug)]
enum CertificateCheck {
    Nothing,
    Authority(RootCertStore),
    All(Arc<WebPkiServerVerifier>),
}

/// Verifies the server's certificate according to the mode. In every mode it also verifies the handshake
/// signature, which proves that the server has the certificate's private key.
#[derive(Debug)]
struct CertificateVerifier {
    check: CertificateCheck,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.check {
            CertificateCheck::Nothing => Ok(ServerCertVerified::assertion()),
            CertificateCheck::Authority(roots) => {
                let certificate = ParsedCertificate::try_from(end_entity)?;
                let algorithms = self.provider.signature_verification_algorithms.all;
                rustls::client::verify_server_cert_signed_by_trust_anchor(
                    &certificate,
                    roots,
                    intermediates,
                    now,
                    algorithms,
                )?;
                Ok(ServerCertVerified::assertion())
            }
            CertificateCheck::All(verifier) => {
                verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
