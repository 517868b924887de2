//! Certificates made for one test, and a client that speaks TLS.

use crate::client::REPLY_SECONDS_MAX;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::{Decoder, Value, encode_request};

/// Somebody whose certificates count.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// If there is no randomness.
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("the system has randomness");
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("an authority may vouch for itself").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// It, where others would be.
    pub fn itself(&self) -> Identity {
        Identity { certificate: self.pem.clone(), key: self.issuer.key().serialize_pem() }
    }

    /// Its own certificate, as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for somebody of this name, at 127.0.0.1.
    pub fn issue(&self, name: &str) -> Identity {
        self.sign(params(name))
    }

    /// The same, but its time is over.
    pub fn issue_expired(&self, name: &str) -> Identity {
        let mut params = params(name);
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("the system has randomness");
        let certificate = params.signed_by(&key, &self.issuer).expect("an authority may vouch for others");
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn params(name: &str) -> CertificateParams {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).expect("both are names");
    params.distinguished_name.push(DnType::OrganizationName, "Tarn's tests");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Identity {
    /// Writes `NAME.crt` and `NAME.key` into a directory; returns their paths.
    ///
    /// # Errors
    /// Those of the system.
    pub fn write(&self, dir: &Path, name: &str) -> io::Result<(PathBuf, PathBuf)> {
        let (certificate, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        std::fs::write(&certificate, &self.certificate)?;
        std::fs::write(&key, &self.key)?;
        Ok((certificate, key))
    }
}

/// A server's files for TLS in a directory of their own, which goes with this.
pub struct Files {
    dir: PathBuf,
    /// Whose certificates count.
    pub authority: Authority,
}

impl Files {
    /// New ones: `ca.crt`, `server.crt` and `server.key`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new() -> io::Result<Files> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("tarn-tls-{}-{number}", std::process::id()));
        let authority = Authority::new("authority");
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join("ca.crt"), authority.pem())?;
        authority.issue("server").write(&dir, "server")?;
        Ok(Files { dir, authority })
    }

    /// Where they are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of one.
    ///
    /// # Panics
    /// If the system's temporary directory has no name in UTF-8.
    pub fn path(&self, name: &str) -> String {
        self.dir.join(name).into_os_string().into_string().expect("tests run in directories with plain names")
    }

    /// The directives that name them.
    pub fn directives(&self) -> [(&'static str, String); 3] {
        [
            ("tls-cert-file", self.path("server.crt")),
            ("tls-key-file", self.path("server.key")),
            ("tls-ca-cert-file", self.path("ca.crt")),
        ]
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A connection with TLS. Whoever the server says it is, it is believed.
pub struct SecureClient {
    config: Arc<ClientConfig>,
    stream: StreamOwned<ClientConnection, TcpStream>,
    decoder: Decoder,
}

impl SecureClient {
    /// Connects and agrees on keys, with a certificate if the server is to be shown one.
    ///
    /// # Errors
    /// If nobody listens there, or the server does not want to.
    pub fn connect(address: SocketAddr, identity: Option<&Identity>) -> io::Result<SecureClient> {
        SecureClient::with(Arc::new(config(identity)), address)
    }

    /// Another connection, which may go on with the session of this one.
    ///
    /// # Errors
    /// As [`SecureClient::connect`].
    pub fn again(&self, address: SocketAddr) -> io::Result<SecureClient> {
        SecureClient::with(self.config.clone(), address)
    }

    fn with(config: Arc<ClientConfig>, address: SocketAddr) -> io::Result<SecureClient> {
        let mut client = SecureClient::over(TcpStream::connect(address)?, config)?;
        client.stream.conn.complete_io(&mut client.stream.sock)?;
        Ok(client)
    }

    fn over(socket: TcpStream, config: Arc<ClientConfig>) -> io::Result<SecureClient> {
        socket.set_nodelay(true)?;
        let timeout = Some(Duration::from_secs(REPLY_SECONDS_MAX));
        socket.set_read_timeout(timeout)?;
        socket.set_write_timeout(timeout)?;
        let name = ServerName::try_from("localhost").expect("it is a name");
        let connection = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        Ok(SecureClient { config, stream: StreamOwned::new(connection, socket), decoder: Decoder::new() })
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Says that nothing more comes, and goes on listening.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn say_end(&mut self) -> io::Result<()> {
        self.stream.conn.send_close_notify();
        self.stream.flush()
    }

    /// One request and its reply.
    ///
    /// # Errors
    /// As [`SecureClient::send`] and [`SecureClient::read_value`].
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Value> {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, &args.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        self.send(&bytes)?;
        self.read_value()
    }

    /// The next reply.
    ///
    /// # Errors
    /// `UnexpectedEof` if the server closed, `InvalidData` if the bytes are no reply.
    pub fn read_value(&mut self) -> io::Result<Value> {
        let mut bytes = [0; 16 << 10];
        loop {
            let value = self.decoder.decode().map_err(|_| io::ErrorKind::InvalidData)?;
            if let Some(value) = value {
                return Ok(value);
            }
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.decoder.feed(&bytes[..count]),
            }
        }
    }

    /// All that comes before the server says that nothing more does.
    ///
    /// # Errors
    /// `UnexpectedEof` if it goes away without a word.
    pub fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The certificate that the server has shown.
    pub fn server_certificate(&self) -> Option<Vec<u8>> {
        self.stream.conn.peer_certificates()?.first().map(|certificate| certificate.to_vec())
    }

    /// Whether this went on with an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.stream.conn.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// The socket alone, of which the server does not know that nobody can read it any more.
    pub fn into_socket(self) -> TcpStream {
        self.stream.sock
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        &self.stream.sock
    }
}

fn config(identity: Option<&Identity>) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites of both versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody));
    match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("it was made so");
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("it was made so");
            builder.with_client_auth_cert(vec![certificate], key).expect("they were made together")
        }
    }
}

/// Believes every server.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
