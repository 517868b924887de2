//! Requests that are done elsewhere than they were sent: where a node says that their slot is, or by who is master in the place of one that is none any more.
//!
//! Thread rule: a worker's own.

use super::measured::NOWHERE;
use super::redirect::{self, Redirection};
use super::tally::Sequence;
use super::{LinkTo, Links, Pushed, Ticket, asking_who, here};
use crate::upstream::NodeNo;
use std::time::Duration;
use tokio::time::sleep;

/// How often a request is sent elsewhere before that is what its client is told: for some five seconds.
pub(super) const REDIRECTIONS_MAX: u8 = 64;
/// How often it is sent elsewhere at once. Nodes that hear of a move one after the other send it to and fro until then.
const AT_ONCE_MAX: u8 = 3;
/// How long it waits then, each time twice as long as before, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// A request that is to go elsewhere, when it is known what became of those behind it.
pub(super) struct Parked {
    pub ticket: Ticket,
    request: Vec<u8>,
    /// What its client is told if it cannot.
    pub error: Vec<u8>,
    to: NodeNo,
    /// It goes behind an ASKING.
    is_asking: bool,
}

/// A part of a request to all servers that was not done, since who was asked is no master any more.
struct Orphan {
    ticket: Ticket,
    request: Vec<u8>,
    /// How its server was asked.
    way: LinkTo,
    /// By which link.
    at: usize,
    /// What its client is told if nobody is master in that one's place.
    error: Vec<u8>,
}

impl Links {
    /// Sends a request elsewhere that was refused for its slot. Who has asked for something of the same slot behind it finds out first whether that was
    /// done: then the first is not done any more, and its client is told what it was told.
    pub(super) fn redirect(&mut self, at: usize, ticket: &Ticket, line: &[u8]) -> bool {
        let link = &mut self.links[at];
        let said_by = &self.routes.nodes[usize::from(link.way.node)];
        let found = redirect::read(line, said_by).filter(|_| ticket.redirections < REDIRECTIONS_MAX);
        // Whoever has asked for it takes it from there.
        match &found {
            Some(_) if ticket.pushed.slot.is_some() || ticket.pushed.is_of_script => {}
            Some(Redirection::Moved(slot, node)) => {
                self.proxy.upstream.note_moved(*slot, node.clone());
            }
            Some(Redirection::Ask(_, node)) => {
                self.proxy.upstream.note_node(node.clone());
            }
            None => {}
        }
        let Some(found) = found.filter(|found| ticket.pushed.slot == Some(found.slot())) else {
            return false;
        };
        if let Some(instead) = ticket.pushed.unless_executed {
            self.proxy.upstream.hurry();
            self.answer(at, ticket, instead, NOWHERE);
            self.settle_own(at);
            return true;
        }
        let (to, is_asking) = match found {
            // Anybody's script can say so: it leads to nobody who is not of the cluster, and others' requests nowhere. Who asks the nodes finds out.
            Redirection::Moved(_, node) | Redirection::Ask(_, node) if ticket.pushed.is_of_script => {
                self.proxy.upstream.hurry();
                (self.proxy.upstream.number_of(&node), line.starts_with(b"-ASK"))
            }
            Redirection::Moved(slot, node) => (self.proxy.upstream.note_moved(slot, node), false),
            Redirection::Ask(_, node) => (self.proxy.upstream.note_node(node), true),
        };
        let Some(to) = to else { return false };
        let begin = link.answered - ticket.bytes + ticket.asking_bytes;
        // Who waits wants to be known wherever that is.
        let is_bare = ticket.asking_bytes > 0 && ticket.pushed.waits.is_some();
        let mut request = if is_bare { asking_who() } else { Vec::new() };
        request.extend_from_slice(&link.requests[begin..link.answered]);
        let (whose, slot, redirections) = (ticket.pushed.whose, ticket.pushed.slot, ticket.redirections + 1);
        let ticket = Ticket {
            came: 0,
            number: None,
            refused: None,
            redirections,
            bytes: request.len(),
            pushed: Pushed {
                replies: ticket.pushed.replies - usize::from(ticket.asking_bytes > 0),
                ..ticket.pushed
            },
            asking_bytes: 0,
        };
        // All of them go where the last one was sent.
        let all = link.parked.entry((whose, slot)).or_default();
        all.iter_mut().for_each(|parked| (parked.to, parked.is_asking) = (to, is_asking));
        all.push(Parked { ticket, request, error: line.to_vec(), to, is_asking });
        self.conversations.note_redirected(whose, Some(to).filter(|_| is_asking));
        self.look_at_routes();
        match pause_before(redirections) {
            None => self.send_parked(at, (whose, slot)),
            Some(pause) => send_later(pause, at, (whose, slot)),
        }
        true
    }

