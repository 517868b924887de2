//! Clients: writes of what nobody else writes and reads, at the master and at replicas, and the gate behind which replies wait.

use super::history::Operation;
use super::world::{Arrival, Happening, World};
use replication::insync::Role;
use sys::Shown;

/// A reply behind the gate.
pub struct Waiting {
    operation: usize,
    reply: Vec<u8>,
    shown: Shown,
    generation: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Client {
    /// The operation under way, and the node that served last.
    operation: Option<usize>,
    favourite: usize,
}

const KINDS: &[&str] = &["s", "a", "l", "c"];

impl World {
    pub fn client_acts(&mut self, client: usize) {
        if self.now > self.plan.disturbed_until + 300_000 {
            return;
        }
        let is_write = self.prng.one_in(2);
        let node = match self.prng.below(8) {
            0 => self.prng.below(self.nodes.len() as u64) as usize,
            1..=4 => self.leader,
            _ => self.clients[client].favourite,
        };
        self.values += 1;
        let kind = KINDS[self.prng.below(KINDS.len() as u64) as usize];
        self.operations.push(Operation {
            key: format!("{kind}{}", self.prng.below(self.plan.keys)).into_bytes(),
            token: is_write.then_some(self.values),
            began: self.now,
            ended: None,
            is_at_master: true,
        });
        let operation = self.operations.len() - 1;
        self.clients[client] = Client { operation: Some(operation), favourite: node };
        let (end, delay) = (self.end(node), self.prng.below(200));
        self.soon(delay, Happening::Arrives(end, Arrival::Asked { operation }));
        let patience = self.plan.patience_max / 4 + self.prng.below(self.plan.patience_max);
        self.soon(patience, Happening::ClientHears { client, operation, reply: None });
    }

    /// A node runs what a client asks for.
    pub fn serve(&mut self, node: usize, operation: usize) {
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
        let mut session = process.session();
        let generation = process.server.net.gate.generation();
        self.operations[operation].is_at_master = process.shard.standing().role == Role::Master;
        let (_, reply, shown) = process.ask(&mut session, &words);
        session.end(&process.server);
        process.waiting.push(Waiting { operation, reply, shown, generation });
    }

    /// Lets out what connections let out.
    pub fn open_gate(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].up else { return };
        if process.waiting.is_empty() {
            return;
        }
        let gate = &process.server.net.gate;
        let (mut replies, mut still) = (Vec::new(), Vec::new());
        for one in std::mem::take(&mut process.waiting) {
            let is_of_before = one.generation != gate.generation() && one.shown != Shown::NOTHING;
            if is_of_before {
                let was_open = gate.was_open_for(one.generation, one.shown);
                replies.push((one.operation, was_open.then_some(one.reply)));
            } else if gate.is_open_for(one.shown) {
                replies.push((one.operation, Some(one.reply)));
            } else if gate.has_failed(one.shown) {
                replies.push((one.operation, None));
            } else {
                still.push(one);
            }
        }
        process.waiting = still;
        replies.into_iter().for_each(|(operation, reply)| self.reply(operation, reply));
    }

    pub fn reply(&mut self, operation: usize, reply: Option<Vec<u8>>) {
        let delay = self.prng.below(200);
        if let Some(client) = self.clients.iter().position(|client| client.operation == Some(operation)) {
            self.soon(delay, Happening::ClientHears { client, operation, reply });
        }
    }

    pub fn client_hears(&mut self, client: usize, operation: usize, reply: Option<Vec<u8>>) {
        if self.clients[client].operation != Some(operation) {
            return;
        }
        self.clients[client].operation = None;
        match reply.filter(|reply| !reply.starts_with(b"-")) {
            Some(reply) => {
                let ended = (self.now, reply);
                match self.operations[operation].token {
                    Some(_) => self.figures.acknowledged += 1,
                    None => self.figures.reads += 1,
                }
                self.operations[operation].ended = Some(ended);
            }
            None => self.clients[client].favourite = self.prng.below(self.nodes.len() as u64) as usize,
        }
        self.trace(|| format!("client {client} hears {:?}", self.operations[operation]));
        let think = self.prng.below(self.plan.think_max);
        self.soon(think, Happening::ClientActs { client });
    }
}
