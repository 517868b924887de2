//! Directives about TLS.

use super::super::row::{BOOL, Flags, INT, Kind, PORT, Row, TEXT, absent, works};
use super::super::words::TlsAuthClients;

const CACHE: &str = "sessions are kept by clients, in tickets";

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    works("tls-auth-clients", Kind::Enum(TlsAuthClients::WORDS), "yes"),
    works("tls-auth-clients-user", Kind::Enum(&["off", "CN"]), "off")
        .here("`CN`: a client whose certificate has a user's name for its common name is that user, as with Redis 8.6 and Valkey 9"),
    works("tls-ca-cert-dir", TEXT, "").here("all certificates in all files of the directory, whatever their names"),
    works("tls-ca-cert-file", TEXT, ""),
    works("tls-cert-file", TEXT, "").here("read again at every CONFIG SET of a TLS directive, and at SIGHUP"),
    works("tls-ciphers", TEXT, "").here("there are six suites of TLS 1.2: ECDHE with AES-GCM or ChaCha20; what else a list names is left out"),
    works("tls-ciphersuites", TEXT, ""),
    works("tls-client-cert-file", TEXT, ""),
    works("tls-client-key-file", TEXT, ""),
    absent("tls-client-key-file-pass", TEXT, "", "encrypted keys are not read").flags(Flags::SENSITIVE),
    works("tls-cluster", BOOL, "no").here("in a cluster, config servers are spoken to by TLS, and other servers about anything but replication; MIGRATE speaks it, too"),
    absent("tls-dh-params-file", TEXT, "", "keys are agreed on by elliptic curves only"),
    works("tls-key-file", TEXT, ""),
    absent("tls-key-file-pass", TEXT, "", "encrypted keys are not read").flags(Flags::SENSITIVE),
    works("tls-port", PORT, "0"),
    works("tls-prefer-server-ciphers", BOOL, "no"),
    works("tls-protocols", TEXT, "").here("`TLSv1.2` and `TLSv1.3`; older versions are left out"),
    works("tls-replication", BOOL, "no"),
    absent("tls-session-cache-size", INT, "20480", CACHE),
    works("tls-session-cache-timeout", INT, "300"),
    works("tls-session-caching", BOOL, "yes").here("by tickets: the server keeps nothing of sessions that are over"),
];
