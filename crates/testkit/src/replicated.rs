//! Chains of servers of which each follows the one before, over a relay, and the question whether they have the same.
//!
//! The first is the head: it takes writes. Followers are told whom to follow at their start, and so find their way back after
//! a restart. [`rounds`] plays traffic and disturbances on a chain.
//!
//! Invariants:
//! 1. Servers agree if all have the head's history up to the same offset, links are up and nothing is being sent whole.
//! 2. They are compared only while they agree and nobody writes.

pub mod rounds;

use crate::client::Client;
use crate::contents::{self, Contents, LeftOut};
use crate::process::{Program, START_MAX, Server};
use crate::relay::Relay;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use wire::Value;

/// Longest wait for servers to agree.
const AGREEMENT_MAX: Duration = Duration::from_secs(180);
/// How often they are asked meanwhile: nothing tells when they do.
const ASKED_EVERY: Duration = Duration::from_millis(5);
/// What all are started with: small values, so that offsets at the edge cost nothing, and a backlog in which all of a round is.
const COMMON: &[&str] = &["--proto-max-bulk-len", "1mb", "--repl-backlog-size", BACKLOG];
const BACKLOG: &str = "256mb";
/// What real servers are, so that a full synchronization begins at once.
const REAL: &[&str] = &["--repl-diskless-sync-delay", "0"];

/// How Tarn, and how real servers complain of what their master sent.
const COMPLAINTS: [&str; 2] = ["could not be done here", "== CRITICAL =="];

/// What is each server's own: when a consumer was last active there.
const OWN: LeftOut = LeftOut { names: &[b"active-time"], idle_consumers: false };
/// The same where real servers are among them. They do not tell each other how much a group has read, and Redis 7.0 makes
/// consumers by claims that get nothing without telling it.
const OWN_OF_REAL: LeftOut =
    LeftOut { names: &[b"active-time", b"entries-read", b"lag"], idle_consumers: true };

/// How a server of a chain is started.
#[derive(Clone, Debug)]
pub struct Member {
    program: Program,
    directives: Vec<String>,
    patience: Duration,
}

impl Member {
    /// A program with these directives.
    pub fn new(program: Program, directives: &[&str]) -> Member {
        let own = if matches!(program, Program::Tarn(_)) { &[] } else { REAL };
        let directives = [COMMON, own, directives].concat().into_iter().map(str::to_owned).collect();
        Member { program, directives, patience: START_MAX }
    }

    /// The same with further directives.
    pub fn with(mut self, directives: &[&str]) -> Member {
        self.directives.extend(directives.iter().map(|word| (*word).to_owned()));
        self
    }

    /// One that may take so long to start.
    pub fn patient(self, patience: Duration) -> Member {
        Member { patience, ..self }
    }

    fn start(&self, master: Option<&Relay>) -> io::Result<Server> {
        let of_master = master.map(|relay| format!("127.0.0.1 {}", relay.address().port()));
        let mut directives: Vec<&str> = self.directives.iter().map(String::as_str).collect();
        if let Some(of_master) = &of_master {
            directives.push("--replicaof");
            directives.extend(of_master.split(' '));
        }
        Server::start_within(self.patience, self.program.clone(), &directives)
    }
}

/// How a server is ended before it is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At once, as by a power cut.
    Kill,
    /// By SHUTDOWN SAVE, which also keeps what the server has followed.
    Save,
    /// At once, and its files are gone.
    Lose,
}

#[derive(Debug)]
struct Node {
    server: Server,
    /// The link to the one before; the head has none.
    link: Option<Relay>,
}

/// A chain. Its servers end with it.
#[derive(Debug)]
pub struct Chain {
    nodes: Vec<Node>,
}

/// How servers have synchronized, as a master counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that everything was sent.
    pub full: u64,
    /// Times that what was missed was.
    pub partial: u64,
}

impl Chain {
    /// Starts the head and then each follower.
    ///
    /// # Errors
    /// If a server or a relay does not start.
    pub fn start(members: &[Member]) -> io::Result<Chain> {
        let mut nodes: Vec<Node> = Vec::new();
        for member in members {
            let link = nodes.last().map(|before| Relay::to(before.server.address())).transpose()?;
            let server = member.start(link.as_ref())?;
            nodes.push(Node { server, link });
        }
        Ok(Chain { nodes })
    }

    /// Number of servers.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A server, counted from the head.
    pub fn server(&self, at: usize) -> &Server {
        &self.nodes[at].server
    }

    /// The link of a follower to the one before.
    ///
    /// # Panics
    /// For the head, which has none.
    pub fn link(&self, at: usize) -> &Relay {
        self.nodes[at].link.as_ref().expect("the head follows nobody")
    }

    /// Names of the servers, as `redis > tarn`.
    pub fn name(&self) -> String {
        let names: Vec<_> = self.nodes.iter().map(|node| node.server.program().name()).collect();
        names.join(" > ")
    }

    /// Ends a server and starts it again on its files; who follows it finds it where it was.
    ///
    /// # Errors
    /// If it does not end or does not start.
    pub fn restart(&mut self, at: usize, ending: Ending) -> io::Result<()> {
        let server = &mut self.nodes[at].server;
        if ending == Ending::Save {
            // It closes instead of answering.
            let reply = server.connect()?.call(&["SHUTDOWN", "SAVE", "NOW"]);
            if let Ok(reply) = reply {
                return Err(io::Error::other(format!("SHUTDOWN SAVE: {reply:?}")));
            }
        }
        if ending == Ending::Lose {
            server.kill();
            std::fs::remove_dir_all(server.dir())?;
            std::fs::create_dir(server.dir())?;
        }
        server.restart()?;
        let address = server.address();
        if let Some(Node { link: Some(link), .. }) = self.nodes.get(at + 1) {
            link.aim(address);
        }
        Ok(())
    }

