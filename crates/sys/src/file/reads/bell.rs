//! The descriptor that becomes readable when reads have come back: an eventfd.
//!
//! Any thread may ring; one waits. Invariant: what was rung after the last [`Bell::silence`] leaves it readable, so
//! whoever silences it first and looks for what has come back afterwards misses nothing.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable.
    pub(super) fn ring(&self) {
        // Only a count that is as large as it can be refuses one more, and then it is readable.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable; nothing if it is.
    pub(super) fn silence(&self) {
        // Fails if there is nothing to read, which is what is wanted.
        let _ = read(&self.0, &mut [0; 8]);
    }

    /// Blocks until it is readable.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn wait(&self) -> io::Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                done => return done.map(drop).map_err(io::Error::from),
            }
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
