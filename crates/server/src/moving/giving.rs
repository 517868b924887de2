//! One attempt to give slots to another shard: copies what they hold, then what is written meanwhile, and at last holds requests back.
//!
//! The other shard's master does what it is sent as writes of its own, and answers when it is committed there: so what was answered need not be sent again, and an error
//! ends the attempt.
//!
//! Thread rule: the thread of [`super`].
//!
//! Invariants:
//! 1. `MOVE READY` is said only when requests to the slots are held back, nothing that was begun before runs any more, all of it is committed here, and the other
//!    shard has answered for all of it.
//! 2. Nothing is sent after that.

use super::own_epoch;
use super::pacing::{OUTRUN, Pacing};
use super::telling::{Config, Retry};
use crate::clustered::View;
use crate::feeding::slot_stream::SlotStream;
use crate::insync::asking::Asking;
use crate::insync::dialling::TlsBy;
use crate::server::Server;
use crate::shard::Address;
use engine::slot_copy::{self, Copied, Taker};
use keyspace::{DbIndex, Slot};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use sys::{Shown, Stamp};
use telemetry::log;
use topology::{Move, Stage};
use wire::Value;

/// How long the other master may take for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that were sent and are not answered, at most.
const WINDOW_BYTES: usize = 1 << 20;

/// What is sent at a time.
const PIECE_BYTES: usize = 32 << 10;

/// With so much to be sent yet that is sent before the next slot is copied.
const BEHIND_COPYING_BYTES: u64 = 4 << 20;

/// With so little to be sent yet it is caught up.
const BEHIND_BYTES: u64 = 128 << 10;

/// How long the other master may take to clear what it has of the slots, or to hear of the move.
const WELCOME: Duration = Duration::from_secs(60);

/// Between two questions, and two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long what is written may be left alone until it can be sent.
const UNSENDABLE: Duration = Duration::from_millis(1);

/// How long clients may wait for a script to end before the slots switch.
const BARRIER: Duration = Duration::from_secs(1);

/// How long clients may wait until the other master, or its disk, or its members have taken what was written before they had to. It may stand still.
const TAKING: Duration = Duration::from_secs(2);

/// How long clients may wait for the other master to hear that the slots switch. It may be cut off from the config servers, and from nobody else.
const CONFIRMING: Duration = Duration::from_secs(1);

/// How long clients may wait for what was written to be committed: fewer members may be there than have to have it.
const COMMITTING: Duration = Duration::from_secs(3);

/// How often it says how far it is.
const PROGRESS: Duration = Duration::from_secs(1);

/// Why an attempt has come to nothing.
pub struct Failure {
    /// Whether another may not.
    pub retry: Retry,
    /// A sentence for the operator.
    pub reason: String,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let reason = error.to_string();
        // The other server would refuse the same again.
        let is_final = ["OOM", "SLOTMOVE-REFUSED", OUTRUN].iter().any(|word| reason.starts_with(word));
        Failure { retry: if is_final { Retry::Never } else { Retry::Again }, reason }
    }
}

/// Whether an attempt is the one that a topology tells of.
pub fn is_current(server: &Server, one: &Move) -> bool {
    stage_of(&view(server), one).is_some()
}

fn view(server: &Server) -> Arc<View> {
    server.clustered.get().map(|part| part.view()).unwrap_or_default()
}

/// How far an attempt is, as far as it is known; None: it is over.
fn stage_of<'v>(view: &'v View, one: &Move) -> Option<&'v Stage> {
    let told = view.topology.moves.get(&one.id)?;
    (told.attempt == one.attempt && told.is_under_way()).then_some(&told.stage)
}

/// The attempt.
pub struct Giving<'g> {
    server: &'g Arc<Server>,
    one: &'g Move,
    /// In which this server was master when it began.
    epoch: u64,
    began: Instant,
    /// Whether it has asked for the switch.
    asks: Cell<bool>,
}

