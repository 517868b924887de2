//! XCLAIM and XAUTOCLAIM: pending entries get another owner.
//!
//! An entry that is not in the stream any more cannot be claimed: it stops being pending instead.

use super::told::{Got, Reader, active_at, is_mention};
use super::{id, interval_start, moment, reply_entry, reply_id};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::{Options, int_within};
use crate::row::Outcome;
use keyspace::{Class, Edit, Object};
use value::number::parse_i64;
use value::stream::{ConsumerId, Entries, Group, Moment, Pending, Stream, StreamId};
use wire::Reply;

/// What the claimant gets of each entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gets {
    /// The entry; it counts as a delivery.
    Entry,
    /// Its id only.
    Id,
}

/// An integer option, with the error for what is none.
fn number(text: &[u8], refusal: &'static str) -> Result<i64> {
    parse_i64(text).ok_or(Error::text(refusal))
}

/// Finds the group at position 2 of what the key holds, or fails.
fn check_group(found: Option<Object<'_>>, args: &Args<'_>) -> Result<()> {
    let found = found.map(|object| object.read::<Stream>()).transpose()?;
    let group = found.and_then(|stream| stream.group(args.bytes(2)));
    group.map(|_| ()).ok_or_else(|| Error::no_group(args.bytes(1), args.bytes(2), ""))
}

/// The consumer at position 3, which is made if need be. The flag says that it was.
fn claimant(group: &mut Group, args: &Args<'_>) -> (ConsumerId, bool) {
    let now = moment(args.present());
    let created = group.create_consumer(args.bytes(3), now);
    let consumer = created.or_else(|| group.find_consumer(args.bytes(3)));
    let consumer = consumer.expect("a name that is taken can be found");
    group.consumer_mut(consumer).seen_at = now;
    (consumer, created.is_some())
}

/// The words of XCLAIM behind the group and the consumer.
struct Claim {
    idle_min_ms: i64,
    ids: Vec<StreamId>,
    delivered_at: Moment,
    deliveries: Option<u64>,
    forces: bool,
    gets: Gets,
    last_id: StreamId,
}

impl Claim {
    fn parse(args: &Args<'_>) -> Result<Claim> {
        let now = moment(args.present());
        let idle_min_ms = number(args.bytes(4), "ERR Invalid min-idle-time argument for XCLAIM")?;
        let ids: Vec<StreamId> =
            (5..args.len()).map_while(|position| id(args.bytes(position)).ok()).collect();
        let mut options = Options::from(args, 5 + ids.len());
        let (mut delivered_at, mut deliveries, mut last_id) = (None, None, StreamId::MIN);
        let (mut forces, mut gets) = (false, Gets::Entry);
        while options.more() {
            if options.take("FORCE") {
                forces = true;
            } else if options.take("JUSTID") {
                gets = Gets::Id;
            } else if let Some(text) = options.take_with_value("IDLE") {
                let idle = number(text, "ERR Invalid IDLE option argument for XCLAIM")?;
                delivered_at = Some(now.wrapping_sub(idle));
            } else if let Some(text) = options.take_with_value("TIME") {
                delivered_at = Some(number(text, "ERR Invalid TIME option argument for XCLAIM")?);
            } else if let Some(text) = options.take_with_value("RETRYCOUNT") {
                let count = number(text, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                // A payload may bring any count, and a log tells it.
                deliveries = Some(count).filter(|it| *it >= 0 || args.is_of_log()).map(i64::cast_unsigned);
            } else if let Some(text) = options.take_with_value("LASTID") {
                last_id = id(text)?;
            } else {
                return Err(Error::quoting("ERR Unrecognized XCLAIM option '", options.word(), "'"));
            }
        }
        options.finish()?;
        // A moment that cannot be is as good as the present.
        let can_be = |at: &Moment| (0..=now).contains(at) || is_mention(args, &ids);
        let delivered_at = delivered_at.filter(can_be).unwrap_or(now);
        Ok(Claim { idle_min_ms, ids, delivered_at, deliveries, forces, gets, last_id })
    }

    /// Claims one entry if it may be; replies with it and tells whether it was. The flag says that something
    /// changed.
    fn apply(
        &self,
        id: StreamId,
        to: (&mut Group, ConsumerId),
        entries: &Entries,
        now: Moment,
        reply: &mut Reply<'_>,
        got: &mut Got,
    ) -> Claimed {
        let (group, consumer) = to;
        let Some(entry) = entries.entry(id) else {
            let was_pending = group.acknowledge(id);
            got.extend(was_pending.then_some((id, 1)));
            return if was_pending { Claimed::Gone } else { Claimed::No };
        };
        let before = match group.pending(id) {
            Some(pending) if self.idle_min_ms > 0 && pending.idle_ms(now) < self.idle_min_ms => {
                return Claimed::No;
            }
            Some(pending) => pending.deliveries,
            // One that is made pending by force counts as delivered once before.
            None if self.forces => 1,
            None => return Claimed::No,
        };
        let counted = if self.gets == Gets::Entry { before.wrapping_add(1) } else { before };
        let deliveries = self.deliveries.unwrap_or(counted);
        group.deliver(id, Pending { consumer, delivered_at: self.delivered_at, deliveries });
        group.consumer_mut(consumer).active_at = Some(now);
        got.push((id, deliveries));
        match self.gets {
            Gets::Entry => reply_entry(&entry, reply),
            Gets::Id => reply_id(id, reply),
        }
        Claimed::Yes
    }
}

/// What became of an entry that was to be claimed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claimed {
    Yes,
    No,
    /// It is not in the stream, and not pending any more.
    Gone,
}

/// XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds]
/// [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]
pub(super) fn xclaim(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    check_group(edit.get_as_reader(&args.key(1)), args)?;
    let claim = Claim::parse(args)?;
    let (key, now) = (args.key(1), moment(args.present()));
    let mut stream = edit.open::<Stream>(&key)?.expect("the key was found above");
    let (group, entries) = stream.group_mut(args.bytes(2)).expect("the group was found above");
    group.last_id = group.last_id.max(claim.last_id);
    let (consumer, is_new) = claimant(group, args);
    let list = reply.deferred_array();
    let (mut count, mut got) = (0, Got::new());
    for id in &claim.ids {
        let claimed = claim.apply(*id, (group, consumer), entries, now, reply, &mut got);
        count += usize::from(claimed == Claimed::Yes);
    }
    reply.end(list, count);
    if is_mention(args, &claim.ids) {
        group.consumer_mut(consumer).active_at = active_at(claim.delivered_at);
    }
    log_claims(args, (group, consumer), &got, claim.delivered_at);
    drop(stream);
    if is_new {
        edit.note(Class::STREAM, "xgroup-createconsumer", &key);
    }
    Ok(Outcome::Changed)
}

/// Says what a claim came down to.
fn log_claims(args: &Args<'_>, (group, consumer): (&Group, ConsumerId), got: &Got, delivered_at: Moment) {
    let reader = Reader { key: args.bytes(1), group: args.bytes(2), consumer: args.bytes(3) };
    match got.is_empty() {
        true => reader.log_mention(args, group.consumer(consumer), group.last_id),
        false => reader.log_got(args, got, delivered_at, group.last_id),
    }
}

/// The words of XAUTOCLAIM behind the group and the consumer.
struct AutoClaim {
    idle_min_ms: i64,
    start: StreamId,
    count: u64,
    gets: Gets,
}

impl AutoClaim {
    const COUNT_USUAL: u64 = 100;
    /// Redis' own limit.
    const COUNT_MAX: i64 = i64::MAX / 16;
    /// Where Redis finds no memory for the ids: 16 bytes for each, in an address space of 47 bits.
    const COUNT_POSSIBLE_MAX: u64 = (1 << 47) / 16;
    /// Pending entries that are looked at for each that is asked for.
    const TRIES_FACTOR: u64 = 10;

    fn parse(args: &Args<'_>) -> Result<AutoClaim> {
        let idle_min_ms = number(args.bytes(4), "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
        let start = interval_start(args.bytes(5))?;
        let mut options = Options::from(args, 6);
        let (mut count, mut gets) = (AutoClaim::COUNT_USUAL, Gets::Entry);
        while options.more() {
            if let Some(text) = options.take_with_value("COUNT") {
                count = int_within(text, 1..=AutoClaim::COUNT_MAX, "ERR COUNT must be > 0")? as u64;
            } else if options.take("JUSTID") {
                gets = Gets::Id;
            } else {
                options.refuse();
            }
        }
        options.finish()?;
        Ok(AutoClaim { idle_min_ms, start, count, gets })
    }
}

/// XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]
pub(super) fn xautoclaim(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let found = edit.get_as_reader(&args.key(1));
    let claim = AutoClaim::parse(args)?;
    check_group(found, args)?;
    if claim.count > AutoClaim::COUNT_POSSIBLE_MAX {
        return Err(Error::XAUTOCLAIM_TOO_MANY);
    }
    let (key, now) = (args.key(1), moment(args.present()));
    let mut stream = edit.open::<Stream>(&key)?.expect("the key was found above");
    let (group, entries) = stream.group_mut(args.bytes(2)).expect("the group was found above");
    let (consumer, is_new) = claimant(group, args);
    let each = Claim {
        idle_min_ms: claim.idle_min_ms,
        ids: Vec::new(),
        delivered_at: now,
        deliveries: None,
        forces: false,
        gets: claim.gets,
        last_id: StreamId::MIN,
    };
    let tries = usize::try_from(claim.count.saturating_mul(AutoClaim::TRIES_FACTOR)).unwrap_or(usize::MAX);
    let mut left = claim.count;
    let mut gone = Vec::new();
    let (mut claimed_count, mut got) = (0, Got::new());
    // The cursor comes first but is known last.
    let mut claimed = Vec::new();
    let mut list = reply.part(&mut claimed);
    let mut cursor = Some(claim.start);
    for _ in 0..tries {
        let next = cursor.and_then(|cursor| group.pending_from(cursor).next());
        let Some((id, _)) = next.filter(|_| left > 0) else { break };
        cursor = id.next();
        match each.apply(id, (group, consumer), entries, now, &mut list, &mut got) {
            Claimed::Yes => claimed_count += 1,
            Claimed::Gone => gone.push(id),
            Claimed::No => continue,
        }
        left -= 1;
    }
    let next = cursor.and_then(|cursor| group.pending_from(cursor).next());
    reply.array(3);
    reply_id(next.map_or(StreamId::MIN, |(id, _)| id), reply);
    reply.array(claimed_count);
    reply.raw(&claimed);
    reply.array(gone.len());
    gone.into_iter().for_each(|id| reply_id(id, reply));
    log_claims(args, (group, consumer), &got, now);
    drop(stream);
    if is_new {
        edit.note(Class::STREAM, "xgroup-createconsumer", &key);
    }
    Ok(Outcome::Changed)
}
