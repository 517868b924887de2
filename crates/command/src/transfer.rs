//! A key that becomes what another key is, as one effect on both: RENAME, MOVE and COPY of values that are too long to be said again.
//!
//! It is the request as a Redis replica understands it, in one form for each of the three. The value is in no word of it: whoever replays it
//! must have the source as it was, and both slots at once. That is why it is only said where no checkpoint can hold one without the other
//! ([`keyspace::Keyspace::may_name_source`]); whatever else is transferred is said key by key.
//!
//! Invariant: applied to the keys as they were before, it makes them what they were afterwards, at any later time.

use crate::args::Args;
use crate::error::Result;
use crate::execute::readable;
use crate::pieces::is_long;
use keyspace::{Batch, Edit, Key, Touch};
use sys::UnixMs;
use value::number::{IntBuffer, format_i64};
use wire::Request;

/// Before any time is up: what was there when the effect was said is there when it is applied.
const BEFORE_ALL: UnixMs = UnixMs(0);

/// Such an effect, by its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer<'a> {
    /// The key whose value it is.
    pub source: &'a [u8],
    /// The key whose value it becomes, in place of whatever that was.
    pub target: &'a [u8],
    /// The number of the target's database, if it says one: else it is that of the source.
    pub database: Option<&'a [u8]>,
    /// Whether the source stays.
    pub is_copy: bool,
}

impl<'a> Transfer<'a> {
    /// What an effect says. None: it is none of these, or in another form.
    pub fn of(effect: &Request<'a>) -> Option<Transfer<'a>> {
        let is =
            |at: usize, word: &[u8]| effect.get(at).is_some_and(|given| given.eq_ignore_ascii_case(word));
        let (source, second) = (effect.get(1)?, effect.get(2)?);
        let within = Transfer { source, target: second, database: None, is_copy: false };
        match effect.len() {
            3 if is(0, b"rename") => Some(within),
            3 if is(0, b"move") => Some(Transfer { target: source, database: Some(second), ..within }),
            4 if is(0, b"copy") && is(3, b"replace") => Some(Transfer { is_copy: true, ..within }),
            6 if is(0, b"copy") && is(3, b"db") && is(5, b"replace") => {
                Some(Transfer { database: effect.get(4), is_copy: true, ..within })
            }
            _ => None,
        }
    }

    /// Makes the target what the source is. False: there is no source.
    ///
    /// # Errors
    /// What could not be read; nothing has changed then.
    pub fn apply(&self, batch: &Batch<'_>, source: &Key<'_>, target: &Key<'_>) -> Result<bool> {
        let mut edit = batch.edit(&[*source, *target], BEFORE_ALL, Touch::No);
        readable(batch)?;
        let expires_at = edit.peek(source).and_then(|object| object.expires_at());
        let object = if self.is_copy { edit.copy(source) } else { edit.take(source) };
        let is_there = object.is_some();
        if let Some(object) = object {
            edit.put(target, object, expires_at);
        }
        if let Some(object) = edit.peek(target) {
            batch.keyspace().note_named(object);
        }
        edit.finish();
        Ok(is_there)
    }

    /// Does what of it concerns the source alone: the target is as it was made already, or later. False: there is no source.
    ///
    /// # Errors
    /// What could not be read; nothing has changed then.
    pub fn apply_to_source(&self, batch: &Batch<'_>, source: &Key<'_>) -> Result<bool> {
        let mut edit = batch.edit(&[*source], BEFORE_ALL, Touch::No);
        readable(batch)?;
        let is_there = if self.is_copy { edit.peek(source).is_some() } else { edit.take(source).is_some() };
        edit.finish();
        Ok(is_there)
    }
}

impl Args<'_> {
    /// Says that a key has become what another one is, or was; where that cannot be said by their names, that both are what they are now.
    pub(crate) fn log_transfer(&self, edit: &Edit<'_>, source: &Key<'_>, target: &Key<'_>, is_copy: bool) {
        if !self.is_logged() {
            return;
        }
        let is_named = edit.peek(target).is_some_and(|object| is_long(object, self.settings.piece_bytes()))
            && !(is_copy && self.is_for_redis50())
            && self.keyspace.may_name_source(source, target);
        match (is_named, is_copy) {
            (true, _) => {
                let bytes = edit.peek(target).map_or(0, |object| self.keyspace.note_named(object));
                if is_copy && let Some(effects) = self.effects {
                    effects.note_copied(bytes);
                }
                self.log_names(source, target, is_copy);
            }
            (false, true) => self.log_image(edit, target),
            (false, false) => {
                self.log_image(edit, source);
                self.log_image(edit, target);
            }
        }
    }

    fn log_names(&self, source: &Key<'_>, target: &Key<'_>, is_copy: bool) {
        let digits = &mut IntBuffer::new();
        let number = format_i64(i64::from(target.db.0), digits);
        match (is_copy, source.db == target.db) {
            (true, true) => self.log_as(&[b"COPY", source.bytes, target.bytes, b"REPLACE"]),
            (true, false) => self.log_as(&[b"COPY", source.bytes, target.bytes, b"DB", number, b"REPLACE"]),
            (false, true) => self.log_as(&[b"RENAME", source.bytes, target.bytes]),
            (false, false) => self.log_as(&[b"MOVE", source.bytes, number]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::RequestBuf;

    fn of(line: &str) -> Option<(String, String, Option<String>, bool)> {
        let request = RequestBuf::from_args(line.split(' '));
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let found = Transfer::of(&request.as_request())?;
        Some((text(found.source), text(found.target), found.database.map(text), found.is_copy))
    }

    #[test]
    fn each_has_one_form_and_no_other() {
        let some = |source: &str, target: &str, database: Option<&str>, is_copy| {
            Some((source.to_owned(), target.to_owned(), database.map(str::to_owned), is_copy))
        };
        assert_eq!(of("RENAME a b"), some("a", "b", None, false));
        assert_eq!(of("MOVE a 3"), some("a", "a", Some("3"), false));
        assert_eq!(of("COPY a b REPLACE"), some("a", "b", None, true));
        assert_eq!(of("COPY a b DB 3 REPLACE"), some("a", "b", Some("3"), true));
        for line in [
            "RENAME a",
            "RENAME a b c",
            "RENAMENX a b",
            "MOVE a 3 4",
            "COPY a b",
            "COPY a b DB 3",
            "COPY a b REPLACE DB 3",
            "COPY a b REPLACE REPLACE",
            "DEL a b",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
