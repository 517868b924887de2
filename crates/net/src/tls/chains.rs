//! Chains of certificates that clients show. Whoever connects can show one, so how much work it is to follow one has a bound.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// Certificates that a client may show beside its own. No path that counts is longer; the number of paths to be tried grows with the
/// factorial of this, where all of them bear one name.
pub(super) const INTERMEDIATES_MAX: usize = 6;

/// The names of authorities that a handshake tells, together: the protocol has room for 64 KB.
const HINT_BYTES_MAX: usize = 32 << 10;

/// Looks at short chains only, and names no more authorities than there is room for.
#[derive(Debug)]
pub(super) struct ShortChains {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Clients are told which authorities count.
    is_hinting: bool,
}

impl ShortChains {
    /// Leaves the rest to `verifier`.
    pub(super) fn new(verifier: Arc<dyn ClientCertVerifier>) -> ShortChains {
        let bytes: usize = verifier.root_hint_subjects().iter().map(|name| 2 + name.as_ref().len()).sum();
        ShortChains { verifier, is_hinting: bytes <= HINT_BYTES_MAX }
    }
}

impl ClientCertVerifier for ShortChains {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Who is told none shows the certificate that it has.
        if self.is_hinting { self.verifier.root_hint_subjects() } else { &[] }
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if intermediates.len() > INTERMEDIATES_MAX {
            let shown = intermediates.len();
            return Err(Error::General(format!(
                "the client has shown {shown} certificates beside its own, of {INTERMEDIATES_MAX} at most"
            )));
        }
        self.verifier.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
