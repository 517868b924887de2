//! From a new connection to the master's answer to PSYNC.
//!
//! PING; then AUTH and the REPLCONFs in one write; then, once all of them are answered, PSYNC. What each reply means is as in
//! Redis' replica (`syncWithMaster` and `slaveTryPartialResynchronization` in `replication.c` of 7.2.6), and so are the sentences:
//! - PING: any `+` will do, and so will a master that wants to know first who asks (`-NOAUTH`, `-NOPERM`, and the words that
//!   servers before 2.6 used). Everything else ends it.
//! - AUTH: an error ends it. A master without a password refuses one that is given.
//! - REPLCONF: an error is noted and changes nothing. So a master that wanted a password and was given none answers PSYNC with `-NOAUTH`.
//! - REPLCONF common: of our own; with which a replica that has something to ask for asks up to where the master has it, too. A master
//!   that has less says so, and nothing is asked for; one that does not know the question answers with an error, one that cannot
//!   answer yet is asked again later.
//! - PSYNC: line ends before the reply keep the connection alive (the master is preparing). SYNC, to which Redis falls back
//!   where PSYNC is not known, is not spoken here: it has no offsets.
//!
//! Stricter than Redis, which goes on where it cannot be right: a reply that is neither `+` nor `-`, ids that are none, and the
//! continuation of a history that was not asked for end it.
//!
//! Invariants:
//! 1. Nothing behind the reply to PSYNC is taken: those bytes are the transfer's or the stream's.
//! 2. The outcome is given once and for all; later bytes are left alone.

use super::ending::{Ending, printable};
use super::limits::OFFSET_MAX;
use super::line::Line;
use log::ReplicationId;
use std::fmt;
use std::str::FromStr;
use wire::encode_request;

/// What stands before the number of a node of a shard.
pub const NODE: &str = "node-";

/// What a replica says of itself.
#[derive(Clone, Default)]
pub struct Replica {
    /// The user to authenticate as, where the master has users.
    pub user: Option<Vec<u8>>,
    /// The password; without it there is no AUTH.
    pub password: Option<Vec<u8>>,
    /// The port on which it listens, for the master's INFO.
    pub listening_port: u16,
    /// The address by which the master is to know it, where that is not the connection's.
    pub announced_address: Option<String>,
    /// The version to tell the master (Valkey asks for it from 8.0 on); nothing is sent without it.
    pub version: Option<String>,
    /// The names of the stream that it has, each with the offset up to which that is good here: the master is asked where they part from
    /// its own. None of them: it is not asked.
    pub names: Vec<(ReplicationId, u64)>,
    /// It was master until now, and wants the other to take its place (PSYNC ... FAILOVER).
    pub hands_over: bool,
    /// It knows that what it would go on from is of one moment, and not what a copy is before all that belongs to it has come: whoever else
    /// stands at the same place, it may go on. A master that does not know the word passes it over.
    pub is_whole: bool,
    /// Its number in its shard, if it is of one. Who does not know the word passes it over.
    pub node: Option<u32>,
}

impl fmt::Debug for Replica {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Replica")
            .field("listening_port", &self.listening_port)
            .finish_non_exhaustive()
    }
}

/// What a replica asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A full sync: it has nothing to go on from.
    Full,
    /// The rest of a stream.
    Rest {
        /// Which stream.
        id: ReplicationId,
        /// Bytes of it that the replica has. PSYNC names the next one.
        offset: u64,
    },
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A full sync: an RDB follows, and behind it a stream.
    Full {
        /// The stream's name.
        id: ReplicationId,
        /// Bytes of the stream that the RDB stands for.
        offset: u64,
    },
    /// The stream goes on where the replica asked.
    Partial {
        /// Its new name, if it has one. The old one holds up to the offset that was asked for.
        renamed: Option<ReplicationId>,
    },
    /// The master has this stream up to there only, which is before what was to be asked for. Nothing was asked for.
    Parted {
        /// Which stream.
        id: ReplicationId,
        /// Bytes of it that the master has, too.
        offset: u64,
    },
    /// The master will be able to later: it is loading, or has lost its own master.
    Later(Ending),
    /// The master does not take this replica as it is, or is no master.
    Refused(Ending),
}

/// What one call made of the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Bytes that were taken from the front.
    pub used: usize,
    /// Bytes to send now.
    pub send: Vec<u8>,
    /// Refusals that change nothing, for the log.
    pub notes: Vec<String>,
    /// How it ended, if it did.
    pub outcome: Option<Outcome>,
}

/// A reply that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Ping,
    Auth,
    /// To a REPLCONF of this option.
    Option(&'static str),
    /// To the question where the streams part, which only a Tarn answers.
    Common,
    Psync,
}

