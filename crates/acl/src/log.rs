//! ACL LOG: what was refused, newest first. An attempt like one of the newest, within a
//! minute of it, counts there instead of making another entry, so that a client that goes
//! on trying does not push the others out.

use parking_lot::Mutex;
use std::collections::VecDeque;
use sys::UnixMs;

/// Attempts further apart than this are two entries.
const ALIKE_MS_MAX: u64 = 60_000;
/// How many of the newest entries are looked at for one that is alike.
const ALIKE_ENTRIES_MAX: usize = 10;

/// Bytes that an entry keeps of a name, whose owner may have made it as long as a request.
const NAME_BYTES_MAX: usize = 4096;

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
    /// Name and password.
    Auth,
    /// A certificate that names no user.
    Certificate,
}

/// Where it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// As a request of its own.
    TopLevel,
    /// In a transaction.
    Transaction,
    /// By a script.
    Script,
}

/// What somebody tried to do.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Why it was refused.
    pub reason: Reason,
    /// Where it was asked for.
    pub setting: Setting,
    /// The command's, key's or channel's name.
    pub object: &'a [u8],
    /// Who tried.
    pub user: &'a [u8],
}

/// One entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// How many attempts it stands for.
    pub count: u64,
    /// Why they were refused.
    pub reason: Reason,
    /// Where they were made.
    pub setting: Setting,
    /// What was wanted.
    pub object: Vec<u8>,
    /// Who wanted it.
    pub user: Vec<u8>,
    /// The line of CLIENT LIST about the last to try.
    pub client: String,
    /// Counts up from 0 and never begins again.
    pub id: u64,
    /// The first attempt.
    pub created_at: UnixMs,
    /// The last attempt.
    pub updated_at: UnixMs,
}

#[derive(Debug, Default)]
struct Ring {
    newest_first: VecDeque<Entry>,
    next_id: u64,
}

/// The log.
#[derive(Debug, Default)]
pub struct AclLog {
    ring: Mutex<Ring>,
}

impl AclLog {
    /// Notes an attempt; keeps `entries_max` entries.
    pub fn note(
        &self,
        attempt: Attempt<'_>,
        client: impl FnOnce() -> String,
        now: UnixMs,
        entries_max: usize,
    ) {
        let client = client();
        let cut = |name: &'_ [u8]| name[..name.len().min(NAME_BYTES_MAX)].to_vec();
        let (object, user) = (cut(attempt.object), cut(attempt.user));
        let mut ring = self.ring.lock();
        let alike = ring.newest_first.iter().take(ALIKE_ENTRIES_MAX).position(|entry| {
            entry.reason == attempt.reason
                && entry.setting == attempt.setting
                && now.0.saturating_sub(entry.updated_at.0) <= ALIKE_MS_MAX
                && entry.object == object
                && entry.user == user
        });
        if let Some(mut entry) = alike.and_then(|index| ring.newest_first.remove(index)) {
            entry.count += 1;
            entry.client = client;
            entry.updated_at = now;
            ring.newest_first.push_front(entry);
            return;
        }
        let id = ring.next_id;
        ring.next_id += 1;
        ring.newest_first.push_front(Entry {
            count: 1,
            reason: attempt.reason,
            setting: attempt.setting,
            object,
            user,
            client,
            id,
            created_at: now,
            updated_at: now,
        });
        ring.newest_first.truncate(entries_max);
    }

    /// The newest entries, `most` of them.
    pub fn newest(&self, most: usize) -> Vec<Entry> {
        self.ring.lock().newest_first.iter().take(most).cloned().collect()
    }

    /// Forgets all entries; numbers go on.
    pub fn clear(&self) {
        self.ring.lock().newest_first.clear();
    }
}

impl Reason {
    /// The word in ACL LOG.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
            Reason::Certificate => "tls-cert",
        }
    }
}

impl Setting {
    /// The word in ACL LOG.
    pub fn word(self) -> &'static str {
        match self {
            Setting::TopLevel => "toplevel",
            Setting::Transaction => "multi",
            Setting::Script => "lua",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_few_and_short() {
        let log = AclLog::default();
        let long = vec![b'n'; 100_000];
        for number in 0..1000u32 {
            let user = [&number.to_be_bytes()[..], &long].concat();
            let (reason, setting) = (Reason::Auth, Setting::TopLevel);
            let attempt = Attempt { reason, setting, object: &long, user: &user };
            log.note(attempt, || "client".to_owned(), UnixMs(0), 128);
        }
        let entries = log.newest(usize::MAX);
        assert_eq!(entries.len(), 128);
        assert!(entries.iter().all(|entry| entry.object.len() + entry.user.len() <= 2 * NAME_BYTES_MAX));
    }
}
