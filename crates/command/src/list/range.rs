//! Reading: LLEN, LINDEX, LRANGE and LPOS.
//!
//! Handlers over one locked key.

use super::{clip, index_from_head, reply_element};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::{Options, int, int_within};
use keyspace::View;
use value::list::{End, List, ListRef};
use value::listpack::Needle;
use wire::Reply;

/// LLEN key
pub(super) fn llen(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let length = view.read::<List>(&args.key(1))?.map_or(0, ListRef::len);
    reply.int(length as i64);
    Ok(())
}

/// LINDEX key index
pub(super) fn lindex(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let Some(list) = view.read::<List>(&args.key(1))? else {
        reply.null();
        return Ok(());
    };
    let index = index_from_head(int(args.bytes(2))?, list.len());
    match usize::try_from(index).ok().and_then(|index| list.get(index)) {
        Some(element) => reply_element(element, reply),
        None => reply.null(),
    }
    Ok(())
}

/// LRANGE key start stop
pub(super) fn lrange(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let (start, stop) = (int(args.bytes(2))?, int(args.bytes(3))?);
    let Some(list) = view.read::<List>(&args.key(1))? else {
        reply.array(0);
        return Ok(());
    };
    let (index, count) = clip(start, stop, list.len());
    let elements = list.walk(index, count, End::Head);
    reply.array(elements.len());
    elements.for_each(|element| reply_element(element, reply));
    Ok(())
}

/// Which matches LPOS replies with.
struct Search {
    /// The first of them, from 1.
    rank: u64,
    from: End,
    /// How many; 0 is all. None: one, and not in an array.
    count: Option<u64>,
    /// How many elements to look at; 0 is all.
    elements_max: usize,
}

impl Search {
    fn parse(args: &Args<'_>) -> Result<Search> {
        let mut search = Search { rank: 1, from: End::Head, count: None, elements_max: 0 };
        let mut options = Options::from(args, 3);
        while options.more() {
            if let Some(text) = options.take_with_value("RANK") {
                let rank = match int(text)? {
                    i64::MIN => return Err(Error::OUTSIDE_SYMMETRIC_INT64),
                    0 => return Err(Error::RANK_ZERO),
                    rank => rank,
                };
                search.rank = rank.unsigned_abs();
                search.from = if rank < 0 { End::Tail } else { End::Head };
            } else if let Some(text) = options.take_with_value("COUNT") {
                search.count = Some(int_within(text, 0..=i64::MAX, "ERR COUNT can't be negative")? as u64);
            } else if let Some(text) = options.take_with_value("MAXLEN") {
                search.elements_max =
                    int_within(text, 0..=i64::MAX, "ERR MAXLEN can't be negative")? as usize;
            } else {
                options.refuse();
            }
        }
        options.finish()?;
        Ok(search)
    }

    /// The indexes of the matches.
    fn run<'a>(&self, list: ListRef<'a>, text: &'a [u8]) -> impl Iterator<Item = i64> + use<'a> {
        let (length, from) = (list.len(), self.from);
        let start = super::index_at(from, length);
        let elements_max = if self.elements_max == 0 { length } else { self.elements_max };
        let needle = Needle::new(text);
        let matches = list
            .walk(start, elements_max, from)
            .enumerate()
            .filter(move |(_, element)| needle.is(*element))
            .map(move |(distance, _)| match from {
                End::Head => distance as i64,
                End::Tail => (length - 1 - distance) as i64,
            });
        matches.skip(usize::try_from(self.rank - 1).unwrap_or(usize::MAX))
    }
}

/// LPOS key element [RANK rank] [COUNT num-matches] [MAXLEN len]
pub(super) fn lpos(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let search = Search::parse(args)?;
    let list = view.read::<List>(&args.key(1))?;
    let mut matches = list.into_iter().flat_map(|list| search.run(list, args.bytes(2)));
    let Some(count) = search.count else {
        match matches.next() {
            Some(index) => reply.int(index),
            None => reply.null(),
        }
        return Ok(());
    };
    let limit = if count == 0 { usize::MAX } else { count as usize };
    let replies = reply.deferred_array();
    let mut found = 0;
    for index in matches.take(limit) {
        reply.int(index);
        found += 1;
    }
    reply.end(replies, found);
    Ok(())
}
