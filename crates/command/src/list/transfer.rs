//! From one list to another: LMOVE, RPOPLPUSH, and their blocking forms BLMOVE and BRPOPLPUSH.
//!
//! Handlers over two locked keys, which may be one and the same.

use super::{end, fill, index_at, pop_event, push_event, wait};
use crate::args::Args;
use crate::error::Result;
use crate::parse::timeout;
use crate::row::Outcome;
use crate::wait::Waiting;
use keyspace::{Class, Edit};
use smallvec::SmallVec;
use sys::UnixMs;
use value::list::{End, List};
use value::listpack::Element;
use wire::Reply;

/// LMOVE source destination LEFT | RIGHT LEFT | RIGHT
pub(super) fn lmove(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    Transfer { from: end(args.bytes(3))?, to: end(args.bytes(4))? }.run(edit, args, reply)
}

/// RPOPLPUSH source destination
pub(super) fn rpoplpush(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    Transfer { from: End::Tail, to: End::Head }.run(edit, args, reply)
}

/// BLMOVE source destination LEFT | RIGHT LEFT | RIGHT timeout
pub(super) fn blmove(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let transfer = Transfer { from: end(args.bytes(3))?, to: end(args.bytes(4))? };
    let until = timeout(args.bytes(5), args.now)?;
    transfer.run_or_wait(until, edit, args, reply)
}

/// BRPOPLPUSH source destination timeout
pub(super) fn brpoplpush(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let until = timeout(args.bytes(3), args.now)?;
    Transfer { from: End::Tail, to: End::Head }.run_or_wait(until, edit, args, reply)
}

/// An end as a word of LMOVE.
fn word(end: End) -> &'static [u8] {
    match end {
        End::Head => b"LEFT",
        End::Tail => b"RIGHT",
    }
}

/// Most elements are copied without an allocation.
type Text = SmallVec<[u8; 64]>;

/// Which ends an element goes from and to.
struct Transfer {
    from: End,
    to: End,
}

impl Transfer {
    fn run_or_wait(
        &self,
        until: Option<UnixMs>,
        edit: &mut Edit<'_>,
        args: &Args<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Outcome> {
        let (source, target) = (args.key(1), args.key(2));
        // Whoever brings something to the source of one who waits holds the target, too.
        let is_at_hand = edit.reaches(&source) && edit.reaches(&target);
        let is_there = is_at_hand && edit.read::<List>(&source)?.is_some();
        // In a transaction the null is not that of a wait that ends.
        if is_there || matches!(args.waiting, Waiting::Never) {
            return self.run(edit, args, reply);
        }
        Ok(wait(1..2, until))
    }

    fn run(&self, edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
        let (source, target) = (args.key(1), args.key(2));
        let Some(list) = edit.read::<List>(&source)? else {
            reply.null();
            return Ok(Outcome::Unchanged);
        };
        let element = list.get(index_at(self.from, list.len())).expect("no list is empty");
        let text = Text::from_slice(element.bytes(&mut itoa::Buffer::new()));
        // Redis does not count an integer when it looks whether the list has to change its form.
        let counted_bytes = if let Element::Int(_) = element { 0 } else { text.len() };
        edit.read::<List>(&target)?;
        super::reply_element(Element::of(&text), reply);
        if source.bytes == target.bytes {
            self.rotate(edit, args, &text, counted_bytes)?;
            match args.is_for_redis50() {
                false => args.log_as(&[b"LMOVE", source.bytes, source.bytes, word(self.from), word(self.to)]),
                true => self.log_steps(args, &text),
            }
            return Ok(Outcome::Changed);
        }
        let mut list = edit.open_or_new::<List>(&target, List::new)?;
        list.grow(fill(args), counted_bytes, 1);
        list.push(&text, self.to);
        list.note(Class::LIST, push_event(self.to));
        drop(list);
        let mut list = edit.open::<List>(&source)?.expect("it was read above");
        list.pop(1, self.from);
        list.note(Class::LIST, pop_event(self.from));
        list.shrink(fill(args));
        self.log_steps(args, &text);
        Ok(Outcome::Changed)
    }

    fn log_steps(&self, args: &Args<'_>, text: &[u8]) {
        args.log_as(&[push_event(self.to).as_bytes(), args.bytes(2), text]);
        args.log_as(&[pop_event(self.from).as_bytes(), args.bytes(1)]);
    }

    /// Moves an element within a list.
    fn rotate(&self, edit: &mut Edit<'_>, args: &Args<'_>, text: &[u8], counted_bytes: usize) -> Result<()> {
        let mut list = edit.open::<List>(&args.key(1))?.expect("it was read by the caller");
        list.pop(1, self.from);
        list.grow(fill(args), counted_bytes, 1);
        list.push(text, self.to);
        list.note(Class::LIST, push_event(self.to));
        list.note(Class::LIST, pop_event(self.from));
        list.shrink(fill(args));
        Ok(())
    }
}
