//! What a connection has buffered, as others see it: in CLIENT LIST, against `maxmemory-clients`, and for those who have yet to agree on keys or to
//! authenticate against a bound of their own.

use super::{Connection, End};
use crate::client::eviction;
use crate::service::{Service, Session};
use std::sync::atomic::Ordering;
use wire::Authenticated;

/// The most that all of them together may have buffered.
const STRANGERS_BYTES_MAX: u64 = 16 << 20;

/// What the server counts as a connection's.
#[derive(Clone, Copy, Default)]
pub(super) struct Noted {
    /// Its buffers, and what its session keeps.
    pub(super) bytes: usize,
    /// The same for as long as it has not authenticated and must.
    pub(super) stranger_bytes: usize,
}

impl<S: Service> Connection<S> {
    /// Lets others see how much is buffered, and kept by the session.
    #[inline]
    pub(super) fn note_buffers(&mut self, service: &S) -> Result<(), End> {
        let is_quiet = self.input.capacity() == 0
            && self.stream.allocated_bytes() == (0, 0)
            && self.pending.is_empty()
            && self.session.client().kept_bytes() == 0
            && self.noted.bytes == 0;
        if is_quiet { Ok(()) } else { self.note_change_of_buffers(service) }
    }

    fn note_change_of_buffers(&mut self, service: &S) -> Result<(), End> {
        let client = self.session.client();
        let (sealed_in, sealed_out) = self.stream.allocated_bytes();
        let input_capacity =
            self.input.capacity() + self.running_bytes + self.parser.allocated_bytes() + sealed_in;
        let output_capacity = self.pending.allocated_bytes() + sealed_out;
        let bytes = input_capacity + output_capacity + client.kept_bytes();
        let is_stranger = self.trust(service) == Authenticated::No || self.stream.is_handshaking();
        let noted = Noted { bytes, stranger_bytes: if is_stranger { bytes } else { 0 } };
        let before = std::mem::replace(&mut self.noted, noted);
        if noted.stranger_bytes != before.stranger_bytes {
            let total = &service.net().clients.stranger_bytes;
            total.add(noted.stranger_bytes as i64 - before.stranger_bytes as i64);
            // Who comes last goes: a newcomer whose request arrives at once has nothing buffered.
            if noted.stranger_bytes > before.stranger_bytes && total.get() > STRANGERS_BYTES_MAX {
                service.net().clients.buffer_bytes.add(noted.bytes as i64 - before.bytes as i64);
                return Err(End::StrangerDropped(
                    "clients that have not authenticated have too much buffered",
                ));
            }
        }
        if noted.bytes != before.bytes {
            service.net().clients.buffer_bytes.add(noted.bytes as i64 - before.bytes as i64);
        }
        if noted.bytes > before.bytes {
            eviction::note_growth(&service.net().clients, self.session.client(), noted.bytes);
        }
        // Behind that, and not of one that goes: nobody sees a client above a limit that it goes for.
        let client = self.session.client();
        if client.is_killed() {
            return Ok(());
        }
        client.input_bytes.store(self.input.len(), Ordering::Relaxed);
        client.input_capacity.store(input_capacity, Ordering::Relaxed);
        client.output_bytes.store(self.pending.len() + self.stream.unsent_bytes(), Ordering::Relaxed);
        client.output_capacity.store(output_capacity, Ordering::Relaxed);
        client.output_chunks.store(self.pending.chunks() as u32, Ordering::Relaxed);
        Ok(())
    }
}
