use super::*;
use crate::tls::{ClientCertificates, Contexts, Settings};
use rustls::client::{ClientConfig, ClientConnection};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{RootCertStore, pki_types::PrivateKeyDer};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use sys::Prng;
use testkit::tls::Authority;

/// Two who can speak with each other.
struct Pair {
    contexts: Contexts,
    client: Arc<ClientConfig>,
    dir: PathBuf,
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Pair {
    fn new(name: &str, protocols: &str, shows: bool) -> Pair {
        Pair::with(name, protocols, shows, Vec::new())
    }

    /// The server takes the certificates of other authorities, too.
    fn among(protocols: &str, others: &[Authority]) -> Pair {
        let mut pair = Pair::new("among", protocols, true);
        let mut pem = std::fs::read_to_string(pair.dir.join("ca.crt")).unwrap();
        others.iter().for_each(|other| pem.push_str(other.pem()));
        std::fs::write(pair.dir.join("ca.crt"), pem).unwrap();
        pair.contexts = Contexts::load(&settings(&pair.dir, protocols)).unwrap().0;
        pair
    }

    /// The client shows these beside its own certificate.
    fn with(name: &str, protocols: &str, shows: bool, others: Vec<CertificateDer<'static>>) -> Pair {
        let dir = std::env::temp_dir().join(format!("tarn-session-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let authority = Authority::new("authority");
        authority.issue("server").write(&dir, "server").unwrap();
        std::fs::write(dir.join("ca.crt"), authority.pem()).unwrap();
        let contexts = Contexts::load(&settings(&dir, protocols)).unwrap().0;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(contexts.server.crypto_provider().clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let identity = authority.issue("client");
        let client = match shows {
            true => {
                let own = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
                let chain = [own].into_iter().chain(others).collect();
                builder
                    .with_client_auth_cert(
                        chain,
                        PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap(),
                    )
                    .unwrap()
            }
            false => builder.with_no_client_auth(),
        };
        Pair { contexts, client: Arc::new(client), dir }
    }

    fn meet(&self) -> (Session, ClientConnection) {
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(self.client.clone(), name).unwrap();
        (Session::new(self.contexts.server.clone()).unwrap(), client)
    }
}

/// What a server is set to whose files are there.
fn settings(dir: &Path, protocols: &str) -> Settings {
    Settings {
        certificate: dir.join("server.crt"),
        key: dir.join("server.key"),
        client_certificate: PathBuf::new(),
        client_key: PathBuf::new(),
        authorities_file: dir.join("ca.crt"),
        authorities_dir: PathBuf::new(),
        client_certificates: ClientCertificates::Required,
        is_for_servers: false,
        protocols: protocols.to_owned(),
        ciphers: String::new(),
        ciphersuites: String::new(),
        prefers_own_order: false,
        session_seconds: Some(300),
    }
}

/// Hands the server what the client sends, as many bytes at a time as `piece` says, after `change` has had its will with them.
fn talk(
    (server, client): (&mut Session, &mut ClientConnection),
    mut piece: impl FnMut() -> usize,
    mut change: impl FnMut(&mut Vec<u8>),
) -> Result<Vec<u8>, Failed> {
    let mut said = Vec::new();
    loop {
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).unwrap();
        }
        if flight.is_empty() {
            return Ok(said);
        }
        change(&mut flight);
        let mut answers = Vec::new();
        let mut rest = &flight[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
            let mut bytes = [server.partial(), now].concat();
            let opened = server.open(&mut bytes, &mut answers, |words| said.extend_from_slice(words));
            if let Err(failed) = opened {
                assert!(server.open(&mut bytes, &mut answers, |_| {}).is_err());
                assert!(server.seal(b"+PONG\r\n", &mut answers).is_err());
                assert!(server.seal_end(&mut answers).is_err());
                return Err(failed);
            }
            rest = later;
        }
        let mut answers = &answers[..];
        while !answers.is_empty() && client.read_tls(&mut answers).unwrap() > 0 {
            if client.process_new_packets().is_err() {
                return Ok(said);
            }
        }
    }
}

#[test]
fn what_is_sealed_is_what_the_other_reads() {
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        for size in [1, 7, 100, usize::MAX] {
            let pair = Pair::new("whole", protocols, true);
            let (mut server, mut client) = pair.meet();
            talk((&mut server, &mut client), || size, |_| {}).unwrap();
            assert!(!server.is_handshaking() && server.client_certificate().is_some());
            assert_eq!(super::super::common_name(server.client_certificate().unwrap()).unwrap(), b"client");
            client.writer().write_all(b"PING\r\n").unwrap();
            assert_eq!(talk((&mut server, &mut client), || size, |_| {}).unwrap(), b"PING\r\n");
            assert_eq!(server.allocated_bytes(), 0);
            let words: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
            let mut sealed = Vec::new();
            server.seal(&words, &mut sealed).unwrap();
            server.seal_end(&mut sealed).unwrap();
            let (mut sealed, mut read) = (&sealed[..], Vec::new());
            while !sealed.is_empty() {
                client.read_tls(&mut sealed).unwrap();
                client.process_new_packets().unwrap();
                let mut bytes = vec![0; 1 << 20];
                while let Ok(count @ 1..) = client.reader().read(&mut bytes) {
                    read.extend_from_slice(&bytes[..count]);
                }
            }
            assert!(read == words);
        }
    }
}

#[test]
fn clients_without_a_certificate_are_told_so() {
    let pair = Pair::new("without", "", false);
    let (mut server, mut client) = pair.meet();
    let Failed(error) = talk((&mut server, &mut client), || usize::MAX, |_| {}).unwrap_err();
    assert_eq!(error, rustls::Error::NoCertificatesPresented);
}

#[test]
fn chains_of_many_certificates_are_not_followed() {
    let one = || CertificateDer::from_pem_slice(Authority::new("one name").pem().as_bytes()).unwrap();
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        for (count, is_served) in [(6, true), (7, false)] {
            let pair = Pair::with("chain", protocols, true, (0..count).map(|_| one()).collect());
            let (mut server, mut client) = pair.meet();
            let talked = talk((&mut server, &mut client), || usize::MAX, |_| {});
            assert_eq!(
                talked.is_ok() && !server.is_handshaking(),
                is_served,
                "{protocols} {count} {talked:?}"
            );
        }
    }
}

