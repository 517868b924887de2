//! Reads that are asked for together, go on while the thread does something else, and come back as the disk has them.
//!
//! The capacity edition reads cold keys this way: a worker starts the reads of a whole batch, hands them over with one
//! system call, serves others, and is woken by a descriptor. They go through io_uring where the kernel allows it, else
//! through a few threads; files of a simulated disk are read at once and come back the same way.
//!
//! One thread from beginning to end (it is not `Send`). Invariants:
//! 1. A read's buffer and file belong to the reads from `start` until they come back, also if the reads are dropped:
//!    that waits for those on their way.
//! 2. Each read comes back exactly once, in no order, through `finished` or `wait`.
//! 3. While something has come back and was not taken, the descriptor is readable, or is about to become so.

mod buffers;
mod ring;
mod threads;

pub use buffers::Buffers;

use super::{AlignedBytes, DIRECT_ALIGN, File};
use crate::{Bell, Prng};
use ring::Ring;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use threads::Threads;

/// Most reads of one thread that are on their way at once; io_uring takes no more entries.
pub const DEPTH_MAX: usize = 32_768;

/// How often a read is tried again that the system put off.
const PUT_OFF_MAX: u32 = 1000;

/// How reads are to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// With io_uring if the kernel allows it, else with threads.
    Auto,
    /// With io_uring, or not at all.
    Ring,
    /// With threads.
    Threads,
}

/// How reads are done; its text is for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// With io_uring, completed in the way that its text names.
    Ring(String),
    /// With threads, as was asked for.
    Threads,
    /// With threads, for io_uring is refused with this error.
    ThreadsInstead(String),
}

/// A thread's reads. See the module.
#[derive(Debug)]
pub struct Reads {
    engine: Engine,
    chosen: Chosen,
    bell: Arc<Bell>,
    /// Not handed over yet, in the order of `start`.
    queued: VecDeque<Read>,
    /// Reads of simulated files that are done.
    simulated: Vec<(Read, Outcome)>,
    /// Decides in which order they come back.
    order: Prng,
    buffers: Buffers,
}

#[derive(Debug)]
enum Engine {
    Ring(Box<Ring>),
    Threads(Threads),
}

/// What became of a read: its buffer is full, or why not.
type Outcome = io::Result<()>;

/// One read, from `start` until it comes back.
#[derive(Debug)]
struct Read {
    file: Arc<File>,
    offset: u64,
    buffer: AlignedBytes,
    /// Bytes of the buffer that are there.
    filled: usize,
    put_off: u32,
    token: u64,
}

impl Reads {
    /// For at most `depth` reads of this thread that are on their way at once; more wait inside.
    ///
    /// # Errors
    /// `Way::Ring` where the kernel refuses one, or a system without descriptors or threads to give.
    ///
    /// # Panics
    /// If `depth` is 0 or above [`DEPTH_MAX`].
    pub fn new(way: Way, depth: usize) -> io::Result<Reads> {
        Reads::with_ring(way, depth, |bell| Ring::new(depth, bell))
    }

    fn with_ring(
        way: Way,
        depth: usize,
        ring: impl FnOnce(&Arc<Bell>) -> io::Result<Ring>,
    ) -> io::Result<Reads> {
        assert!((1..=DEPTH_MAX).contains(&depth), "a depth of {depth}");
        let bell = Arc::new(Bell::new()?);
        let (engine, chosen) = match (way, (way != Way::Threads).then(|| ring(&bell))) {
            (_, Some(Ok(ring))) => {
                let chosen = Chosen::Ring(ring.how().to_string());
                (Engine::Ring(Box::new(ring)), chosen)
            }
            (Way::Ring, Some(Err(error))) => return Err(error),
            (_, refused) => {
                let chosen = match refused {
                    Some(Err(error)) => Chosen::ThreadsInstead(error.to_string()),
                    _ => Chosen::Threads,
                };
                (Engine::Threads(Threads::new(depth, &bell)?), chosen)
            }
        };
        Ok(Reads {
            engine,
            chosen,
            bell,
            queued: VecDeque::new(),
            simulated: Vec::new(),
            order: Prng::from_seed(depth as u64),
            buffers: Buffers::default(),
        })
    }

    /// How they are done.
    pub fn way(&self) -> &Chosen {
        &self.chosen
    }

    /// Asks for as many bytes of a file as are in use in the buffer, which is to be handed over with
    /// [`Reads::submit`]. Never blocks and never fails: whatever is wrong comes back with the read. A file in
    /// [`Mode::Direct`](super::Mode::Direct) wants offset and length in multiples of [`DIRECT_ALIGN`].
    pub fn start(&mut self, file: &Arc<File>, offset: u64, buffer: AlignedBytes, token: u64) {
        self.queued.push_back(Read { file: file.clone(), offset, buffer, filled: 0, put_off: 0, token });
    }

    /// Hands over all that was started, with one system call, as far as the depth allows; the rest follows, in order,
    /// as others come back.
    pub fn submit(&mut self) {
        let was_empty = self.simulated.is_empty();
        while let Some(read) = self.queued.pop_front() {
            match &*read.file {
                File::Simulated(_) => self.read_now(read),
                File::Real(_) if self.engine.room() > 0 => self.engine.start(read),
                File::Real(_) => {
                    self.queued.push_front(read);
                    break;
                }
            }
        }
        if was_empty && !self.simulated.is_empty() {
            self.bell.ring();
        }
        self.engine.submit();
    }

