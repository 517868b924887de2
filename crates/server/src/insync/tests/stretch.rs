//! How the stream comes from a master to who follows it: asked for, granted as a whole or from a place on, and sent as it becomes durable.

use super::node::{Process, spool};
use crate::feeding::behind::Reading;
use crate::feeding::copying::{begin_reading, facts};
use crate::feeding::joining::{self, Wish};
use crate::feeding::{self, offset_of};
use crate::followed::Phase;
use crate::following::applying::Applier;
use crate::following::rest::Rest;
use crate::following::{Wanted, agreeing, copy, link};
use crate::server::Server;
use ::log::{Lsn, ReplicationId, Stream};
use engine::{durability, full_copy, replacement};
use std::io;
use std::sync::Arc;
use value::stream::Reads;

/// What is said on such a connection.
#[derive(Clone, Debug)]
pub enum Said {
    /// From here on, or everything.
    Ask { id: ReplicationId, offset: Option<u64> },
    /// The stream of this name goes on.
    Continues { id: ReplicationId },
    /// Everything, and the stream from there on.
    Copy { id: ReplicationId, offset: u64, bytes: Vec<u8> },
    /// More of it.
    Bytes(Vec<u8>),
}

/// Who follows.
pub struct Feed {
    id: ReplicationId,
    from: Option<u64>,
}

impl Feed {
    pub fn new() -> Feed {
        Feed { id: ReplicationId::NONE, from: None }
    }

    /// Answers what a follower asks for.
    pub fn answer(&mut self, server: &Arc<Server>, said: &Said) -> io::Result<Said> {
        let Said::Ask { id, offset } = said else { return Err(io::Error::other("it asks for nothing")) };
        if server.following.status().is_some_and(|status| status.phase != Phase::Connected) {
            return Err(io::Error::other("there is no stream here"));
        }
        joining::keep_relayed(server);
        let stream = server.stream();
        self.id = stream.id;
        if let Some(offset) = *offset
            && joining::goes_on(server, &Wish { id: id.to_string().into_bytes(), offset, is_whole: true })
        {
            self.from = Some(offset);
            return Ok(Said::Continues { id: stream.id });
        }
        let (offset, bytes) = copy_of(server)?;
        self.from = Some(offset);
        Ok(Said::Copy { id: stream.id, offset, bytes })
    }

    /// What there is more. An error ends the connection.
    pub fn more(&mut self, server: &Arc<Server>) -> io::Result<Option<Said>> {
        let Some(from) = self.from else { return Ok(None) };
        if server.stream().id != self.id {
            return Err(io::Error::other("the stream has another name"));
        }
        let (mut reading, mut all) = (Reading::new(server, from), Vec::new());
        loop {
            let bytes = reading.next(u64::MAX)?;
            if bytes.is_empty() {
                break;
            }
            all.extend_from_slice(&bytes);
        }
        self.from = Some(reading.offset());
        Ok((!all.is_empty()).then_some(Said::Bytes(all)))
    }
}

/// A copy of one moment, and its offset.
fn copy_of(server: &Arc<Server>) -> io::Result<(u64, Vec<u8>)> {
    let engine = &server.engine;
    // It holds nothing that is not as durable as the stream.
    durability::sync(engine)?;
    let beginning = full_copy::begin(engine, || begin_reading(server, |_, _| ()));
    let from = offset_of(engine, beginning.at);
    let first = facts(server, from, 0);
    let facts = full_copy::Facts { first: &first, whole_from: &|| Some(feeding::end(server)) };
    let wanted =
        full_copy::Wanted { reads: Reads::Redis72, knows_field_times: true, keys: true, functions: true };
    let mut bytes = Vec::new();
    full_copy::write(engine, &beginning, wanted, &facts, &mut |piece| {
        bytes.extend_from_slice(&piece);
        Ok(())
    })?;
    Ok((from, bytes))
}

/// How far who follows has come with one connection.
enum State {
    /// None yet.
    Apart,
    /// It has asked, with this here.
    Asking(Option<Stream>),
    Following(Box<Rest>),
}

/// What is followed by an order.
pub struct Stretch {
    pub order: u64,
    pub node: usize,
    wanted: Wanted,
    /// The connection.
    pub link: Option<u64>,
    pub failed: u32,
    state: State,
}

impl Stretch {
    pub fn new(order: u64, node: usize, wanted: Wanted) -> Stretch {
        Stretch { order, node, wanted, link: None, failed: 0, state: State::Apart }
    }

    /// A connection is there: what is asked for.
    pub fn begin(&mut self, server: &Arc<Server>, link: u64) -> io::Result<Said> {
        (self.link, self.state) = (Some(link), State::Apart);
        link::look(server, self.order)?;
        let Some(wanted) = server.following.wanted(self.order) else { return Err(io::Error::other("over")) };
        self.wanted = wanted;
        let before = agreeing::known_stream(server)?;
        if let Some(before) = before {
            agreeing::check_place(server, self.order, before.offset, wanted)?;
        }
        let offset = before.filter(|_| !wanted.takes_copy).map(|before| before.offset);
        self.state = State::Asking(before);
        Ok(Said::Ask { id: wanted.id, offset })
    }

    /// The connection is gone.
    pub fn part(&mut self, server: &Server) {
        (self.link, self.state) = (None, State::Apart);
        self.failed = (self.failed + 1).min(5);
        server.following.change(self.order, |status| status.phase = Phase::Connect);
    }

    /// Takes what comes. Whether it was a copy.
    pub fn take(&mut self, server: &Arc<Server>, said: Said) -> io::Result<bool> {
        let (order, wanted) = (self.order, self.wanted);
        match (said, &mut self.state) {
            (Said::Bytes(bytes), State::Following(rest)) => {
                rest.take(&bytes, &mut Applier::new(server))?;
                return Ok(false);
            }
            (Said::Continues { id }, State::Asking(Some(before))) => {
                let stream = agreeing::go_on(server, order, (*before, Some(wanted)), Some(id))?;
                self.state = State::Following(Box::new(Rest::begin(server, order, stream)));
            }
            (Said::Copy { id, offset, bytes }, State::Asking(_)) => {
                if !wanted.takes_copy || wanted.id != id {
                    return Err(agreeing::refuse_copy(server, order, Some(wanted), id));
                }
                let stream = Stream { id, offset, ..Stream::none(Lsn::ZERO) };
                let path = spool();
                std::fs::write(&path, &bytes)?;
                let checked = replacement::check(&server.engine, &path, &*bytes)?;
                let stream = copy::stream_behind(&checked, stream);
                let replacement::Checked { libraries, whole_from, .. } = checked;
                let coming = copy::Coming::File(&path, libraries);
                let until = whole_from.unwrap_or(stream.offset);
                let stream = copy::put_in_place(server, order, (coming, until), stream, &mut || Ok(()))?;
                std::fs::remove_file(&path)?;
                self.state = State::Following(Box::new(Rest::begin(server, order, stream)));
                self.failed = 0;
                return Ok(true);
            }
            _ => return Err(io::Error::other("that is nothing that a master says now")),
        }
        self.failed = 0;
        Ok(false)
    }
}

impl Process {
    /// Everything that followers can be sent now; None: their connection ends.
    pub fn feed(&mut self) -> Vec<(u64, Option<Said>)> {
        let mut due = Vec::new();
        for (link, feed) in &mut self.feeds {
            match feed.more(&self.server) {
                Ok(None) => {}
                Ok(said) => due.push((*link, said)),
                Err(_) => due.push((*link, None)),
            }
        }
        due
    }
}
