//! Clients: writes of what nobody else writes and reads, at the master and at replicas, and the gate behind which replies wait.

use super::history::Operation;
use super::world::{Arrival, World};
use crate::session::Session;
use net::service::Stop;
use replication::insync::Role;
use sys::Shown;
use testkit::stage::Happening;

/// A connection whose reply is behind the gate.
pub struct Waiting {
    operation: usize,
    session: Box<Session>,
    reply: Vec<u8>,
    shown: Shown,
    generation: u64,
}

/// A connection whose request a pause holds back.
pub struct Held {
    operation: usize,
    session: Box<Session>,
}

/// How long nobody gives up who asks a shard that is whole.
pub const PATIENCE: u64 = 4_000_000;

const KINDS: &[&str] = &["s", "a", "l", "c"];

impl World {
    /// A client writes or reads at a node of which it thinks that it serves.
    pub fn ask_something(&mut self, client: usize) {
        let is_write = self.stage.prng.one_in(2);
        let node = match self.stage.prng.below(8) {
            0 => self.stage.prng.below(self.nodes.len() as u64) as usize,
            1..=4 => self.leader,
            _ => self.stage.clients[client].favourite,
        };
        self.ask(client, node, is_write, self.plan.patience_max);
    }

    /// All clients write once more, at the master, with time enough. Gives the first of these writes.
    pub fn write_once_more(&mut self) -> usize {
        let first = self.operations.len();
        (0..self.plan.clients).for_each(|client| self.ask(client, self.leader, true, PATIENCE));
        first
    }

    fn ask(&mut self, client: usize, node: usize, is_write: bool, patience: u64) {
        self.values += 1;
        let kind = KINDS[self.stage.prng.below(KINDS.len() as u64) as usize];
        self.operations.push(Operation {
            key: format!("{kind}{}", self.stage.prng.below(self.plan.keys)).into_bytes(),
            token: is_write.then_some(self.values),
            began: self.stage.now,
            ended: None,
            is_at_master: true,
        });
        let operation = self.operations.len() - 1;
        let asked = (node, Arrival::Asked { operation });
        self.stage.ask((client, operation), asked, patience, None);
    }

    /// A connection comes with what a client asks for.
    pub fn serve(&mut self, node: usize, operation: usize) {
        let Some(process) = &self.nodes[node].up else { return };
        let session = process.session();
        process.server.net.clients.add(session.client.clone());
        self.run_for(node, Held { operation, session });
    }

    /// Runs what was held back, if nothing holds it back any more. Whether it did.
    pub fn serve_held(&mut self, node: usize) -> bool {
        let Some(process) = self.nodes[node].up.as_mut().filter(|process| !process.held.is_empty()) else {
            return false;
        };
        let engine = &process.server.engine;
        if process.server.pause.at(engine, engine.clock.now()).is_some() {
            return false;
        }
        let held = std::mem::take(&mut process.held);
        held.into_iter().for_each(|held| self.run_for(node, held));
        true
    }

    fn run_for(&mut self, node: usize, Held { operation, mut session }: Held) {
        let asked = self.operations[operation].clone();
        let Some(process) = &mut self.nodes[node].up else { return };
        let value = asked.token.map(|token| format!("{token},").into_bytes());
        let words: Vec<&[u8]> = match (asked.key[0], &value) {
            (b's', Some(value)) => vec![b"SET", &asked.key, value],
            (b'a', Some(value)) => vec![b"APPEND", &asked.key, value],
            (b'l', Some(value)) => vec![b"RPUSH", &asked.key, value],
            (_, Some(_)) => vec![b"INCR", &asked.key],
            (b'l', None) => vec![b"LRANGE", &asked.key, b"0", b"-1"],
            (_, None) => vec![b"GET", &asked.key],
        };
        let generation = process.server.net.gate.generation();
        self.operations[operation].is_at_master = process.shard.standing().role == Role::Master;
        let (stop, reply, shown) = process.ask(&mut session, &words);
        if matches!(stop, Stop::Paused { .. }) {
            return process.held.push(Held { operation, session });
        }
        session.client.set_at_gate(true);
        process.waiting.push(Waiting { operation, session, reply, shown, generation });
    }

    /// Lets out what connections let out.
    pub fn open_gate(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].up else { return };
        if process.waiting.is_empty() {
            return;
        }
        let gate = &process.server.net.gate;
        let (mut replies, mut still) = (Vec::new(), Vec::new());
        for mut one in std::mem::take(&mut process.waiting) {
            let is_of_before = one.generation != gate.generation() && one.shown != Shown::NOTHING;
            let is_shown = if is_of_before {
                gate.was_open_for(one.generation, one.shown)
            } else if gate.is_open_for(one.shown) {
                true
            } else if gate.has_failed(one.shown) {
                false
            } else {
                still.push(one);
                continue;
            };
            process.server.net.clients.remove(one.session.client.id);
            one.session.end(&process.server);
            replies.push((one.operation, is_shown.then_some(one.reply)));
        }
        process.waiting = still;
        replies.into_iter().for_each(|(operation, reply)| self.stage.reply(operation, reply));
    }

    /// A client has learned what became of what it asked for.
    pub fn note_reply(&mut self, client: usize, operation: usize, reply: Option<Vec<u8>>) {
        match reply.filter(|reply| !reply.starts_with(b"-")) {
            Some(reply) => {
                let ended = (self.stage.now, reply);
                match self.operations[operation].token {
                    Some(_) => self.note_write(),
                    None => self.figures.reads += 1,
                }
                self.operations[operation].ended = Some(ended);
            }
            None => {
                let favourite = self.stage.prng.below(self.nodes.len() as u64) as usize;
                self.stage.clients[client].favourite = favourite;
            }
        }
        self.stage.trace(|| format!("client {client} hears {:?}", self.operations[operation]));
        let think = self.stage.prng.below(self.plan.think_max);
        self.stage.soon(think, Happening::ClientActs(client));
    }

    fn note_write(&mut self) {
        self.figures.acknowledged += 1;
        let waited = self.stage.now - std::mem::replace(&mut self.acknowledged_at, self.stage.now);
        self.figures.longest_wait = self.figures.longest_wait.max(waited);
    }
}
