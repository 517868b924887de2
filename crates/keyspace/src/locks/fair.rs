//! A lock of one byte for which several can be asked at once, and whose requests are served in the order in which they came.
//!
//! Nobody else there, it is one swap of a byte to lock and one to unlock. Whoever does not get it tries for some microseconds and
//! then stands in line, in a list beside the locks. A request for several locks takes its place in all their lines in one step, keeps
//! what it gets, and waits until it has all. So of any two requests the same one is first wherever they meet, and requests cannot
//! wait for each other in a circle.
//!
//! A lock is handed to the first in its line. Only one that has not stood there for [`BARGING_MAX`] may see somebody pass who just runs
//! by: waking a thread takes longer than most commands, and a lock under load would lie idle for most of the time.
//!
//! Thread rule: any thread. While one stands in line, it holds no lock that it got by another request, or it gives up in bounded time.
//!
//! Invariants, while [`LINES`] is locked:
//! 1. A lock's byte says [`AWAITED`] exactly if its line is not empty.
//! 2. A lock that nobody holds and that is awaited has a first who wants nothing else, and who was woken since it became free.
//! 3. Of the lines in which a request stands, as many are left as it lacks locks.

#![allow(unsafe_code)] // Promises that two threads never have the lock at once.

use parking_lot::Mutex;
use parking_lot::lock_api::{self, GuardNoSend, RawMutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long somebody stands in line before the lock is handed over: a few times what waking a thread takes.
const BARGING_MAX: Duration = Duration::from_micros(200);

/// How often somebody tries before standing in line: first at once, and then each time after letting others run.
const SPINS: u32 = 3;
const YIELDS: u32 = 7;

/// Somebody has the lock.
const HELD: u8 = 1;
/// Somebody stands in line for it.
const AWAITED: u8 = 2;

/// What is locked.
pub(crate) type Lock<T> = lock_api::Mutex<Fair, T>;
/// That it is locked.
pub(crate) type Guard<'m, T> = lock_api::MutexGuard<'m, Fair, T>;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Fair(AtomicU8);

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It had all it wanted at once.
    AtOnce,
    /// It had to wait.
    InTurn,
    /// It was given up, and has nothing.
    GivenUp,
}

/// All who stand in line, by the addresses of the locks.
static LINES: Mutex<Lines> = Mutex::new(Lines(BTreeMap::new()));

struct Lines(BTreeMap<usize, VecDeque<Arc<Request>>>);

/// One who stands in line.
struct Request {
    thread: Thread,
    since: Instant,
    wants: usize,
    /// How many locks it lacks.
    lacks: AtomicUsize,
}