/// The handshake on one connection.
#[derive(Debug)]
pub struct Handshake {
    replica: Replica,
    ask: Ask,
    line: Line,
    /// Replies to come, the next one last.
    awaited: Vec<Awaited>,
    outcome: Option<Outcome>,
}

impl Handshake {
    /// One that begins, and the bytes to send first.
    #[must_use]
    pub fn begin(replica: Replica, ask: Ask) -> (Handshake, Vec<u8>) {
        let mut ping = Vec::new();
        encode_request(&mut ping, &[b"PING"]);
        let begun =
            Handshake { replica, ask, line: Line::default(), awaited: vec![Awaited::Ping], outcome: None };
        (begun, ping)
    }

    /// Takes what the master sent. Once there is an outcome, `used` may be less than what came, and no later call takes
    /// anything.
    pub fn step(&mut self, received: &[u8]) -> Step {
        let mut step = Step::default();
        while self.outcome.is_none() && step.used < received.len() {
            match self.line.take(&received[step.used..]) {
                Ok((used, line)) => {
                    step.used += used;
                    self.outcome = line.and_then(|line| self.take_reply(&line, &mut step));
                }
                Err(ending) => self.outcome = Some(Outcome::Refused(ending)),
            }
        }
        step.outcome.clone_from(&self.outcome);
        step
    }

    /// Whether PSYNC was asked for, or is to be sent.
    #[must_use]
    pub fn has_asked(&self) -> bool {
        self.awaited.last() == Some(&Awaited::Psync)
    }

    fn take_reply(&mut self, line: &[u8], step: &mut Step) -> Option<Outcome> {
        let awaited = *self.awaited.last().expect("without an outcome something is awaited");
        if awaited == Awaited::Psync {
            return judge_psync(line, self.ask);
        }
        if awaited == Awaited::Common
            && let Some(parted) = self.parted(line)
        {
            return Some(parted);
        }
        match judge(awaited, line) {
            Ok(note) => step.notes.extend(note),
            Err(outcome) => return Some(outcome),
        }
        self.awaited.pop();
        if awaited == Awaited::Ping {
            self.introduce(&mut step.send);
        } else if self.awaited.is_empty() {
            self.awaited.push(Awaited::Psync);
            self.write_psync(&mut step.send);
        }
        None
    }

    /// Writes AUTH and all REPLCONFs, and remembers which replies follow.
    fn introduce(&mut self, out: &mut Vec<u8>) {
        if let Some(password) = &self.replica.password {
            match &self.replica.user {
                Some(user) => encode_request(out, &[b"AUTH", user, password]),
                None => encode_request(out, &[b"AUTH", password]),
            }
            self.awaited.push(Awaited::Auth);
        }
        let port = self.replica.listening_port.to_string();
        encode_request(out, &[b"REPLCONF", b"listening-port", port.as_bytes()]);
        self.awaited.push(Awaited::Option("listening-port"));
        if let Some(address) = &self.replica.announced_address {
            encode_request(out, &[b"REPLCONF", b"ip-address", address.as_bytes()]);
            self.awaited.push(Awaited::Option("ip-address"));
        }
        let mut words = vec![&b"REPLCONF"[..], b"capa", b"eof", b"capa", b"psync2", b"capa", b"tarn"];
        if self.replica.is_whole {
            words.extend([&b"capa"[..], b"whole"]);
        }
        let node = self.replica.node.map(|node| format!("{NODE}{node}"));
        if let Some(node) = &node {
            words.extend([&b"capa"[..], node.as_bytes()]);
        }
        encode_request(out, &words);
        self.awaited.push(Awaited::Option("capa"));
        if let Some(version) = &self.replica.version {
            encode_request(out, &[b"REPLCONF", b"version", version.as_bytes()]);
            self.awaited.push(Awaited::Option("version"));
        }
        if !self.replica.names.is_empty() {
            let names: Vec<String> =
                self.replica.names.iter().map(|(id, offset)| format!("{id}:{offset}")).collect();
            encode_request(out, &[b"REPLCONF", b"common", names.join(",").as_bytes()]);
            self.awaited.push(Awaited::Common);
        }
        self.awaited.reverse();
    }

    /// Where the streams part, if that is before what is to be asked for. A master says nothing that was not among the names.
    fn parted(&self, line: &[u8]) -> Option<Outcome> {
        let mut words = line.strip_prefix(b"+COMMON ")?.split(|&byte| byte == b' ');
        let (id, offset) = (parse_id(words.next()?)?, parse_offset(words.next()?)?);
        let is_named = self.replica.names.iter().any(|(name, until)| *name == id && offset <= *until);
        let is_asked_for = self.ask == Ask::Rest { id, offset };
        (is_named && !is_asked_for).then_some(Outcome::Parted { id, offset })
    }