    fn read_now(&mut self, mut read: Read) {
        let outcome = read.perform();
        self.simulated.push((read, outcome));
        let last = self.simulated.len() - 1;
        self.simulated.swap(self.order.below(last as u64 + 1) as usize, last);
    }

    /// Takes what has come back, with its token, its buffer and what became of it; the buffer's content is of use only
    /// if that is `Ok`. A file that ends before the buffer is full gives `UnexpectedEof`. Makes the descriptor
    /// unreadable first, and hands over what waited for room. Returns how many came back.
    pub fn finished(&mut self, mut take: impl FnMut(u64, AlignedBytes, io::Result<()>)) -> usize {
        let mut count = 0;
        let mut came_back = |read: Read, outcome| {
            count += 1;
            take(read.token, read.buffer, outcome);
        };
        // The bell is silenced first: what comes back from then on makes it ring again.
        self.engine.take_back(&mut came_back);
        self.simulated.drain(..).for_each(|(read, outcome)| came_back(read, outcome));
        if !self.queued.is_empty() {
            self.submit();
        }
        count
    }

    /// As [`Reads::finished`], but hands over what was started and blocks until at least one read has come back, unless
    /// there is none.
    pub fn wait(&mut self, mut take: impl FnMut(u64, AlignedBytes, io::Result<()>)) -> usize {
        self.submit();
        loop {
            if self.simulated.is_empty() {
                self.engine.wait();
            }
            let count = self.finished(&mut take);
            if count > 0 || self.in_flight() == 0 {
                return count;
            }
        }
    }

    /// How many reads were started and have not come back.
    pub fn in_flight(&self) -> usize {
        self.queued.len() + self.simulated.len() + self.engine.flying()
    }

    /// A buffer of so many pages of [`DIRECT_ALIGN`] bytes, with any content: one that was given back, if it can be.
    pub fn buffer(&self, pages: usize) -> AlignedBytes {
        self.buffers.get(pages)
    }

    /// Where buffers come from and go back to; a clone of it can be used while reads come back.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }
}

/// Readable when something has come back. To be watched by epoll: level-triggered as it is; edge-triggered (tokio's
/// `AsyncFd` over a clone of it), what was ready is to be cleared before [`Reads::finished`] is called, not after.
impl AsFd for Reads {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl AsRawFd for Reads {
    fn as_raw_fd(&self) -> RawFd {
        self.bell.as_fd().as_raw_fd()
    }
}

impl Engine {
    fn room(&self) -> usize {
        match self {
            Engine::Ring(ring) => ring.room(),
            Engine::Threads(threads) => threads.room(),
        }
    }

    fn flying(&self) -> usize {
        match self {
            Engine::Ring(ring) => ring.flying(),
            Engine::Threads(threads) => threads.flying(),
        }
    }

    fn start(&mut self, read: Read) {
        match self {
            Engine::Ring(ring) => ring.start(read),
            Engine::Threads(threads) => threads.start(read),
        }
    }

    fn submit(&mut self) {
        match self {
            Engine::Ring(ring) => ring.submit(),
            Engine::Threads(threads) => threads.submit(),
        }
    }

    fn take_back(&mut self, came_back: &mut impl FnMut(Read, Outcome)) {
        match self {
            Engine::Ring(ring) => ring.take_back(came_back),
            Engine::Threads(threads) => threads.take_back(came_back),
        }
    }

    fn wait(&mut self) {
        match self {
            Engine::Ring(ring) => ring.wait(),
            Engine::Threads(threads) => threads.wait(),
        }
    }
}

impl Read {
    /// Reads it here and now.
    fn perform(&mut self) -> Outcome {
        loop {
            let at = self.offset + self.filled as u64;
            let came = self.file.read_at(&mut self.buffer.as_mut_slice()[self.filled..], at);
            if let Some(outcome) = self.advance(came) {
                return outcome;
            }
        }
    }

    /// Notes what one attempt has brought; None if there is to be another one for the rest.
    fn advance(&mut self, came: io::Result<usize>) -> Option<Outcome> {
        match came {
            Ok(count) => {
                let reached = self.filled + count;
                if reached >= self.buffer.len() {
                    return Some(Ok(()));
                }
                // Direct access goes on at whole pages only.
                let unit = if self.file.is_direct() { DIRECT_ALIGN } else { 1 };
                let kept = reached / unit * unit;
                if kept == self.filled {
                    return Some(Err(ErrorKind::UnexpectedEof.into()));
                }
                self.filled = kept;
                None
            }
            Err(error) => match error.kind() {
                ErrorKind::Interrupted | ErrorKind::WouldBlock if self.put_off < PUT_OFF_MAX => {
                    self.put_off += 1;
                    None
                }
                _ => Some(Err(error)),
            },
        }
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chosen::Ring(how) => write!(out, "io_uring, {how}"),
            Chosen::Threads => write!(out, "reader threads"),
            Chosen::ThreadsInstead(error) => write!(out, "reader threads, as io_uring is refused: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
