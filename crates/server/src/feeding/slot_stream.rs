//! The stream from where a copy of slots began, as requests for the server that gets the copy ([`engine::slot_copy`]).
//!
//! Thread rule: one thread. While it is there, what it has not read is kept, as for a replica.

use super::behind::{self, Reading};
use super::copying::begin_reading;
use super::filter::Sieve;
use super::{end, offset_of, upkeep};
use crate::server::Server;
use engine::full_copy::{self, Beginning};
use engine::slot_copy::Copied;
use keyspace::DbIndex;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use sys::Stamp;

/// How often it looks for more of what was written.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// Takes a request for a database.
pub type Show<'s> = dyn FnMut(DbIndex, &[u8]) -> io::Result<()> + 's;

/// The stream, for one move of slots.
pub struct SlotStream<'s> {
    server: &'s Arc<Server>,
    /// The move's number.
    id: u64,
    reading: Reading<'s>,
    sieve: Sieve<'s>,
}

impl<'s> SlotStream<'s> {
    /// Begins a copy, and reads the stream from there.
    ///
    /// # Errors
    /// There is no stream: nobody can follow this server now.
    pub fn begin(server: &'s Arc<Server>, id: u64) -> io::Result<(SlotStream<'s>, Beginning)> {
        if server.feeding.state.lock().backlog.is_none() {
            return Err(io::Error::other("the shard's stream is not there yet"));
        }
        let now = end(server);
        server.feeding.state.lock().readers.insert(id, now);
        upkeep::keep_stream(server);
        let keep = |state: &mut crate::replicas::State, offset| {
            state.readers.insert(id, offset);
        };
        let beginning = full_copy::begin(&server.engine, || begin_reading(server, keep));
        let from = offset_of(&server.engine, beginning.at);
        let (reading, sieve) = (Reading::new(server, from), Sieve::new(&server.engine, from, beginning.at));
        Ok((SlotStream { server, id, reading, sieve }, beginning))
    }

    /// How far it is read.
    pub fn offset(&self) -> u64 {
        self.reading.offset()
    }

    /// Where it ends now.
    pub fn end(&self) -> u64 {
        end(self.server)
    }

    /// Bytes that were written and are not read.
    pub fn behind(&self) -> u64 {
        self.end().saturating_sub(self.offset())
    }

    /// Shows some of what is due of the stream up to an offset. False: nothing more can be sent now.
    ///
    /// # Errors
    /// It is not there any more, or holds what nobody can be sent behind a copy; that of `show`.
    pub fn pass_on(&mut self, until: u64, copied: &Copied, show: &mut Show<'_>) -> io::Result<bool> {
        if self.offset() >= until {
            return Ok(false);
        }
        let bytes = self.reading.next(until)?;
        if bytes.is_empty() {
            return Ok(false);
        }
        let mut result = Ok(());
        self.sieve.take(&bytes, copied, |db, request| {
            if result.is_ok() {
                result = show(db, request);
            }
        })?;
        result?;
        self.server.feeding.state.lock().readers.insert(self.id, self.offset());
        Ok(true)
    }

    /// Shows all that is due up to a place in the history, as soon as that can be sent. `look` is asked again and again, and may end it.
    ///
    /// # Errors
    /// As [`SlotStream::pass_on`]; that of `look`.
    pub fn pass_on_until(
        &mut self,
        until: Stamp,
        copied: &Copied,
        show: &mut Show<'_>,
        look: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let until = offset_of(&self.server.engine, until);
        while self.offset() < until {
            behind::wait_until_sendable(self.server, until)?;
            look()?;
            if !self.pass_on(until, copied, show)? {
                thread::sleep(LOOK_AGAIN);
            }
        }
        Ok(())
    }
}

impl Drop for SlotStream<'_> {
    fn drop(&mut self) {
        self.server.feeding.state.lock().readers.remove(&self.id);
        upkeep::keep_stream(self.server);
    }
}
