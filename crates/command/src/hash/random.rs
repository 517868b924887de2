//! HRANDFIELD: fields picked by chance.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. With a positive count no field comes twice, and every choice of fields is as likely as any other.
//! 2. Memory taken beside the reply is in proportion to the fields of the hash or the count, whichever is less;
//!    only small hashes are listed whole.

use super::{Hash, reply_element};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::limits::RANDOM_REPEATED_MAX;
use crate::parse::int;
use keyspace::View;
use std::collections::HashSet;
use value::hash::HashRef;
use value::listpack::Element;
use wire::{Protocol, Reply};

type Pair<'a> = (Element<'a>, Element<'a>);

/// HRANDFIELD key [count [WITHVALUES]]
pub(super) fn hrandfield(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    if args.len() == 2 {
        let hash = view.read::<Hash>(&args.key(1))?;
        match hash.and_then(|hash| hash.random(args.now, || view.random())) {
            Some((name, _)) => reply_element(reply, name),
            None => reply.null(),
        }
        return Ok(());
    }
    let (count, shows) = parse(args)?;
    let mut out = Out { reply, shows };
    let Some(hash) = view.read::<Hash>(&args.key(1))?.filter(|_| count != 0) else {
        out.begin(0);
        return Ok(());
    };
    match usize::try_from(count) {
        Ok(most) => pick_different(view, args, hash, most, &mut out),
        Err(_) => pick_any(view, args, hash, count.unsigned_abs(), &mut out),
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    Fields,
    FieldsAndValues,
}

fn parse(args: &Args<'_>) -> Result<(i64, Shows)> {
    let count = int(args.bytes(2))?;
    if count == i64::MIN {
        return Err(Error::text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let shows = match args.len() {
        3 => Shows::Fields,
        4 if args.is(3, "withvalues") => Shows::FieldsAndValues,
        _ => return Err(Error::Syntax),
    };
    let doubled_is_out_of_range =
        shows == Shows::FieldsAndValues && count.unsigned_abs() > i64::MAX as u64 / 2;
    if doubled_is_out_of_range || count < -RANDOM_REPEATED_MAX {
        return Err(Error::text("ERR value is out of range"));
    }
    Ok((count, shows))
}

/// The reply: fields, or fields and values, which are pairs in RESP3.
struct Out<'r, 'o> {
    reply: &'r mut Reply<'o>,
    shows: Shows,
}

impl Out<'_, '_> {
    fn begin(&mut self, fields: usize) {
        match (self.shows, self.reply.protocol()) {
            (Shows::FieldsAndValues, Protocol::Resp2) => self.reply.array(fields * 2),
            _ => self.reply.array(fields),
        }
    }

    fn show(&mut self, (name, value): Pair<'_>) {
        if self.shows == Shows::FieldsAndValues {
            if self.reply.protocol() == Protocol::Resp3 {
                self.reply.array(2);
            }
            reply_element(self.reply, name);
            reply_element(self.reply, value);
        } else {
            reply_element(self.reply, name);
        }
    }
}

fn all<'a>(hash: HashRef<'a>, args: &Args<'_>) -> Vec<Pair<'a>> {
    let mut pairs = Vec::new();
    hash.for_each(args.now, |name, value| pairs.push((name, value)));
    pairs
}

/// A number below `bound`.
fn below(view: &View<'_>, bound: usize) -> usize {
    ((u128::from(view.random()) * bound as u128) >> 64) as usize
}

/// Picks `count` fields, each independently of the others.
fn pick_any(view: &View<'_>, args: &Args<'_>, hash: HashRef<'_>, count: u64, out: &mut Out<'_, '_>) {
    // Walking a listpack for each would cost more than listing it once.
    let listed = if let HashRef::Packed(_) = hash { all(hash, args) } else { Vec::new() };
    if hash.random(args.now, || view.random()).is_none() {
        out.begin(0);
        return;
    }
    out.begin(count as usize);
    for _ in 0..count {
        if out.reply.is_over() {
            break;
        }
        if listed.is_empty() {
            let pair = hash.random(args.now, || view.random());
            out.show(pair.expect("the hash has a field whose time is not up"));
        } else {
            out.show(listed[below(view, listed.len())]);
        }
    }
}

/// Picks `most` different fields, or all if there are no more.
fn pick_different(view: &View<'_>, args: &Args<'_>, hash: HashRef<'_>, most: usize, out: &mut Out<'_, '_>) {
    /// With less than one in so many asked for, it is rare to pick one twice.
    const RARE: usize = 3;
    let visible = hash.visible(args.now);
    let is_table = matches!(hash, HashRef::Table(_));
    if most >= visible {
        out.begin(visible);
        hash.for_each(args.now, |name, value| out.show((name, value)));
    } else if is_table && most < visible / RARE {
        out.begin(most);
        let mut seen = HashSet::new();
        while seen.len() < most {
            let pair = hash.random(args.now, || view.random());
            let pair = pair.expect("more fields are visible than were picked");
            if let Element::Bytes(name) = pair.0
                && seen.insert(name)
            {
                out.show(pair);
            }
        }
    } else {
        out.begin(most);
        let mut pairs = all(hash, args);
        for index in 0..most {
            let other = index + below(view, pairs.len() - index);
            pairs.swap(index, other);
            out.show(pairs[index]);
        }
    }
}
