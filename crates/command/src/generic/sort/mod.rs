//! SORT and SORT_RO: the elements of a list, set or sorted set in order, by themselves
//! or by what other keys hold, and what further keys hold of them.
//!
//! Patterns name keys that the request does not: with one, the handler runs with the
//! whole keyspace held (`reaches_out`). `pattern` finds what a pattern means, `order`
//! puts elements in order.
//!
//! 1. All is read before anything is stored.
//! 2. What a master has sorted is sorted here, too, however many keys are looked at that are on disk only: one at a time is in memory, and what
//!    is compared is kept of it.

mod order;
mod pattern;

use crate::args::Args;
use crate::category::Categories;
use crate::error::{Error, Result};
use crate::generic::remove_for_nothing;
use crate::key_use::{KeySpec, OVERWRITES, READS};
use crate::parse::int;
use crate::row::Handler::{ReadAround, WriteAround};
use crate::row::{Flags, Group, Keys, Outcome, Row, row};
use keyspace::{Class, Edit, Expiry, Object, ValueRef, View};
use order::{By, Digits, Direction, Order};
use pattern::{Kept, Lookup, Pattern};
use std::ops::ControlFlow;
use value::collection::CollectionRef;
use value::list::{End, Fill, List, Room};
use value::listpack::Element;
use value::number::IntBuffer;
use wire::{Reply, Request};

/// The categories of the types that are sorted.
const SORTED_TYPES: Categories = Categories::SET.union(Categories::SORTEDSET).union(Categories::LIST);

/// Rows of this file.
pub const ROWS: &[Row] = &[
    row("sort", -2, WriteAround(sort, reaches_out))
        .flags(Flags::DENYOOM.union(Flags::MOVABLEKEYS).union(Flags::DANGEROUS).union(Flags::PROTECTED))
        .in_categories(SORTED_TYPES)
        .keys(Keys::Movable(sort_keys))
        .key_specs(&[KeySpec::at(1, READS), KeySpec::unknown(READS), KeySpec::unknown(OVERWRITES)])
        .group(Group::Generic)
        .since("1.0.0")
        .complexity("O(N+M*log(M)) for N elements of which M are returned, O(N) unsorted.")
        .syntax(
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] \
             [STORE destination]",
        )
        .summary("Sorts the elements of a list, set or sorted set, and may store the result."),
    row("sort_ro", -2, ReadAround(sort_ro, reaches_out))
        .flags(Flags::MOVABLEKEYS.union(Flags::DANGEROUS).union(Flags::PROTECTED))
        .in_categories(SORTED_TYPES)
        .keys(Keys::FIRST)
        .key_specs(&[KeySpec::at(1, READS), KeySpec::unknown(READS)])
        .group(Group::Generic)
        .since("7.0.0")
        .complexity("O(N+M*log(M)) for N elements of which M are returned, O(N) unsorted.")
        .syntax("key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]")
        .summary("Sorts the elements of a list, set or sorted set."),
];

/// Words that an option takes after its name. None: it is no option of SORT.
fn operands(option: &[u8]) -> Option<usize> {
    let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
    if is("asc") || is("desc") || is("alpha") {
        Some(0)
    } else if is("by") || is("get") || is("store") {
        Some(1)
    } else if is("limit") {
        Some(2)
    } else {
        None
    }
}

/// SORT's keys: the source, and the destination of its last STORE.
fn sort_keys(request: &Request<'_>, positions: &mut Vec<usize>) {
    positions.push(1);
    let mut store = None;
    let mut position = 2;
    while let Some(option) = request.get(position) {
        if option.eq_ignore_ascii_case(b"store") && position + 1 < request.len() {
            store = Some(position + 1);
        }
        position += 1 + operands(option).unwrap_or(0);
    }
    positions.extend(store);
}

/// Whether a request has a pattern that names other keys.
fn reaches_out(args: &Args<'_>) -> bool {
    let mut position = 2;
    while position + 1 < args.len() {
        let names_keys = args.is(position, "by") || args.is(position, "get");
        if names_keys && Pattern::parse(args.bytes(position + 1)).names_keys() {
            return true;
        }
        position += 1 + operands(args.bytes(position)).unwrap_or(0);
    }
    false
}

/// Whether a pattern may name keys that another node of a cluster has. Redis takes no pattern at all there.
fn reaches_other_slots(args: &Args<'_>, pattern: Pattern<'_>) -> bool {
    args.keyspace.has_cluster_slots() && !pattern.stays_with(args.bytes(1))
}

