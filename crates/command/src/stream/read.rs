//! XREAD and XREADGROUP: the entries behind some ids of several streams, and waiting for them.
//!
//! A reader that finds nothing and may wait is queued up by `execute`, and the request is run again when
//! one of its keys changes. What meant "from now on" (`$`) is then an id. A group's reader is also woken when
//! its key or group goes away, and gets the error of a first run.

use super::told::{Got, Reader};
use super::{id, moment, reply_entries, reply_entry, reply_id};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::{int, timeout_ms};
use crate::row::Outcome;
use crate::wait::{Null, Wait};
use keyspace::{Class, Edit, TypeName, View};
use smallvec::SmallVec;
use sys::UnixMs;
use value::stream::{ConsumerId, Entries, Group, IdText, Order, Pending, Stream, StreamId};
use value::text::until_zero;
use wire::{Protocol, Reply, Request};

/// Streams of most requests; beyond, their list is allocated.
const STREAMS_INLINE: usize = 4;

/// The positions of the keys: the first half of the words behind STREAMS. Operands of options are not looked
/// at, as they may be any word.
pub(super) fn keys(request: &Request<'_>, positions: &mut Vec<usize>) {
    let is = |position: usize, word: &str| {
        request.get(position).is_some_and(|text| text.eq_ignore_ascii_case(word.as_bytes()))
    };
    let mut position = 1;
    while position < request.len() {
        position += if is(position, "STREAMS") {
            break;
        } else if is(position, "BLOCK") || is(position, "COUNT") {
            2
        } else if is(position, "GROUP") {
            3
        } else if is(position, "NOACK") {
            1
        } else {
            return;
        };
    }
    // One word too many changes nothing here; the handler refuses it.
    let words = request.len().saturating_sub(position + 1);
    positions.extend(position + 1..position + 1 + words / 2);
}

/// Which of the two commands it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Read,
    ReadGroup,
}

type Pairs = SmallVec<[(usize, usize); STREAMS_INLINE]>;

/// The words of a request, without the ids.
struct Words<'a> {
    /// How long to wait; none is not at all.
    until: Option<Until>,
    /// 0 is no limit.
    count: usize,
    group: Option<(&'a [u8], &'a [u8])>,
    /// Whether what is delivered counts as acknowledged.
    acknowledges: bool,
    first_key: usize,
    streams: usize,
}

/// When a wait ends at the latest; none is never.
type Until = Option<UnixMs>;

impl<'a> Words<'a> {
    fn parse(args: &Args<'a>, form: Form) -> Result<Words<'a>> {
        let mut words =
            Words { until: None, count: 0, group: None, acknowledges: false, first_key: 0, streams: 0 };
        let mut position = 1;
        while position < args.len() {
            let more = args.len() - position - 1;
            if more > 0 && args.is(position, "BLOCK") {
                if args.is_of_script() {
                    return Err(Error::block_in_script(args.bytes(0)));
                }
                words.until = Some(timeout_ms(args.bytes(position + 1), args.now)?);
                position += 2;
            } else if more > 0 && args.is(position, "COUNT") {
                let count = int(args.bytes(position + 1))?.max(0);
                words.count = usize::try_from(count).unwrap_or(usize::MAX);
                position += 2;
            } else if more > 0 && args.is(position, "STREAMS") {
                if !more.is_multiple_of(2) {
                    return Err(match form {
                        Form::Read => Error::unbalanced_streams("xread", '$'),
                        Form::ReadGroup => Error::unbalanced_streams("xreadgroup", '>'),
                    });
                }
                (words.first_key, words.streams) = (position + 1, more / 2);
                break;
            } else if more > 1 && args.is(position, "GROUP") {
                if form == Form::Read {
                    return Err(Error::XREAD_GROUP);
                }
                words.group = Some((args.bytes(position + 1), args.bytes(position + 2)));
                position += 3;
            } else if args.is(position, "NOACK") {
                if form == Form::Read {
                    return Err(Error::XREAD_NOACK);
                }
                words.acknowledges = true;
                position += 1;
            } else {
                return Err(Error::Syntax);
            }
        }
        if words.streams == 0 {
            return Err(Error::Syntax);
        }
        Ok(words)
    }

    /// The positions of a key and of its id.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (first, streams) = (self.first_key, self.streams);
        (first..first + streams).map(move |position| (position, position + streams))
    }

