//! What a stay in the keyspace has to do for a session that gets messages: they leave in front of a reply, or behind it, as they came.

use super::{Flow, SEAL_PATIENCE_MS, Turn};
use command::table::Command;
use command::{Flags, Shows};
use std::sync::atomic::Ordering;
use sys::UnixMs;
use wire::Request;

impl Turn<'_> {
    /// What is to be done for a session that gets messages: those that have come leave before the next reply.
    pub(super) fn begin_request(&mut self, out: &mut Vec<u8>) {
        let client = &self.session.client;
        if client.has_mail() {
            out.extend_from_slice(client.take_mail().as_bytes());
            // It may show anything.
            self.batch.see_all();
        }
        self.moment = client.posted().load(Ordering::Acquire);
    }

    /// Notes how much mail there was at the moment of the command that has just run.
    pub(super) fn note_moment(&mut self, command: &Command, request: &Request<'_>) {
        let Some(moment) = self.batch.take_reading().filter(|moment| *moment > self.moment) else { return };
        self.moment = moment;
        if let Some(tracker) = &self.session.tracking {
            tracker.forget_again(&self.server.net.clients, &self.session.client, command, request);
        }
    }

    /// Whether a command waits because something of before it may not leave yet, which would then come behind the reply.
    pub(super) fn is_behind_seals(&self, command: &Command) -> bool {
        let runs_now = self.session.transaction.is_none() || command.is(Flags::RUNS_IN_MULTI);
        runs_now
            && command.row.shows != Shows::Nothing
            && !command.is(Flags::ALLOW_BUSY)
            && self.session.client.has_sealed_mail()
    }

    /// When to look again whether mail may leave, unless woken before.
    pub(super) fn seals_again_at(&self) -> UnixMs {
        UnixMs(self.now.0 + SEAL_PATIENCE_MS)
    }

    /// What is left to do for a session that gets messages. What came before the command's moment leaves before its reply, which
    /// begins at `before`; what came later, and what the command itself led to, behind it.
    pub(super) fn end_request(
        &mut self,
        flow: &Flow,
        command: Option<&Command>,
        before: usize,
        out: &mut Vec<u8>,
    ) {
        let Flow::Next = flow else { return };
        let is_in_transaction = self.session.transaction.is_some();
        if let Some(tracker) = &mut self.session.tracking
            && !is_in_transaction
            && !command.is_some_and(|command| command.is(Flags::KEEPS_CACHING))
        {
            tracker.is_singled_out = false;
        }
        if self.session.client.has_mail() {
            let (letters, earlier) = self.session.client.take_mail_since(self.moment);
            let (earlier, later) = letters.as_bytes().split_at(earlier);
            out.splice(before..before, earlier.iter().copied());
            out.extend_from_slice(later);
            // It may show anything.
            self.batch.see_all();
        }
    }
}
