//! What is counted of requests that were answered, by servers or since these could not be asked, and noted where that took long. The time is that from the
//! round in which a request was sent to the one in which its reply came, as the worker looks at its clock once in each. A request of several servers counts
//! once, when the reply is whole that theirs make.

use super::conversation::{Asked, Came, Key};
use super::own::Watching;
use super::{Links, Pushed, Ticket};
use command::table::{self, CommandId};
use std::ops::Range;
use telemetry::log;
use telemetry::stats::Ending;
use wire::{Batch, Limits, Parser, Request, RequestBuf};

/// Where a request lies that is not to be shown, or does not lie there any more.
pub(super) const NOWHERE: Range<usize> = 0..0;

impl Links {
    /// Tells a client what became of a request that went over a link, and counts that. `sent` is where it lies among the link's requests.
    #[inline]
    pub(super) fn answer(&mut self, at: usize, ticket: &Ticket, reply: &[u8], sent: Range<usize>) {
        let whose = ticket.pushed.whose;
        let error = Some(reply).filter(|reply| reply.first() == Some(&b'-'));
        if error.is_some() {
            self.links[at].counts.errors.add(1);
            if ticket.pushed.watching == Watching::Begins {
                self.note_unwatched(at);
            }
        }
        let came = self.conversations.answer(whose, ticket.pushed.reply, reply);
        let (asked, error) = match &came {
            Came::Whole => (ticket.asked(), error),
            Came::Joined(asked, error) => (*asked, error.as_deref()),
            Came::Nobodys if ticket.pushed.reply.1 == 0 => (ticket.asked(), error),
            Came::Part | Came::Nobodys => (Asked { command: None, since: None }, None),
        };
        self.note_answered(Some(at), whose, asked, error, sent);
        self.note_closed();
    }

    /// The same of what came without a server.
    pub(super) fn note_came(&mut self, whose: Key, came: &Came) {
        if let Came::Joined(asked, error) = came {
            self.note_answered(None, whose, *asked, error.as_deref(), NOWHERE);
        }
        self.note_closed();
    }

    #[inline]
    pub(super) fn note_closed(&mut self) {
        for client in self.conversations.take_closed() {
            let clients = &self.proxy.host.net.clients;
            let line = client.line(clients.clock().now());
            clients.output_limit_disconnections.add(1);
            log!(
                Warning,
                "Client closed because it reached the hard limit of client-output-buffer-limit: {line}"
            );
        }
    }

    #[inline]
    fn note_answered(
        &self,
        at: Option<usize>,
        whose: Key,
        asked: Asked,
        error: Option<&[u8]>,
        sent: Range<usize>,
    ) {
        let Some(command) = asked.command else { return };
        let host = &self.proxy.host;
        let ending = match error {
            None => Ending::Done,
            Some(line) => {
                let line = line.strip_prefix(b"-").unwrap_or(line);
                host.counts.note_error(line.strip_suffix(b"\r\n").unwrap_or(line));
                Ending::Failed
            }
        };
        let from = asked.since.unwrap_or(self.moment);
        let tracks = host.engine.config.latency_tracking();
        host.worker_counts[self.worker].note(command, from, self.moment, ending, tracks);
        let ticks = self.moment.0.saturating_sub(from.0);
        if ticks >= host.slow_ticks() {
            self.note_slow(at, whose, (command, sent), ticks);
        }
    }

    /// Notes a request in the slow log, with the shard as its last word.
    #[cold]
    fn note_slow(&self, at: Option<usize>, whose: Key, (id, sent): (CommandId, Range<usize>), ticks: u64) {
        let Some(client) = self.conversations.client(whose) else { return };
        let (link, command) = (at.map(|at| &self.links[at]), table::get(id));
        let sent = link.and_then(|link| link.requests.get(sent)).unwrap_or_default();
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
        let shard = link.map(|link| format!("(shard {})", self.routes.nodes[usize::from(link.way.node)]));
        words.extend(shard.as_ref().map(String::as_bytes));
        let request = RequestBuf::from_args(words);
        server::slow::note_if_slow(&self.proxy.host, &client, command, &request.as_request(), ticks);
    }
}

impl Ticket {
    /// What it counts as where its reply is its client's.
    fn asked(&self) -> Asked {
        let Pushed { command, since, waits, .. } = self.pushed;
        // What waits takes no time.
        Asked { command, since: Some(since).filter(|_| waits.is_none()) }
    }
}
