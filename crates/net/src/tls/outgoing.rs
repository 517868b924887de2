//! Connections to other servers. They have to show a certificate of an authority that is named here; what name is in it does not
//! count, as with Redis: servers are reached by addresses, and not by the names that certificates are made out to.

use super::{Settings, Versions, files};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// What connections to other servers are made from.
pub fn config(
    settings: &Settings,
    provider: &Arc<CryptoProvider>,
    versions: &Versions,
    authorities: Arc<RootCertStore>,
) -> Result<ClientConfig, String> {
    let verifier = WebPkiServerVerifier::builder_with_provider(authorities, provider.clone())
        .build()
        .map_err(|error| format!("The certificates of authorities: {error}"))?;
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| format!("tls-protocols and the lists of suites do not go together: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OfAnyName(verifier)));
    if settings.certificate.as_os_str().is_empty() && settings.client_certificate.as_os_str().is_empty() {
        return Ok(builder.with_no_client_auth());
    }
    let has_own = !settings.client_certificate.as_os_str().is_empty();
    let (certificate, key_file, directives) = match has_own {
        true => {
            let directives = ("tls-client-cert-file", "tls-client-key-file");
            (&settings.client_certificate, &settings.client_key, directives)
        }
        false => (&settings.certificate, &settings.key, ("tls-cert-file", "tls-key-file")),
    };
    let chain = files::certificates(certificate, directives.0)?;
    let key = files::key(key_file, directives.1)?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| files::unusable(&error, (certificate, key_file), directives))
}

/// Checks who made a certificate, its times and its uses, but not the name in it.
#[derive(Debug)]
struct OfAnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for OfAnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
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
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
