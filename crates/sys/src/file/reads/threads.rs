//! Reads by threads that wait for the disk, where io_uring is not allowed.
//!
//! All threads that ask share the same readers: there are at most [`READERS_MAX`] in the process, started as they
//! are needed. Each takes one read at a time, so that so many are on their way at once.
//!
//! Any thread may ask; what has come back lies in the asker's own mailbox. Invariant: a mailbox that holds something
//! is one for which the bell was rung after the asker last silenced it, or is about to be.

use super::{Outcome, Read};
use crate::Bell;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// Threads that read for the whole process: more gain nothing on one disk, and each takes a stack.
const READERS_MAX: usize = 16;

static READERS: LazyLock<Readers> = LazyLock::new(Readers::default);

/// The threads of the process, and what they have to do.
#[derive(Default)]
struct Readers {
    work: Mutex<Work>,
    /// There is something to do.
    asked: Condvar,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    /// Threads that there are, and those of them that wait for something to do.
    threads: usize,
    idle: usize,
}

struct Job {
    read: Read,
    mailbox: Arc<Mailbox>,
}

/// What has come back to one asker.
#[derive(Debug)]
struct Mailbox {
    back: Mutex<Vec<(Read, Outcome)>>,
    bell: Arc<Bell>,
}

/// One asker's side.
#[derive(Debug)]
pub(super) struct Threads {
    mailbox: Arc<Mailbox>,
    /// Not handed over yet.
    started: Vec<Read>,
    flying: usize,
    depth: usize,
    /// An empty list to be exchanged for the mailbox's.
    spare: Vec<(Read, Outcome)>,
}

impl Threads {
    /// For `depth` reads that are on their way at once.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn new(depth: usize, bell: &Arc<Bell>) -> io::Result<Threads> {
        let mut work = READERS.work();
        if work.threads == 0 {
            work.start_thread()?;
        }
        let mailbox = Arc::new(Mailbox { back: Mutex::default(), bell: bell.clone() });
        Ok(Threads { mailbox, started: Vec::new(), flying: 0, depth, spare: Vec::new() })
    }

    /// How many reads it would take now.
    pub(super) fn room(&self) -> usize {
        self.depth - self.flying
    }

    /// How many reads are on their way.
    pub(super) fn flying(&self) -> usize {
        self.flying
    }

    /// Takes a read, to be handed over by the next [`Threads::submit`].
    pub(super) fn start(&mut self, read: Read) {
        self.flying += 1;
        self.started.push(read);
    }

    /// Hands all that was started to the readers.
    pub(super) fn submit(&mut self) {
        if self.started.is_empty() {
            return;
        }
        let mailbox = &self.mailbox;
        let mut work = READERS.work();
        work.jobs.extend(self.started.drain(..).map(|read| Job { read, mailbox: mailbox.clone() }));
        let (waiting, idle) = (work.jobs.len(), work.idle);
        let mut ready = idle;
        // One thread at least is there, which does it all if there cannot be more.
        while work.threads < READERS_MAX && ready < waiting && work.start_thread().is_ok() {
            ready += 1;
        }
        drop(work);
        (0..waiting.min(idle)).for_each(|_| READERS.asked.notify_one());
    }

    /// Takes what has come back, and silences the bell.
    pub(super) fn take_back(&mut self, came_back: &mut impl FnMut(Read, Outcome)) {
        self.mailbox.bell.silence();
        std::mem::swap(&mut *lock(&self.mailbox.back), &mut self.spare);
        self.flying -= self.spare.len();
        self.spare.drain(..).for_each(|(read, outcome)| came_back(read, outcome));
    }

    /// Blocks until a read has come back.
    pub(super) fn wait(&self) {
        if self.flying > 0 {
            self.mailbox.bell.wait().expect("a descriptor of this process can be waited for");
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.submit();
        while self.flying > 0 {
            self.wait();
            self.take_back(&mut |read, _| drop(read));
        }
    }
}

impl Readers {
    fn work(&self) -> MutexGuard<'_, Work> {
        lock(&self.work)
    }

    /// What each thread does for as long as the process runs.
    fn read_for_ever(&self) {
        let mut work = self.work();
        loop {
            while let Some(Job { mut read, mailbox }) = work.jobs.pop_front() {
                drop(work);
                let outcome = read.perform();
                mailbox.put(read, outcome);
                work = self.work();
            }
            work.idle += 1;
            work = self.asked.wait(work).unwrap_or_else(PoisonError::into_inner);
            work.idle -= 1;
        }
    }
}

impl Work {
    fn start_thread(&mut self) -> io::Result<()> {
        let name = format!("read-{}", self.threads);
        std::thread::Builder::new().name(name).spawn(|| READERS.read_for_ever())?;
        self.threads += 1;
        Ok(())
    }
}

impl Mailbox {
    fn put(&self, read: Read, outcome: Outcome) {
        let mut back = lock(&self.back);
        back.push((read, outcome));
        let is_first = back.len() == 1;
        drop(back);
        // One ring for all that lies there: who takes it silences the bell before.
        if is_first {
            self.bell.ring();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked with it is a defect that has ended the program in a release build.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
