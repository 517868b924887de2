//! Replies to reads of hot keys, kept while `proxy-cache-bytes` allows it, and right by what the servers tell of keys that are modified.
//!
//! A key is hot when a worker is asked for it again and again within a second. When that read is answered, its server is asked for the key's time to live, and the
//! reply is kept until the servers tell of the key, its time is up, or some seconds are over. Where that comes to nothing, since the reply is too long or the key is modified
//! all the time, the next attempt is as many reads later.
//!
//! Invariants:
//! 1. A reply is kept only if nothing was told of its key since before its request was sent, and while all masters tell.
//! 2. Who has written gets no reply whose request was sent before its own writes were answered.
//!
//! So what is shown may be older than what another client has written, by as long as the servers take to tell of it; and by [`KEPT_FOR`] at most where they do not:
//! none tells of SWAPDB, and a server that was replaced, or cannot be heard, is found out later.
//!
//! Thread rule: shared; [`Heat`] is a worker's own.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::Prng;
use wire::Protocol;
use wire::number::parse_int;

const SHARDS: usize = 16;
/// What a reply takes beside its bytes and those of its request and key.
const KEPT_BYTES: usize = 320;
/// For how long a reply is shown.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// Of one key, replies to so many different requests are kept.
const REPLIES_MAX: usize = 16;
/// A reply may take this part of all at most.
const PART_MAX: usize = 64;
/// So many reads of a key by a worker within [`WINDOW`] make it hot.
const HOT_READS: u32 = 16;
const WINDOW: Duration = Duration::from_secs(1);
/// How many keys a worker counts at a time.
const COUNTED_MAX: usize = 4096;

/// What a client speaks: the protocol and the database.
pub type Speaks = (Protocol, usize);

/// A reply, and to what.
struct Kept {
    request: Box<[u8]>,
    speaks: Speaks,
    reply: Arc<[u8]>,
    sent_at: Instant,
    /// From when on it is not shown.
    until: Instant,
}

/// The replies of a key, and where it stands among all.
struct OfKey {
    replies: Vec<Kept>,
    at: usize,
}

#[derive(Default)]
struct Shard {
    kept: HashMap<Arc<[u8]>, OfKey>,
    /// All keys of these, in no order: one of them is as easily found as another.
    keys: Vec<Arc<[u8]>>,
    /// Keys of reads under way whose replies are to be kept, with their numbers. What is told of a key takes it out.
    filling: HashMap<Box<[u8]>, u64>,
    bytes: usize,
}

/// All that is kept.
pub struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    next: AtomicU64,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache { shards: Default::default(), hasher: RandomState::new(), next: AtomicU64::new(1) }
    }
}

fn bytes_of(key: &[u8], kept: &Kept) -> usize {
    KEPT_BYTES + key.len() + kept.request.len() + kept.reply.len()
}

impl Shard {
    fn forget(&mut self, key: &[u8]) {
        self.end_filling(key, None);
        let Some(OfKey { replies, at }) = self.kept.remove(key) else { return };
        self.bytes -= replies.iter().map(|kept| bytes_of(key, kept)).sum::<usize>();
        self.keys.swap_remove(at);
        if let Some(moved) = self.keys.get(at).and_then(|moved| self.kept.get_mut(moved)) {
            moved.at = at;
        }
    }

    /// Whether a read was under way, by this number if one is given; it is not any more.
    fn end_filling(&mut self, key: &[u8], number: Option<u64>) -> bool {
        let is_it = self.filling.get(key).is_some_and(|own| number.is_none_or(|number| number == *own));
        if is_it && self.filling.remove(key).is_some() {
            self.bytes -= KEPT_BYTES + key.len();
        }
        is_it
    }

