//! One connection of a load: what is to be sent, what is waited for, and what came back.
//!
//! Owned by one thread of the generator. It knows no time and counts nothing for good: who drives it gives it
//! requests, and takes the operations that were completed.
//!
//! Invariant: replies come in the order of the requests, so the first of what is pending gets the next reply.

use super::channel::Channel;
use crate::work::{Issued, Then};
use std::collections::VecDeque;
use sys::Ticks;
use wire::scan::{Kind, Malformed, Scanner};

/// The error of a record that should be there and is not.
pub const MISSING: &[u8] = b"record not found (was it loaded?)";

/// The longest reply that is kept as a whole: a record is far shorter, and what means harm fills no memory.
pub const CAPTURED_BYTES_MAX: usize = 64 << 20;

/// Operations of one kind, issued at the same moment and waiting for their replies.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// From when their latency counts.
    pub start: Ticks,
    /// Whether they count at all.
    pub is_measured: bool,
    issued: Issued,
    /// Operations of this kind that wait, one after the other.
    operations: u32,
    /// Replies that the first of them still lacks.
    lacking: u32,
    /// Whether one of those that came was an error.
    has_failed: bool,
}

/// What a reply brought about.
#[derive(Clone, Copy, Debug)]
pub enum Completed {
    /// Nothing that counts: operations are still waiting, or have failed.
    Nothing,
    /// Operations of a kind, all of them well.
    Good {
        /// What they were issued as.
        pending: Pending,
        /// Their kind.
        kind: u8,
        /// How many.
        operations: u64,
    },
    /// A step was answered and there is more to do for it.
    Step {
        /// What it was issued as.
        pending: Pending,
        /// The operation's kind.
        kind: u8,
        /// What there is to do.
        then: Then,
        /// Whether the answer was an error, which has been told.
        has_failed: bool,
    },
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Its socket.
    pub channel: Channel,
    scanner: Scanner,
    pending: VecDeque<Pending>,
    /// The reply that is being read, if it is needed as a whole.
    captured: Vec<u8>,
}

impl Connection {
    /// One over a connected socket.
    pub fn new(channel: Channel) -> Connection {
        Connection { channel, scanner: Scanner::default(), pending: VecDeque::new(), captured: Vec::new() }
    }

    /// Whether it waits for no reply.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Operations without their replies.
    pub fn waiting(&self) -> u64 {
        self.pending.iter().map(|pending| u64::from(pending.operations)).sum()
    }

    /// Puts down operations whose requests were appended to `out`.
    #[inline]
    pub fn expect(&mut self, issued: Issued, start: Ticks, is_measured: bool) {
        if let Some(last) = self.pending.back_mut()
            && (last.start, last.is_measured, last.issued) == (start, is_measured, issued)
            && issued.then == Then::Nothing
        {
            last.operations += 1;
            return;
        }
        let lacking = issued.replies;
        self.pending.push_back(Pending {
            start,
            is_measured,
            issued,
            operations: 1,
            lacking,
            has_failed: false,
        });
    }

    /// Takes bytes up to the end of the first operations that they complete and says how many were used. Successful
    /// operations that were issued together are completed together. `on_error` is told the text of each error.
    ///
    /// # Errors
    /// The bytes are no reply, or the answer to nothing.
    #[inline]
    pub fn absorb(
        &mut self,
        bytes: &[u8],
        mut on_error: impl FnMut(&Pending, &[u8]),
    ) -> Result<(usize, Completed), Malformed> {
        let mut at = 0;
        let mut good = 0;
        while at < bytes.len() {
            let (used, kind) = self.scanner.advance(&bytes[at..])?;
            let front = self.pending.front_mut().ok_or(Malformed)?;
            if front.issued.then == Then::ReadAll {
                if self.captured.len() + used > CAPTURED_BYTES_MAX {
                    return Err(Malformed);
                }
                self.captured.extend_from_slice(&bytes[at..at + used]);
            }
            at += used;
            let Some(kind) = kind else { break };
            let is_missing = kind == Kind::Nothing && front.issued.must_exist;
            if (kind == Kind::Error || is_missing) && !front.has_failed {
                front.has_failed = true;
                on_error(front, if is_missing { MISSING } else { self.scanner.error() });
            }
            front.lacking -= 1;
            if front.lacking > 0 {
                continue;
            }
            let pending = *front;
            let is_plain = pending.issued.then == Then::Nothing;
            if is_plain && !pending.has_failed {
                good += 1;
            }
            front.operations -= 1;
            front.lacking = front.issued.replies;
            front.has_failed = false;
            let is_last = front.operations == 0;
            if is_last {
                self.pending.pop_front();
            }
            let completed = match pending.issued.then {
                Then::Nothing if is_last && good > 0 => {
                    Completed::Good { pending, kind: pending.issued.kind, operations: good }
                }
                Then::Nothing => continue,
                then => {
                    let kind = pending.issued.kind;
                    Completed::Step { pending, kind, then, has_failed: pending.has_failed }
                }
            };
            return Ok((at, completed));
        }
        let Some(pending) = self.pending.front().copied().filter(|_| good > 0) else {
            return Ok((at, Completed::Nothing));
        };
        Ok((at, Completed::Good { pending, kind: pending.issued.kind, operations: good }))
    }

    /// The reply that was captured for a step; empties it.
    pub fn take_captured(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.captured)
    }
}
