//! Where workers put records and the flusher finds them.
//!
//! The hot path: [`Buffer::append_effects`] runs under the slots' locks, millions of times a second. It holds one short lock for a
//! copy into a block that is there already; checksums are the flusher's, over whole blocks. The atomic additions alone that a
//! ring with reservations needs cost as much as this lock (`benches/append.rs`).
//!
//! Any thread appends; one takes. Invariants:
//! 1. Records are in blocks in the order of their Lsns, without gaps.
//! 2. No allocation while blocks come back as fast as they fill.
//! 3. [`LASTING_BLOCKS`] are there from the beginning to the end, whether they hold anything or not. Others come and go.

use crate::Lsn;
use crate::block::{FRAME_BYTES, HEADER_BYTES, Head, Part, Record, Unwritten, Use};
use crate::limits::{FREE_BYTES_MAX, LASTING_BLOCKS};
use crate::stream::{Dress, Dresser, Span, Unit};
use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sys::UnixMs;

#[derive(Debug)]
pub(crate) struct Buffer {
    filling: Mutex<Filling>,
    /// The end of what was appended. Written under the lock.
    appended: AtomicU64,
    /// Memory of the blocks that hold records which are not durable, bytes.
    held_bytes: AtomicUsize,
    /// What all blocks beyond the lasting ones really take, empty ones among them, bytes. Held while one of them comes or goes.
    passing_bytes: Mutex<usize>,
    /// What it may be at most, and what it may be now.
    held_bytes_limit: usize,
    held_bytes_max: AtomicUsize,
    block_bytes: usize,
}

#[derive(Debug)]
struct Filling {
    block: Unwritten,
    full: VecDeque<Unwritten>,
    free: Vec<Unwritten>,
    /// The least that were free at once since somebody last looked for unused ones.
    unused: usize,
    dresser: Dresser,
}

impl Filling {
    /// What has to stand round effects that are said as they were done. A frame says one database: behind several the next record selects its own.
    #[inline]
    fn dress(&mut self, span: Span) -> Dress {
        let dress = self.dresser.dress(span);
        if span.ends_in != span.database {
            self.dresser.forget();
        }
        dress
    }
}

impl Buffer {
    /// An empty buffer; the first record begins at `lsn`.
    pub fn new(lsn: Lsn, block_bytes: usize, held_bytes_max: usize) -> Buffer {
        let mut block = Unwritten::new(block_bytes);
        block.restart(lsn);
        Buffer {
            filling: Mutex::new(Filling {
                block,
                full: VecDeque::new(),
                free: (1..LASTING_BLOCKS).map(|_| Unwritten::new(block_bytes)).collect(),
                unused: 0,
                dresser: Dresser::default(),
            }),
            appended: AtomicU64::new(lsn.0),
            held_bytes: AtomicUsize::new(block_bytes),
            passing_bytes: Mutex::new(0),
            held_bytes_limit: held_bytes_max,
            held_bytes_max: AtomicUsize::new(held_bytes_max),
            block_bytes,
        }
    }

    /// Appends a record as it is, whatever it selects, and gives its end.
    #[inline]
    pub fn append(&self, database: u32, time: UnixMs, payload: &[u8]) -> Lsn {
        let mut filling = self.filling.lock();
        filling.dresser.forget();
        self.put(&mut filling, &Head::own(database, Dress::default(), time), payload)
    }

    /// Appends what is not said to replicas as it was done here.
    pub fn append_unit(&self, unit: &Unit<'_>, effects: Vec<Vec<u8>>) -> Lsn {
        let mut filling = self.filling.lock();
        filling.dresser.forget();
        let head = unit.head();
        if unit.database == unit.ends_in && matches!(&effects[..], [effects] if effects == unit.stream) {
            return self.put(&mut filling, &head, unit.stream);
        }
        self.put_apart(&mut filling, (&head, unit.ends_in), effects, unit.stream)
    }

    /// The same where the stream has it as it was done.
    #[inline]
    pub fn append_unit_as_sent(&self, unit: &Unit<'_>) -> Lsn {
        debug_assert_eq!(unit.database, unit.ends_in, "a request that is one of a master's selects nothing");
        let mut filling = self.filling.lock();
        filling.dresser.forget();
        self.put(&mut filling, &unit.head(), unit.stream)
    }

