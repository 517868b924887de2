//! TLS to a server that is measured, as redis-benchmark has it: who made the server's certificate counts, its name does not.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// What is needed for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The file with authorities' certificates; none: whoever answers is believed.
    pub authorities: Option<String>,
    /// The file with our own certificate.
    pub certificate: Option<String>,
    /// The file with its key.
    pub key: Option<String>,
}

/// A session with a server, before anything was said.
pub type Session = Box<ClientConnection>;

impl Tls {
    /// Begins a session with a server at this address.
    ///
    /// # Errors
    /// A sentence about a file that cannot be used.
    pub fn begin(&self, address: IpAddr) -> io::Result<Session> {
        let connection =
            ClientConnection::new(Arc::new(self.context()?), ServerName::IpAddress(address.into()));
        connection.map(Box::new).map_err(io::Error::other)
    }

    fn context(&self) -> io::Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier { authorities: self.verifier(&provider)?, provider: provider.clone() };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let (Some(certificate), Some(key)) = (&self.certificate, &self.key) else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| unusable(key, &error))?;
        builder
            .with_client_auth_cert(certificates(certificate)?, key)
            .map_err(|error| unusable(certificate, &error))
    }

    fn verifier(&self, provider: &Arc<CryptoProvider>) -> io::Result<Option<Arc<WebPkiServerVerifier>>> {
        let Some(path) = &self.authorities else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(path)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        verifier.map(Some).map_err(|error| unusable(path, &error))
    }
}

fn certificates(path: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_slice_iter(&read(path)?).collect::<Result<Vec<_>, _>>();
    found.map_err(|error| unusable(path, &error))
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}

fn unusable(path: &str, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{path}: {error}"))
}

/// Believes whom an authority vouches for, or everybody.
#[derive(Debug)]
struct Verifier {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        match authorities.verify_server_cert(end_entity, intermediates, name, ocsp_response, now) {
            // The name is looked at last: all else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
