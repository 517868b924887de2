//! The slow log: commands that took long, newest first, and when a command did.
//!
//! Workers compare each command's ticks with one threshold; only those above it
//! come here, and only here is the lock taken.

use crate::latency::LatencyMonitor;
use crate::redaction;
use command::Flags;
use command::table::Command;
use config::Config;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use sys::UnixMs;
use wire::Request;

/// Words of a request that an entry keeps; the last one then counts the rest.
const WORDS_MAX: usize = 32;
/// Bytes of a word that an entry keeps.
const WORD_BYTES_MAX: usize = 128;

/// One slow command.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Counts up from 0 and never begins again.
    pub id: u64,
    /// When it ended, in seconds since 1970.
    pub at_s: u64,
    /// How long it ran, in microseconds.
    pub micros: u64,
    /// Its words, cut to size, without secrets.
    pub words: Vec<Vec<u8>>,
    /// The client's address.
    pub address: String,
    /// The client's name for itself.
    pub name: Vec<u8>,
}

#[derive(Debug, Default)]
struct Ring {
    newest_first: VecDeque<Entry>,
    next_id: u64,
}

/// The log.
#[derive(Debug, Default)]
pub struct SlowLog {
    ring: Mutex<Ring>,
}

impl SlowLog {
    /// Adds an entry and drops the oldest ones beyond `entries_max`.
    fn add(&self, mut entry: Entry, entries_max: usize) {
        let mut ring = self.ring.lock();
        entry.id = ring.next_id;
        ring.next_id += 1;
        ring.newest_first.push_front(entry);
        ring.newest_first.truncate(entries_max);
    }

    /// Notes a command if it took as long as the directive says and may be shown. `who` gives the client's address and its name for itself.
    pub fn note(&self, config: &Config, slow: &Slow<'_, '_>, who: impl FnOnce() -> (String, Vec<u8>)) {
        let is_slow = config.slowlog_log_slower_than_us().is_some_and(|least| slow.micros >= least);
        if !is_slow || slow.command.is(Flags::SKIP_SLOWLOG) {
            return;
        }
        let (address, name) = who();
        let words = cut_to_size(&redaction::shown(slow.command, slow.request));
        let entry = Entry { id: 0, at_s: slow.at.seconds(), micros: slow.micros, words, address, name };
        self.add(entry, config.slowlog_max_len());
    }

    /// Takes over what the configuration says: drops the oldest entries beyond as many as it wants. A log that is off stays as it is.
    pub fn follow(&self, config: &Config) {
        if config.slowlog_log_slower_than_us().is_some() {
            self.ring.lock().newest_first.truncate(config.slowlog_max_len());
        }
    }

    /// The newest entries, `most` of them.
    pub fn newest(&self, most: usize) -> Vec<Entry> {
        self.ring.lock().newest_first.iter().take(most).cloned().collect()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.ring.lock().newest_first.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all entries; numbers go on.
    pub fn clear(&self) {
        self.ring.lock().newest_first.clear();
    }
}

/// A command that took long.
pub struct Slow<'a, 'r> {
    /// Which one.
    pub command: &'a Command,
    /// Its words.
    pub request: &'a Request<'r>,
    /// How long it took.
    pub micros: u64,
    /// When it ended.
    pub at: UnixMs,
}

/// The time from which a command has to be shown to [`SlowLog::note`] and [`note_latency`]: the lower one of the thresholds of the
/// slow log and of the latency monitor. None: both are off.
pub fn threshold(config: &Config) -> Option<Duration> {
    let slow = config.slowlog_log_slower_than_us().map(Duration::from_micros);
    let latency = match config.latency_monitor_threshold_ms() {
        0 => None,
        ms => Some(Duration::from_millis(ms)),
    };
    slow.into_iter().chain(latency).min()
}

/// Shows a command to the latency monitor.
pub fn note_latency(monitor: &LatencyMonitor, config: &Config, slow: &Slow<'_, '_>) {
    let event = if slow.command.is(Flags::FAST) { "fast-command" } else { "command" };
    monitor.note(event, slow.at, slow.micros / 1000, config.latency_monitor_threshold_ms());
}

fn cut_to_size(words: &[&[u8]]) -> Vec<Vec<u8>> {
    let kept = if words.len() > WORDS_MAX { WORDS_MAX - 1 } else { words.len() };
    let mut cut: Vec<Vec<u8>> = words[..kept].iter().map(|word| cut_word(word)).collect();
    if kept < words.len() {
        cut.push(format!("... ({} more arguments)", words.len() - kept).into());
    }
    cut
}

fn cut_word(word: &[u8]) -> Vec<u8> {
    if word.len() <= WORD_BYTES_MAX {
        return word.to_vec();
    }
    let more = format!("... ({} more bytes)", word.len() - WORD_BYTES_MAX);
    [&word[..WORD_BYTES_MAX], more.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_requests_are_cut_as_redis_cuts_them() {
        let long = vec![b'x'; 200];
        let mut words: Vec<&[u8]> = vec![b"a"; 40];
        words[1] = &long;
        let cut = cut_to_size(&words);
        assert_eq!(cut.len(), 32);
        assert_eq!(cut[31], b"... (9 more arguments)");
        assert_eq!(cut[1], [&long[..128], b"... (72 more bytes)"].concat());
        assert_eq!(cut_to_size(&words[..32])[31], b"a");
    }

    #[test]
    fn oldest_entries_go_first_and_numbers_go_on() {
        let log = SlowLog::default();
        let entry =
            |micros| Entry { id: 0, at_s: 0, micros, words: vec![], address: String::new(), name: vec![] };
        (0..5).for_each(|micros| log.add(entry(micros), 3));
        assert_eq!(log.newest(2).iter().map(|e| (e.id, e.micros)).collect::<Vec<_>>(), [(4, 4), (3, 3)]);
        log.clear();
        log.add(entry(9), 3);
        assert_eq!((log.newest(usize::MAX)[0].id, log.len()), (5, 1));
    }
}