    /// Appends requests that have no effect, for who reads the stream in this database: it is selected there.
    pub fn append_told(&self, database: u32, time: UnixMs, requests: &[u8]) -> Lsn {
        let mut filling = self.filling.lock();
        let front = filling.dresser.dress(Span::of(database)).front(database);
        let head = Head { used_for: Use::Stream, ..Head::own(database, Dress::default(), time) };
        let stream = [front.as_slice(), requests].concat();
        self.put(&mut filling, &head, &stream)
    }

    /// Appends a record that was read, as it was.
    pub fn append_copy(&self, record: &Record<'_>) -> Lsn {
        let mut filling = self.filling.lock();
        filling.dresser.forget();
        let head = record.head();
        match head.used_for {
            Use::Both => self.put(&mut filling, &head, record.stream),
            Use::Effects | Use::Stream => {
                let effects = vec![record.payload.to_owned()];
                self.put_apart(&mut filling, (&head, record.ends_in), effects, record.stream)
            }
        }
    }

    /// Appends effects with what has to stand round them in the stream, and gives the record's end.
    #[inline]
    pub fn append_effects(&self, span: Span, time: UnixMs, effects: &[u8]) -> Lsn {
        let mut filling = self.filling.lock();
        let dress = filling.dress(span);
        let head = Head::own(span.database, dress, time);
        if dress.is_none() {
            return self.put(&mut filling, &head, effects);
        }
        self.put_dressed(&mut filling, &head, effects)
    }

    /// The same for effects that lie in several parts, each of which is freed as soon as it is copied.
    pub fn append_parts(&self, span: Span, time: UnixMs, parts: Vec<Vec<u8>>) -> Lsn {
        let mut filling = self.filling.lock();
        let head = Head::own(span.database, filling.dress(span), time);
        let front = head.dress.front(span.database).as_slice().to_vec();
        let all = [front].into_iter().chain(parts).chain([head.dress.back().to_vec()]);
        self.put_parts(&mut filling, all.map(|part| (head, part)))
    }

    #[inline]
    fn put(&self, filling: &mut Filling, head: &Head, payload: &[u8]) -> Lsn {
        assert!(!payload.is_empty(), "a record moves the log on");
        if filling.block.room() < payload.len() {
            return self.put_parts(filling, std::iter::once((*head, payload)));
        }
        filling.block.push(head, payload, Part::Whole);
        self.publish(filling)
    }

    /// Puts a record of effects that are not of the stream, and what the stream has in their place.
    #[inline(never)]
    fn put_apart(
        &self,
        filling: &mut Filling,
        (head, ends_in): (&Head, u32),
        effects: Vec<Vec<u8>>,
        stream: &[u8],
    ) -> Lsn {
        let hidden = Head { used_for: Use::Effects, ..*head };
        let mute = Head { database: ends_in, used_for: Use::Stream, ..*head };
        let effects_bytes: usize = effects.iter().map(Vec::len).sum();
        match (effects_bytes, stream.len()) {
            (0, _) => return self.put(filling, &mute, stream),
            (bytes, 0) if bytes <= filling.block.room() => {
                return self.put(filling, &hidden, &effects.concat());
            }
            (_, 0) => return self.put_parts(filling, effects.into_iter().map(|part| (hidden, part))),
            _ => {}
        }
        if filling.block.room() >= effects_bytes + FRAME_BYTES + stream.len() {
            filling.block.push(&hidden, &effects.concat(), Part::First);
            filling.block.push(&mute, stream, Part::Last);
            return self.publish(filling);
        }
        let effects = effects.into_iter().map(|part| (hidden, Cow::Owned(part)));
        self.put_parts(filling, effects.chain([(mute, Cow::Borrowed(stream))]))
    }

