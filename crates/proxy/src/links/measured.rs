//! What is counted of requests that servers have answered, and noted where that took long. The time is that from the round in which a request was sent to the
//! one in which its reply came, as the worker looks at its clock once in each.

use super::{Links, Ticket};
use command::table;
use telemetry::stats::Ending;
use wire::{Batch, Limits, Parser, Request, RequestBuf};

impl Links {
    /// A server has answered a request, which was the last one of those of this link that were answered.
    #[inline]
    pub(super) fn note_answered(&self, at: usize, ticket: &Ticket, reply: &[u8]) {
        let Some(command) = ticket.pushed.command.filter(|_| ticket.pushed.reply.1 == 0) else { return };
        let host = &self.proxy.host;
        let ending = match reply.strip_prefix(b"-") {
            None => Ending::Done,
            Some(line) => {
                host.counts.note_error(line.strip_suffix(b"\r\n").unwrap_or(line));
                Ending::Failed
            }
        };
        // What waits takes no time.
        let from = if ticket.pushed.waits.is_some() { self.moment } else { ticket.pushed.since };
        let tracks = host.engine.config.latency_tracking();
        host.worker_counts[self.worker].note(command, from, self.moment, ending, tracks);
        let ticks = self.moment.0.saturating_sub(from.0);
        if ticks >= host.slow_ticks() {
            self.note_slow(at, ticket, ticks);
        }
    }

    /// Notes a request in the slow log, with the shard as its last word.
    #[cold]
    fn note_slow(&self, at: usize, ticket: &Ticket, ticks: u64) {
        let (Some(id), Some(client)) =
            (ticket.pushed.command, self.conversations.client(ticket.pushed.whose))
        else {
            return;
        };
        let (link, command) = (&self.links[at], table::get(id));
        let begin = (link.answered - ticket.bytes + ticket.asking_bytes).min(link.answered);
        let sent = &link.requests[begin..link.answered];
        let (mut batch, name) = (Batch::default(), command.row.name.as_bytes());
        let is_read =
            Parser::new().parse(sent, &Limits::default(), &mut batch, 2).is_ok() && batch.len() == 1;
        // Of several, and of what was asked in other words, the name alone.
        let is_it = |request: &Request<'_>| {
            self.proxy.host.names.find_for(request).is_some_and(|found| found.id == id)
        };
        let mut words: Vec<&[u8]> = match is_read && is_it(&batch.request(0, sent)) {
            true => batch.request(0, sent).iter().collect(),
            false => vec![name],
        };
        let shard = format!("(shard {})", self.routes.nodes[usize::from(link.way.node)]);
        words.push(shard.as_bytes());
        let request = RequestBuf::from_args(words);
        server::slow::note_if_slow(&self.proxy.host, &client, command, &request.as_request(), ticks);
    }
}
