//! Writers are slowed where they write more than a move can send, so that it comes to an end.
//!
//! Whoever writes and is answered at once can write faster than another server takes the same in. Where that shows, answers to writes wait until the stream is so far
//! that they may go: for every two bytes that are sent one may be written. Only when it shows, and only while somebody else takes what is sent; an operator who has set
//! how fast slots move has not asked for slower writes, so that such a move comes to nothing. So does one beside writers who do not wait for answers.

use crate::feeding::stamp_of;
use crate::server::Server;
use std::io;
use std::time::{Duration, Instant};
use sys::Stamp;
use telemetry::log;

/// How what is wrong begins where more is written than may be sent.
pub const OUTRUN: &str = "more is written to the shard than may be sent to the other";

/// How long it watches before it says how long the rest takes.
const WINDOW: Duration = Duration::from_secs(1);

/// Longer than that the rest should not take.
const SOON: Duration = Duration::from_secs(30);

/// How long it may come no nearer to its end, where writers are not to be slowed, or are not slowed by waiting.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes that may be written beside what is sent: what writers need in order to go on.
const SLACK: u64 = 64 << 10;

/// How writers and one move stand to each other.
pub struct Pacing<'p> {
    server: &'p Server,
    /// The move's number.
    id: u64,
    /// When it began to watch, and how much there was to be sent then.
    window: Option<(Instant, u64)>,
    /// The least that there was to be sent, and when that was.
    least: Option<(Instant, u64)>,
    /// How far the stream was sent, and up to which offset writers are answered, while they are slowed.
    slowed: Option<Slowed>,
    is_told: bool,
}

struct Slowed {
    sent: u64,
    up_to: u64,
}

impl<'p> Pacing<'p> {
    /// Of one move, which slows nobody yet.
    pub fn new(server: &'p Server, id: u64) -> Pacing<'p> {
        Pacing { server, id, window: None, least: None, slowed: None, is_told: false }
    }

    /// Watches from here on: what was before was something else.
    pub fn begin(&mut self) {
        self.end();
        (self.window, self.least) = (None, None);
    }

    /// Whether writers are slowed.
    pub fn is_on(&self) -> bool {
        self.slowed.is_some()
    }

    /// The stream is sent up to an offset, and so many bytes are to be sent yet.
    ///
    /// # Errors
    /// It has come no nearer to its end for long, and writers are not to be slowed, or do not wait for answers.
    pub fn note(&mut self, sent: u64, behind: u64, keeps_to_rate: bool) -> io::Result<()> {
        if self.does_not_end(behind) && self.slowed.is_none() && !keeps_to_rate {
            self.slowed = Some(Slowed { sent, up_to: sent + behind });
            if !std::mem::replace(&mut self.is_told, true) {
                log!(Notice, "Move {}: more is written than is sent: answers to writes wait for it", self.id);
            }
        }
        match keeps_to_rate {
            true => self.end(),
            false => self.let_go(sent, behind),
        }
        match self.comes_no_nearer(behind) {
            true if keeps_to_rate => Err(io::Error::other(format!("{OUTRUN} (move-rate)"))),
            true if self.is_on() => Err(io::Error::other(OUTRUN)),
            _ => Ok(()),
        }
    }

    /// Nobody waits for what follows, which may take long; [`Pacing::note`] slows writers again.
    pub fn pause(&self) {
        if self.is_on() {
            self.server.net.gate.slow(Stamp::LAST);
        }
    }

    /// Nobody is slowed from here on.
    pub fn end(&mut self) {
        self.pause();
        self.slowed = None;
    }

    /// Whether the rest would take long, as things go.
    fn does_not_end(&mut self, behind: u64) -> bool {
        let (since, before) = *self.window.get_or_insert((Instant::now(), behind));
        let watched = since.elapsed();
        if watched < WINDOW {
            return false;
        }
        self.window = None;
        let sent = before.saturating_sub(behind) as f64 / watched.as_secs_f64();
        behind > SLACK && sent * SOON.as_secs_f64() < behind as f64
    }

    fn comes_no_nearer(&mut self, behind: u64) -> bool {
        let (since, least) = *self.least.get_or_insert((Instant::now(), behind));
        if behind < least || behind <= SLACK {
            self.least = Some((Instant::now(), behind));
            return false;
        }
        since.elapsed() >= PATIENCE
    }

    /// Has as many answers go as are due.
    fn let_go(&mut self, sent: u64, behind: u64) {
        let Some(slowed) = &mut self.slowed else { return };
        // What is sent already is waited for by nobody, also where others write on without waiting.
        slowed.up_to = sent.max(slowed.up_to + (sent - slowed.sent) / 2);
        slowed.sent = sent;
        if behind <= SLACK {
            slowed.up_to = slowed.up_to.max(sent + behind + SLACK);
        }
        self.server.net.gate.slow(stamp_of(&self.server.engine, slowed.up_to));
    }
}

impl Drop for Pacing<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