impl<'g> Giving<'g> {
    /// An attempt of a move, by the master in this epoch.
    pub fn new(server: &'g Arc<Server>, one: &'g Move, epoch: u64) -> Giving<'g> {
        Giving { server, one, epoch, began: Instant::now(), asks: Cell::new(false) }
    }

    /// Makes it, and sees how it ends.
    ///
    /// # Errors
    /// It has come to nothing.
    pub fn run(self, config: &mut Config<'_>) -> Result<(), Failure> {
        let one = self.one;
        log!(
            Notice,
            "Move {}: {} slots are copied to shard {}, attempt {}",
            one.id,
            one.count(),
            one.to,
            one.attempt
        );
        let (mut asking, epoch) = self.reach()?;
        self.bring_libraries(&mut asking)?;
        let epochs = (self.epoch, epoch);
        let mut progress = Progress { config, one, of: self.keys(), keys: 0, behind: 0, told_at: None };
        let rate = self.rate(&mut progress)?;
        let (mut stream, beginning) = SlotStream::begin(self.server, one.id)?;
        let mut link = Link::new(&self, asking, rate, progress);
        let slots: Vec<Slot> = one.each_slot().map(Slot).collect();
        let mut sender = Sender { link: &mut link, stream: &mut stream };
        let engine = &self.server.engine;
        let copied = slot_copy::copy(engine, engine.moving_guest(), &beginning, &slots, &mut sender)?;
        link.pacing.begin();
        loop {
            self.catch_up(&mut link, &mut stream, &copied)?;
            self.asks.set(true);
            // It may be heard and switch before that is known here: somebody may be waiting from here on.
            link.hasten();
            // Whoever is not heard now is asked again, when what came in between is sent, too.
            link.pacing.pause();
            match link.progress.config.say_caught_up(one, epochs) {
                Ok(()) => break,
                Err(_) => {
                    link.pacing.begin();
                    thread::sleep(LOOK_AGAIN);
                }
            }
        }
        self.hand_over(&mut link, &mut stream, &copied)?;
        let Link { progress, asking, sent, .. } = link;
        drop((asking, stream));
        log!(
            Notice,
            "Move {}: {} keys, {sent} bytes were sent in {:.2?}",
            one.id,
            copied.keys(),
            self.began.elapsed()
        );
        self.conclude(progress.config, epochs)
    }

    /// How fast it may send: nothing is sent before somebody says so, since what an operator has set may be little.
    fn rate(&self, progress: &mut Progress<'_, '_>) -> io::Result<u64> {
        loop {
            if let Some(rate) = progress.tell(0) {
                return Ok(rate);
            }
            self.look()?;
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Ends the attempt where it is no more.
    fn look(&self) -> io::Result<()> {
        crate::insync::look(self.server)?;
        let is_master = own_epoch(self.server) == Some(self.epoch);
        let view = view(self.server);
        let stage = stage_of(&view, self.one);
        // What is held back is not held for a copy that has only begun.
        let is_of_this = stage.is_some_and(|stage| self.asks.get() || *stage == Stage::Copying);
        match is_master && is_of_this {
            true => Ok(()),
            false => {
                Err(io::Error::other("this server is not the one any more that is to give these slots away"))
            }
        }
    }

    /// How many keys the slots have now.
    fn keys(&self) -> u64 {
        let engine = &self.server.engine;
        let batch = engine.keyspace.enter(engine.moving_guest());
        let slots = || self.one.each_slot().map(Slot);
        let count = |db| slots().filter_map(|slot| batch.try_count_slot(db, slot)).sum::<usize>() as u64;
        engine.databases().map(count).sum()
    }

    /// Connects to the other shard's master, which has nothing of the slots then; and the epoch in which it is that.
    fn reach(&self) -> io::Result<(Asking<'g>, u64)> {
        let began = Instant::now();
        loop {
            self.look()?;
            match self.introduce() {
                Ok(reached) => return Ok(reached),
                Err(error) if began.elapsed() >= WELCOME => return Err(error),
                Err(_) => thread::sleep(LOOK_AGAIN),
            }
        }
    }

    fn introduce(&self) -> io::Result<(Asking<'g>, u64)> {
        let view = view(self.server);
        let unknown = || io::Error::other(format!("shard {} has no master", self.one.to));
        let to = view.topology.master_of(self.one.to).ok_or_else(unknown)?;
        let place = Address::of(to, self.server.engine.config.tls_cluster());
        let mut asking = Asking::to(self.server, &place, TlsBy::Cluster, PATIENCE)?;
        let (id, attempt) = (self.one.id.to_string(), self.one.attempt.to_string());
        let words: [&[u8]; 4] = [b"SLOTMOVE", b"BEGIN", id.as_bytes(), attempt.as_bytes()];
        match asking.ask(&words)? {
            Value::Int(epoch) => Ok((asking, u64::try_from(epoch).unwrap_or_default())),
            _ => Err(io::Error::other("the other server does not know what slots are brought")),
        }
    }

    /// A shard without slots, as one that has just begun, gets the libraries of functions that are here, beside its own: what is called on this shard can be called on that one
    /// when it has slots. Later it is for operators to keep them alike, as in Redis Cluster: one that was deleted there does not come back.
    fn bring_libraries(&self, asking: &mut Asking<'_>) -> io::Result<()> {
        if view(self.server).topology.slots.count_of(self.one.to) > 0 {
            return Ok(());
        }
        let libraries = self.server.engine.scripts.libraries();
        let codes = libraries.by_name.values().map(|library| library.code.as_slice());
        let words: Vec<&[u8]> = [&b"SLOTMOVE"[..], b"LIBRARIES"].into_iter().chain(codes).collect();
        match words.len() {
            2 => Ok(()),
            _ => match asking.ask(&words) {
                Err(error) if error.to_string().starts_with("ERR unknown subcommand") => {
                    log!(
                        Notice,
                        "Shard {} is served by a version that takes no libraries of functions: load them there",
                        self.one.to
                    );
                    Ok(())
                }
                answer => answer.map(drop),
            },
        }
    }

    /// Sends what was written meanwhile, until little is left.
    fn catch_up(
        &self,
        link: &mut Link<'_, '_>,
        stream: &mut SlotStream<'_>,
        copied: &Copied,
    ) -> io::Result<()> {
        loop {
            self.look()?;
            let is_sent = link.pass_on(stream, copied)?;
            link.settle()?;
            link.follows(copied.keys(), stream)?;
            if stream.behind() <= BEHIND_BYTES {
                return Ok(());
            }
            if !is_sent {
                // It is not on disk yet.
                self.server.engine.durability.log().into_iter().for_each(|log| log.request_sync());
                thread::sleep(UNSENDABLE);
            }
        }
    }

    /// When requests are held back: everything that they have done is sent, and answered.
    fn hand_over(
        &self,
        link: &mut Link<'_, '_>,
        stream: &mut SlotStream<'_>,
        copied: &Copied,
    ) -> Result<(), Failure> {
        let is_held = |view: &View| stage_of(view, self.one) == Some(&Stage::Switching);
        while !self.wait_for(is_held) {
            self.look()?;
            link.pass_on(stream, copied)?;
            link.settle()?;
            link.follows(copied.keys(), stream)?;
        }
        link.pacing.end();
        let end = self.end()?;
        let (shown, began) = (Shown { up_to: end, is_write: true }, Instant::now());
        while !self.server.net.gate.is_open_for(shown) {
            self.look()?;
            if began.elapsed() >= COMMITTING {
                return Err(io::Error::other(
                    "what was written to the slots is not committed, and requests would wait for it",
                )
                .into());
            }
            if let Some(log) = self.server.engine.durability.log() {
                log.nudge();
            }
            thread::sleep(Duration::from_micros(100));
        }
        link.hold();
        stream.pass_on_until(end, copied, &mut |db, request| link.send(db, request), || self.look())?;
        link.settle()?;
        self.confirm(link)?;
        Ok(())
    }

    /// Where everything ends that was begun before requests were held back.
    fn end(&self) -> io::Result<Stamp> {
        let (engine, began) = (&self.server.engine, Instant::now());
        loop {
            self.look()?;
            let mut batch = engine.keyspace.enter(engine.moving_guest());
            if batch.try_hold_all() {
                batch.begin_era();
                batch.see_all();
                let end = batch.take_seen();
                batch.release();
                return Ok(end);
            }
            drop(batch);
            if began.elapsed() >= BARRIER {
                return Err(io::Error::other(
                    "a script runs for long, and requests to the slots would wait for it",
                ));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has the other master say, as one that knows that the slots are about to be its own, that it has everything still. One that does not hear of it is not waited for
    /// for long: READY was not said, so the slots are this shard's in any case, and are served again as soon as the config servers have heard that the attempt is over.
    fn confirm(&self, link: &mut Link<'_, '_>) -> io::Result<()> {
        let began = Instant::now();
        loop {
            self.look()?;
            let left = CONFIRMING.saturating_sub(began.elapsed());
            match link.asking.ask_within(left.max(LOOK_AGAIN), &[b"SLOTMOVE", b"CONFIRM"])? {
                Value::Int(1) => return Ok(()),
                _ if began.elapsed() >= CONFIRMING => {
                    return Err(io::Error::other(
                        "the other shard's master does not hear from the config servers that the slots switch",
                    ));
                }
                _ => thread::sleep(Duration::from_micros(500)),
            }
        }
    }

    /// Says that all is ready until it is known what has become of it.
    fn conclude(&self, config: &mut Config<'_>, epochs: (u64, u64)) -> Result<(), Failure> {
        while is_current(self.server, self.one) && !self.server.engine.is_ending() {
            self.look()?;
            match config.say_ready(self.one, epochs) {
                Ok(()) => drop(self.wait_for(|view| stage_of(view, self.one).is_none())),
                Err(_) => thread::sleep(LOOK_AGAIN),
            }
        }
        Ok(())
    }

    /// Waits a little for something to be so.
    fn wait_for(&self, is_so: impl Fn(&View) -> bool) -> bool {
        let Some(part) = self.server.clustered.get() else { return false };
        let seen = part.view();
        if !is_so(&seen) {
            part.wait_for_change(&seen, LOOK_AGAIN);
        }
        is_so(&part.view())
    }
}

/// Says how far it is now and then.
struct Progress<'p, 'c> {
    config: &'p mut Config<'c>,
    one: &'p Move,
    /// How many keys there were at the beginning, and are copied.
    of: u64,
    keys: u64,
    /// Bytes of the stream that are not sent yet.
    behind: u64,
    told_at: Option<Instant>,
}

impl Progress<'_, '_> {
    /// Whether it is time to say so again.
    fn is_due(&self) -> bool {
        self.told_at.is_none_or(|told_at| told_at.elapsed() >= PROGRESS)
    }

    /// Says also how much was sent. Gives the rate, if it was told one.
    fn tell(&mut self, bytes: u64) -> Option<u64> {
        let Progress { of, keys, behind, .. } = *self;
        let figures = format!("keys={keys} bytes={bytes} of={of} behind={behind}");
        let rate = self.config.say_progress(self.one, figures);
        self.told_at = Some(Instant::now());
        rate
    }
}

/// How fast it may send.
#[derive(Clone, Copy)]
struct Pace {
    /// Bytes a second; 0: as many as can be.
    rate: u64,
    /// Since when, and what had been sent then.
    from: Instant,
    sent: u64,
}

impl Pace {
    /// How long it is until so much may have been sent, if it is not yet.
    fn left(self, sent: u64) -> Option<Duration> {
        if self.rate == 0 {
            return None;
        }
        let due = Duration::from_secs_f64((sent - self.sent) as f64 / self.rate as f64);
        due.checked_sub(self.from.elapsed()).filter(|left| !left.is_zero())
    }
}

/// What was sent to the other server, and is to be.
struct Link<'l, 'c> {
    giving: &'l Giving<'l>,
    asking: Asking<'l>,
    progress: Progress<'l, 'c>,
    /// How long what is not answered is.
    outstanding: VecDeque<usize>,
    bytes: usize,
    sent: u64,
    pace: Pace,
    pacing: Pacing<'l>,
    /// Whether an operator has set a rate.
    keeps_to_rate: bool,
    /// Requests that wait for more of their database.
    pending: Option<(DbIndex, Vec<u8>)>,
    /// Until when clients wait for what is answered here.
    held_until: Option<Instant>,
    /// Whether they may.
    is_hasty: bool,
}

impl<'l, 'c> Link<'l, 'c> {
    fn new(
        giving: &'l Giving<'l>,
        asking: Asking<'l>,
        rate: u64,
        progress: Progress<'l, 'c>,
    ) -> Link<'l, 'c> {
        let pace = Pace { rate, from: Instant::now(), sent: 0 };
        Link {
            giving,
            asking,
            progress,
            outstanding: VecDeque::new(),
            bytes: 0,
            sent: 0,
            pace,
            pacing: Pacing::new(giving.server, giving.one.id),
            keeps_to_rate: rate > 0,
            pending: None,
            held_until: None,
            is_hasty: false,
        }
    }

    /// Clients wait from here on: for no longer than the other master may be waited for then.
    fn hold(&mut self) {
        self.held_until = Some(Instant::now() + TAKING);
    }

    /// Clients may wait by now: no answer may take long, and what is left keeps to no rate.
    fn hasten(&mut self) {
        self.pace = Pace { rate: 0, from: Instant::now(), sent: self.sent };
        self.is_hasty = true;
        self.settle_patience();
    }

    /// Sends what there is of the stream by now. False: nothing of it can be sent.
    fn pass_on(&mut self, stream: &mut SlotStream<'_>, copied: &Copied) -> io::Result<bool> {
        let (until, mut is_sent) = (stream.end(), false);
        while stream.pass_on(until, copied, &mut |db, request| self.send(db, request))? {
            is_sent = true;
            self.giving.look()?;
            self.follows(copied.keys(), stream)?;
        }
        Ok(is_sent)
    }

    /// Notes how many keys are copied, and how much of the stream is to be sent yet.
    fn is_so_far(&mut self, keys: u64, behind: u64) {
        (self.progress.keys, self.progress.behind) = (keys, behind);
        if !self.is_hasty {
            self.tell();
        }
    }

    /// The same while the stream is sent and nothing else: slows writers that it cannot keep up with.
    fn follows(&mut self, keys: u64, stream: &SlotStream<'_>) -> io::Result<()> {
        let behind = stream.behind();
        self.is_so_far(keys, behind);
        self.pacing.note(stream.offset(), behind, self.keeps_to_rate)?;
        self.settle_patience();
        Ok(())
    }

    /// Nobody may take long for whom clients wait.
    fn settle_patience(&mut self) {
        let patience = if self.pacing.is_on() || self.is_hasty { TAKING } else { PATIENCE };
        self.asking.set_patience(patience);
    }

    /// Says how far it is now and then, and is told how fast it may be.
    fn tell(&mut self) {
        if self.progress.is_due() {
            // Who is told may be long in answering, and clients may wait for what comes next.
            self.pacing.pause();
            let rate = self.progress.tell(self.sent);
            self.follow(rate);
        }
    }

    /// Keeps to another rate from now on.
    fn follow(&mut self, rate: Option<u64>) {
        if let Some(rate) = rate.filter(|_| !self.is_hasty) {
            self.keeps_to_rate = rate > 0;
        }
        if let Some(rate) = rate.filter(|rate| *rate != self.pace.rate && !self.is_hasty) {
            self.pace = Pace { rate, from: Instant::now(), sent: self.sent };
        }
    }

    /// Sends requests for a database, when there are enough of them.
    fn send(&mut self, db: DbIndex, requests: &[u8]) -> io::Result<()> {
        match &mut self.pending {
            Some((own, pending)) if *own == db => pending.extend_from_slice(requests),
            _ => {
                self.flush()?;
                self.pending = Some((db, requests.to_vec()));
            }
        }
        match self.pending.as_ref().is_some_and(|(_, pending)| pending.len() >= PIECE_BYTES) {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some((db, requests)) = self.pending.take() else { return Ok(()) };
        while self.bytes + requests.len() > WINDOW_BYTES && !self.outstanding.is_empty() {
            self.receive()?;
        }
        self.asking.say(&[b"SLOTMOVE", b"APPLY", db.0.to_string().as_bytes(), &requests])?;
        self.outstanding.push_back(requests.len());
        self.bytes += requests.len();
        self.sent += requests.len() as u64;
        self.rest()
    }

    /// Rests until what was sent is due, however long that is, by a rate that may be changed meanwhile.
    fn rest(&mut self) -> io::Result<()> {
        while let Some(left) = self.pace.left(self.sent) {
            self.giving.look()?;
            self.tell();
            thread::sleep(left.min(LOOK_AGAIN));
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        match self.held_until {
            Some(until) => self.asking.receive_before(until)?,
            None => self.asking.receive()?,
        };
        self.bytes -= self.outstanding.pop_front().unwrap_or_default();
        Ok(())
    }

    /// Waits until all that there was is answered.
    fn settle(&mut self) -> io::Result<()> {
        self.flush()?;
        while !self.outstanding.is_empty() {
            self.receive()?;
        }
        Ok(())
    }
}

/// Sends a copy, and what is written meanwhile.
struct Sender<'s, 'l, 'c> {
    link: &'s mut Link<'l, 'c>,
    stream: &'s mut SlotStream<'l>,
}

impl Taker for Sender<'_, '_, '_> {
    fn take(&mut self, db: DbIndex, requests: Vec<u8>) -> io::Result<()> {
        self.link.send(db, &requests)
    }

    fn passed(&mut self, copied: &Copied) -> io::Result<()> {
        if self.stream.behind() > BEHIND_COPYING_BYTES {
            self.link.pacing.begin();
            self.link.giving.look()?;
            self.link.pass_on(self.stream, copied)?;
            self.link.pacing.end();
            self.link.settle_patience();
        }
        self.link.is_so_far(copied.keys(), self.stream.behind());
        Ok(())
    }
}