    /// Keeps a reply in place of an earlier one to the same request.
    fn keep(&mut self, key: &[u8], kept: Kept) {
        if !self.kept.contains_key(key) {
            let name: Arc<[u8]> = key.into();
            self.kept.insert(name.clone(), OfKey { replies: Vec::with_capacity(1), at: self.keys.len() });
            self.keys.push(name);
        }
        let Some(OfKey { replies, .. }) = self.kept.get_mut(key) else { return };
        let is_it = |one: &Kept| one.speaks == kept.speaks && one.request == kept.request;
        let before = replies.iter().position(is_it).or((replies.len() >= REPLIES_MAX).then_some(0));
        if let Some(at) = before {
            self.bytes -= bytes_of(key, &replies.swap_remove(at));
        }
        self.bytes += bytes_of(key, &kept);
        replies.reserve_exact(1);
        replies.push(kept);
    }

    /// Keeps no more than so much; `luck` says which.
    fn keep_within(&mut self, bytes_max: usize, luck: u64) {
        let mut luck = Prng::from_seed(luck);
        while self.bytes > bytes_max && !self.keys.is_empty() {
            let key = self.keys[luck.below(self.keys.len() as u64) as usize].clone();
            self.forget(&key);
        }
    }
}

impl Cache {
    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    /// The reply to a request with this key, for a client whose writes were all answered by then, if it has written.
    pub fn get(
        &self,
        key: &[u8],
        (request, speaks): (&[u8], Speaks),
        answered_at: Option<Instant>,
        now: impl FnOnce() -> Instant,
    ) -> Option<Arc<[u8]>> {
        let shard = self.shard(key).lock();
        let is_it = |kept: &&Kept| kept.speaks == speaks && *kept.request == *request;
        let kept = shard.kept.get(key)?.replies.iter().find(is_it)?;
        let is_late_enough = answered_at.is_none_or(|answered_at| kept.sent_at > answered_at);
        let is_over = kept.until <= now();
        (is_late_enough && !is_over).then(|| kept.reply.clone())
    }

    /// A read of a key is about to be sent whose reply is to be kept, unless another one is under way. Whether all masters tell is to be looked at behind this.
    pub fn begin(
        self: &Arc<Self>,
        key: &[u8],
        (request, speaks): (&[u8], Speaks),
        bytes_max: usize,
    ) -> Option<Filling> {
        let (number, sent_at) = (self.next.fetch_add(1, Ordering::Relaxed), Instant::now());
        {
            let shard = &mut *self.shard(key).lock();
            let bytes = KEPT_BYTES + key.len();
            let is_too_long = bytes + request.len() > bytes_max / PART_MAX;
            if is_too_long || shard.filling.contains_key(key) {
                return None;
            }
            let left = (bytes_max / SHARDS).saturating_sub(bytes);
            shard.keep_within(left, number);
            // What is waited for counts, too.
            if shard.bytes > left {
                return None;
            }
            shard.filling.insert(key.into(), number);
            shard.bytes += bytes;
        }
        let noted = Arc::new(Noted { cache: self.clone(), key: key.into(), number });
        Some(Filling { noted, request: request.into(), speaks, sent_at, bytes_max })
    }

    /// A key was modified.
    pub fn forget(&self, key: &[u8]) {
        self.shard(key).lock().forget(key);
    }

    /// Has no more than so much from now on.
    pub fn keep_within(&self, bytes_max: usize) {
        for shard in &self.shards {
            shard.lock().keep_within(bytes_max / SHARDS, self.next.load(Ordering::Relaxed));
        }
    }

    /// Any key may have been modified.
    pub fn forget_all(&self) {
        self.shards.iter().for_each(|shard| *shard.lock() = Shard::default());
    }
}

/// That a read is under way: until it is answered, or given up by whoever has asked.
struct Noted {
    cache: Arc<Cache>,
    key: Box<[u8]>,
    number: u64,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.cache.shard(&self.key).lock().end_filling(&self.key, Some(self.number));
    }
}

/// A reply that is to be kept when it comes.
#[derive(Clone)]
pub struct Filling {
    noted: Arc<Noted>,
    request: Box<[u8]>,
    speaks: Speaks,
    sent_at: Instant,
    bytes_max: usize,
}