/// Which of the two commands it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    MayStore,
    ReadOnly,
}

struct Options<'a> {
    order: Order<'a>,
    /// What is shown of each element. None: itself.
    gets: Vec<Pattern<'a>>,
    /// The first element shown, and how many are; negative: all.
    limit: (i64, i64),
    /// The position of the key to store into.
    store: Option<usize>,
    /// Whether a set has to have an order, though none is asked for: its own would be another one on each server.
    orders_sets: bool,
}

impl<'a> Options<'a> {
    fn parse(args: &Args<'a>, form: Form) -> Result<Options<'a>> {
        let orders_sets = args.is_of_script();
        let (order, limit) = (Order::default(), (0, -1));
        let mut options = Options { order, gets: Vec::new(), limit, store: None, orders_sets };
        let mut position = 2;
        while position < args.len() {
            let operands = operands(args.bytes(position)).ok_or(Error::Syntax)?;
            if position + operands >= args.len() {
                return Err(Error::Syntax);
            }
            let operand = position + 1;
            if args.is(position, "asc") {
                options.order.direction = Direction::Up;
            } else if args.is(position, "desc") {
                options.order.direction = Direction::Down;
            } else if args.is(position, "alpha") {
                options.order.as_texts = true;
            } else if args.is(position, "limit") {
                options.limit = (int(args.bytes(operand))?, int(args.bytes(operand + 1))?);
            } else if args.is(position, "get") {
                let pattern = Pattern::parse(args.bytes(operand));
                if reaches_other_slots(args, pattern) {
                    return Err(Error::text("ERR GET option of SORT denied in Cluster mode."));
                }
                options.gets.push(pattern);
            } else if args.is(position, "by") {
                let pattern = Pattern::parse(args.bytes(operand));
                if reaches_other_slots(args, pattern) {
                    return Err(Error::text("ERR BY option of SORT denied in Cluster mode."));
                }
                options.order.by = match pattern {
                    // One pattern that names no keys counts, whatever comes after it, as in Redis.
                    _ if matches!(options.order.by, By::Nothing) => By::Nothing,
                    pattern if pattern.names_keys() => By::Pattern(pattern),
                    _ => By::Nothing,
                };
            } else if form == Form::MayStore {
                (options.store, options.orders_sets) = (Some(operand), true);
            } else {
                return Err(Error::Syntax);
            }
            position += 1 + operands;
        }
        Ok(options)
    }

    /// The indices of a sequence of this length that are shown.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        let at_most_len = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX).min(len);
        let start = at_most_len(self.limit.0);
        match self.limit.1 {
            ..0 => start..len,
            count => start..start.saturating_add(at_most_len(count)).min(len),
        }
    }
}

/// The elements of what can be sorted. Without an order only those that are shown, in
/// the order in which they are; `range` then covers them all.
fn elements<'a>(
    found: Option<Object<'a>>,
    options: &mut Options<'_>,
) -> Result<(Vec<Element<'a>>, std::ops::Range<usize>)> {
    let collection = match found.map(|object| object.value()) {
        None => return Ok((Vec::new(), 0..0)),
        Some(ValueRef::Collection(collection)) => collection,
        Some(_) => return Err(Error::WrongType),
    };
    let is_ordered = matches!(options.order.by, By::Nothing);
    Ok(match collection {
        CollectionRef::Set(set) => {
            if is_ordered && options.orders_sets {
                options.order.by = By::Itself;
                options.order.as_texts = true;
            }
            (set.iter().collect(), options.range(set.len()))
        }
        CollectionRef::List(list) if is_ordered => {
            let range = options.range(list.len());
            let shown = match options.order.direction {
                Direction::Up => list.walk(range.start, range.len(), End::Head),
                Direction::Down if range.is_empty() => list.walk(0, 0, End::Head),
                Direction::Down => list.walk(list.len() - 1 - range.start, range.len(), End::Tail),
            };
            (shown.collect(), 0..range.len())
        }
        CollectionRef::List(list) => (list.iter().collect(), options.range(list.len())),
        CollectionRef::Zset(zset) if is_ordered => {
            let (len, range) = (zset.len(), options.range(zset.len()));
            let member = |(member, _)| member;
            let shown: Vec<_> = match options.order.direction {
                Direction::Up => zset.iter(range.clone()).map(member).collect(),
                Direction::Down => zset.iter(len - range.end..len - range.start).rev().map(member).collect(),
            };
            (shown, 0..range.len())
        }
        CollectionRef::Zset(zset) => {
            (zset.iter(0..zset.len()).map(|(member, _)| member).collect(), options.range(zset.len()))
        }
        CollectionRef::Hash(_) | CollectionRef::Stream(_) => {
            return Err(Error::WrongType);
        }
    })
}