#[test]
fn more_authorities_than_a_handshake_can_name_count_all_the_same() {
    let others: Vec<_> =
        (0..200).map(|number| Authority::new(&format!("{number} {}", "x".repeat(400)))).collect();
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let pair = Pair::among(protocols, &others);
        let (mut server, mut client) = pair.meet();
        talk((&mut server, &mut client), || usize::MAX, |_| {}).unwrap();
        assert!(!server.is_handshaking() && server.client_certificate().is_some());
    }
}

#[test]
fn what_a_client_has_shown_counts_as_its_own() {
    let others: Vec<_> = (0..4).map(|_| CertificateDer::from(vec![0; 5000])).collect();
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let pair = Pair::with("shown", protocols, true, others.clone());
        let (mut server, mut client) = pair.meet();
        let mut greeting = Vec::new();
        client.write_tls(&mut greeting).unwrap();
        let (length, mut answers) = (greeting.len(), Vec::new());
        server.open(&mut greeting, &mut answers, |_| {}).unwrap();
        assert!(server.is_handshaking() && server.allocated_bytes() >= length);
        let mut answers = &answers[..];
        while !answers.is_empty() {
            client.read_tls(&mut answers).unwrap();
            client.process_new_packets().unwrap();
        }
        talk((&mut server, &mut client), || usize::MAX, |_| {}).unwrap();
        let bytes = server.allocated_bytes();
        assert!(!server.is_handshaking() && (16_000..24_000).contains(&bytes), "{protocols} {bytes}");
    }
}

/// Whatever comes, it ends in an error or in nothing, and what is kept stays short.
#[test]
fn damaged_flights_end_in_errors() {
    let pairs =
        [Pair::new("one", "TLSv1.2", true), Pair::new("two", "TLSv1.3", true), Pair::new("three", "", false)];
    let mut prng = Prng::from_seed(7);
    let mut failures = 0;
    for round in 0..600usize {
        let (mut server, mut client) = pairs[round % pairs.len()].meet();
        let damage_at = prng.below(3);
        let mut flights = 0;
        let mut pieces = Prng::from_seed(round as u64);
        let said = talk(
            (&mut server, &mut client),
            || 1 + pieces.below(400) as usize,
            |flight| {
                if flights == damage_at {
                    for _ in 0..=prng.below(3) {
                        let at = prng.below(flight.len() as u64) as usize;
                        match prng.below(4) {
                            0 => flight.truncate(at.max(1)),
                            1 => flight[at] ^= 1 << prng.below(8),
                            2 => flight.insert(at, prng.below(256) as u8),
                            _ => drop(flight.splice(at..at, flight.clone())),
                        }
                    }
                }
                flights += 1;
            },
        );
        failures += usize::from(said.is_err());
        assert!(server.partial().len() <= PARTIAL_BYTES_MAX);
    }
    assert!(failures > 100, "{failures}");
}