impl std::fmt::Debug for Filling {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Filling({})", self.noted.number)
    }
}

impl PartialEq for Filling {
    fn eq(&self, other: &Filling) -> bool {
        self.noted.number == other.noted.number
    }
}

impl Eq for Filling {}

impl Filling {
    /// It is not to be kept.
    pub fn give_up(&mut self) {
        self.bytes_max = 0;
    }

    /// Whether this reply is to be kept, if the key lives.
    pub fn wants(&self, reply: &[u8]) -> bool {
        let bytes = KEPT_BYTES + self.noted.key.len() + self.request.len() + reply.len();
        !reply.starts_with(b"-") && bytes <= self.bytes_max / PART_MAX
    }

    /// The reply has come, and behind it what the server says of the key's time to live.
    pub fn end(&self, reply: &[u8], time_to_live: &[u8]) {
        let Noted { cache, key, number: own } = &*self.noted;
        let shard = &mut *cache.shard(key).lock();
        if !shard.end_filling(key, Some(*own)) || !self.wants(reply) {
            return;
        }
        let number = |reply: &[u8]| parse_int(reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?);
        // Of a key that is not there it is not known since when.
        let Some(ms) = number(time_to_live).filter(|ms| *ms >= -1) else { return };
        let lives_for = u64::try_from(ms).map_or(KEPT_FOR, Duration::from_millis);
        let until = self.sent_at + lives_for.min(KEPT_FOR);
        let (request, speaks, sent_at) = (self.request.clone(), self.speaks, self.sent_at);
        let kept = Kept { request, speaks, reply: reply.into(), sent_at, until };
        shard.keep(key, kept);
        shard.keep_within(self.bytes_max / SHARDS, *own);
    }
}

/// How often a worker was asked for keys lately.
pub struct Heat {
    counts: HashMap<u64, u32>,
    hasher: RandomState,
    since: Instant,
}

impl Default for Heat {
    fn default() -> Heat {
        Heat { counts: HashMap::new(), hasher: RandomState::new(), since: Instant::now() }
    }
}

