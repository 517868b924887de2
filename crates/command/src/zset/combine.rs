//! Unions, intersections and differences of sorted sets and sets.
//!
//! A member of a set has the score 1. Where a float's rounding depends on the order
//! of additions, it is Redis' order: from the smallest input to the largest.
//!
//! Thread rule: as for all handlers.

use super::{Scores, counted_keys, store, text};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::{Options, int, int_within};
use crate::row::Outcome;
use keyspace::{Edit, Key, Object, ValueRef, View};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use value::collection::CollectionRef;
use value::listpack::Element;
use value::number::{IntBuffer, parse_f64};
use value::set::SetRef;
use value::zset::{Zset, ZsetRef, sort_members};
use wire::Reply;

/// What is made of the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// How the scores of a member become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Aggregate {
    #[default]
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn apply(self, so_far: f64, score: f64) -> f64 {
        match self {
            // Infinities of both signs make 0.
            Aggregate::Sum => number_or_zero(so_far + score),
            Aggregate::Min if score < so_far => score,
            Aggregate::Max if score > so_far => score,
            Aggregate::Min | Aggregate::Max => so_far,
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What a key holds.
#[derive(Clone, Copy)]
enum Members<'a> {
    None,
    Zset(ZsetRef<'a>),
    Set(SetRef<'a>),
}

impl<'a> Members<'a> {
    fn of(object: Option<Object<'a>>) -> Result<Members<'a>> {
        let Some(object) = object else { return Ok(Members::None) };
        match object.value() {
            ValueRef::Collection(CollectionRef::Zset(zset)) => Ok(Members::Zset(zset)),
            ValueRef::Collection(CollectionRef::Set(set)) => Ok(Members::Set(set)),
            _ => Err(Error::WrongType),
        }
    }

    fn len(self) -> usize {
        match self {
            Members::None => 0,
            Members::Zset(zset) => zset.len(),
            Members::Set(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Members::None => None,
            Members::Zset(zset) => zset.score(member),
            Members::Set(set) => set.contains(member).then_some(1.0),
        }
    }

    /// Calls `visit` with each member and its score until it returns false.
    fn visit(self, mut visit: impl FnMut(Element<'a>, f64) -> bool) {
        match self {
            Members::None => {}
            Members::Zset(zset) => {
                let _ = zset.iter(0..zset.len()).all(|(member, score)| visit(member, score));
            }
            Members::Set(set) => {
                let _ = set.iter().all(|member| visit(member, 1.0));
            }
        }
    }
}

/// One of the inputs.
#[derive(Clone, Copy)]
struct Input<'a> {
    key: &'a [u8],
    members: Members<'a>,
    weight: f64,
}

impl Input<'_> {
    /// A member's part in the result.
    fn weighted(&self, score: f64) -> f64 {
        score * self.weight
    }
}

/// Where the words of a request stand, and what they mean.
#[derive(Clone, Copy)]
struct Form {
    operation: Operation,
    /// Position of the number of keys.
    numkeys: usize,
    /// The command's name for an error.
    name: &'static str,
    result: ResultForm,
}

/// What becomes of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResultForm {
    Reply,
    Count,
    Store,
}

impl Form {
    const fn new(operation: Operation, result: ResultForm, name: &'static str) -> Form {
        let numkeys = if matches!(result, ResultForm::Store) { 2 } else { 1 };
        Form { operation, numkeys, name, result }
    }

    /// The positions of the inputs.
    fn keys(self, args: &Args<'_>) -> Result<Vec<usize>> {
        if int(args.bytes(self.numkeys))? < 1 {
            let name = self.name;
            return Err(Error::line(format!("ERR at least 1 input key is needed for '{name}' command")));
        }
        let mut keys = Vec::new();
        counted_keys(&args.request, self.numkeys, &mut keys);
        if keys.is_empty() { Err(Error::Syntax) } else { Ok(keys) }
    }
}

/// The options behind the keys.
struct Modifiers {
    aggregate: Aggregate,
    scores: Scores,
    /// No limit is 0.
    limit: usize,
}

/// Reads the options; weights go to the inputs.
fn parse_modifiers(args: &Args<'_>, form: Form, inputs: &mut [Input<'_>]) -> Result<Modifiers> {
    let mut modifiers = Modifiers { aggregate: Aggregate::Sum, scores: Scores::Without, limit: 0 };
    let has_scores = form.operation != Operation::Difference && form.result != ResultForm::Count;
    let mut options = Options::from(args, form.numkeys + 1 + inputs.len());
    while options.more() {
        if has_scores && options.left() > inputs.len() && options.take("WEIGHTS") {
            for input in &mut *inputs {
                let text = "ERR weight value is not a float";
                input.weight = parse_f64(options.word()).ok_or(Error::text(text))?;
            }
        } else if has_scores && let Some(word) = options.take_with_value("AGGREGATE") {
            let named = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            modifiers.aggregate = match () {
                () if named("sum") => Aggregate::Sum,
                () if named("min") => Aggregate::Min,
                () if named("max") => Aggregate::Max,
                () => return Err(Error::Syntax),
            };
        } else if form.result == ResultForm::Reply && options.take("WITHSCORES") {
            modifiers.scores = Scores::With;
        } else if form.result == ResultForm::Count
            && let Some(word) = options.take_with_value("LIMIT")
        {
            modifiers.limit = int_within(word, 0..=i64::MAX, "ERR LIMIT can't be negative")? as usize;
        } else {
            options.refuse();
        }
    }
    options.finish()?;
    Ok(modifiers)
}

/// Members with their scores, each once.
type Combined = Vec<(Vec<u8>, f64)>;

/// Reads the inputs, then the options, and combines them.
fn combine<'a>(
    args: &Args<'a>,
    form: Form,
    get: impl Fn(&Key<'_>) -> Option<Object<'a>>,
) -> Result<(Combined, Modifiers)> {
    let mut inputs = Vec::new();
    for position in form.keys(args)? {
        let key = args.key(position);
        inputs.push(Input { key: key.bytes, members: Members::of(get(&key))?, weight: 1.0 });
    }
    let modifiers = parse_modifiers(args, form, &mut inputs)?;
    let combined = match form.operation {
        Operation::Difference => difference(&inputs),
        Operation::Union => {
            inputs.sort_by_key(|input| input.members.len());
            union(&inputs, modifiers.aggregate)
        }
        Operation::Intersection => {
            inputs.sort_by_key(|input| input.members.len());
            intersection(&inputs, modifiers.aggregate, modifiers.limit)
        }
    };
    Ok((combined, modifiers))
}

fn union(inputs: &[Input<'_>], aggregate: Aggregate) -> Combined {
    let mut scores: HashMap<Vec<u8>, f64> = HashMap::new();
    for input in inputs {
        input.members.visit(|member, score| {
            let score = number_or_zero(input.weighted(score));
            match scores.entry(member.to_vec()) {
                Entry::Occupied(mut entry) => {
                    let so_far = *entry.get();
                    entry.insert(aggregate.apply(so_far, score));
                }
                Entry::Vacant(entry) => {
                    entry.insert(score);
                }
            }
            true
        });
    }
    scores.into_iter().collect()
}

/// The members of all inputs, of which the first is the smallest; up to `limit` of them.
fn intersection(inputs: &[Input<'_>], aggregate: Aggregate, limit: usize) -> Combined {
    let (mut found, mut digits) = (Vec::new(), IntBuffer::new());
    let Some((first, others)) = inputs.split_first() else { return found };
    first.members.visit(|member, own| {
        let member = text(member, &mut digits);
        let start = number_or_zero(first.weighted(own));
        let score = others.iter().try_fold(start, |score, other| {
            let theirs = if other.key == first.key { own } else { other.members.score(member)? };
            Some(aggregate.apply(score, other.weighted(theirs)))
        });
        if let Some(score) = score {
            found.push((member.to_vec(), score));
        }
        limit == 0 || found.len() < limit
    });
    found
}

fn difference(inputs: &[Input<'_>]) -> Combined {
    let (mut found, mut digits) = (Vec::new(), IntBuffer::new());
    let Some((first, others)) = inputs.split_first() else { return found };
    first.members.visit(|member, score| {
        let member = text(member, &mut digits);
        if others.iter().all(|other| other.members.score(member).is_none()) {
            found.push((member.to_vec(), score));
        }
        true
    });
    found
}

fn reply_combined(
    view: &View<'_>,
    args: &Args<'_>,
    operation: Operation,
    name: &'static str,
    reply: &mut Reply<'_>,
) -> Result<()> {
    let (mut combined, modifiers) =
        combine(args, Form::new(operation, ResultForm::Reply, name), |key| view.get(key))?;
    sort_members(&mut combined);
    let members = combined.iter().map(|(member, score)| (Element::Bytes(member), *score));
    modifiers.scores.reply(reply, members);
    Ok(())
}

/// ZUNION numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(super) fn zunion(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_combined(view, args, Operation::Union, "zunion", reply)
}

/// ZINTER numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(super) fn zinter(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_combined(view, args, Operation::Intersection, "zinter", reply)
}

/// ZDIFF numkeys key [key ...] [WITHSCORES]
pub(super) fn zdiff(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_combined(view, args, Operation::Difference, "zdiff", reply)
}

/// ZINTERCARD numkeys key [key ...] [LIMIT limit]
pub(super) fn zintercard(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let form = Form::new(Operation::Intersection, ResultForm::Count, "zintercard");
    let (combined, _) = combine(args, form, |key| view.get(key))?;
    reply.int(combined.len() as i64);
    Ok(())
}

fn store_combined(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    operation: Operation,
    name: &'static str,
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    let form = Form::new(operation, ResultForm::Store, name);
    let (combined, _) = combine(args, form, |key| edit.get_as_reader(key))?;
    reply.int(combined.len() as i64);
    let zset = Zset::from_members(combined, &args.settings.thresholds());
    let is_changed = store(edit, args, 1, zset, name);
    Ok(if is_changed { Outcome::Changed } else { Outcome::Unchanged })
}

/// ZUNIONSTORE destination numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX]
pub(super) fn zunionstore(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    store_combined(edit, args, Operation::Union, "zunionstore", reply)
}

/// ZINTERSTORE destination numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX]
pub(super) fn zinterstore(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    store_combined(edit, args, Operation::Intersection, "zinterstore", reply)
}

/// ZDIFFSTORE destination numkeys key [key ...]
pub(super) fn zdiffstore(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    store_combined(edit, args, Operation::Difference, "zdiffstore", reply)
}