    #[inline(never)]
    fn put_dressed(&self, filling: &mut Filling, head: &Head, effects: &[u8]) -> Lsn {
        assert!(!effects.is_empty(), "a record moves the log on");
        let front = head.dress.front(head.database);
        if filling.block.room() >= front.as_slice().len() + effects.len() + head.dress.back().len() {
            filling.block.push_dressed(head, effects);
            return self.publish(filling);
        }
        let whole = [front.as_slice(), effects, head.dress.back()].concat();
        self.put_parts(filling, std::iter::once((*head, whole)))
    }

    /// Puts a record that does not fit the block, or lies in several parts, into the next, or into as many as it takes.
    #[cold]
    fn put_parts<P: AsRef<[u8]>>(
        &self,
        filling: &mut Filling,
        parts: impl Iterator<Item = (Head, P)>,
    ) -> Lsn {
        let piece_bytes_max = self.block_bytes - HEADER_BYTES - FRAME_BYTES;
        let mut parts = parts.filter(|(_, part)| !part.as_ref().is_empty()).peekable();
        assert!(parts.peek().is_some(), "a record moves the log on");
        let mut is_first = true;
        while let Some((head, part)) = parts.next() {
            let mut pieces = part.as_ref().chunks(piece_bytes_max).peekable();
            while let Some(piece) = pieces.next() {
                if !filling.block.is_empty() {
                    self.begin_block(filling);
                }
                let is_last = pieces.peek().is_none() && parts.peek().is_none();
                filling.block.push(&head, piece, Part::of(is_first, is_last));
                is_first = false;
            }
        }
        self.publish(filling)
    }

    #[inline]
    fn publish(&self, filling: &Filling) -> Lsn {
        let end = filling.block.end;
        self.appended.store(end.0, Ordering::Release);
        end
    }

    fn begin_block(&self, filling: &mut Filling) {
        let end = filling.block.end;
        let mut block = filling.free.pop().unwrap_or_else(|| {
            let mut passing_bytes = self.passing_bytes.lock();
            let block = Unwritten::new(self.block_bytes);
            *passing_bytes += block.allocated_bytes();
            block
        });
        filling.unused = filling.unused.min(filling.free.len());
        block.restart(end);
        self.held_bytes.fetch_add(self.block_bytes, Ordering::Relaxed);
        filling.full.push_back(std::mem::replace(&mut filling.block, block));
    }

    /// Moves all that has been appended to the end of `taken`.
    pub fn take(&self, taken: &mut VecDeque<Unwritten>) {
        let mut filling = self.filling.lock();
        if !filling.block.is_empty() {
            self.begin_block(&mut filling);
        }
        taken.append(&mut filling.full);
    }

    /// Takes back a block whose records are durable.
    pub fn give_back(&self, block: Unwritten) {
        self.held_bytes.fetch_sub(self.block_bytes, Ordering::Relaxed);
        let free_bytes_max = FREE_BYTES_MAX.min(self.held_bytes_max() / 4);
        let mut filling = self.filling.lock();
        filling.free.push(block);
        self.free_beyond(filling, free_bytes_max / self.block_bytes);
    }

    /// Frees the empty blocks that nobody has needed since this was last called, but for the lasting ones.
    #[inline]
    pub fn let_unused_go(&self) {
        if self.passing_bytes() > 0 {
            let mut filling = self.filling.lock();
            let needed = filling.free.len() - filling.unused;
            filling.unused = filling.free.len();
            self.free_beyond(filling, needed);
        }
    }

    /// Frees empty blocks beyond so many; the lasting ones stay.
    fn free_beyond(&self, mut filling: MutexGuard<'_, Filling>, blocks: usize) {
        let kept = blocks.max(LASTING_BLOCKS - 1).min(filling.free.len());
        let freed = filling.free.split_off(kept);
        filling.unused = filling.unused.min(kept);
        drop(filling);
        if !freed.is_empty() {
            let mut passing_bytes = self.passing_bytes.lock();
            *passing_bytes -= freed.iter().map(Unwritten::allocated_bytes).sum::<usize>();
            drop(freed);
        }
    }

    /// The next record selects its database, whichever is selected: somebody begins to read there. Gives the end of the last record.
    pub fn forget_selected(&self) -> Lsn {
        let mut filling = self.filling.lock();
        filling.dresser.forget();
        filling.block.end
    }

