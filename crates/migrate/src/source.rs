//! The connection on which a source sends: as to a replica, a full copy and the stream behind it, or the rest of a stream.
//!
//! Thread rule: one thread, which also has what it sends carried out; while it waits for that, it reports here.

use crate::connection::shown;
use crate::ending::Orders;
use crate::limits::{CONNECTING, LOOKING, PATIENCE, READ_BYTES};
use crate::place::{Entry, Place};
use crate::screen::Gauge;
use log::ReplicationId;
use net::connect::Outgoing;
use replication::insync::Moment;
use replication::link::limits::RDB_BYTES_MAX_DEFAULT;
use replication::link::{Ask, Handshake, Outcome, Replica, Report, Reports, Transfer, acknowledgement};
use std::cell::RefCell;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What a source has agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// A copy comes, and behind it this stream from this offset on.
    Copy(ReplicationId, u64),
    /// The stream goes on, under this name.
    Rest(ReplicationId),
}

/// Why there is no link.
pub enum Unlinked {
    /// It is tried again.
    Later(String),
    /// It is not.
    Refused(String),
}

/// A link.
pub struct Source {
    outgoing: Outgoing,
    orders: Orders,
    /// What has come, and is not used from `used` on.
    received: Vec<u8>,
    filled: usize,
    used: usize,
    reports: Reports,
    began: Instant,
    heard: Instant,
    /// Up to where the target has answered for the stream; None while the copy comes.
    pub applied: Option<u64>,
}

impl Source {
    /// Connects, and asks for everything or the rest.
    ///
    /// # Errors
    /// There is no link.
    pub fn open(
        place: &Place,
        entry: &Entry,
        ask: Ask,
        orders: &Orders,
    ) -> Result<(Source, Agreed), Unlinked> {
        let later = |error: io::Error| {
            Unlinked::Later(format!("the source {place} is not reached: {}", config::sentence(&error)))
        };
        let deadline = Instant::now() + CONNECTING;
        let mut look = || orders.look();
        let opened =
            Outgoing::connect(place.host.clone(), place.port, entry.tls.clone(), deadline, &mut look);
        let outgoing = opened.map_err(later)?;
        outgoing.set_patience(LOOKING).map_err(later)?;
        let mut source = Source {
            outgoing,
            orders: orders.clone(),
            received: vec![0; READ_BYTES],
            filled: 0,
            used: 0,
            reports: Reports::new(),
            began: Instant::now(),
            heard: Instant::now(),
            applied: None,
        };
        let replica = Replica {
            user: entry.user.as_ref().map(|user| user.as_bytes().to_vec()),
            password: entry.password.as_ref().map(|password| password.as_bytes().to_vec()),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..Replica::default()
        };
        let (mut handshake, greeting) = Handshake::begin(replica, ask);
        source.send(&greeting).map_err(later)?;
        loop {
            let step = handshake.step(&source.received[source.used..source.filled]);
            source.used += step.used;
            source.send(&step.send).map_err(later)?;
            let own = |ending: replication::link::Ending| format!("the source {place}: {ending}");
            match step.outcome {
                None => source.fill().map_err(later)?,
                Some(Outcome::Full { id, offset }) => return Ok((source, Agreed::Copy(id, offset))),
                Some(Outcome::Partial { renamed }) => {
                    let Ask::Rest { id, offset } = ask else {
                        return Err(Unlinked::Refused(format!("the source {place} goes on with nothing")));
                    };
                    source.applied = Some(offset);
                    return Ok((source, Agreed::Rest(renamed.unwrap_or(id))));
                }
                Some(Outcome::Parted { .. }) => {
                    return Err(Unlinked::Refused(format!("the source {place} answers what was not asked")));
                }
                Some(Outcome::Later(ending)) => return Err(Unlinked::Later(own(ending))),
                Some(Outcome::Refused(ending)) => return Err(Unlinked::Refused(own(ending))),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.outgoing.set_deadline(Instant::now() + CONNECTING);
        let orders = self.orders.clone();
        self.outgoing.write_all(bytes, &mut || orders.look())
    }

    /// Tells the source how far it is, if that is due: it takes who says nothing for dead.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn report(&mut self) -> io::Result<()> {
        let now = Moment(u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX));
        let report = match self.applied {
            None => Report::Loading,
            Some(applied) => Report::Following { applied, durable: None },
        };
        let bytes = self.reports.step(now, report);
        self.send(&bytes)
    }

    /// Answers a question how far it is.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn acknowledge(&mut self, offset: u64) -> io::Result<()> {
        self.send(&acknowledgement(offset, None))
    }

    /// Waits a moment for more, reports, and gives what has come and is not used.
    ///
    /// # Errors
    /// The connection is lost, or it is to end.
    pub fn wait(&mut self) -> io::Result<&[u8]> {
        self.report()?;
        if self.used == self.filled {
            self.fill()?;
        }
        Ok(&self.received[self.used..self.filled])
    }

    /// So many bytes of what has come are used.
    pub fn use_up(&mut self, count: usize) {
        self.used += count;
    }

    /// Reads what is there, or waits a moment for it.
    fn fill(&mut self) -> io::Result<()> {
        if self.used == self.filled {
            (self.used, self.filled) = (0, 0);
        }
        if self.filled == self.received.len() {
            self.received.resize(self.filled + READ_BYTES, 0);
        }
        let orders = self.orders.clone();
        self.outgoing.set_deadline(Instant::now() + LOOKING);
        match self.outgoing.read(&mut self.received[self.filled..], &mut || orders.look()) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.filled += count;
                self.heard = Instant::now();
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => match self.heard.elapsed() > PATIENCE {
                true => Err(error),
                false => Ok(()),
            },
            Err(error) => Err(error),
        }
    }
}

/// The bytes of a copy as they come.
pub struct Arriving<'s> {
    source: &'s RefCell<Source>,
    gauge: Arc<Gauge>,
    transfer: Transfer,
    piece: Vec<u8>,
    at: usize,
    is_complete: bool,
}

impl<'s> Arriving<'s> {
    /// The copy that a source has agreed to send.
    pub fn of(source: &'s RefCell<Source>, gauge: &Arc<Gauge>) -> Arriving<'s> {
        Arriving {
            source,
            gauge: gauge.clone(),
            transfer: Transfer::new(RDB_BYTES_MAX_DEFAULT),
            piece: Vec::new(),
            at: 0,
            is_complete: false,
        }
    }
}

impl Read for Arriving<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            if self.is_complete {
                return Ok(0);
            }
            (self.piece, self.at) = (Vec::new(), 0);
            let mut source = self.source.borrow_mut();
            let received = source.wait()?;
            let taken =
                self.transfer.step(received).map_err(|ending| io::Error::other(ending.to_string()))?;
            taken.parts().into_iter().for_each(|part| self.piece.extend_from_slice(part));
            self.is_complete = taken.is_complete;
            let used = taken.used;
            source.use_up(used);
            self.gauge.copied_bytes.store(self.transfer.handed_out(), Ordering::Relaxed);
        }
        let count = into.len().min(self.piece.len() - self.at);
        into[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// What the loss of a source means for whoever waits for it.
pub fn sentence(place: &Place, error: &io::Error) -> String {
    let why = match error.kind() {
        ErrorKind::TimedOut => "it says nothing any more".to_owned(),
        ErrorKind::UnexpectedEof => "it has closed the connection".to_owned(),
        _ => shown(config::sentence(error).as_bytes()),
    };
    format!("the source {place} is lost: {why}")
}
