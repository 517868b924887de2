//! How a replica dials its master: it says `INSYNC LINK` on an ordinary connection, and from then on `INSYNC SAY` with a line, which has no answer; the master's lines
//! come as `+` lines.
//!
//! Data does not travel here, but as to any replica (`crate::following`, `crate::feeding`).
//!
//! Thread rule: each link that was dialled has a thread.

use crate::server::Server;
use crate::shard::{Address, Letter, Outbox, Settings, Shard};
use net::connect::Outgoing;
use replication::insync::{Event, Life, LinkId, MemberId, Message, NodeId};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::log;
use wire::encode_request;

/// How long it may take to reach a node and be known to it.
const DIALLING: Duration = Duration::from_millis(900);

/// How long nothing may happen on a link before it is looked whether it is still wanted.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a line may take to leave.
const SENDING: Duration = Duration::from_secs(2);

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// The longest line that is read.
const LINE_BYTES_MAX: usize = 8 << 20;

/// What a master answers to the question up to where a copy that was taken needs the stream.
pub const END: &str = "end ";

/// Dials a node, in a thread of its own. What comes of it is posted.
pub fn dial(server: &Arc<Server>, shard: &Arc<Shard>, node: NodeId, own: MemberId) {
    let begun = Outbox::new().and_then(|outbox| {
        let outbox = Arc::new(outbox);
        let link = shard.links.dial(&outbox);
        let (server, shard) = (server.clone(), shard.clone());
        let work = move || {
            let dialled = Dialled { server: &server, shard: &shard, link, outbox: &outbox };
            dialled.run(node, own);
        };
        std::thread::Builder::new().name("shard-link".to_owned()).spawn(work)
    });
    if begun.is_err() {
        shard.post(Letter::Happened(Event::Closed { link: None }));
    }
}

struct Dialled<'d> {
    server: &'d Arc<Server>,
    shard: &'d Arc<Shard>,
    link: LinkId,
    outbox: &'d Outbox,
}

