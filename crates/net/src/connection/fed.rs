//! Connections that are sent more than what is answered at once and messages: a replica's, which follows a stream, and one whose replies come
//! from elsewhere.
//!
//! The service is asked for the next bytes when all before them are with the socket, so that a client that does not read has nothing
//! buffered here. What it is given has waited for the disk already.

use super::{Connection, End, wake_after_others};
use crate::desk::{Buffers, Desk};
use crate::service::{Service, Session};
use std::task::Context;
use sys::Shown;

/// How often in a row the service is asked before the connection lets others go on.
const FEEDS_IN_A_ROW: usize = 4;

impl<S: Service> Connection<S> {
    /// Sends what the service has for a session that is fed.
    #[inline]
    pub(super) fn feed(
        &mut self,
        desk: &Desk<S>,
        buffers: &mut Buffers,
        context: &mut Context<'_>,
    ) -> Result<(), End> {
        if self.session.is_fed() { self.feed_some(desk, buffers, context) } else { Ok(()) }
    }

    fn feed_some(
        &mut self,
        desk: &Desk<S>,
        buffers: &mut Buffers,
        context: &mut Context<'_>,
    ) -> Result<(), End> {
        for _ in 0..FEEDS_IN_A_ROW {
            let is_behind = !self.pending.is_empty() || self.stream.unsent_bytes() > 0;
            // What is owed is there however slowly it is read, and counts with what was sent.
            if is_behind && !self.session.owes() {
                return Ok(());
            }
            S::feed(&mut desk.runner.borrow_mut(), &mut self.session, &mut buffers.output);
            if buffers.output.is_empty() {
                return Ok(());
            }
            self.write_out(desk, buffers, context, Shown::NOTHING)?;
        }
        wake_after_others(context);
        Ok(())
    }
}
