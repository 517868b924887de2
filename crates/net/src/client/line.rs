//! A client as one line of text: CLIENT LIST, CLIENT INFO and the server's log.

use super::{Client, Kept, Traits};
use command::table;
use std::sync::atomic::Ordering;
use sys::UnixMs;
use wire::{Request, encode_request};

impl Client {
    /// The fields of CLIENT LIST in Redis' order, without a line end. Replies are not
    /// kept in a buffer of fixed size first, so those fields (`rbs`, `rbp`, `obl`) are 0.
    pub fn line(&self, now: UnixMs) -> String {
        self.line_with(now, 0, 0, self.traits())
    }

    /// The same of a client that waits no more, which its flags tell when it has its reply.
    pub fn line_served(&self, now: UnixMs) -> String {
        self.line_with(now, 0, 0, self.traits() - Traits::BLOCKED)
    }

    /// The same of a client whose request runs: that is what it has for a buffer.
    pub fn line_running(&self, now: UnixMs, request: &Request<'_>) -> String {
        let words: Vec<&[u8]> = request.iter().collect();
        let mut encoded = Vec::new();
        encode_request(&mut encoded, &words);
        self.line_with(now, words.iter().map(|word| word.len()).sum(), encoded.len(), self.traits())
    }

    fn line_with(&self, now: UnixMs, argv_bytes: usize, request_bytes: usize, traits: Traits) -> String {
        let load = |number: &std::sync::atomic::AtomicUsize| number.load(Ordering::Relaxed);
        let (kept, input) = (load(&self.input_bytes), load(&self.input_capacity));
        let qbuf = kept + request_bytes;
        let omem = load(&self.output_capacity);
        let seconds_since = |then_ms: u64| now.0.saturating_sub(then_ms) / 1000;
        let labels = self.labels();
        let [sub, psub, ssub] = self.subscriptions.each_ref().map(|number| number.load(Ordering::Relaxed));
        let redirection = match traits.contains(Traits::TRACKING) {
            true => self.redirection.load(Ordering::Relaxed) as i64,
            false => -1,
        };
        format!(
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={sub} psub={psub} ssub={ssub} multi={} \
             qbuf={qbuf} qbuf-free={} argv-mem={argv_bytes} multi-mem={} rbs=0 rbp=0 obl=0 oll={} omem={omem} tot-mem={} \
             events={} cmd={} user={} redir={redirection} resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local_address,
            self.fd,
            printable(&labels.name),
            seconds_since(self.connected_at.0),
            seconds_since(self.active_at_ms.load(Ordering::Relaxed)),
            flag_letters(traits),
            self.db.load(Ordering::Relaxed),
            self.queued.load(Ordering::Relaxed),
            input.saturating_sub(kept),
            load(&self.queued_bytes) + self.kept_of(Kept::Watched),
            self.output_chunks.load(Ordering::Relaxed),
            self.memory_bytes() + argv_bytes,
            if load(&self.output_bytes) > 0 { "rw" } else { "r" },
            self.last_command().map_or("NULL", |id| table::get(id).row.name),
            printable(&self.user()),
            self.protocol.load(Ordering::Relaxed),
            printable(&labels.lib_name),
            printable(&labels.lib_version),
        )
    }
}

/// Labels are printable ASCII: the commands that set them see to it.
fn printable(label: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(label)
}

/// Redis' letters in Redis' order; `N` if there is none.
fn flag_letters(traits: Traits) -> String {
    const LETTERS: [(Traits, char); 16] = [
        (Traits::MONITOR, 'O'),
        (Traits::REPLICA, 'S'),
        (Traits::MASTER, 'M'),
        (Traits::SUBSCRIBED, 'P'),
        (Traits::MULTI, 'x'),
        (Traits::BLOCKED, 'b'),
        (Traits::PAUSED, 'b'),
        (Traits::TRACKING, 't'),
        (Traits::BROKEN_REDIRECTION, 'R'),
        (Traits::BROADCAST, 'B'),
        (Traits::DISTURBED, 'd'),
        (Traits::CLOSING, 'c'),
        (Traits::UNIX_SOCKET, 'U'),
        (Traits::READS_REPLICAS, 'r'),
        (Traits::NO_EVICT, 'e'),
        (Traits::NO_TOUCH, 'T'),
    ];
    let letters: String =
        LETTERS.iter().filter(|(flag, _)| traits.contains(*flag)).map(|(_, letter)| letter).collect();
    if letters.is_empty() { "N".to_owned() } else { letters }
}
