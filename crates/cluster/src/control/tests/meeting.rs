//! What `redis-cli --cluster add-node` comes to: a server that waits is met, and begins a shard by itself.

use super::{World, policy};
use crate::control::view::key;
use crate::control::{Event, Force, Order, Policy, Request, Standing};
use std::time::Duration;
use topology::{Place, Server, ServerId, ShardId};

/// What an order comes to.
fn ordered(world: &mut World, order: Order) -> Result<String, String> {
    let (at, ticket) = world.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
    world.run_until("it is answered", Duration::from_secs(15), |world| {
        world.configs[at].answers.contains_key(&ticket)
    });
    world.configs[at].answers[&ticket].clone()
}

fn record(world: &World, id: ServerId) -> Server {
    let (line, _, _) = world.value(&key::server(id)).expect("it is there");
    Server::from_line(line).expect("it is one")
}

/// A whole cluster of one shard, and a server that waits.
fn with_spare() -> (World, ServerId) {
    let mut world = World::whole(11, 2);
    world.add_server("");
    let id = world.nodes[2].server.id;
    let is_known = move |world: &World| world.value(&key::server(id)).is_some();
    world.run_until("it has come", Duration::from_secs(10), is_known);
    // Until the leader has seen it, too.
    world.run_for(Duration::from_secs(1));
    (world, id)
}

#[test]
fn a_server_that_waits_is_met_once_and_stays_met() {
    let (mut world, id) = with_spare();
    assert!(!record(&world, id).is_met);
    let shown = |world: &World| {
        let leader = world.configs.iter().find(|config| config.control.leads()).expect("one leads");
        let table = crate::table::of(&leader.control.status(world.now));
        table.lines().find(|line| line.contains(&id.to_string())).expect("it is shown").to_owned()
    };
    assert!(shown(&world).contains("spare ") && !shown(&world).contains("met"));
    for _ in 0..2 {
        assert_eq!(ordered(&mut world, Order::Meet(id)), Ok("OK".to_owned()));
        assert!(record(&world, id).is_met && record(&world, id).place.is_none());
        world.run_for(Duration::from_secs(1));
        assert!(shown(&world).contains("spare, met "));
    }
    // It does not say so itself when it comes again, at another address.
    world.nodes[2].is_up = false;
    world.run_for(Duration::from_secs(10));
    world.nodes[2].server.port += 1;
    let server = world.nodes[2].server.clone();
    world.ask(|ticket| Event::Joins { ticket, cluster: String::new(), server }).expect("somebody leads");
    world.run_for(Duration::from_secs(1));
    let now = record(&world, id);
    assert_eq!((now.port, now.is_met), (7001, true));
    let stranger = ServerId::from_bytes([0xee; 20]);
    assert!(ordered(&mut world, Order::Meet(stranger)).is_err_and(|why| why.contains("there is no server")));
    world.unwanted.insert(id);
    assert_eq!(ordered(&mut world, Order::Remove(id, Force::Yes)), Ok("OK".to_owned()));
    let refused = ordered(&mut world, Order::Meet(id));
    assert!(refused.is_err_and(|why| why.contains("was removed from the cluster")));
}

#[test]
fn a_server_begins_a_shard_by_itself_and_others_come_to_it() {
    let (mut world, id) = with_spare();
    let slots = world.value(key::SLOTS).cloned();
    assert_eq!(ordered(&mut world, Order::Meet(id)), Ok("OK".to_owned()));
    world.policy.shards = 2;
    assert_eq!(ordered(&mut world, Order::Begin(id)), Ok("OK".to_owned()));
    let place = Place { shard: ShardId(1), node: 1 };
    assert_eq!((record(&world, id).place, record(&world, id).is_met), (Some(place), false));
    world.run_until("it has begun", Duration::from_secs(10), |world| {
        matches!(world.standing(ShardId(1)), Some(Standing::Begun(_)))
    });
    // Said again it is done already.
    assert_eq!(ordered(&mut world, Order::Begin(id)), Ok("OK".to_owned()));
    let (line, _, _) = world.value(key::POLICY).expect("it is there");
    assert_eq!(Policy::from_line(line), Some(policy(2)));
    assert_eq!(world.value(key::SLOTS).cloned(), slots, "it has none");
    let other = world.nodes[0].server.id;
    if world.standing(ShardId(0)).and_then(|standing| standing.master())
        == record(&world, other).place.map(|place| place.node)
    {
        assert_eq!(ordered(&mut world, Order::Begin(other)), Ok("OK".to_owned()));
    } else {
        assert!(ordered(&mut world, Order::Begin(other)).is_err_and(|why| why.contains("has a place")));
    }
    world.add_server("");
    world.run_until("it has a copy", Duration::from_secs(20), World::is_whole);
}

