//! Replies that wait at the gate with their connection: what of them may go, what has failed, and who is woken for the rest.

use super::{Connection, End};
use crate::desk::Desk;
use crate::service::{Service, Session};

impl<S: Service> Connection<S> {
    /// Asks to be woken when there is something to do about the replies that are held.
    pub(super) fn wait_at_gate(&mut self, desk: &Desk<S>) {
        let client = self.session.client();
        if let Some(shown) = self.pending.held_for().filter(|_| !client.is_at_gate()) {
            client.set_at_gate(true);
            desk.gate_queue.wait(&desk.service.net().gate, desk.index, shown, client);
        }
    }

    /// What is held from before the gate's generation is never shown, unless it could go before that began.
    ///
    /// # Errors
    /// There is some: the connection ends without it.
    pub(super) fn follow_generation(&mut self, desk: &Desk<S>) -> Result<(), End> {
        let gate = &desk.service.net().gate;
        let generation = gate.generation();
        let before = std::mem::replace(&mut self.generation, generation);
        if before == generation {
            return Ok(());
        }
        self.pending.open(|shown| gate.was_open_for(before, shown));
        if self.pending.held_for().is_some() { Err(End::Closed) } else { Ok(()) }
    }

    /// Lets out what the gate is open for, fails what has failed, and waits on for the rest.
    pub(super) fn leave_gate(&mut self, desk: &Desk<S>) {
        if self.pending.held_for().is_none() {
            return;
        }
        let gate = &desk.service.net().gate;
        self.pending.open(|shown| gate.is_open_for(shown));
        if self.pending.holds_any(|shown| gate.has_failed(shown)) {
            let error = desk.service.unreplicated();
            let failed = self.pending.fail(|shown| gate.has_failed(shown), &error);
            (0..failed).for_each(|_| desk.service.counts().note_error(&error));
            self.pending.open(|shown| gate.is_open_for(shown));
        }
        self.wait_at_gate(desk);
    }
}
