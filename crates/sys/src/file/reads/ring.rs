//! Reads through io_uring, one ring a thread.
//!
//! The kernel writes to a read's buffer from the moment that its entry is pushed until its completion is taken, and
//! all that time the buffer and its file are in the ring's slots.
//!
//! One thread. Invariants:
//! 1. A slot is emptied only for the completion that names it, and each entry pushed names a slot of its own: no
//!    buffer is touched, moved out or freed, and no file closed, while the kernel knows it.
//! 2. At most `depth` slots are in use, and the completion queue has twice as many entries: it never overflows.
//! 3. Work that the kernel has deferred to this thread shows in the ring's flags before the bell rings for it; the flag
//!    may be set when there is none.

#![allow(unsafe_code)] // Entries name memory by its address.

use super::{Outcome, Read};
use crate::Bell;
use crate::file::File;
use io_uring::squeue::{Entry, SubmissionQueue};
use io_uring::types::Fd;
use io_uring::{Builder, EnterFlags, IoUring, Probe, opcode};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// Bytes that one entry asks for: the kernel reads less than 2 GB at once.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// How many reads the kernel completes at least when it is asked to; it leaves the rest for the next time.
const DEFERRED_AT_ONCE: usize = 20;

/// How completions reach the thread: what costs least first. Older kernels refuse what they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completing {
    /// When the thread asks for them (Linux 6.1): nothing interrupts it.
    Deferred,
    /// At the thread's next system call (Linux 5.19).
    Cooperative,
    /// By interrupting the thread.
    Interrupting,
}

impl Completing {
    pub(super) const ALL: [Completing; 3] =
        [Completing::Deferred, Completing::Cooperative, Completing::Interrupting];

    fn set_up(self, builder: &mut Builder) {
        match self {
            Completing::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all()
            }
            Completing::Cooperative => builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all(),
            Completing::Interrupting => builder,
        };
    }
}

impl std::fmt::Display for Completing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Completing::Deferred => "completed when asked for",
            Completing::Cooperative => "completed at the next system call",
            Completing::Interrupting => "completed by interrupting",
        })
    }
}

pub(super) struct Ring {
    ring: IoUring,
    completing: Completing,
    bell: Arc<Bell>,
    /// The reads that the kernel knows, by the numbers of their entries.
    slots: Vec<Option<Read>>,
    free: Vec<u32>,
}

impl Ring {
    /// A ring for `depth` reads that are on their way at once; the bell rings when some have come back.
    pub(super) fn new(depth: usize, bell: &Arc<Bell>) -> io::Result<Ring> {
        let mut refused = io::Error::from(ErrorKind::Unsupported);
        for completing in Completing::ALL {
            match Ring::completing(completing, depth, bell) {
                Err(error) if error.kind() == ErrorKind::InvalidInput => refused = error,
                made => return made,
            }
        }
        Err(refused)
    }

