//! Who does what one of all masters was to do that is none any more. Pure.

use crate::upstream::{NodeNo, Routes};

/// A master that is asked for a part of what all do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The server.
    pub node: NodeNo,
    /// One of its slots, by which its shard is known when another is master.
    slot: u16,
}

/// All masters of these routes, in their order.
pub fn seats(routes: &Routes) -> Box<[Seat]> {
    let mut slots = vec![None; routes.masters.len()];
    for slot in 0..wire::SLOTS as u16 {
        if let Some(at) = routes.of(slot).and_then(|node| routes.masters.binary_search(&node).ok()) {
            slots[at].get_or_insert(slot);
        }
    }
    let seats = routes.masters.iter().zip(slots);
    seats.filter_map(|(node, slot)| Some(Seat { node: *node, slot: slot? })).collect()
}

/// Who has the shard of one of these masters by now: itself, or one that was not asked. None: that is not known, since as many others have come as have gone only where
/// each has taken one's place. Where one has gone for whom nobody has come two of those that were asked were of one shard, maybe, one after the other: then it was done
/// there, and who is master again has it from the other.
pub fn heir(seats: &[Seat], part: usize, routes: &Routes) -> Option<NodeNo> {
    let Seat { node, slot } = *seats.get(part)?;
    let to = routes.of(slot)?;
    let is_asked = |one: &NodeNo| seats.iter().any(|seat| seat.node == *one);
    let come = routes.masters.iter().filter(|one| !is_asked(one)).count();
    let gone = seats.iter().filter(|seat| !routes.masters.contains(&seat.node)).count();
    (come == gone && (to == node || !is_asked(&to))).then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::{Node, Upstream};

    #[test]
    fn who_is_asked_in_place_of_another_is_asked_once() {
        let behind = Upstream::fixed("0-1=a:1,2-3=b:1,4-16383=c:1").unwrap();
        let mut seats = seats(&behind.routes());
        assert_eq!(
            seats.iter().map(|seat| (seat.node, seat.slot)).collect::<Vec<_>>(),
            [(0, 0), (1, 2), (2, 4)]
        );
        let move_to = |place: &str, slots: &[u16]| {
            for slot in slots {
                behind.note_moved(*slot, Node::parse(place).unwrap()).unwrap();
            }
        };
        assert_eq!(heir(&seats, 0, &behind.routes()), Some(0), "it may be master again");
        move_to("d:1", &[0]);
        assert_eq!(heir(&seats, 0, &behind.routes()), None, "the other slot may be a shard's of its own");
        move_to("d:1", &[1]);
        assert_eq!(heir(&seats, 0, &behind.routes()), Some(3));
        seats[0].node = 3;
        assert_eq!(heir(&seats, 0, &behind.routes()), Some(3));
        move_to("c:1", &[2, 3]);
        assert_eq!(heir(&seats, 1, &behind.routes()), None, "it has done its own part");
        move_to("e:1", &[2]);
        move_to("f:1", &[3]);
        assert_eq!(heir(&seats, 1, &behind.routes()), None, "one of them is not its heir");
    }

    #[test]
    fn who_is_master_again_does_not_do_again_what_it_has_from_another() {
        let behind = Upstream::fixed("0-1=a:1,2-16383=b:1").unwrap();
        let move_to = |place: &str, slots: &[u16]| {
            for slot in slots {
                behind.note_moved(*slot, Node::parse(place).unwrap()).unwrap();
            }
        };
        // It is in another's place, as a request for one slot has found out; the other one is asked, too.
        move_to("c:1", &[0]);
        let seats = seats(&behind.routes());
        assert_eq!((seats[0].node, seats[0].slot), (0, 1));
        assert_eq!(heir(&seats, 0, &behind.routes()), Some(0));
        move_to("c:1", &[1]);
        assert_eq!(heir(&seats, 0, &behind.routes()), None, "it has done its own part");
        move_to("a:1", &[0, 1]);
        assert_eq!(heir(&seats, 0, &behind.routes()), None, "the other has done it");
    }
}