/// Whoever wants a server to go with its shard may not have heard that another has come to it.
#[test]
fn a_server_goes_with_its_shard_only_if_it_is_alone_there_when_it_goes() {
    let (mut world, id) = with_spare();
    let with_shard = |world: &mut World, id| {
        let asked = |ticket| Event::Asks(ticket, Request::RemoveShardOf(id));
        let (at, ticket) = world.ask(asked).expect("somebody leads");
        world.run_until("it is answered", Duration::from_secs(15), |world| {
            world.configs[at].answers.contains_key(&ticket)
        });
        world.configs[at].answers[&ticket].clone()
    };
    let is_refused = |told: Result<String, String>| told.is_err_and(|why| why.starts_with("NOTALONE "));
    assert!(is_refused(with_shard(&mut world, id)), "it has no shard");
    let first = world.nodes[0].server.id;
    assert!(is_refused(with_shard(&mut world, first)), "it has slots and a replica");
    assert_eq!(ordered(&mut world, Order::Meet(id)), Ok("OK".to_owned()));
    world.policy.shards = 2;
    assert_eq!(ordered(&mut world, Order::Begin(id)), Ok("OK".to_owned()));
    let has_begun = |world: &World| matches!(world.standing(ShardId(1)), Some(Standing::Begun(_)));
    world.run_until("it has begun", Duration::from_secs(10), has_begun);
    world.add_server("");
    let other = world.nodes[3].server.id;
    let is_placed = |world: &World| world.places.values().any(|placed| *placed == other);
    world.run_until("it has a copy", Duration::from_secs(20), is_placed);
    assert!(is_refused(with_shard(&mut world, id)), "another has come");
    assert!(record(&world, id).place.is_some() && record(&world, other).place.is_some());
    world.unwanted.extend([id, other]);
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    assert_eq!(ordered(&mut world, Order::Remove(other, Force::Yes)), Ok("OK".to_owned()));
    world.policy.shards = 1;
    assert!(with_shard(&mut world, id).is_ok_and(|told| told.contains("shard 1 is removed")));
    assert_eq!(with_shard(&mut world, id), Ok(format!("server {id} is removed")), "it is said again");
}

#[test]
fn a_shard_that_is_begun_is_one_of_those_that_were_wanted() {
    let (mut world, id) = with_spare();
    let order = Order::Set("shards".to_owned(), "3".to_owned());
    world.policy.shards = 3;
    assert_eq!(ordered(&mut world, order), Ok("OK".to_owned()));
    // One alone begins none by itself.
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.shards().len(), 1);
    assert_eq!(ordered(&mut world, Order::Begin(id)), Ok("OK".to_owned()));
    let (line, _, _) = world.value(key::POLICY).expect("it is there");
    assert_eq!(Policy::from_line(line).map(|policy| policy.shards), Some(3));
}

/// What was met is for whoever met it: a shard that begins with one server is not given another that is to begin its own, but one that nobody has met, or that
/// is told to come to it.
#[test]
fn servers_that_were_met_are_no_copies_but_by_an_order() {
    let (mut world, first) = with_spare();
    let added = [(); 2].map(|()| {
        world.add_server("");
        world.nodes.last().expect("it was added").server.id
    });
    let are_known = move |world: &World| added.iter().all(|id| world.value(&key::server(*id)).is_some());
    world.run_until("they have come", Duration::from_secs(10), are_known);
    world.run_for(Duration::from_secs(1));
    let (a, [b, c]) = (first, added);
    for id in [a, b, c] {
        assert_eq!(ordered(&mut world, Order::Meet(id)), Ok("OK".to_owned()));
    }
    world.policy.shards = 3;
    for (shard, id) in [(1, a), (2, b)] {
        assert_eq!(ordered(&mut world, Order::Begin(id)), Ok("OK".to_owned()));
        world.run_for(Duration::from_secs(5));
        assert_eq!(record(&world, id).place, Some(Place { shard: ShardId(shard), node: 1 }));
    }
    assert_eq!((record(&world, c).place, record(&world, c).is_met), (None, true));
    for _ in 0..2 {
        // Said again it is done already.
        assert_eq!(ordered(&mut world, Order::Place(c, ShardId(1))), Ok("OK".to_owned()));
        assert_eq!(record(&world, c).place, Some(Place { shard: ShardId(1), node: 2 }));
    }
    assert!(ordered(&mut world, Order::Place(c, ShardId(2))).is_err_and(|why| why.contains("has a place")));
    // One that nobody has met comes by itself.
    world.add_server("");
    world.run_until("all have their copies", Duration::from_secs(20), World::is_whole);
}
