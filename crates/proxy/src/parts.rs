//! Requests that are more than one: taken apart by the servers of their keys, said to all servers, or several made one. Pure.

use crate::computed::{self, Computed};
use crate::group_reads::GroupRead;
use crate::joins::{Draw, Join, Part};
use crate::links::asking_who;
use crate::pops::{self, Pop};
use crate::scans::Scan;
use crate::slot_scans::SlotScan;
use crate::stream_waits::{StreamWait, Streams, Unfit};
use crate::upstream::{NodeNo, Routes};
use crate::waits::Called;
use crate::ways::{Gathering, Split};
use crate::written::Written;
use command::table::CommandId;
use server::transaction::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;
use sys::UnixMs;
use value::rdb;
use wire::{Protocol, Request, encode_arg, encode_request, encode_request_header};

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// To this server, as it is; its keys have this slot.
    One(NodeNo, Option<u16>),
    /// The same; it is a read, and the server a replica. This is its master.
    Read(NodeNo, Option<u16>, NodeNo),
    /// The same, and its reply is to be kept.
    Kept(NodeNo, Option<u16>),
    /// In parts to the servers of its keys.
    Parts(Split),
    /// XREAD, in parts to the servers of its streams.
    Streams(Protocol),
    /// XREAD with BLOCK, of streams of several servers.
    StreamWait(Protocol),
    /// XREADGROUP, of streams of several servers.
    GroupRead(Protocol),
    /// What takes from the first of several keys that has something: all their servers are asked.
    Pops(CommandId, Protocol),
    /// To all.
    Everywhere(Gathering),
    /// To the server that its cursor names.
    Scan,
    /// Its keys come from theirs, and it is done here.
    Computed(CommandId, Protocol),
    /// It ends a transaction, all of which goes to this server.
    Transaction(NodeNo, Option<u16>),
    /// The same, where keys are watched: over the connection that watches.
    Watched(NodeNo, Option<u16>),
    /// To this server, over a connection that nobody else uses meanwhile.
    Blocks(NodeNo, Option<u16>),
    /// The same, and the connection is kept.
    Watch(NodeNo, Option<u16>),
    /// To those of all servers that the client has written to, over connections that nobody else uses meanwhile.
    Waits(Written),
    /// To the servers at which this client waits.
    Unblock(u64, Called),
    /// To this server, which counts those who get it so much wrongly.
    Publish(NodeNo, Option<u16>, i64),
}

impl Plan {
    /// The server of the connection that the client has to itself for this, if it does.
    pub fn own(self) -> Option<(NodeNo, Option<u16>)> {
        match self {
            Plan::Watched(node, slot) | Plan::Blocks(node, slot) | Plan::Watch(node, slot) => {
                Some((node, slot))
            }
            Plan::One(..)
            | Plan::Read(..)
            | Plan::Kept(..)
            | Plan::Publish(..)
            | Plan::Parts(_)
            | Plan::Streams(_)
            | Plan::StreamWait(_)
            | Plan::GroupRead(_)
            | Plan::Pops(..)
            | Plan::Everywhere(_)
            | Plan::Scan
            | Plan::Computed(..)
            | Plan::Waits(_)
            | Plan::Unblock(..)
            | Plan::Transaction(..) => None,
        }
    }

    /// Where the request goes as it was sent, if it does: the server, the slot, and the master of a replica.
    #[inline]
    pub fn as_it_is(self) -> Option<(NodeNo, Option<u16>, Option<NodeNo>)> {
        match self {
            Plan::One(node, slot) => Some((node, slot, None)),
            Plan::Read(node, slot, master) => Some((node, slot, Some(master))),
            _ => None,
        }
    }

    /// Whether servers are asked one thing after the other for it, and may be asked to wait.
    pub fn asks_further(self) -> bool {
        matches!(self, Plan::Pops(..) | Plan::StreamWait(_) | Plan::GroupRead(_))
    }

    /// Whether it goes over connections that the client has to itself.
    pub fn is_apart(self) -> bool {
        matches!(self, Plan::Waits(_)) || self.own().is_some()
    }
}

/// What is sent to whom.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts {
    /// What is sent to whom.
    pub each: Vec<Part>,
    /// How their replies become one; None: there is only one.
    pub join: Option<Join>,
    /// How many replies each gives, of which the last counts.
    pub replies: usize,
}

