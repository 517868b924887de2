//! The journal of a server that has no log: effects become the stream at once, and nothing waits for it.
//!
//! Its stamps are offsets in the stream. It is the keyspace's from when the first replica has come until a log takes over (`feeding/handover`).
//!
//! Invariant: while a master is followed, nothing goes into the stream but the master's bytes.
//!
//! Thread rule: any worker, with slots locked.

use super::Feeding;
use ::log::Span as LogSpan;
use engine::durability;
use keyspace::{Journal, Span, Unit};
use std::sync::Arc;
use sys::{Stamp, UnixMs};

/// Effects on their way to the backlog.
pub struct ToBacklog(pub Arc<Feeding>);

impl ToBacklog {
    fn take(&self, span: Span, parts: &[&[u8]]) -> Stamp {
        durability::note_gathered(parts.iter().map(|part| part.len()).sum());
        let state = &mut *self.0.state.lock();
        debug_assert_eq!(state.taken_over_at, None, "the log is the journal");
        if let Some(backlog) = state.backlog.as_mut().filter(|_| !state.is_following) {
            let span = LogSpan { database: span.first.0, ends_in: span.last.0, is_several: span.is_several };
            state.dresser.show(span, parts, |bytes| backlog.append(bytes));
            state.journal_end = backlog.end();
            state.trim();
        }
        Stamp(state.journal_end)
    }
}

impl Journal for ToBacklog {
    fn append(&self, span: Span, _: UnixMs, requests: &[u8]) -> Stamp {
        self.take(span, &[requests])
    }

    fn append_parts(&self, span: Span, _: UnixMs, parts: Vec<Vec<u8>>) -> Stamp {
        self.take(span, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    fn append_unit(&self, unit: Unit<'_>, _: Vec<Vec<u8>>) -> Stamp {
        durability::note_gathered(unit.stream.len());
        let state = &mut *self.0.state.lock();
        state.append(unit.stream);
        state.journal_end += unit.stream.len() as u64;
        if !unit.stream.is_empty() {
            state.unit_end = Some((state.journal_end, unit.last.0));
        }
        state.trim();
        Stamp(state.journal_end)
    }

    fn append_unit_as_sent(&self, unit: Unit<'_>) -> Stamp {
        self.append_unit(unit, Vec::new())
    }

    fn end(&self) -> Stamp {
        Stamp(self.0.state.lock().journal_end)
    }

    fn nudge(&self) {
        // Each time that a replica is sent something costs as much as some fifty writes.
        if durability::has_gathered_enough() {
            self.0.state.lock().wake();
        }
    }
}