    /// Those whose keys may be looked at.
    fn pairs_at_hand(&self, is_at_hand: impl Fn(usize) -> bool) -> Pairs {
        self.pairs().filter(|(key, _)| is_at_hand(*key)).collect()
    }

    fn wait(&self, until: Until, rewritten: Vec<(usize, Vec<u8>)>) -> Outcome {
        Outcome::Blocked(Box::new(Wait {
            keys: self.pairs().map(|(key, _)| key).collect(),
            wants: TypeName::Stream,
            also_when_gone: self.group.is_some(),
            until,
            null: Null::Array,
            rewritten,
        }))
    }

    fn limit(&self) -> usize {
        if self.count == 0 { usize::MAX } else { self.count }
    }
}

/// The reply's list of streams, begun with the first that has anything.
struct Streams(Option<wire::Deferred>, usize);

impl Streams {
    /// Begins the part of a stream; its entries must follow.
    fn add(&mut self, key: &[u8], reply: &mut Reply<'_>) {
        let is_map = reply.protocol() == Protocol::Resp3;
        if self.0.is_none() {
            self.0 = Some(if is_map { reply.deferred_map() } else { reply.deferred_array() });
        }
        self.1 += 1;
        if !is_map {
            reply.array(2);
        }
        reply.bulk(key);
    }

    /// Ends the list. False: nothing was written.
    fn end(self, reply: &mut Reply<'_>) -> bool {
        let Some(list) = self.0 else { return false };
        reply.end(list, self.1);
        true
    }
}

/// XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]
pub(super) fn xread(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let words = Words::parse(args, Form::Read)?;
    let mut reads: SmallVec<[(Option<&Stream>, StreamId); STREAMS_INLINE]> = SmallVec::new();
    let pairs = words.pairs_at_hand(|position| view.reaches(&args.key(position)));
    for (key, id_at) in pairs.iter().copied() {
        let stream = view.read::<Stream>(&args.key(key))?;
        let behind = match until_zero(args.bytes(id_at)) {
            b"$" => stream.map_or(StreamId::MIN, |stream| stream.entries.last_id()),
            b">" => return Err(Error::XREAD_NEW),
            _ => id(args.bytes(id_at))?,
        };
        reads.push((stream, behind));
    }
    let mut streams = Streams(None, 0);
    for ((stream, behind), (key, _)) in reads.iter().zip(pairs.iter().copied()) {
        // Redis looks each key up twice, above and here, and counts and tells of both.
        view.get(&args.key(key));
        let entries = stream.map(|stream| &stream.entries).filter(|entries| entries.has_above(*behind));
        let (Some(entries), Some(start)) = (entries, behind.next()) else { continue };
        streams.add(args.bytes(key), reply);
        reply_entries(entries.range(start, StreamId::MAX, Order::Ascending).take(words.limit()), reply);
    }
    if streams.end(reply) {
        return Ok(Outcome::Unchanged);
    }
    let Some(until) = words.until else {
        reply.null_array();
        return Ok(Outcome::Unchanged);
    };
    let meant_now = pairs.iter().zip(&reads).filter(|((_, id_at), _)| until_zero(args.bytes(*id_at)) == b"$");
    let rewritten = meant_now
        .map(|((_, id_at), (_, behind))| (*id_at, IdText::of(*behind).as_bytes().to_vec()))
        .collect();
    Ok(words.wait(until, rewritten))
}

/// What a consumer asks of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// `>`: entries that nobody of the group got yet.
    New,
    /// What it has pending, behind this id.
    History(StreamId),
}

/// XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]
pub(super) fn xreadgroup(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let words = Words::parse(args, Form::ReadGroup)?;
    let (group, consumer) = words.group.ok_or(Error::XREADGROUP_NO_GROUP)?;
    let mut asked: SmallVec<[Asked; STREAMS_INLINE]> = SmallVec::new();
    let pairs = words.pairs_at_hand(|position| edit.reaches(&args.key(position)));
    for (key, id_at) in pairs.iter().copied() {
        let found = edit.read_as_reader::<Stream>(&args.key(key))?;
        if found.is_none_or(|stream| stream.group(group).is_none()) {
            return Err(Error::no_group(args.bytes(key), group, " in XREADGROUP with GROUP option"));
        }
        asked.push(match until_zero(args.bytes(id_at)) {
            b"$" => return Err(Error::XREADGROUP_LAST),
            b">" => Asked::New,
            _ => match id(args.bytes(id_at))? {
                // Redis has this id stand for `>`.
                StreamId::MAX => Asked::New,
                behind => Asked::History(behind),
            },
        });
    }
    let mut streams = Streams(None, 0);
    for ((position, _), asked) in pairs.into_iter().zip(asked) {
        let key = args.key(position);
        let mut stream = edit.open::<Stream>(&key)?.expect("the key was found above");
        let told = Reader { key: key.bytes, group, consumer };
        let (group, entries) = stream.group_mut(group).expect("the group was found above");
        let created = group.create_consumer(consumer, moment(args.present()));
        let reader = created.or_else(|| group.find_consumer(consumer)).expect("it is there or was made");
        group.consumer_mut(reader).seen_at = moment(args.present());
        if created.is_some() {
            told.log_creation(args);
        }
        match asked {
            Asked::History(behind) => {
                streams.add(key.bytes, reply);
                let got = redeliver(group, entries, (reader, behind), &words, args, reply);
                told.log_got(args, &got, moment(args.present()), group.last_id);
                told.log_mention(args, group.consumer(reader), group.last_id);
            }
            Asked::New if entries.has_above(group.last_id) => {
                streams.add(key.bytes, reply);
                let got = deliver(group, entries, reader, &words, args, reply);
                told.log_got(args, &got, moment(args.present()), group.last_id);
                told.log_progress(args, group);
                if words.acknowledges {
                    told.log_mention(args, group.consumer(reader), group.last_id);
                }
            }
            Asked::New if created.is_some() => {}
            Asked::New => told.log_mention(args, group.consumer(reader), group.last_id),
        }
        drop(stream);
        if created.is_some() {
            edit.note(Class::STREAM, "xgroup-createconsumer", &key);
        }
    }
    if streams.end(reply) {
        return Ok(Outcome::Changed);
    }
    match words.until {
        Some(until) => Ok(words.wait(until, Vec::new())),
        None => {
            reply.null_array();
            Ok(Outcome::Changed)
        }
    }
}

/// Replies with entries that the group has not delivered yet, and notes that they are pending. Gives those for the log.
fn deliver(
    group: &mut Group,
    entries: &Entries,
    consumer: ConsumerId,
    words: &Words<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
) -> Got {
    const FIRST: u64 = 1;
    let (now, mut got) = (moment(args.present()), Got::new());
    let start = group.last_id.next().unwrap_or(StreamId::MAX);
    let new = entries.range(start, StreamId::MAX, Order::Ascending).take(words.limit());
    reply_entries(
        new.inspect(|entry| {
            entries.advance(group, entry.id);
            if !words.acknowledges {
                group.deliver(entry.id, Pending { consumer, delivered_at: now, deliveries: FIRST });
                group.consumer_mut(consumer).active_at = Some(now);
                if args.is_logged() {
                    got.push((entry.id, FIRST));
                }
            }
        }),
        reply,
    );
    got
}

/// Replies with what a consumer has pending behind an id; entries that are gone come without fields. Gives the others for the log.
fn redeliver(
    group: &mut Group,
    entries: &Entries,
    (consumer, behind): (ConsumerId, StreamId),
    words: &Words<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
) -> Got {
    let start = behind.next().unwrap_or(StreamId::MAX);
    let ids: Vec<StreamId> = group.consumer(consumer).pending_from(start).take(words.limit()).collect();
    let mut got = Got::new();
    reply.array(ids.len());
    for id in ids {
        match entries.entry(id) {
            Some(entry) => {
                reply_entry(&entry, reply);
                group.deliver_again(id, moment(args.present()));
                got.extend(group.pending(id).filter(|_| args.is_logged()).map(|it| (id, it.deliveries)));
            }
            None => {
                reply.array(2);
                reply_id(id, reply);
                reply.null_array();
            }
        }
    }
    got
}