// SAFETY: the byte says HELD from the step that found it without until whoever made that step, or was handed the lock by one who had it,
// takes it away or hands the lock on. What was done under the lock is released by that, and acquired by who has it next.
unsafe impl RawMutex for Fair {
    #[allow(clippy::declare_interior_mutable_const)] // What the trait asks for.
    const INIT: Fair = Fair(AtomicU8::new(0));

    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        ask(&[self], Duration::MAX, || true);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(0, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    // SAFETY: only who has the lock may call it, which is the trait's own condition.
    #[inline]
    unsafe fn unlock(&self) {
        if self.0.compare_exchange(HELD, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.pass_on();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HELD != 0
    }
}

/// Locks all of these, each of which is named once. While it stands in line, `goes_on` is asked each time that this span has passed; the
/// request is given up when that says no.
pub(crate) fn ask(locks: &[&Fair], pulse: Duration, mut goes_on: impl FnMut() -> bool) -> Asked {
    if try_all(locks) {
        return Asked::AtOnce;
    }
    if let [lock] = locks
        && lock.spin()
    {
        return Asked::InTurn;
    }
    let request = LINES.lock().stand(locks);
    let mut asked = Instant::now();
    while !request.is_served() {
        thread::park_timeout(pulse);
        if request.is_served() || matches!(locks, [lock] if LINES.lock().take_free(lock, &request)) {
            break;
        }
        if asked.elapsed() >= pulse {
            if !goes_on() {
                return LINES.lock().leave(locks, &request);
            }
            asked = Instant::now();
        }
    }
    Asked::InTurn
}

/// Locks all or none, now.
fn try_all(locks: &[&Fair]) -> bool {
    for (got, lock) in locks.iter().enumerate() {
        if !lock.try_lock() {
            // SAFETY: these were locked a moment ago, here.
            locks[..got].iter().for_each(|lock| unsafe { lock.unlock() });
            return false;
        }
    }
    true
}

impl Fair {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes the lock if nobody has it, whoever stands in line.
    #[inline]
    fn barge(&self) -> bool {
        let byte = self.0.load(Ordering::Relaxed);
        byte & HELD == 0
            && self.0.compare_exchange(byte, byte | HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Tries for a while, unless others wait already.
    fn spin(&self) -> bool {
        for round in 1..=SPINS + YIELDS {
            if self.barge() {
                return true;
            }
            if self.0.load(Ordering::Relaxed) & AWAITED != 0 {
                return false;
            }
            match round {
                ..=SPINS => (0..1 << round).for_each(|_| std::hint::spin_loop()),
                _ => thread::yield_now(),
            }
        }
        false
    }

    /// Takes the lock, or says that it is awaited. `passes` says whether those who wait may be passed.
    fn take_or_await(&self, passes: bool) -> bool {
        let mut byte = self.0.load(Ordering::Relaxed);
        loop {
            let is_taken = byte & HELD == 0 && (passes || byte & AWAITED == 0);
            let wanted = if is_taken { byte | HELD } else { byte | AWAITED };
            match self.0.compare_exchange_weak(byte, wanted, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return is_taken,
                Err(now) => byte = now,
            }
        }
    }

    /// Unlocks; somebody stands in line.
    #[cold]
    fn pass_on(&self) {
        let woken = LINES.lock().pass_on(self);
        if let Some(thread) = woken {
            thread.unpark();
        }
    }
}

impl Request {
    /// Whether it has all that it wants.
    fn is_served(&self) -> bool {
        self.lacks.load(Ordering::Acquire) == 0
    }

    /// Whether others may get before it what it waits for. One that wants several keeps others from what it has.
    fn may_be_passed(&self) -> bool {
        self.wants == 1 && self.since.elapsed() < BARGING_MAX
    }

    /// Gives it one of its locks. Some: it has all, and is to be woken.
    fn give(&self) -> Option<Thread> {
        let is_last = self.lacks.fetch_sub(1, Ordering::AcqRel) == 1;
        is_last.then(|| self.thread.clone())
    }
}

impl Lines {
    /// Takes a place in the lines of all of these that are not to be had.
    fn stand(&mut self, locks: &[&Fair]) -> Arc<Request> {
        let (thread, since, wants) = (thread::current(), Instant::now(), locks.len());
        let request = Arc::new(Request { thread, since, wants, lacks: AtomicUsize::new(wants) });
        for lock in locks {
            if lock.take_or_await(wants == 1) {
                request.give();
            } else {
                self.0.entry(lock.address()).or_default().push_back(request.clone());
            }
        }
        request
    }

    /// Hands a lock on that is held, or frees it for whoever is there first. Some: who is to be woken.
    fn pass_on(&mut self, lock: &Fair) -> Option<Thread> {
        let Some(line) = self.0.get_mut(&lock.address()) else {
            // Those who stood in line have left it since the byte was looked at.
            lock.0.store(0, Ordering::Release);
            return None;
        };
        let first = line.front().expect("a line that is empty is removed");
        if first.may_be_passed() {
            lock.0.store(AWAITED, Ordering::Release);
            return Some(first.thread.clone());
        }
        let woken = first.give();
        line.pop_front();
        self.note_length(lock);
        woken
    }

    /// Says of a lock that is held whether its line is empty.
    fn note_length(&mut self, lock: &Fair) {
        if self.0.get(&lock.address()).is_some_and(|line| !line.is_empty()) {
            return;
        }
        self.0.remove(&lock.address());
        lock.0.fetch_and(!AWAITED, Ordering::Relaxed);
    }

    /// Gives a lock that is free to the request, if that is the first in line.
    fn take_free(&mut self, lock: &Fair, request: &Arc<Request>) -> bool {
        let Some(line) = self.0.get_mut(&lock.address()) else { return false };
        if !line.front().is_some_and(|first| Arc::ptr_eq(first, request)) || !lock.barge() {
            return false;
        }
        line.pop_front();
        request.give();
        self.note_length(lock);
        true
    }

    /// Takes a request out of all lines, and what it has away from it; unless it has got all by now.
    fn leave(&mut self, locks: &[&Fair], request: &Arc<Request>) -> Asked {
        if request.is_served() {
            return Asked::InTurn;
        }
        for lock in locks {
            let place = self
                .0
                .get(&lock.address())
                .and_then(|line| line.iter().position(|other| Arc::ptr_eq(other, request)));
            let woken = match place {
                None => self.pass_on(lock),
                Some(place) => {
                    self.0.get_mut(&lock.address()).and_then(|line| line.remove(place));
                    self.note_length(lock);
                    // It may be free, and who has left was the one who knew.
                    if lock.barge() { self.pass_on(lock) } else { None }
                }
            };
            if let Some(thread) = woken {
                thread.unpark();
            }
        }
        Asked::GivenUp
    }
}

/// How many stand in line for a lock.
#[cfg(test)]
pub(crate) fn standing_for<T>(lock: &Lock<T>) -> usize {
    // SAFETY: it is only looked at.
    let address = unsafe { lock.raw() }.address();
    LINES.lock().0.get(&address).map_or(0, VecDeque::len)
}

#[cfg(test)]
pub(crate) mod tests;