impl Parts {
    fn one(node: NodeNo, slot: Option<u16>, bytes: Vec<u8>) -> Parts {
        Parts { each: vec![(node, slot, bytes)], join: None, replies: 1 }
    }
}

/// Makes what is sent for a request; None: a slot is nobody's. `luck` is any number; a client that is to be woken waits there.
pub fn parts_of(
    plan: Plan,
    routes: &Arc<Routes>,
    request: &Request<'_>,
    transaction: Option<&Transaction>,
    luck: usize,
    woken: Option<Vec<(NodeNo, i64)>>,
) -> Option<Parts> {
    Some(match plan {
        Plan::One(node, slot)
        | Plan::Watch(node, slot)
        | Plan::Read(node, slot, _)
        | Plan::Kept(node, slot) => Parts::one(node, slot, encoded(request)),
        Plan::Blocks(node, slot) => {
            let mut bytes = asking_who();
            encode(&mut bytes, request);
            Parts { replies: 2, ..Parts::one(node, slot, bytes) }
        }
        Plan::Publish(node, slot, by) => {
            Parts { join: Some(Join::Corrected(by)), ..Parts::one(node, slot, encoded(request)) }
        }
        Plan::Parts(split) => split_up(split, routes, request)?,
        Plan::Streams(protocol) => split_streams(protocol, routes, request)?,
        Plan::StreamWait(protocol) => await_streams(protocol, routes, request)?,
        Plan::GroupRead(protocol) => read_as_group(protocol, routes, request)?,
        Plan::Pops(command, protocol) => pops_of(command, protocol, routes, request)?,
        Plan::Everywhere(gathering) => everywhere(gathering, routes, request, luck),
        Plan::Scan => scan(routes, request)?,
        Plan::Computed(command, protocol) => match Computed::only_node(routes, request, command) {
            Some(node) => Parts::one(node, None, encoded(request)),
            None => {
                let (computed, each) = Computed::begin(routes, request, (command, protocol))?;
                Parts { each, join: Some(Join::Computed(Box::new(computed))), replies: 1 }
            }
        },
        Plan::Waits(written) => waits_of(written, routes, request),
        Plan::Unblock(..) => unblock(routes, woken, request)?,
        Plan::Transaction(node, slot) | Plan::Watched(node, slot) => {
            let queue = transaction.map_or(&[][..], Transaction::queue);
            let mut bytes = Vec::new();
            encode_request(&mut bytes, &[b"MULTI"]);
            queue.iter().for_each(|queued| encode(&mut bytes, &queued.request()));
            encode_request(&mut bytes, &[b"EXEC"]);
            Parts { replies: queue.len() + 2, ..Parts::one(node, slot, bytes) }
        }
    })
}

fn everywhere(gathering: Gathering, routes: &Routes, request: &Request<'_>, luck: usize) -> Parts {
    let mut bytes = encoded(request);
    let join = match gathering {
        Gathering::Sum => Join::Sum,
        Gathering::Same => Join::First,
        Gathering::Concat => Join::Concat,
        Gathering::AnyOne => {
            let mut counts = Vec::new();
            encode_request(&mut counts, &[b"DBSIZE"]);
            let asks = std::mem::replace(&mut bytes, counts);
            Join::Drawn(Box::new(Draw::begin(&routes.masters, asks, luck as u64)))
        }
        Gathering::Both => Join::Both,
        Gathering::Least => Join::Least,
        Gathering::OneDid => Join::OneDid,
        Gathering::Running => Join::Running,
    };
    let each = routes.masters.iter().map(|node| (*node, None, bytes.clone())).collect();
    Parts { each, join: Some(join), replies: 1 }
}

fn scan(routes: &Arc<Routes>, request: &Request<'_>) -> Option<Parts> {
    // What is wrong with it a server says.
    let any = || Some(Parts::one(*routes.masters.first()?, None, encoded(request)));
    match routes.is_cluster {
        true if !computed::is_in_order(request) => any(),
        true => {
            let (scan, each) = SlotScan::begin(routes, request)?;
            Some(Parts { each, join: Some(Join::SlotScan(Box::new(scan))), replies: 1 })
        }
        false => match Scan::begin(routes, request) {
            Some((scan, first)) => {
                Some(Parts { each: vec![first], join: Some(Join::Scan(Box::new(scan))), replies: 1 })
            }
            None => any(),
        },
    }
}

