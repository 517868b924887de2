//! TLS: what the directives and files say becomes contexts that connections are made from ([`Contexts`]), and one connection's
//! side of the protocol over bytes ([`Session`]). Knows no sockets, no commands and no configuration but [`Settings`].
//!
//! Thread rule: contexts are values that any thread shares. New ones replace them as a whole ([`Tls::replace`]); connections that
//! are there keep those that they began with.

mod chains;
mod files;
mod outgoing;
mod session;
mod subject;
mod suites;
mod tickets;

pub use session::{Failed, PARTIAL_BYTES_MAX, Progress, Session};
pub use subject::common_name;

use parking_lot::RwLock;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::PathBuf;
use std::sync::Arc;

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked.
    NotAsked,
    /// Who shows none is served as well.
    Optional,
    /// Who shows none is not served.
    Required,
}

/// What the directives say. Empty paths and texts are directives that say nothing.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server's certificate and those between it and its authority.
    pub certificate: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
    /// What is shown to other servers, where that is not the same.
    pub client_certificate: PathBuf,
    /// The key of that certificate.
    pub client_key: PathBuf,
    /// Authorities that others' certificates come from, in one file.
    pub authorities_file: PathBuf,
    /// The same, in the files of a directory.
    pub authorities_dir: PathBuf,
    /// Whether clients show certificates.
    pub client_certificates: ClientCertificates,
    /// Whether connections to other servers are made by these contexts, too.
    pub is_for_servers: bool,
    /// Versions by name, with spaces between them.
    pub protocols: String,
    /// Suites of TLS 1.2, as OpenSSL has them.
    pub ciphers: String,
    /// Suites of TLS 1.3, as OpenSSL has them.
    pub ciphersuites: String,
    /// Whether the order of suites is the server's.
    pub prefers_own_order: bool,
    /// How long a session can be gone on with, in seconds; None: it cannot.
    pub session_seconds: Option<u32>,
}

impl Default for Settings {
    /// As where no directive says anything.
    fn default() -> Settings {
        Settings {
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            client_certificate: PathBuf::new(),
            client_key: PathBuf::new(),
            authorities_file: PathBuf::new(),
            authorities_dir: PathBuf::new(),
            client_certificates: ClientCertificates::Required,
            is_for_servers: false,
            protocols: String::new(),
            ciphers: String::new(),
            ciphersuites: String::new(),
            prefers_own_order: false,
            session_seconds: Some(300),
        }
    }
}

/// What connections are made from.
#[derive(Debug)]
pub struct Contexts {
    /// For those that come.
    pub server: Arc<ServerConfig>,
    /// For those to other servers; there are none without authorities.
    pub client: Option<Arc<ClientConfig>>,
}

impl Contexts {
    /// Reads the files. Also returns what an operator should know though it works.
    ///
    /// # Errors
    /// A sentence that names the directive.
    pub fn load(settings: &Settings) -> Result<(Contexts, Vec<String>), String> {
        let mut warnings = Vec::new();
        let (provider, versions) = provider(settings, &mut warnings)?;
        let needs_authorities =
            settings.client_certificates != ClientCertificates::NotAsked || settings.is_for_servers;
        let authorities = files::authorities(settings, &mut warnings)?.map(Arc::new);
        if needs_authorities && authorities.is_none() {
            return Err("Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, \
                        tls-replication or tls-auth-clients are enabled!"
                .to_owned());
        }
        let server = server(settings, &provider, &versions, authorities.clone())?;
        let client = match authorities {
            Some(authorities) => {
                Some(Arc::new(outgoing::config(settings, &provider, &versions, authorities)?))
            }
            None => None,
        };
        Ok((Contexts { server: Arc::new(server), client }, warnings))
    }

    /// What a tool's connections to servers are made from. It shows a certificate if it has one.
    ///
    /// # Errors
    /// A sentence that names the directive.
    pub fn outgoing(settings: &Settings) -> Result<Arc<ClientConfig>, String> {
        let mut warnings = Vec::new();
        let (provider, versions) = provider(settings, &mut warnings)?;
        let authorities = files::authorities(settings, &mut warnings)?;
        let authorities = authorities.ok_or("no authority is named that servers' certificates come from")?;
        outgoing::config(settings, &provider, &versions, Arc::new(authorities)).map(Arc::new)
    }
}

fn provider(
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<(Arc<CryptoProvider>, Versions), String> {
    let (cipher_suites, versions) = suites::chosen(settings, warnings)?;
    let provider = CryptoProvider { cipher_suites, ..rustls::crypto::ring::default_provider() };
    Ok((Arc::new(provider), versions))
}

type Versions = Vec<&'static rustls::SupportedProtocolVersion>;

fn server(
    settings: &Settings,
    provider: &Arc<CryptoProvider>,
    versions: &Versions,
    authorities: Option<Arc<RootCertStore>>,
) -> Result<ServerConfig, String> {
    let chain = files::certificates(&settings.certificate, "tls-cert-file")?;
    let key = files::key(&settings.key, "tls-key-file")?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| format!("tls-protocols and the lists of suites do not go together: {error}"))?;
    let builder = match (settings.client_certificates, authorities) {
        (ClientCertificates::NotAsked, _) | (_, None) => builder.with_no_client_auth(),
        (asked, Some(authorities)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider.clone());
            let verifier = match asked {
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier =
                verifier.build().map_err(|error| format!("The certificates of authorities: {error}"))?;
            builder.with_client_cert_verifier(Arc::new(chains::ShortChains::new(verifier)))
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        let files = (&*settings.certificate, &*settings.key);
        files::unusable(&error, files, ("tls-cert-file", "tls-key-file"))
    })?;
    config.ignore_client_order = settings.prefers_own_order;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    match settings.session_seconds {
        Some(seconds) => {
            config.ticketer = tickets::issuer(seconds)?;
            config.send_tls13_tickets = 1;
        }
        None => config.send_tls13_tickets = 0,
    }
    Ok(config)
}

/// The contexts in force; none while TLS is off.
#[derive(Debug, Default)]
pub struct Tls(RwLock<Option<Arc<Contexts>>>);

impl Tls {
    /// The contexts in force.
    pub fn contexts(&self) -> Option<Arc<Contexts>> {
        self.0.read().clone()
    }

    /// Puts others in their place, for connections that come from now on. Returns those that were there.
    pub fn replace(&self, contexts: Option<Arc<Contexts>>) -> Option<Arc<Contexts>> {
        std::mem::replace(&mut *self.0.write(), contexts)
    }
}