    fn write_psync(&self, out: &mut Vec<u8>) {
        let (id, next) = match self.ask {
            Ask::Full => ("?".to_owned(), "-1".to_owned()),
            Ask::Rest { id, offset } => (id.to_string(), offset.saturating_add(1).to_string()),
        };
        let words = [&b"PSYNC"[..], id.as_bytes(), next.as_bytes(), b"FAILOVER"];
        encode_request(out, &words[..if self.replica.hands_over { 4 } else { 3 }]);
    }
}

/// Judges a reply before PSYNC: a note, or what ends the handshake.
fn judge(awaited: Awaited, line: &[u8]) -> Result<Option<String>, Outcome> {
    let refused = |words: &str| Err(Outcome::Refused(Ending::quoting(words, line)));
    match (awaited, line.first()) {
        (_, Some(b'+')) => Ok(None),
        // Without an answer a full copy would come, which may not be needed.
        (Awaited::Common, _) if is_passing(line) => {
            Err(Outcome::Later(Ending::quoting("Error reply to REPLCONF common from master: ", line)))
        }
        (Awaited::Common, Some(b'-')) => Ok(None),
        (Awaited::Ping, _) if wants_authentication(line) => Ok(None),
        (Awaited::Ping, _) if is_passing(line) => {
            Err(Outcome::Later(Ending::quoting("Error reply to PING from master: ", line)))
        }
        (Awaited::Ping, _) => refused("Error reply to PING from master: "),
        (Awaited::Auth, Some(b'-')) => refused("Unable to AUTH to MASTER: "),
        (Awaited::Option(option), Some(b'-')) => Ok(Some(format!(
            "(Non critical) Master does not understand REPLCONF {option}: {}",
            printable(line)
        ))),
        _ => refused("The master answered the handshake with what is no reply: "),
    }
}

/// Whether a master wants to know first who asks.
fn wants_authentication(line: &[u8]) -> bool {
    [&b"-NOAUTH"[..], b"-NOPERM", b"-ERR operation not permitted"].iter().any(|begin| line.starts_with(begin))
}

/// Whether an error says that the master will be able to later.
fn is_passing(line: &[u8]) -> bool {
    [&b"-LOADING"[..], b"-NOMASTERLINK", b"-MASTERDOWN", b"-BUSY"].iter().any(|begin| line.starts_with(begin))
}

/// Judges a line that comes behind PSYNC. None: it keeps the connection alive.
fn judge_psync(line: &[u8], ask: Ask) -> Option<Outcome> {
    if line.is_empty() {
        return None;
    }
    let refused = |words: &str| Some(Outcome::Refused(Ending::quoting(words, line)));
    let mut words = line.split(|&byte| byte == b' ');
    match (words.next().unwrap_or_default(), words.next(), words.next(), words.next()) {
        (b"+FULLRESYNC", Some(id), Some(offset), None) => match (parse_id(id), parse_offset(offset)) {
            (Some(id), Some(offset)) => Some(Outcome::Full { id, offset }),
            _ => refused("Master replied with wrong +FULLRESYNC syntax: "),
        },
        (b"+FULLRESYNC", ..) => refused("Master replied with wrong +FULLRESYNC syntax: "),
        (b"+CONTINUE", new, None, None) => match (ask, new.map(parse_id)) {
            (Ask::Full, _) => refused("Master continues a stream that was not asked for: "),
            (_, None) => Some(Outcome::Partial { renamed: None }),
            (Ask::Rest { id, .. }, Some(Some(new))) => {
                Some(Outcome::Partial { renamed: (new != id).then_some(new) })
            }
            _ => refused("Master replied with wrong +CONTINUE syntax: "),
        },
        (b"+CONTINUE", ..) => refused("Master replied with wrong +CONTINUE syntax: "),
        _ if is_passing(line) => Some(Outcome::Later(Ending::quoting(
            "Master is currently unable to PSYNC but should be in the future: ",
            line,
        ))),
        _ if line.starts_with(b"-ERR") => refused("Master does not support PSYNC or is in error state: "),
        _ => refused("Unexpected reply to PSYNC from master: "),
    }
}

fn parse_id(word: &[u8]) -> Option<ReplicationId> {
    ReplicationId::from_str(std::str::from_utf8(word).ok()?).ok().filter(|id| *id != ReplicationId::NONE)
}

/// An offset: Redis counts in 64 bits with a sign, and whatever follows has to be counted, too.
fn parse_offset(word: &[u8]) -> Option<u64> {
    u64::try_from(wire::number::parse_int(word)?).ok().filter(|&offset| offset <= OFFSET_MAX)
}