/// Calls `show` for what is asked for of each element, in order, as long as it wants to go on; None where a pattern
/// finds nothing. Before the first, `begin` is told how many there will be.
fn sorted<L: Lookup>(
    keys: &L,
    args: &Args<'_>,
    found: Option<Object<'_>>,
    options: &mut Options<'_>,
    begin: impl FnOnce(usize),
    mut show: impl FnMut(Option<&[u8]>) -> ControlFlow<()>,
) -> Result<()> {
    let (elements, range) = elements(found, options)?;
    let digits = Digits::of(elements.iter());
    let texts: Vec<&[u8]> = elements.iter().map(digits.texts()).collect();
    let kept: Vec<Option<Kept>> = match options.order.by {
        By::Pattern(pattern) if args.is_of_log() => {
            let keep = |text: &&[u8]| pattern.show(keys, args, text, |found| found.map(Kept::of));
            texts.iter().map(keep).collect()
        }
        _ => Vec::new(),
    };
    let find = |pattern: Pattern<'_>, at: usize| match kept.get(at) {
        Some(kept) => kept.as_ref().map(Kept::as_element),
        None => pattern.find(keys, args, texts[at]),
    };
    let order = options.order.sort(&elements, &texts, &range, options.store.is_some(), find)?;
    begin(range.len() * options.gets.len().max(1));
    for index in &order[range] {
        let text = texts[*index as usize];
        if options.gets.is_empty() && show(Some(text)).is_break() {
            return Ok(());
        }
        for pattern in &options.gets {
            let mut show = |found: Option<Element<'_>>| {
                let mut digits = IntBuffer::new();
                show(found.map(|found| found.bytes(&mut digits)))
            };
            let flow = match args.is_of_log() {
                true => pattern.show(keys, args, text, show),
                false => show(pattern.find(keys, args, text)),
            };
            if flow.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// SORT key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA] [STORE destination]
fn sort(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let mut options = Options::parse(args, Form::MayStore)?;
    let Some(store) = options.store else {
        let found = edit.look_up(&args.key(1));
        show(edit, args, found, &mut options, reply)?;
        return Ok(Outcome::Unchanged);
    };
    let fill = Fill::of(&args.settings.thresholds());
    // As if it were to be large: its size is only known in the end.
    let mut list = List::new();
    list.grow(fill, isize::MAX as usize, 0);
    let mut count = 0;
    let found = edit.get_as_reader(&args.key(1));
    sorted(
        edit,
        args,
        found,
        &mut options,
        |shown| count = shown,
        |text| {
            list.push(text.unwrap_or_default(), End::Tail);
            ControlFlow::Continue(())
        },
    )?;
    list.settle(fill, Room::Whole);
    let target = args.key(store);
    reply.int(count as i64);
    if count > 0 {
        edit.put_collection(&target, list, Expiry::Clear);
        edit.note(Class::LIST, "sortstore", &target);
    } else if !remove_for_nothing(edit, &target) {
        return Ok(Outcome::Unchanged);
    }
    Ok(Outcome::Changed)
}

/// SORT_RO key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA]
fn sort_ro(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let mut options = Options::parse(args, Form::ReadOnly)?;
    let found = view.look_up(&args.key(1));
    show(view, args, found, &mut options, reply)
}

fn show<L: Lookup>(
    keys: &L,
    args: &Args<'_>,
    found: Option<Object<'_>>,
    options: &mut Options<'_>,
    reply: &mut Reply<'_>,
) -> Result<()> {
    // Both closures write to the reply, one after the other.
    let reply = std::cell::RefCell::new(reply);
    sorted(
        keys,
        args,
        found,
        options,
        |count| reply.borrow_mut().array(count),
        |text| {
            let mut reply = reply.borrow_mut();
            match text {
                Some(text) => reply.bulk(text),
                None => reply.null(),
            }
            if reply.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    )
}