    pub(super) fn completing(completing: Completing, depth: usize, bell: &Arc<Bell>) -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        completing.set_up(&mut builder);
        let ring = builder.build(depth as u32)?;
        let submitter = ring.submitter();
        let mut probe = Probe::new();
        submitter.register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::Error::new(ErrorKind::Unsupported, "this kernel's io_uring reads only lists"));
        }
        submitter.register_eventfd(bell.as_fd().as_raw_fd())?;
        // Who may make a ring may be forbidden to use it.
        submitter.submit()?;
        let slots = std::iter::repeat_with(|| None).take(depth).collect();
        Ok(Ring { ring, completing, bell: bell.clone(), slots, free: (0..depth as u32).collect() })
    }

    pub(super) fn how(&self) -> Completing {
        self.completing
    }

    /// How many reads it would take now.
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// How many reads are on their way.
    pub(super) fn flying(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a read, to be handed over by the next [`Ring::submit`].
    pub(super) fn start(&mut self, read: Read) {
        let number = self.free.pop().expect("the caller asked for room");
        push(&mut self.ring.submission(), number, self.slots[number as usize].insert(read));
    }

    /// Hands all that was started to the kernel. If that has no memory for them now, the bell rings and the next
    /// call tries again.
    pub(super) fn submit(&mut self) {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if !is_passing(&error) => refused(&error),
                Ok(0) | Err(_) => return self.bell.ring(),
            }
        }
    }

    /// Blocks until a read has come back, or something else has happened.
    pub(super) fn wait(&mut self) {
        if self.known() == 0 {
            std::thread::yield_now();
        } else if self.ring.completion().is_empty()
            && let Err(error) = self.complete(1)
        {
            refused(&error);
        }
    }

    /// How many reads the kernel knows.
    fn known(&mut self) -> usize {
        self.flying() - self.ring.submission().len()
    }

    /// Takes what has come back, and silences the bell.
    pub(super) fn take_back(&mut self, came_back: &mut impl FnMut(Read, Outcome)) {
        self.complete_deferred();
        // Not before: the kernel rings again for what this thread has just made it complete.
        self.bell.silence();
        // What was deferred and rung for in between would else be forgotten.
        self.complete_deferred();
        let Ring { ring, slots, free, .. } = self;
        let (_, mut entries, completions) = ring.split();
        for completion in completions {
            let number = completion.user_data() as u32;
            let slot = &mut slots[number as usize];
            let read = slot.as_mut().expect("each completion is of a read that is on its way");
            match read.advance(count_of(completion.result())) {
                None => push(&mut entries, number, read),
                Some(outcome) => {
                    free.push(number);
                    came_back(slot.take().expect("it was there"), outcome);
                }
            }
        }
        drop(entries);
        self.submit();
    }

    /// Completes all that was deferred to this thread by now.
    fn complete_deferred(&mut self) {
        // The flag alone does not end this: it may be set after the work was done already, and then stays until there
        // is more. The fuzzer comes upon that, given some 100,000 steps.
        for _ in 0..=self.flying() / DEFERRED_AT_ONCE {
            if !self.ring.submission().taskrun() {
                return;
            }
            if let Err(error) = self.complete(0) {
                refused(&error);
            }
        }
    }

    /// Completes what was deferred to this thread, and waits until there are `count` completions or a signal.
    fn complete(&self, count: u32) -> io::Result<()> {
        let submitter = self.ring.submitter();
        // SAFETY: the call names no memory: it hands over no entries and has no argument.
        let entered =
            unsafe { submitter.enter::<libc::sigset_t>(0, count, EnterFlags::GETEVENTS.bits(), None) };
        match entered {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Ring {
    /// Entries that were not handed over never will be; the others are waited for.
    fn drop(&mut self) {
        while self.known() > 0 {
            if self.complete(1).is_err() {
                // Nobody can tell any more when the kernel is done with the buffers: they are never freed.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
            for completion in self.ring.completion() {
                let number = completion.user_data() as u32;
                self.slots[number as usize] = None;
                self.free.push(number);
            }
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Ring({:?}, {} of {})", self.completing, self.flying(), self.slots.len())
    }
}

/// Pushes the entry for what a read still lacks.
fn push(entries: &mut SubmissionQueue<'_>, number: u32, read: &mut Read) {
    let File::Real(file) = &*read.file else { unreachable!("simulated files have no descriptor") };
    let descriptor = Fd(file.descriptor().as_raw_fd());
    let at = read.offset + read.filled as u64;
    let rest = &mut read.buffer.as_mut_slice()[read.filled..];
    let bytes = rest.len().min(ENTRY_BYTES_MAX) as u32;
    let entry: Entry = opcode::Read::new(descriptor, rest.as_mut_ptr(), bytes).offset(at).build();
    // SAFETY: the entry writes at most `bytes` bytes behind the pointer, which are the read's own and stay where they
    // are (an aligned buffer never grows, and moving it moves no bytes), and uses a descriptor that the read's file
    // keeps open. The read is in slot `number` and leaves it only for this entry's completion (invariant 1), for
    // which the ring waits when it is dropped; nobody touches the bytes until then.
    let pushed = unsafe { entries.push(&entry.user_data(u64::from(number))) };
    pushed.expect("the queue has room for as many entries as there are slots");
}

fn refused(error: &io::Error) -> ! {
    panic!("io_uring refuses what it took before: {error}")
}

/// Whether a call that failed like this may succeed later.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM))
}

/// What a completion says.
fn count_of(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}