/// A server knows what a connection has written to it, and not what its client has by others. Behind a write of no effect the connection has written all
/// that there is, which is more than its client: libraries that are none, added to those that are there (a record in the stream of Redis 7 and of
/// Valkey, too; since Redis 7.2 nothing less is one).
fn waits_of(written: Written, routes: &Routes, request: &Request<'_>) -> Parts {
    let mut bytes = asking_who();
    if !written.is_nothing() {
        encode_request(&mut bytes, &[b"FUNCTION", b"RESTORE", &rdb::dump_libraries(std::iter::empty())]);
    }
    encode(&mut bytes, request);
    let is_master = |node: &NodeNo| routes.masters.contains(node);
    let masters = routes.masters.iter().copied();
    let to = masters.filter(|node| written.is_nothing() || written.has(*node, routes.version));
    // It may have no slots yet, or none any more.
    let asked = (0..routes.nodes.len() as NodeNo).filter(|node| written.was_asked(*node) && !is_master(node));
    let each = to.chain(asked).map(|node| (node, None, bytes.clone())).collect();
    Parts { each, join: Some(Join::Least), replies: 3 - usize::from(written.is_nothing()) }
}

/// A client is woken at the servers at which it waits, where it has other numbers. It is then, or when it is known where it waits, whatever they say.
fn unblock(routes: &Routes, woken: Option<Vec<(NodeNo, i64)>>, request: &Request<'_>) -> Option<Parts> {
    let join = if woken.is_some() { Join::Said(b":1\r\n") } else { Join::First };
    let mut at = woken.unwrap_or_default();
    if at.is_empty() {
        // Of nobody.
        at.push((*routes.masters.first()?, 0));
    }
    let each = at.iter().map(|(node, number)| {
        let mut bytes = Vec::new();
        encode_request_header(&mut bytes, request.len());
        for (place, word) in request.iter().enumerate() {
            let number = number.to_string();
            encode_arg(&mut bytes, if place == 2 { number.as_bytes() } else { word });
        }
        (*node, None, bytes)
    });
    Some(Parts { each: each.collect(), join: Some(join), replies: 1 })
}

fn split_up(split: Split, routes: &Routes, request: &Request<'_>) -> Option<Parts> {
    let step = if split == Split::Pairs { 2 } else { 1 };
    if !(request.len() - 1).is_multiple_of(step) {
        // A value is missing, which a server says in its words also where no other keys stand behind.
        let (node, slot) = routes.owner_of(request.arg(1))?;
        let mut bytes = Vec::new();
        encode_request_header(&mut bytes, 2);
        [request.arg(0), request.arg(1)].iter().for_each(|word| encode_arg(&mut bytes, word));
        return Some(Parts::one(node, slot, bytes));
    }
    let mut words: BTreeMap<(NodeNo, Option<u16>), Vec<&[u8]>> = BTreeMap::new();
    let mut owners = Vec::new();
    for at in (1..request.len()).step_by(step) {
        let owner = routes.owner_of(request.arg(at))?;
        owners.push(owner);
        words.entry(owner).or_default().extend((at..at + step).map(|at| request.arg(at)));
    }
    let numbers: BTreeMap<_, u16> = words.keys().copied().zip(0..).collect();
    let join = match split {
        Split::Places => Join::Places(owners.iter().map(|owner| numbers[owner]).collect()),
        Split::Sum => Join::Sum,
        Split::Pairs => Join::First,
    };
    let each = words.iter().map(|((node, slot), words)| {
        let mut bytes = Vec::new();
        encode_request_header(&mut bytes, words.len() + 1);
        encode_arg(&mut bytes, request.arg(0));
        words.iter().for_each(|word| encode_arg(&mut bytes, word));
        (*node, *slot, bytes)
    });
    Some(Parts { each: each.collect(), join: Some(join), replies: 1 })
}

fn pops_of(command: CommandId, protocol: Protocol, routes: &Routes, request: &Request<'_>) -> Option<Parts> {
    let command = command::table::get(command);
    let form = pops::form_of(command)?;
    if form.check(request, UnixMs(0)).is_err() {
        let (key, bytes) = pops::wrong_of(command, request)?;
        let (node, slot) = routes.owner_of(key)?;
        return Some(Parts::one(node, slot, bytes));
    }
    let (pop, each) = Pop::begin(routes, request, (command, form), protocol)?;
    Some(Parts { each, join: Some(Join::Pop(Box::new(pop))), replies: 1 })
}