    /// Sends a client's requests of a slot elsewhere, unless it is to be found out first what became of others. Who has gone away is owed nothing.
    fn send_parked(&mut self, at: usize, sequence: Sequence) {
        if self.conversations.client(sequence.0).is_none() {
            self.links[at].take_parked(sequence);
        } else if !self.links[at].has_of(sequence) {
            self.send_elsewhere(at, sequence);
        }
    }

    /// A request was done: those of the same client and slot that stand in front of it and were sent elsewhere are not done any more.
    pub(super) fn note_done(&mut self, at: usize, done: &Ticket) {
        for parked in self.links[at].take_parked(done.sequence()) {
            self.answer(at, &parked.ticket, &parked.error, NOWHERE);
        }
    }

    /// Sends a client's requests of a slot elsewhere.
    fn send_elsewhere(&mut self, at: usize, sequence: Sequence) {
        let way = self.links[at].way;
        for parked in self.links[at].take_parked(sequence) {
            let to = self.elsewhere(at, LinkTo { node: parked.to, ..way }, parked.ticket.pushed.watching);
            let Parked { mut ticket, request, is_asking, .. } = parked;
            if ticket.pushed.waits.is_some() {
                self.expect_waiting(to);
            }
            match is_asking {
                false => self.enqueue(to, &request, ticket),
                true => {
                    // ASKING is for the next request alone, and stands behind the question who waits.
                    let mut bytes = if ticket.pushed.waits.is_some() { asking_who() } else { Vec::new() };
                    let asked = bytes.len();
                    wire::encode_request(&mut bytes, &[b"ASKING"]);
                    ticket.asking_bytes = bytes.len();
                    bytes.extend_from_slice(&request[asked..]);
                    ticket.bytes = bytes.len();
                    ticket.pushed.replies += 1;
                    self.enqueue(to, &bytes, ticket);
                }
            }
        }
    }

    /// Has a part of a request to all servers done by who is master in the place of one that has refused it: nothing was done there. False: it is no such part, or has
    /// been sent often enough.
    pub(super) fn adopt(&mut self, at: usize, ticket: &Ticket, line: &[u8]) -> bool {
        let Pushed { whose, reply, .. } = ticket.pushed;
        if ticket.redirections >= REDIRECTIONS_MAX || !self.conversations.has_heirs(whose, reply.0) {
            return false;
        }
        let link = &self.links[at];
        let request = link.requests[link.answered - ticket.bytes..link.answered].to_vec();
        let (way, error) = (link.way, line.to_vec());
        let ticket = Ticket { came: 0, ..ticket.clone() };
        self.conversations.note_redirected(whose, None);
        tokio::task::spawn_local(async move {
            let mut orphan = Orphan { ticket, request, way, at, error };
            loop {
                let redirections = &mut orphan.ticket.redirections;
                *redirections += 1;
                // Who is master in its place has to be found out first.
                sleep(pause_before(*redirections + AT_ONCE_MAX).unwrap_or(PAUSES.1)).await;
                if here(|links| links.send_to_heir(&mut orphan)) != Some(false) {
                    return;
                }
            }
        });
        true
    }

    /// Sends such a part to who has its shard by now. False: that is not known yet.
    fn send_to_heir(&mut self, orphan: &mut Orphan) -> bool {
        let Pushed { whose, reply, .. } = orphan.ticket.pushed;
        if self.conversations.client(whose).is_none() {
            return true;
        }
        self.look_at_routes();
        match self.conversations.heir(whose, reply, &self.routes) {
            Some(node) => {
                let to = self.place(LinkTo { node, ..orphan.way });
                self.enqueue(to, &orphan.request, orphan.ticket.clone());
                true
            }
            None if orphan.ticket.redirections >= REDIRECTIONS_MAX => {
                self.answer(orphan.at, &orphan.ticket, &orphan.error, NOWHERE);
                true
            }
            None => {
                self.proxy.upstream.hurry();
                false
            }
        }
    }
}

/// How long a request waits before it is sent elsewhere for this time. None: it is sent at once.
fn pause_before(redirections: u8) -> Option<Duration> {
    let (first, most) = PAUSES;
    let times = u32::from(redirections.checked_sub(AT_ONCE_MAX + 1)?);
    Some(first.saturating_mul(1 << times.min(16)).min(most))
}

fn send_later(pause: Duration, at: usize, sequence: Sequence) {
    tokio::task::spawn_local(async move {
        sleep(pause).await;
        here(|links| links.send_parked(at, sequence));
    });
}