impl Heat {
    /// A key is asked for, and nothing is kept of it. True: it is hot.
    pub fn note(&mut self, key: &[u8], now: Instant) -> bool {
        if now.duration_since(self.since) > WINDOW {
            self.counts.clear();
            self.since = now;
        }
        let hash = self.hasher.hash_one(key);
        if self.counts.len() >= COUNTED_MAX && !self.counts.contains_key(&hash) {
            return false;
        }
        let count = self.counts.entry(hash).or_default();
        *count += 1;
        count.is_multiple_of(HOT_READS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEAKS: Speaks = (Protocol::Resp2, 0);
    const ALL: usize = 1 << 20;

    fn get(cache: &Cache, key: &[u8], answered_at: Option<Instant>) -> Option<Arc<[u8]>> {
        cache.get(key, (b"GET", SPEAKS), answered_at, Instant::now)
    }

    fn begin(cache: &Arc<Cache>, key: &[u8]) -> Filling {
        cache.begin(key, (b"GET", SPEAKS), ALL).unwrap()
    }

    #[test]
    fn what_was_told_of_meanwhile_is_not_kept() {
        let cache = Arc::new(Cache::default());
        let before = Instant::now();
        begin(&cache, b"k").end(b"$1\r\nv\r\n", b":-1\r\n");
        assert_eq!(get(&cache, b"k", None).as_deref(), Some(&b"$1\r\nv\r\n"[..]));
        assert!(get(&cache, b"k", Some(before)).is_some());
        assert!(
            get(&cache, b"k", Some(Instant::now())).is_none(),
            "it may be older than what it has written"
        );
        assert!(cache.get(b"k", (b"GET", (Protocol::Resp3, 0)), None, Instant::now).is_none());
        assert!(cache.get(b"k", (b"GET", (Protocol::Resp2, 1)), None, Instant::now).is_none());
        cache.forget(b"k");
        assert!(get(&cache, b"k", None).is_none());
        let filling = begin(&cache, b"k");
        cache.forget(b"k");
        filling.end(b"$1\r\nv\r\n", b":-1\r\n");
        assert!(get(&cache, b"k", None).is_none());
        let filling = begin(&cache, b"k");
        cache.forget_all();
        filling.end(b"$1\r\nv\r\n", b":-1\r\n");
        // One at a time.
        let first = begin(&cache, b"k");
        assert!(cache.begin(b"k", (b"GET", SPEAKS), ALL).is_none());
        first.end(b"-ERR\r\n", b":-1\r\n");
        assert!(get(&cache, b"k", None).is_none());
        drop(begin(&cache, b"k"));
        let first = begin(&cache, b"k");
        cache.forget(b"k");
        let second = begin(&cache, b"k");
        first.end(b"$1\r\nv\r\n", b":-1\r\n");
        assert!(get(&cache, b"k", None).is_none());
        second.end(b"$1\r\nw\r\n", b":-1\r\n");
        assert_eq!(get(&cache, b"k", None).as_deref(), Some(&b"$1\r\nw\r\n"[..]));
        cache.forget(b"k");
        assert_eq!(cache.shards.iter().map(|shard| shard.lock().bytes).sum::<usize>(), 0);
    }

    #[test]
    fn a_key_whose_time_is_up_is_not_there() {
        let cache = Arc::new(Cache::default());
        begin(&cache, b"k").end(b"$1\r\nv\r\n", b":50\r\n");
        let is_there = |ms| {
            cache.get(b"k", (b"GET", SPEAKS), None, || Instant::now() + Duration::from_millis(ms)).is_some()
        };
        assert!(!is_there(60));
        begin(&cache, b"k").end(b"$1\r\nv\r\n", b":-1\r\n");
        assert!(is_there(60) && !is_there(6000), "nothing is kept for long");
        cache.forget(b"k");
        for unknown in [&b":-2\r\n"[..], b"-NOPERM\r\n"] {
            begin(&cache, b"k").end(b"$1\r\nv\r\n", unknown);
            assert!(get(&cache, b"k", None).is_none());
        }
    }

    #[test]
    fn no_more_is_kept_than_is_allowed() {
        let cache = Arc::new(Cache::default());
        for number in 0..10_000 {
            let key = format!("key {number}");
            begin(&cache, key.as_bytes()).end(&[b'+'; 1000], b":-1\r\n");
        }
        let bytes: usize = cache.shards.iter().map(|shard| shard.lock().bytes).sum();
        assert!(bytes <= ALL && bytes > ALL / 2, "{bytes}");
        for shard in &cache.shards {
            let shard = shard.lock();
            assert_eq!(shard.keys.len(), shard.kept.len());
            assert!(shard.keys.iter().enumerate().all(|(at, key)| shard.kept[key].at == at));
        }
        begin(&cache, b"long").end(&vec![b'+'; ALL / PART_MAX], b":-1\r\n");
        assert!(get(&cache, b"long", None).is_none());
        cache.keep_within(ALL / 4);
        let bytes: usize = cache.shards.iter().map(|shard| shard.lock().bytes).sum();
        assert!(bytes <= ALL / 4 && bytes > ALL / 8, "{bytes}");
        cache.forget_all();
        assert!(cache.shards.iter().all(|shard| shard.lock().bytes == 0));
    }

    #[test]
    fn keys_are_hot_that_are_asked_for_often_within_a_second() {
        let (mut heat, now) = (Heat::default(), Instant::now());
        assert!((1..HOT_READS).all(|_| !heat.note(b"k", now)));
        assert!(heat.note(b"k", now) && !heat.note(b"other", now));
        assert!((1..HOT_READS).all(|_| !heat.note(b"k", now)) && heat.note(b"k", now));
        assert!(!heat.note(b"k", now + WINDOW * 2));
    }
}
