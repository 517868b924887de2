//! What reading and claiming come down to, for the log: XCLAIM, XGROUP SETID and XGROUP CREATECONSUMER, which name their key in a
//! fixed place, tell what became of each entry, and are known to every replica.
//!
//! When a consumer was seen last follows from the record's time, and so does when it was active last if it got something. Where
//! it got nothing, or only what it had, a claim of the entry 0-0 says both: no stream has one, so that a Redis does nothing
//! about it, and its TIME is the moment at which the consumer was active ([`is_mention`]).

use crate::args::Args;
use value::number::{IntBuffer, format_i64};
use value::stream::{Consumer, Group, IdText, Moment, StreamId};

/// Stands for a moment that never was, and for a count that is not known.
const NONE: i64 = -1;

/// The consumer of a group of a stream.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) key: &'a [u8],
    pub(super) group: &'a [u8],
    pub(super) consumer: &'a [u8],
}

/// What a consumer got: entries, and how often each was delivered.
pub(super) type Got = Vec<(StreamId, u64)>;

impl Reader<'_> {
    /// Says that the group has it now.
    pub(super) fn log_creation(&self, args: &Args<'_>) {
        match args.is_for_redis50() {
            false => args.log_as(&[b"XGROUP", b"CREATECONSUMER", self.key, self.group, self.consumer]),
            // Whoever asks for what it has behind the last of all ids gets nothing, and is there from then on.
            true => {
                let last = IdText::of(StreamId::MAX);
                let who: [&[u8]; 4] = [b"XREADGROUP", b"GROUP", self.group, self.consumer];
                args.log_as(&[&who[..], &[b"STREAMS", self.key, last.as_bytes()]].concat());
            }
        }
    }

    /// Says that it has these entries now, delivered at a moment; or that they are not pending any more, if they are gone. The
    /// group has read up to `last_id`.
    pub(super) fn log_got(&self, args: &Args<'_>, got: &Got, delivered_at: Moment, last_id: StreamId) {
        if !args.is_logged() {
            return;
        }
        let last_id = IdText::of(last_id);
        for run in got.chunk_by(|one, other| one.1 == other.1) {
            let (time, count) = (&mut IntBuffer::new(), &mut IntBuffer::new());
            let ids: Vec<IdText> = run.iter().map(|(id, _)| IdText::of(*id)).collect();
            let mut words: Vec<&[u8]> = vec![b"XCLAIM", self.key, self.group, self.consumer, b"0"];
            words.extend(ids.iter().map(IdText::as_bytes));
            words.extend([b"TIME", format_i64(delivered_at, time)]);
            words.extend([b"RETRYCOUNT", format_i64(run[0].1.cast_signed(), count)]);
            words.extend([&b"FORCE"[..], b"JUSTID", b"LASTID", last_id.as_bytes()]);
            args.log_as(&words);
        }
    }

    /// Says that it was seen, and when it was active last.
    pub(super) fn log_mention(&self, args: &Args<'_>, consumer: &Consumer, last_id: StreamId) {
        let (last_id, time) = (IdText::of(last_id), &mut IntBuffer::new());
        let time = format_i64(consumer.active_at.unwrap_or(NONE), time);
        let nothing = IdText::of(StreamId::MIN);
        let who: [&[u8]; 6] = [b"XCLAIM", self.key, self.group, self.consumer, b"0", nothing.as_bytes()];
        let what: [&[u8]; 5] = [b"TIME", time, b"JUSTID", b"LASTID", last_id.as_bytes()];
        args.log_as(&[&who[..], &what].concat());
    }

    /// Says how far its group has read.
    pub(super) fn log_progress(&self, args: &Args<'_>, group: &Group) {
        let last_id = IdText::of(group.last_id);
        let words = [b"XGROUP", &b"SETID"[..], self.key, self.group, last_id.as_bytes(), b"ENTRIESREAD"];
        if args.is_for_redis50() {
            return args.log_as(&words[..5]);
        }
        args.log_as_with(&words, group.entries_read.unwrap_or(NONE));
    }
}

/// Whether a claim of these entries is what [`Reader::log_mention`] says.
pub(super) fn is_mention(args: &Args<'_>, ids: &[StreamId]) -> bool {
    args.is_of_log() && ids == [StreamId::MIN]
}

/// The moment that a mention tells.
pub(super) fn active_at(told: Moment) -> Option<Moment> {
    Some(told).filter(|at| *at != NONE)
}
