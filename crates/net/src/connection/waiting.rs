//! A session that runs nothing for now, since it is paused or waits for a key: until when, and what is read of its client meanwhile.

use super::{Connection, End, READ_BYTES_AHEAD, READ_BYTES_MIN, READS_IN_A_ROW, wake_after_others};
use crate::client::Traits;
use crate::desk::{Buffers, Desk};
use crate::service::{Closing, Service, Session};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use sys::UnixMs;
use tokio::time::Sleep;

/// How much is read of a client whose requests a pause holds back, mostly to learn
/// that it went away.
const HELD_BYTES_MAX: usize = 64 << 10;

/// A timer that wakes the task at a moment, or at once if that is past.
fn alarm<S: Service>(desk: &Desk<S>, until: UnixMs, context: &mut Context<'_>) -> Pin<Box<Sleep>> {
    let wait_ms = until.0.saturating_sub(desk.service.net().clients.clock().now().0);
    let mut sleep = Box::pin(tokio::time::sleep(Duration::from_millis(wait_ms)));
    if sleep.as_mut().poll(context).is_ready() {
        context.waker().wake_by_ref();
    }
    sleep
}

impl<S: Service> Connection<S> {
    /// Reads what comes while no request is run; it is run afterwards. During a pause, or while something is read from disk, that is a
    /// little; for a client that waits, as in Redis, as much as it may send: behind what is not read nobody sees that it goes away.
    pub(super) fn watch_while_held(
        &mut self,
        desk: &Desk<S>,
        buffers: &mut Buffers,
        context: &mut Context<'_>,
    ) -> Result<Poll<End>, End> {
        let waits = self.session.waits().is_some();
        let mut reads = 0;
        // No stranger's limit is above it.
        while !self.is_half_closed && (waits || self.input.len() < HELD_BYTES_MAX) {
            if reads == READS_IN_A_ROW {
                // What has come counts before more does.
                wake_after_others(context);
                return Ok(Poll::Pending);
            }
            reads += 1;
            // What is there already moves once for each quarter of it.
            let room = self.input.len().clamp(READ_BYTES_MIN, READ_BYTES_AHEAD.max(self.input.len() / 4));
            let read = self.stream.poll_read_to_end_of(context, self.input.end(), room, &mut buffers.sealed);
            let Poll::Ready(read) = read else { return Ok(Poll::Pending) };
            let bytes = read.map_err(End::Failed)?;
            self.note_read(desk, bytes);
            self.check_input_limit(&desk.service)?;
        }
        if self.is_half_closed && waits {
            // Who went away while it waited for a key is not served any more. What it sent before has its replies, if it still reads.
            if !desk.service.give_up_wait(&mut self.session) {
                return Ok(Poll::Pending);
            }
            self.wait = None;
            self.session.close(Closing::AfterReplies);
            return Ok(self.end_when_sent(buffers));
        }
        Ok(Poll::Pending)
    }

    /// Whether the client waits for its turn, since more is moved than may be. A little is read of it meanwhile: who has nothing to say waits for nothing, and
    /// who has gone away is not kept.
    #[inline]
    pub(super) fn is_held_back(
        &mut self,
        desk: &Desk<S>,
        buffers: &mut Buffers,
        context: &mut Context<'_>,
    ) -> Result<bool, End> {
        if !desk.service.is_short(self.session.client()) {
            return Ok(false);
        }
        self.has_unseen = true;
        let watched = self.watch_while_held(desk, buffers, context)?;
        debug_assert!(watched.is_pending());
        let has_nothing = self.input.is_empty();
        Ok(has_nothing || desk.service.holds_back(self.session.client()))
    }

    pub(super) fn begin_pause(&mut self, desk: &Desk<S>, until: UnixMs, context: &mut Context<'_>) {
        self.session.client().set_trait(Traits::PAUSED, true);
        self.pause = Some(alarm(desk, until, context));
    }

    /// Sets the alarm for a session that has to wait.
    pub(super) fn begin_wait(&mut self, desk: &Desk<S>, context: &mut Context<'_>) {
        self.wait = self.session.waits().flatten().map(|until| alarm(desk, until, context));
    }

    /// Ends a wait whose time is up. False: the session still waits.
    pub(super) fn leave_wait(&mut self, desk: &Desk<S>, context: &mut Context<'_>) -> bool {
        if self.session.waits().is_none() {
            return true;
        }
        let is_over = self.wait.as_mut().is_some_and(|alarm| alarm.as_mut().poll(context).is_ready());
        if is_over {
            desk.service.time_is_up(desk.index, &self.session);
            self.wait = None;
        }
        false
    }

    /// Whatever woke the session, it looks at the pause again: it may be over,
    /// shorter or longer.
    pub(super) fn leave_pause(&mut self) {
        if self.pause.take().is_some() {
            self.session.client().set_trait(Traits::PAUSED, false);
        }
    }
}