    /// The end of the last record.
    #[inline]
    pub fn appended(&self) -> Lsn {
        Lsn(self.appended.load(Ordering::Acquire))
    }

    /// Memory of the blocks that hold records which are not durable, bytes.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// What all blocks beyond the lasting ones take, as the allocator counts it, bytes.
    pub fn passing_bytes(&self) -> usize {
        *self.passing_bytes.lock()
    }

    /// The same, and what `read` gives while none of them comes or goes.
    pub fn passing_beside<T>(&self, read: impl FnOnce() -> T) -> (usize, T) {
        let passing_bytes = self.passing_bytes.lock();
        (*passing_bytes, read())
    }

    /// Whether no more should be appended for now.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.held_bytes() >= self.held_bytes_max()
    }

    /// Whether a quarter of its room is left, or less.
    pub fn is_nearly_full(&self) -> bool {
        self.held_bytes() >= self.held_bytes_max() / 4 * 3
    }

    fn held_bytes_max(&self) -> usize {
        self.held_bytes_max.load(Ordering::Relaxed)
    }

    /// Is full at so many bytes from now on if that is less than it was made for, but not while it has two blocks.
    pub fn set_held_bytes_max(&self, bytes: usize) {
        let bytes = bytes.max(2 * self.block_bytes + 1).min(self.held_bytes_limit);
        self.held_bytes_max.store(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    fn write(buffer: &Buffer, blocks: usize) {
        (0..blocks).for_each(|_| {
            buffer.append(0, UnixMs(1), &[0; BLOCK * 3 / 4]);
        });
        let mut taken = VecDeque::new();
        buffer.take(&mut taken);
        assert_eq!(taken.len(), blocks);
        taken.into_iter().for_each(|block| buffer.give_back(block));
        assert_eq!(buffer.held_bytes(), BLOCK);
    }

    fn free(buffer: &Buffer) -> usize {
        buffer.filling.lock().free.len()
    }

    #[test]
    fn blocks_that_nobody_needs_any_more_go_and_the_lasting_ones_stay() {
        let buffer = Buffer::new(Lsn::ZERO, BLOCK, 64 * BLOCK);
        let passing =
            || buffer.passing_bytes() / sys::file::AlignedBytes::with_capacity(BLOCK).allocated_bytes();
        assert_eq!((free(&buffer), passing()), (LASTING_BLOCKS - 1, 0));
        (0..9).for_each(|_| write(&buffer, LASTING_BLOCKS - 1));
        buffer.let_unused_go();
        assert_eq!((free(&buffer), passing()), (LASTING_BLOCKS - 1, 0));
        write(&buffer, 9);
        assert_eq!((free(&buffer), passing()), (9, 10 - LASTING_BLOCKS));
        // All were needed since nobody had looked before.
        buffer.let_unused_go();
        assert_eq!(free(&buffer), 9);
        write(&buffer, 5);
        buffer.let_unused_go();
        assert_eq!((free(&buffer), passing()), (5, 6 - LASTING_BLOCKS));
        buffer.let_unused_go();
        buffer.let_unused_go();
        assert_eq!((free(&buffer), passing()), (LASTING_BLOCKS - 1, 0));
    }

    #[test]
    fn what_holds_records_passes_but_for_the_lasting_blocks() {
        let buffer = Buffer::new(Lsn::ZERO, BLOCK, 64 * BLOCK);
        (0..9).for_each(|_| {
            buffer.append(0, UnixMs(1), &[0; BLOCK * 3 / 4]);
        });
        let passing = buffer.passing_bytes();
        assert!(passing >= (9 - LASTING_BLOCKS) * BLOCK, "{passing}");
        buffer.let_unused_go();
        assert_eq!(buffer.passing_bytes(), passing);
        let mut taken = VecDeque::new();
        buffer.take(&mut taken);
        buffer.set_held_bytes_max(0);
        taken.into_iter().for_each(|block| buffer.give_back(block));
        assert_eq!((free(&buffer), buffer.passing_bytes()), (LASTING_BLOCKS - 1, 0));
    }
}
