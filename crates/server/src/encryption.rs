//! TLS as the configuration has it: contexts are made at the start, and anew at each CONFIG SET of a directive of TLS and at SIGHUP. What cannot be
//! made leaves those in force that are there.

use crate::rights;
use crate::server::Server;
use crate::session::Session;
use crate::tls::{self, ClientCertificates, Contexts, Settings};
use acl::{Access, Attempt, Reason, Setting, UserFlags};
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
pub fn follow_config(server: &Server) -> Result<Option<Arc<Contexts>>, String> {
    let config = &server.engine.config;
    if config.tls_port() == 0 && !config.tls_cluster() {
        return Ok(server.tls.replace(None));
    }
    let (contexts, warnings) = Contexts::load(&settings(config))?;
    warnings.iter().for_each(|warning| log!(Warning, "{warning}"));
    Ok(server.tls.replace(Some(Arc::new(contexts))))
}

/// The same before anybody is served.
///
/// # Errors
/// TLS is wanted and cannot be had.
pub fn begin(server: &Server) -> io::Result<()> {
    follow_config(server).map(drop).map_err(|reason| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("Failed to configure TLS: {reason}"))
    })
}

/// Reads certificates and keys again.
pub fn read_again(server: &Server) {
    if server.tls.contexts().is_none() {
        return;
    }
    match follow_config(server) {
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

/// Lets a client whose certificate names a user be that user, if the configuration says so. Any other certificate leaves the client what it
/// was, and is noted.
pub fn name_user(server: &Server, session: &mut Session, secure: &tls::Session) {
    if !server.engine.config.tls_auth_clients_user() {
        return;
    }
    let Some(name) = secure.client_certificate().and_then(tls::common_name) else { return };
    if let Some(user) = server.acl.get(&name).filter(|user| user.flags().contains(UserFlags::ON)) {
        return session.act_as(Access::of(user));
    }
    let (reason, setting) = (Reason::Certificate, Setting::TopLevel);
    let attempt = Attempt { reason, setting, object: b"", user: &name };
    rights::note_attempt(server, &session.client, attempt, server.engine.clock.now());
}