/// The first server gets what is wrong, and says so.
fn streams_of(routes: &Routes, request: &Request<'_>) -> Option<Result<Streams, Parts>> {
    match Streams::of(routes, request) {
        Ok(streams) => Some(Ok(streams)),
        Err(Unfit::Wrong) => Some(Err(Parts::one(*routes.masters.first()?, None, encoded(request)))),
        Err(Unfit::NotServed) => None,
    }
}

fn split_streams(protocol: Protocol, routes: &Routes, request: &Request<'_>) -> Option<Parts> {
    Some(streams_of(routes, request)?.map_or_else(
        |wrong| wrong,
        |streams| {
            let each = streams.parts();
            Parts { each, join: Some(Join::Streams(protocol, streams.order)), replies: 1 }
        },
    ))
}

fn await_streams(protocol: Protocol, routes: &Routes, request: &Request<'_>) -> Option<Parts> {
    let streams = match streams_of(routes, request)? {
        Ok(streams) => streams,
        Err(wrong) => return Some(wrong),
    };
    match StreamWait::begin(&streams, protocol) {
        Some((wait, each)) => Some(Parts { each, join: Some(Join::StreamWait(Box::new(wait))), replies: 1 }),
        None => split_streams(protocol, routes, request),
    }
}

fn read_as_group(protocol: Protocol, routes: &Routes, request: &Request<'_>) -> Option<Parts> {
    let streams = match streams_of(routes, request)? {
        Ok(streams) => streams,
        Err(wrong) => return Some(wrong),
    };
    Some(match GroupRead::begin(&streams, protocol) {
        Some((read, each)) => Parts { each, join: Some(Join::GroupRead(Box::new(read))), replies: 1 },
        None => Parts::one(*routes.masters.first()?, None, encoded(request)),
    })
}

fn encode(bytes: &mut Vec<u8>, request: &Request<'_>) {
    encode_request_header(bytes, request.len());
    request.iter().for_each(|arg| encode_arg(bytes, arg));
}

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, request);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;
    use wire::RequestBuf;

    fn parts(plan: Plan, line: &str) -> (Vec<(NodeNo, String)>, Option<Join>) {
        let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
        let request = RequestBuf::from_args(line.split(' '));
        let parts = parts_of(plan, &routes, &request.as_request(), None, 4, None).unwrap();
        let said = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            text.lines().filter(|line| !line.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
        };
        (parts.each.into_iter().map(|(node, _, bytes)| (node, said(bytes))).collect(), parts.join)
    }

    #[test]
    fn keys_go_to_their_servers_and_have_their_places() {
        // Slots of foo, hello, bar: 12,182, 866 and 5,061.
        let (each, join) = parts(Plan::Parts(Split::Places), "MGET foo hello bar foo");
        assert_eq!(each, [(0, "MGET hello bar".to_owned()), (2, "MGET foo foo".to_owned())]);
        assert_eq!(join, Some(Join::Places(vec![1, 0, 0, 1])));
        let (each, join) = parts(Plan::Parts(Split::Pairs), "MSET foo 1 hello 2 foo 3");
        assert_eq!(each, [(0, "MSET hello 2".to_owned()), (2, "MSET foo 1 foo 3".to_owned())]);
        assert_eq!(join, Some(Join::First));
        assert_eq!(parts(Plan::Parts(Split::Pairs), "MSET foo 1 hello").0.len(), 1);
    }

    #[test]
    fn streams_go_with_their_places() {
        let line = "XREAD COUNT 2 STREAMS foo hello bar 1 2 3";
        let (each, join) = parts(Plan::Streams(Protocol::Resp2), line);
        assert_eq!(
            each,
            [
                (0, "XREAD COUNT 2 STREAMS hello bar 2 3".to_owned()),
                (2, "XREAD COUNT 2 STREAMS foo 1".to_owned())
            ]
        );
        let Some(Join::Streams(_, order)) = join else { panic!("{join:?}") };
        assert_eq!(order.iter().map(|(part, _)| *part).collect::<Vec<_>>(), [1, 0, 0]);
        assert_eq!(parts(Plan::Streams(Protocol::Resp2), "XREAD STREAMS foo bar 1").0.len(), 1);
    }

    #[test]
    fn all_are_asked() {
        let (each, join) = parts(Plan::Everywhere(Gathering::AnyOne), "RANDOMKEY");
        assert!(each.len() == 3 && each[0].1 == "DBSIZE" && matches!(join, Some(Join::Drawn(_))));
    }
}
