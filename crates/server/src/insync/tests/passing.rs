//! What passes between a process and all others: what its driver and its log want done, and what comes on connections.

use super::super::dialling;
use super::node::{Process, Side};
use super::stretch::{Feed, Stretch};
use super::world::{Arrival, Payload, World};
use crate::shard::{Letter, Outbox};
use replication::insync::{Event, Life, LinkId, MemberId, NodeId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::stage::{Happening, Relief, Staged};

/// How long it is tried to reach a node.
const DIALLING: u64 = 900_000;

/// The first pause before a stream is asked for again.
const PAUSE: u64 = 50_000;

impl World {
    pub fn post(&self, node: usize, letter: Letter) {
        if let Some(process) = &self.nodes[node].up {
            process.shard.post(letter);
        }
    }

    /// Has the driver do what there is to do, and sees to what follows.
    pub fn settle(&mut self, node: usize, mut is_tick: bool) {
        self.set_clock(node);
        let moment = self.moment(node);
        loop {
            let here = &mut self.nodes[node];
            let Some(process) = &mut here.up else { return };
            let letters = process.shard.take(Instant::now());
            let is_any = !letters.is_empty();
            letters.iter().for_each(|letter| self.stage.trace(|| format!("{node} <- {}", told(letter))));
            process.driver.turn(letters, || moment, |_| std::mem::take(&mut is_tick));
            let next = process.driver.next_look().map(|next| next.saturating_duration_since(moment));
            let next = next.filter(|_| !std::mem::replace(&mut process.has_look, true));
            if process.server.engine.is_ending() {
                self.stop(node, false);
                return self.stage.soon(10_000, Happening::Over(Relief::Starts(node)));
            }
            if let Some(next) = next {
                let end = self.stage.end(node);
                self.stage.soon(next.as_micros() as u64 + 20, Happening::Arrives(end, Arrival::LookIsDue));
            }
            self.pump(node);
            if !self.serve_held(node) && !is_any {
                break;
            }
        }
        self.open_gate(node);
        self.compare(node);
    }

    /// Takes what the driver and the log want done by others.
    fn pump(&mut self, node: usize) {
        let end = self.stage.end(node);
        let Some(process) = &mut self.nodes[node].up else { return };
        let notes = std::mem::take(&mut *process.notes.lock());
        let mut asked = Vec::new();
        while let Some(question) = process.shard.questions.take(Duration::ZERO) {
            asked.push(question);
        }
        let former = process.stretch.take_if(|stretch| !process.server.following.is_in_force(stretch.order));
        let follows =
            notes.follows.last().copied().filter(|(order, ..)| process.server.following.is_in_force(*order));
        if let Some((order, master, wanted)) = follows {
            process.stretch = Some(Stretch::new(order, master.0 as usize, wanted));
        }
        let (mut said, mut closed) = (Vec::new(), Vec::new());
        for (link, side) in &mut process.sides {
            match side {
                Side::Dialled { outbox, .. } => match outbox.take() {
                    Some(bytes) => said.push((*link, Payload::Words(bytes))),
                    None => closed.push(*link),
                },
                Side::Accepted { session } => {
                    said.push((*link, Payload::Words(session.client.take_mail().as_bytes().to_vec())));
                    if session.client.is_killed() {
                        closed.push(*link);
                    }
                }
            }
        }
        for (link, more) in process.feed() {
            match more {
                Some(more) => said.push((link, Payload::Stream(more))),
                None => {
                    process.feeds.remove(&link);
                    closed.push(link);
                }
            }
        }
        let is_behind = process.log().is_some_and(|log| log.durable() < log.appended());
        let is_due = !process.is_flushing && is_behind;
        process.is_flushing |= is_due;
        closed.iter().for_each(|link| process.end_side(*link));
        closed.extend(former.and_then(|former| former.link));
        for (link, payload) in said {
            if !matches!(&payload, Payload::Words(bytes) if bytes.is_empty()) {
                self.figures.handovers += u64::from(is_yield(&payload));
                self.send(node, link, payload);
            }
        }
        closed.into_iter().for_each(|link| self.close(node, link));
        if is_due {
            let delay = self.stage.disk_delay(node, self.plan.disk_delay_max);
            self.stage.soon(delay, Happening::Arrives(end, Arrival::Flushes));
        }
        for (target, link, outbox) in notes.dials {
            let target = target.0 as usize;
            let is_way = self.stage.is_way(node, target);
            let delay = if is_way {
                2 * self.stage.network.delay(node, target, &mut self.stage.prng)
            } else {
                DIALLING
            };
            self.stage.soon(delay, Happening::Arrives(end, Arrival::Dialled { link, outbox, target }));
        }
        if let Some((order, ..)) = follows {
            self.stage.soon(100, Happening::Arrives(end, Arrival::Follows { order }));
        }
        asked.into_iter().for_each(|(ticket, request)| self.ask_store(end, ticket, request));
    }

    pub fn reach(&mut self, node: usize, link: LinkId, outbox: Arc<Outbox>, target: usize) {
        let reached = self.introduce(node, target);
        let Some(process) = &mut self.nodes[node].up else { return };
        if !process.shard.links.is_newest(link) {
            process.shard.links.forget(link);
            return;
        }
        match reached {
            Some((connection, of)) => {
                process.sides.insert(connection, Side::Dialled { link, outbox, of, rest: Vec::new() });
                process.shard.post(Letter::Happened(Event::Connected { link }));
            }
            None => {
                process.shard.links.forget(link);
                process.shard.post(Letter::Happened(Event::Closed { link: None }));
            }
        }
    }

    /// INSYNC LINK, and the answer to it.
    fn introduce(&mut self, node: usize, target: usize) -> Option<(u64, MemberId)> {
        let is_way = self.stage.is_way(node, target);
        let (from, end) = (self.stage.end(node), self.stage.end(target));
        let own = self.nodes[node].up.as_ref()?.shard.standing().id;
        self.set_clock(target);
        let is_there = is_way && !self.stage.nodes[target].is_paused;
        let process = self.nodes[target].up.as_mut().filter(|_| is_there)?;
        let mut session = process.session();
        process.server.net.clients.add(session.client.clone());
        let words = dialling::introduction(&process.shard.settings, own, 1);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let (_, answer, _) = process.ask(&mut session, &words);
        let life = std::str::from_utf8(&answer).ok()?.trim_end().strip_prefix("+life ")?.parse().ok()?;
        let connection = self.stage.network.connect(from, end);
        process.sides.insert(connection, Side::Accepted { session });
        let of = MemberId { node: NodeId(target as u32), life: Life(life) };
        Some((connection, of))
    }

    /// Takes what has come on a connection.
    pub fn receive(&mut self, node: usize, link: u64, payload: Payload) {
        let Some(process) = &mut self.nodes[node].up else { return };
        let done = match payload {
            Payload::Words(bytes) => process.hear(link, &bytes),
            Payload::Stream(said) => {
                if let Some(feed) = process.feeds.get_mut(&link) {
                    match feed.answer(&process.server, &said) {
                        Ok(answer) => return self.send(node, link, Payload::Stream(answer)),
                        Err(_) => {
                            process.feeds.remove(&link);
                            false
                        }
                    }
                } else if let Some(stretch) = process.stretch.as_mut().filter(|it| it.link == Some(link)) {
                    match stretch.take(&process.server, said) {
                        Ok(is_copy) => {
                            self.figures.copies += u64::from(is_copy);
                            true
                        }
                        Err(error) => {
                            self.stage.trace(|| format!("{node} follows no more: {error}"));
                            self.close(node, link);
                            return self.lose(node, link);
                        }
                    }
                } else {
                    true
                }
            }
        };
        if !done {
            self.close(node, link);
            self.lose(node, link);
        }
    }

    /// A connection has ended.
    pub fn lose(&mut self, node: usize, link: u64) {
        let end = self.stage.end(node);
        let Some(process) = &mut self.nodes[node].up else { return };
        process.feeds.remove(&link);
        process.end_side(link);
        if let Some(stretch) = process.stretch.as_mut().filter(|stretch| stretch.link == Some(link)) {
            stretch.part(&process.server);
            let (order, pause) = (stretch.order, PAUSE << stretch.failed);
            self.stage.soon(pause, Happening::Arrives(end, Arrival::Follows { order }));
        }
    }

    /// Connects to the master whose stream is wanted, and asks for it.
    pub fn follow(&mut self, node: usize, order: u64) {
        let end = self.stage.end(node);
        let wanted = |stretch: &&mut Stretch| stretch.order == order && stretch.link.is_none();
        let Some(process) = &mut self.nodes[node].up else { return };
        let Some(stretch) = process.stretch.as_mut().filter(wanted) else { return };
        let target = stretch.node;
        let is_way = self.stage.is_way(node, target);
        if !is_way || self.stage.nodes[target].is_paused || self.nodes[target].up.is_none() {
            return self.stage.soon(PAUSE, Happening::Arrives(end, Arrival::Follows { order }));
        }
        let link = self.stage.network.connect(end, self.stage.end(target));
        if let Some(master) = &mut self.nodes[target].up {
            master.feeds.insert(link, Feed::new());
        }
        let Some(process) = &mut self.nodes[node].up else { return };
        let Some(stretch) = process.stretch.as_mut().filter(wanted) else { return };
        match stretch.begin(&process.server, link) {
            Ok(said) => self.send(node, link, Payload::Stream(said)),
            Err(error) => {
                self.stage.trace(|| format!("{node} does not ask: {error}"));
                self.close(node, link);
                self.lose(node, link);
            }
        }
    }
}

fn told(letter: &Letter) -> String {
    match letter {
        Letter::Happened(event) => format!("{event:?}"),
        Letter::CopyNeeds { offset, .. } => format!("the copy needs {offset}"),
        Letter::RecordsGone { .. } => "the records are gone".to_owned(),
        Letter::Begin => "begin".to_owned(),
        Letter::HandOver { .. } => "hand over".to_owned(),
    }
}

/// Whether a master says that another is to be master.
fn is_yield(payload: &Payload) -> bool {
    matches!(payload, Payload::Words(words) if words.windows(7).any(|words| words == b"+yield "))
}

impl Process {
    /// Takes what was said on a link. False: it is over.
    fn hear(&mut self, link: u64, bytes: &[u8]) -> bool {
        let Some(mut side) = self.sides.remove(&link) else { return true };
        let is_fine = match &mut side {
            Side::Dialled { link, of, rest, .. } => {
                rest.extend_from_slice(bytes);
                loop {
                    match dialling::take_line(rest) {
                        Ok(Some(line)) => {
                            if dialling::take(&self.shard, (*link, *of), &line).is_err() {
                                break false;
                            }
                        }
                        Ok(None) => break true,
                        Err(_) => break false,
                    }
                }
            }
            Side::Accepted { session } => self.run(session, bytes).1.is_empty(),
        };
        self.sides.insert(link, side);
        is_fine
    }
}