    /// Waits until all servers agree; their offset.
    ///
    /// # Errors
    /// If they do not within a time that is long for anything. The error shows what each says.
    pub fn await_agreement(&self) -> io::Result<u64> {
        let begun = Instant::now();
        let mut clients =
            self.nodes.iter().map(|node| node.server.connect()).collect::<io::Result<Vec<Client>>>()?;
        loop {
            let mut infos = Vec::new();
            for client in &mut clients {
                infos.push(info(client, "replication")?);
            }
            if let Some(offset) = agreed(&infos) {
                return Ok(offset);
            }
            if begun.elapsed() > AGREEMENT_MAX {
                let shown: Vec<String> = infos.iter().map(|info| format!("{info:#?}")).collect();
                return Err(io::Error::other(format!("no agreement:\n{}", shown.join("\n"))));
            }
            std::thread::sleep(ASKED_EVERY);
        }
    }

    /// What a server says of something that its master sent and that it could not do; None if it says nothing of the kind.
    pub fn complaint(&self) -> Option<String> {
        let output = self.nodes.iter().map(|node| node.server.output()).collect::<Vec<_>>().join("\n");
        let complaint = output.lines().find(|line| COMPLAINTS.iter().any(|words| line.contains(words)));
        complaint.map(str::to_owned)
    }

    /// How a server's synchronizations went, up to now.
    ///
    /// # Errors
    /// If a server does not answer.
    pub fn counts(&self, at: usize) -> io::Result<Counts> {
        let stats = info(&mut self.nodes[at].server.connect()?, "stats")?;
        Ok(Counts { full: number(&stats, "sync_full"), partial: number(&stats, "sync_partial_ok") })
    }

    /// What a follower holds otherwise than the head, and how many keys the head has; with `encodings` also how it holds it, hashes `with_hashes` only.
    ///
    /// # Errors
    /// If a server does not answer.
    pub fn difference(&self, encodings: bool, with_hashes: bool) -> io::Result<Result<usize, String>> {
        let is_tarn = |node: &Node| matches!(node.server.program(), Program::Tarn(_));
        let left_out = if self.nodes.iter().all(is_tarn) { OWN } else { OWN_OF_REAL };
        let mut head = self.nodes[0].server.connect()?;
        let expected = Contents::read_but(&mut head, left_out)?;
        let forms = if encodings { contents::encodings(&mut head, with_hashes)? } else { BTreeMap::new() };
        for (at, node) in self.nodes.iter().enumerate().skip(1) {
            let mut client = node.server.connect()?;
            let found = Contents::read_but(&mut client, left_out)?;
            let now = contents::now_ms(&mut client)?;
            let mut difference = expected.difference(&found, now);
            if encodings && difference.is_none() {
                let found = contents::encodings(&mut client, with_hashes)?;
                difference = contents::difference_of_encodings(&forms, &found);
            }
            if let Some(difference) = difference {
                return Ok(Err(format!("{at} ({}): {difference}", node.server.program().name())));
            }
        }
        Ok(Ok(expected.len()))
    }
}

/// A section of INFO.
type Fields = BTreeMap<String, String>;

fn info(client: &mut Client, section: &str) -> io::Result<Fields> {
    match client.call(&["INFO", section])? {
        Value::Bulk(text) => {
            let text = String::from_utf8_lossy(&text);
            let pairs = text.lines().filter_map(|line| line.split_once(':'));
            Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
        }
        // It reads its files, or what its master sends.
        Value::Error(_) => Ok(Fields::new()),
        other => Err(io::Error::other(format!("INFO: {other:?}"))),
    }
}

fn number(info: &Fields, field: &str) -> u64 {
    info.get(field).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The offset up to which all have the same history; None if they do not, or a link is not what it is to be.
fn agreed(infos: &[Fields]) -> Option<u64> {
    let is = |info: &Fields, field: &str, value: &str| info.get(field).is_some_and(|found| found == value);
    let (head, followers) = infos.split_first()?;
    let history = head.get("master_replid")?;
    let offset = head.get("master_repl_offset")?;
    let agrees = |info: &Fields| {
        is(info, "role", "slave")
            && is(info, "master_link_status", "up")
            && is(info, "master_sync_in_progress", "0")
            && is(info, "master_replid", history)
            && is(info, "master_repl_offset", offset)
            && is(info, "slave_repl_offset", offset)
    };
    let is_followed = infos[..infos.len() - 1].iter().all(|info| is(info, "connected_slaves", "1"));
    (is(head, "role", "master") && is_followed && followers.iter().all(agrees))
        .then(|| offset.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info_of(pairs: &[(&str, &str)]) -> Fields {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn agreement_needs_the_same_history_and_offset() {
        let head = [
            ("role", "master"),
            ("connected_slaves", "1"),
            ("master_replid", "a"),
            ("master_repl_offset", "9"),
        ];
        let follower = [
            ("role", "slave"),
            ("master_link_status", "up"),
            ("master_sync_in_progress", "0"),
            ("master_replid", "a"),
            ("master_repl_offset", "9"),
            ("slave_repl_offset", "9"),
        ];
        assert_eq!(agreed(&[info_of(&head), info_of(&follower)]), Some(9));
        for at in 0..follower.len() {
            let mut other = follower;
            other[at].1 = "8";
            assert_eq!(agreed(&[info_of(&head), info_of(&other)]), None, "{other:?}");
        }
        assert_eq!(agreed(&[info_of(&head[1..]), info_of(&follower)]), None);
    }
}
