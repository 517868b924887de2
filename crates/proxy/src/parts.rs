//! Requests that are more than one: taken apart by the servers of their keys, said to all servers, or several made one. Pure.

use crate::computed::{self, Computed};
use crate::joins::{Join, Part};
use crate::scans::Scan;
use crate::slot_scans::SlotScan;
use crate::upstream::{NodeNo, Routes};
use crate::ways::{Gathering, Split};
use command::table::CommandId;
use server::transaction::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::{Protocol, Request, encode_arg, encode_request, encode_request_header, key_slot};

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// To this server, as it is; its keys have this slot.
    One(NodeNo, Option<u16>),
    /// In parts to the servers of its keys.
    Parts(Split),
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
            | Plan::Publish(..)
            | Plan::Parts(_)
            | Plan::Everywhere(_)
            | Plan::Scan
            | Plan::Computed(..)
            | Plan::Transaction(..) => None,
        }
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

/// Makes what is sent for a request; None: a slot is nobody's. `luck` is any number.
pub fn parts_of(
    plan: Plan,
    routes: &Arc<Routes>,
    request: &Request<'_>,
    transaction: Option<&Transaction>,
    luck: usize,
) -> Option<Parts> {
    Some(match plan {
        Plan::One(node, slot) | Plan::Blocks(node, slot) | Plan::Watch(node, slot) => {
            Parts::one(node, slot, encoded(request))
        }
        Plan::Publish(node, slot, by) => {
            Parts { join: Some(Join::Corrected(by)), ..Parts::one(node, slot, encoded(request)) }
        }
        Plan::Parts(split) => split_up(split, routes, request)?,
        Plan::Everywhere(gathering) => {
            let bytes = encoded(request);
            let join = match gathering {
                Gathering::Sum => Join::Sum,
                Gathering::Same => Join::First,
                Gathering::Concat => Join::Concat,
                Gathering::AnyOne => Join::AnyOne(luck % routes.masters.len().max(1)),
                Gathering::Both => Join::Both,
                Gathering::Least => Join::Least,
                Gathering::OneDid => Join::OneDid,
                Gathering::Running => Join::Running,
            };
            let each = routes.masters.iter().map(|node| (*node, None, bytes.clone())).collect();
            Parts { each, join: Some(join), replies: 1 }
        }
        // What is wrong with it a node says.
        Plan::Scan if routes.is_cluster && !computed::is_in_order(request) => {
            Parts::one(*routes.masters.first()?, None, encoded(request))
        }
        Plan::Scan if routes.is_cluster => {
            let (scan, each) = SlotScan::begin(routes, request)?;
            Parts { each, join: Some(Join::SlotScan(Box::new(scan))), replies: 1 }
        }
        Plan::Scan => match Scan::begin(routes, request) {
            Some((scan, first)) => {
                Parts { each: vec![first], join: Some(Join::Scan(Box::new(scan))), replies: 1 }
            }
            // What is no cursor is refused by any server.
            None => Parts::one(*routes.masters.first()?, None, encoded(request)),
        },
        Plan::Computed(command, protocol) => match Computed::only_node(routes, request, command) {
            Some(node) => Parts::one(node, None, encoded(request)),
            None => {
                let (computed, each) = Computed::begin(routes, request, (command, protocol))?;
                Parts { each, join: Some(Join::Computed(Box::new(computed))), replies: 1 }
            }
        },
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

fn split_up(split: Split, routes: &Routes, request: &Request<'_>) -> Option<Parts> {
    let step = if split == Split::Pairs { 2 } else { 1 };
    if !(request.len() - 1).is_multiple_of(step) {
        // A value is missing, which any server says in its words.
        return Some(Parts::one(*routes.masters.first()?, None, encoded(request)));
    }
    let mut words: BTreeMap<(NodeNo, Option<u16>), Vec<&[u8]>> = BTreeMap::new();
    let mut owners = Vec::new();
    for at in (1..request.len()).step_by(step) {
        let slot = key_slot(request.arg(at));
        // A node of a cluster takes one slot at a time.
        let owner = (routes.of(slot)?, Some(slot).filter(|_| routes.is_cluster));
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
        let parts = parts_of(plan, &routes, &request.as_request(), None, 4).unwrap();
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
    fn all_are_asked() {
        let (each, join) = parts(Plan::Everywhere(Gathering::AnyOne), "RANDOMKEY");
        assert_eq!((each.len(), join), (3, Some(Join::AnyOne(1))));
    }
}
