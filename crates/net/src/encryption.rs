//! TLS as the configuration has it: contexts are made at the start, and anew at each CONFIG SET of a directive of TLS and at SIGHUP. What cannot be
//! made leaves those in force that are there.

use crate::tls::{ClientCertificates, Contexts, Settings, Tls};
use config::{Config, TlsAuthClients};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use telemetry::log;

/// Whether a directive is one of TLS, whose files are read again whatever it is set to.
pub fn is_about(directive: &[u8]) -> bool {
    directive.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case(b"tls-"))
}

/// Makes contexts as the configuration says, and has them used. Returns those that were used before.
///
/// # Errors
/// A sentence that names the directive; nothing has changed.
pub fn follow_config(tls: &Tls, config: &Config) -> Result<Option<Arc<Contexts>>, String> {
    let is_wanted = config.tls_port() != 0 || config.tls_replication() || config.tls_cluster();
    if !is_wanted {
        return Ok(tls.replace(None));
    }
    let (contexts, warnings) = Contexts::load(&settings(config))?;
    warnings.iter().for_each(|warning| log!(Warning, "{warning}"));
    Ok(tls.replace(Some(Arc::new(contexts))))
}

/// The same before anybody is served.
///
/// # Errors
/// TLS is wanted and cannot be had.
pub fn begin(tls: &Tls, config: &Config) -> io::Result<()> {
    follow_config(tls, config).map(drop).map_err(|reason| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("Failed to configure TLS: {reason}"))
    })
}

/// Reads certificates and keys again.
pub fn read_again(tls: &Tls, config: &Config) {
    if tls.contexts().is_none() {
        return;
    }
    match follow_config(tls, config) {
        Ok(_) => log!(Notice, "TLS certificates and keys have been read again"),
        Err(reason) => log!(Warning, "TLS stays as it is: {reason}"),
    }
}

fn settings(config: &Config) -> Settings {
    let path = |bytes| PathBuf::from(OsString::from_vec(bytes));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Settings {
        certificate: path(config.tls_cert_file()),
        key: path(config.tls_key_file()),
        client_certificate: path(config.tls_client_cert_file()),
        client_key: path(config.tls_client_key_file()),
        authorities_file: path(config.tls_ca_cert_file()),
        authorities_dir: path(config.tls_ca_cert_dir()),
        client_certificates: match config.tls_auth_clients() {
            TlsAuthClients::No => ClientCertificates::NotAsked,
            TlsAuthClients::Yes => ClientCertificates::Required,
            TlsAuthClients::Optional => ClientCertificates::Optional,
        },
        is_for_servers: config.tls_cluster(),
        protocols: text(config.tls_protocols()),
        ciphers: text(config.tls_ciphers()),
        ciphersuites: text(config.tls_ciphersuites()),
        prefers_own_order: config.tls_prefer_server_ciphers(),
        session_seconds: config.tls_session_caching().then(|| config.tls_session_cache_timeout_s()),
    }
}
