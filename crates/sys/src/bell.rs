//! A descriptor that becomes readable when somebody rings: an eventfd. For whoever waits for a socket, too, or for a ring of the kernel's.
//!
//! Any thread may ring; one waits. Invariant: what was rung after the last [`Bell::silence`] leaves it readable, so
//! whoever silences it first and looks for what it rang for afterwards misses nothing.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A bell.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// One that nobody has rung.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable.
    pub fn ring(&self) {
        // Only a count that is as large as it can be refuses one more, and then it is readable.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable; nothing if it is.
    pub fn silence(&self) {
        // Fails if there is nothing to read, which is what is wanted.
        let _ = read(&self.0, &mut [0; 8]);
    }

    /// Blocks until it is readable.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait(&self) -> io::Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                done => return done.map(drop).map_err(io::Error::from),
            }
        }
    }

    /// Blocks until it is readable, or the other is, but no longer than `patience`. Whether the other is.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait_beside(&self, other: &impl AsFd, patience: Duration) -> io::Result<bool> {
        let patience = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        let mut both = [PollFd::new(&self.0, PollFlags::IN), PollFd::new(other, PollFlags::IN)];
        match poll(&mut both, Some(&patience)) {
            Err(Errno::INTR) => Ok(false),
            done => done.map(|_| !both[1].revents().is_empty()).map_err(io::Error::from),
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
