//! Links between the nodes of a shard, on which members say what the state machine has them say, a line each.
//!
//! Thread rule: any thread says something; who has dialled sends what is in its outbox.

use net::client::{Client, Clients, answer};
use parking_lot::Mutex;
use replication::insync::{LinkId, Message, NodeId};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use sys::{Bell, Shown};
use wire::encode_request;

/// All links of this node.
#[derive(Default)]
pub struct Links(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    ways: BTreeMap<LinkId, Way>,
    /// The newest attempt to reach somebody.
    dialling: Option<LinkId>,
    /// Why the last attempt failed.
    failure: String,
    /// Nodes that were not taken, and how many databases they have.
    refused: BTreeMap<NodeId, i64>,
}

/// How something gets to the other side.
enum Way {
    /// The other, which is this node, has dialled.
    Client(Arc<Client>, NodeId),
    /// This node has.
    Dialled(Arc<Outbox>),
}

/// What is to be sent by a link that this node has dialled.
pub struct Outbox {
    /// Rung when there is something, or it is to end.
    pub bell: Bell,
    state: Mutex<(Vec<u8>, bool)>,
}

impl Outbox {
    /// An empty one.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new() -> io::Result<Outbox> {
        Ok(Outbox { bell: Bell::new()?, state: Mutex::default() })
    }

    /// Whether the link is to end.
    pub fn is_over(&self) -> bool {
        self.state.lock().1
    }

    fn push(&self, words: &[&[u8]]) {
        encode_request(&mut self.state.lock().0, words);
        self.bell.ring();
    }

    fn end(&self) {
        self.state.lock().1 = true;
        self.bell.ring();
    }

    /// What is to be sent; None: the link is to end.
    pub fn take(&self) -> Option<Vec<u8>> {
        let (bytes, is_over) = &mut *self.state.lock();
        (!*is_over).then(|| std::mem::take(bytes))
    }
}

impl Links {
    fn add(&self, way: Way) -> LinkId {
        let state = &mut *self.0.lock();
        state.next += 1;
        let link = LinkId(state.next);
        if matches!(way, Way::Dialled(_)) {
            state.dialling = Some(link);
        }
        state.ways.insert(link, way);
        link
    }

    /// This node dials: what was dialled before is not wanted any more.
    pub fn dial(&self, outbox: &Arc<Outbox>) -> LinkId {
        self.add(Way::Dialled(outbox.clone()))
    }

    /// Another node has dialled by this client.
    pub fn accept(&self, client: &Arc<Client>, node: NodeId) -> LinkId {
        self.add(Way::Client(client.clone(), node))
    }

    /// Ends the links of nodes that have dialled and are none of these.
    pub fn keep_only(&self, clients: &Clients, is_kept: impl Fn(NodeId) -> bool) {
        for way in self.0.lock().ways.values() {
            if let Way::Client(client, node) = way
                && !is_kept(*node)
            {
                // What follows from that is told when the client has gone.
                clients.kill(client);
            }
        }
    }

    /// Says something; nothing if the link is gone.
    pub fn say(&self, clients: &Clients, link: LinkId, message: &Message) {
        let line = message.to_line();
        match self.0.lock().ways.get(&link) {
            Some(Way::Client(client, _)) => say_line(clients, client, &line),
            Some(Way::Dialled(outbox)) => outbox.push(&[b"INSYNC", b"SAY", line.as_bytes()]),
            None => {}
        }
    }

    /// Asks the master up to where the copy that was taken needs the stream.
    pub fn ask_for_end(&self, link: LinkId) {
        if let Some(Way::Dialled(outbox)) = self.0.lock().ways.get(&link) {
            outbox.push(&[b"INSYNC", b"END"]);
        }
    }

    /// Ends a link, of which nothing more is heard.
    pub fn close(&self, clients: &Clients, link: LinkId) {
        match self.0.lock().ways.remove(&link) {
            Some(Way::Client(client, _)) => drop(clients.kill(&client)),
            Some(Way::Dialled(outbox)) => outbox.end(),
            None => {}
        }
    }

    /// Ends all of them.
    pub fn close_all(&self, clients: &Clients) {
        let all: Vec<LinkId> = self.0.lock().ways.keys().copied().collect();
        all.into_iter().for_each(|link| self.close(clients, link));
    }

    /// A link has ended by itself. Whether it was one.
    pub fn forget(&self, link: LinkId) -> bool {
        self.0.lock().ways.remove(&link).is_some()
    }

    /// Notes why an attempt failed; empty: it did not. Whether the one before had not failed so.
    pub fn is_first_failure(&self, failure: &str) -> bool {
        let mut state = self.0.lock();
        state.failure != failure && {
            failure.clone_into(&mut state.failure);
            true
        }
    }

    /// Notes that a node was not taken because of its databases; None: it was taken. Whether it was not refused so before.
    pub fn is_first_refusal(&self, node: NodeId, databases: Option<i64>) -> bool {
        let refused = &mut self.0.lock().refused;
        match databases {
            Some(databases) => refused.insert(node, databases) != Some(databases),
            None => refused.remove(&node).is_some(),
        }
    }

    /// Whether nothing was dialled after it.
    pub fn is_newest(&self, link: LinkId) -> bool {
        self.0.lock().dialling == Some(link)
    }
}

/// Says a line to who has dialled.
pub fn say_line(clients: &Clients, client: &Client, line: &str) {
    answer(clients, client, format!("+{line}\r\n").as_bytes(), Shown::NOTHING);
}