impl Dialled<'_> {
    fn run(self, node: NodeId, own: MemberId) {
        let reached = self.reach(node, own);
        if !self.shard.links.is_newest(self.link) {
            // Somebody else is dialled meanwhile, and nothing is said of this one.
            self.shard.links.forget(self.link);
            return;
        }
        match reached {
            Err(error) => {
                self.shard.links.forget(self.link);
                if self.shard.links.is_first_failure(&error.to_string()) {
                    log!(
                        Warning,
                        "Node {} of the shard is not reached, or does not take this one: {error}",
                        node.0
                    );
                }
                self.shard.post(Letter::Happened(Event::Closed { link: None }));
            }
            Ok((outgoing, rest, of)) => {
                self.shard.links.is_first_failure("");
                self.shard.post(Letter::Happened(Event::Connected { link: self.link }));
                let Err(_) = self.attend(outgoing, rest, of);
                self.shard.lost(self.link);
            }
        }
    }

    fn look(&self) -> io::Result<()> {
        super::look(self.server)?;
        match self.outbox.is_over() {
            true => Err(ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// Connects, says who this is, and hears who the other is.
    fn reach(&self, node: NodeId, own: MemberId) -> io::Result<(Outgoing, Vec<u8>, MemberId)> {
        let settings = &self.shard.settings;
        let address = self.shard.address_of(node).ok_or(ErrorKind::NotFound)?;
        let deadline = Instant::now() + DIALLING;
        let by = TlsBy::Replication;
        let mut outgoing = connect(self.server, &address, by, deadline, &mut || self.look())?;
        let (mut bytes, mut answers) = (Vec::new(), 1);
        if let Some(words) = credentials(self.server) {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            encode_request(&mut bytes, &words);
            answers += 1;
        }
        let introduction = introduction(settings, own, self.server.engine.keyspace.databases());
        let words = introduction.each_ref().map(Vec::as_slice);
        encode_request(&mut bytes, &words);
        outgoing.set_deadline(deadline);
        outgoing.write_all(&bytes, &mut || self.look())?;
        let (mut rest, mut last) = (Vec::new(), String::new());
        while answers > 0 {
            answers -= 1;
            last = match self.next_line(&mut outgoing, &mut rest) {
                Err(error) if error.to_string().starts_with(TOO_MANY_WORDS) && answers == 0 => {
                    let mut bytes = Vec::new();
                    encode_request(&mut bytes, &words[..WORDS_ONCE]);
                    outgoing.write_all(&bytes, &mut || self.look())?;
                    self.next_line(&mut outgoing, &mut rest)?
                }
                line => line?,
            };
        }
        let life = last.strip_prefix("life ").and_then(|life| life.parse().ok());
        let life = life.ok_or_else(|| io::Error::other("it does not say who it is"))?;
        Ok((outgoing, rest, MemberId { node, life: Life(life) }))
    }

    /// Waits for a line.
    fn next_line(&self, outgoing: &mut Outgoing, rest: &mut Vec<u8>) -> io::Result<String> {
        loop {
            match take_line(rest)? {
                Some(line) => return Ok(line),
                None => read_more(outgoing, rest, &mut || self.look())?,
            }
        }
    }

    fn attend(
        &self,
        mut outgoing: Outgoing,
        mut rest: Vec<u8>,
        of: MemberId,
    ) -> io::Result<std::convert::Infallible> {
        loop {
            while let Some(line) = take_line(&mut rest)? {
                take(self.shard, (self.link, of), &line)?;
            }
            self.outbox.bell.silence();
            let bytes = self.outbox.take().ok_or(ErrorKind::ConnectionAborted)?;
            if !bytes.is_empty() {
                outgoing.set_deadline(Instant::now() + SENDING);
                outgoing.write_all(&bytes, &mut || self.look())?;
            }
            self.look()?;
            if self.outbox.bell.wait_beside(outgoing.socket(), PATIENCE)? {
                outgoing.set_deadline(Instant::now() + SENDING);
                read_more(&mut outgoing, &mut rest, &mut || self.look())?;
            }
        }
    }
}

/// Takes a line of the master's on a link.
///
/// # Errors
/// It is nothing that a master says.
pub(super) fn take(shard: &Shard, (link, from): (LinkId, MemberId), line: &str) -> io::Result<()> {
    let end = line.strip_prefix(END).and_then(|end| end.parse().ok());
    shard.post(match end {
        Some(offset) => Letter::CopyNeeds { link, offset },
        None => {
            let message = Message::from_line(line).ok_or(ErrorKind::InvalidData)?;
            Letter::Happened(Event::Received { link, from, message })
        }
    });
    Ok(())
}

/// What a node of an earlier version answers to an introduction with the number of databases, which it takes without.
const TOO_MANY_WORDS: &str = "ERR wrong number of arguments";

/// The words of an introduction that such a one takes.
const WORDS_ONCE: usize = 5;

/// What a node says first: the shard, who it is, and how many databases it has, as it can do nothing in others.
pub(super) fn introduction(settings: &Settings, own: MemberId, databases: u32) -> [Vec<u8>; 6] {
    let (node, life) = (own.node.0.to_string(), own.life.0.to_string());
    [
        b"INSYNC".to_vec(),
        b"LINK".to_vec(),
        settings.name.clone().into_bytes(),
        node.into_bytes(),
        life.into_bytes(),
        databases.to_string().into_bytes(),
    ]
}

/// Reads what is there.
fn read_more(
    outgoing: &mut Outgoing,
    rest: &mut Vec<u8>,
    look: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = [0; READ_BYTES];
    match outgoing.read(&mut buffer, look)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => {
            rest.extend_from_slice(&buffer[..count]);
            Ok(())
        }
    }
}

/// Takes a line that is whole.
///
/// # Errors
/// It is an error of the other's, or nothing that it may say.
pub(super) fn take_line(rest: &mut Vec<u8>) -> io::Result<Option<String>> {
    let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
        return match rest.len() > LINE_BYTES_MAX {
            true => Err(ErrorKind::InvalidData.into()),
            false => Ok(None),
        };
    };
    let line: Vec<u8> = rest.drain(..end + 2).take(end).collect();
    match line.split_first() {
        Some((b'+', line)) => Ok(Some(String::from_utf8_lossy(line).into_owned())),
        Some((b'-', line)) => Err(io::Error::other(String::from_utf8_lossy(line).into_owned())),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// The directive that says whether TLS is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsBy {
    /// `tls-replication`: to nodes of the same shard, and to its store of decisions if that is a server.
    Replication,
    /// `tls-cluster`: to config servers, and to any server for what is not replication.
    Cluster,
}

impl TlsBy {
    /// Whether it is spoken, and the directive's name.
    fn said(self, server: &Server) -> (bool, &'static str) {
        let config = &server.engine.config;
        match self {
            TlsBy::Replication => (config.tls_replication(), "tls-replication"),
            TlsBy::Cluster => (config.tls_cluster(), "tls-cluster"),
        }
    }
}

/// Connects to another server of the shard, to the store of decisions, or to another server of the cluster.
///
/// # Errors
/// Those of the system and of TLS.
pub fn connect(
    server: &Server,
    address: &Address,
    by: TlsBy,
    deadline: Instant,
    look: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<Outgoing> {
    let context = match by.said(server) {
        (true, directive) => {
            let context = server.net.tls.contexts().and_then(|contexts| contexts.client.clone());
            let missing = || io::Error::other(format!("{directive} is yes, and there are no certificates"));
            Some(context.ok_or_else(missing)?)
        }
        (false, _) => None,
    };
    Outgoing::connect(address.host.clone(), address.port, context, deadline, look)
}

/// What is said first where a password is wanted.
pub fn credentials(server: &Server) -> Option<Vec<Vec<u8>>> {
    let config = &server.engine.config;
    let (user, password) = (config.masteruser(), config.masterauth());
    match (user.is_empty(), password.is_empty()) {
        (_, true) => None,
        (true, false) => Some(vec![b"AUTH".to_vec(), password]),
        (false, false) => Some(vec![b"AUTH".to_vec(), user, password]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::Prng;
    use testkit::Budget;

    #[test]
    fn lines_are_taken_when_they_are_whole() {
        let mut rest = b"+one\r\n+tw".to_vec();
        assert_eq!(take_line(&mut rest).unwrap().as_deref(), Some("one"));
        assert_eq!(take_line(&mut rest).unwrap(), None);
        rest.extend_from_slice(b"o\r\n-ERR no\r\n");
        assert_eq!(take_line(&mut rest).unwrap().as_deref(), Some("two"));
        assert!(take_line(&mut rest).is_err());
    }

    #[test]
    fn what_comes_is_taken_alike_however_it_is_cut_and_nothing_is_kept_without_end() {
        let budget = Budget::from_env(1, 2_000);
        let mut done = 0;
        while budget.allows(done) {
            let seed = budget.seed.wrapping_add(done);
            let prng = &mut Prng::from_seed(seed);
            const ALPHABET: &[u8] = b"\r\n+-:$ 09ab\xff";
            let length = prng.below(120);
            let all: Vec<u8> = (0..length)
                .map(|_| ALPHABET[usize::try_from(prng.below(ALPHABET.len() as u64)).unwrap()])
                .collect();
            let play = |piece: usize| {
                let (mut rest, mut lines) = (Vec::new(), Vec::new());
                for bytes in all.chunks(piece) {
                    rest.extend_from_slice(bytes);
                    loop {
                        match take_line(&mut rest) {
                            Ok(Some(line)) => lines.push(line),
                            Ok(None) => break,
                            Err(error) => return (lines, Some(error.to_string())),
                        }
                    }
                }
                (lines, None)
            };
            let whole = play(all.len().max(1));
            for piece in 1..all.len() {
                assert_eq!(play(piece), whole, "TARN_SEED={seed} TARN_STEPS=1");
            }
            done += 1;
        }
        let mut endless = vec![b'+'; LINE_BYTES_MAX + 1];
        assert!(take_line(&mut endless).is_err());
    }
}
