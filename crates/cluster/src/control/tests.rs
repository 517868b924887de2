//! Whole clusters from one seed: config servers that are killed, stand still and lose the store, over a store in memory; servers that come, go and return; operators.
//!
//! What shards do among themselves is a model here: a master takes those into its decision that live, and one of the members takes its place when it is dead.

mod balancing;
mod given_up;
mod losing;
mod meeting;
mod moves;
mod restoring;
mod senseless;
mod settings;
mod users;
mod waiting;
mod world;

use super::view::key;
use super::{Action, Event, Leader, Options, Order, Policy, Restored, Standing, Ticket, View};
use crate::store::{Change, Changed, Entry, Reading, Revision, Write};
use replication::insync::{Decision, Epoch, Life, MemberId, Moment, NodeId, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use topology::{Edition, Place, Server, ServerId, ShardId, SlotMap};
use world::{FULL, LIFE, Node, PREFIX, World, decision, policy};

/// How many seeds are played, and which is the first.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("TARN_SEED").unwrap_or(1);
    first..first + number("TARN_STEPS").unwrap_or(count)
}

#[test]
fn a_cluster_comes_to_be() {
    let mut world = World::new(1, 2, policy(3));
    for zone in ["a", "a", "b", "b", "a", "b", "b"] {
        world.add_server(zone);
    }
    let took = world.run_until("all slots are served", Duration::from_secs(20), World::is_whole);
    println!("a cluster of 3 shards serves after {took:?}");
    let zones = |shard: ShardId| {
        let of = |place: &Place| world.nodes.iter().find(|node| node.server.id == world.places[place]);
        let places = world.places.keys().filter(|place| place.shard == shard);
        places.filter_map(|place| of(place).map(|node| node.server.zone.clone())).collect::<BTreeSet<_>>()
    };
    for shard in 0..3 {
        assert_eq!(zones(ShardId(shard)).len(), 2, "shard {shard}");
    }
    assert_eq!(world.places.len(), 6);
}

#[test]
fn what_is_lost_is_replaced_and_what_may_be_needed_is_not() {
    let mut world = World::whole(2, 3);
    // The master is lost: its shard goes on with the other, and gets the spare in time.
    let master = world.standing(ShardId(0)).and_then(|standing| standing.master()).expect("there is one");
    let lost = world.places[&Place { shard: ShardId(0), node: master }];
    let at = world.nodes.iter().position(|node| node.server.id == lost).expect("it is there");
    world.nodes[at].is_up = false;
    world.run_for(Duration::from_secs(15));
    assert!(!world.is_whole(), "it was replaced too early");
    world.run_until("the spare has its place", Duration::from_secs(15), World::is_whole);
    // It comes back, and is told that it was removed.
    let server = world.nodes[at].server.clone();
    let (config, ticket) =
        world.ask(|ticket| Event::Joins { ticket, cluster: String::new(), server }).expect("somebody leads");
    let answer = world.configs[config].answers[&ticket].clone();
    assert!(answer.is_err_and(|why| why.starts_with("REMOVED")));
    // All of the shard is lost: nobody is removed, though there is a spare.
    world.add_server("");
    world.run_for(Duration::from_secs(3));
    for node in &mut world.nodes[..3] {
        node.is_up = false;
    }
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.placed()[&ShardId(0)].len(), 2);
}

/// A process that dies again and again, and comes with another id each time, leaves nothing.
#[test]
fn spares_that_are_gone_are_forgotten_and_may_come_back() {
    let mut world = World::whole(11, 4);
    world.run_for(Duration::from_secs(1));
    let spare =
        |world: &World| world.nodes.iter().position(|node| !is_placed(world, node)).expect("there is one");
    let (at, count) = (spare(&world), |world: &World| {
        let prefix = format!("{PREFIX}servers/");
        world.store.entries.keys().filter(|key| key.starts_with(&prefix)).count()
    });
    assert_eq!(count(&world), 4);
    world.nodes[at].is_up = false;
    world.run_for(Duration::from_secs(18));
    assert_eq!(count(&world), 4, "it may come back");
    world.run_for(Duration::from_secs(4));
    assert_eq!(count(&world), 3);
    let id = world.nodes[at].server.id;
    assert!(world.value(&key::removed(id)).is_none());
    (world.nodes[at].is_up, world.nodes[at].up_since) = (true, world.now);
    world.run_for(Duration::from_secs(2));
    assert_eq!(count(&world), 4);
}

fn is_placed(world: &World, node: &Node) -> bool {
    let line = world.value(&key::server(node.server.id));
    line.and_then(|(line, _, _)| Server::from_line(line)).is_some_and(|server| server.place.is_some())
}

/// Also when nobody waits for its answer any more.
#[test]
fn orders_under_way_are_shown() {
    let mut world = World::whole(12, 2);
    world.run_for(Duration::from_secs(1));
    let goes = world.nodes[0].server.id;
    world.unwanted.insert(goes);
    world.add_server("");
    world.run_for(Duration::from_secs(2));
    let orders = |world: &World| {
        let leader = world.leader().expect("somebody leads");
        world.configs[leader].control.status(world.now)["orders"].clone()
    };
    assert_eq!(orders(&world), serde_json::json!([]));
    world.ask(|ticket| Event::Wants(ticket, Order::Remove(goes, super::Force::No)));
    let told = orders(&world);
    assert_eq!(told[0]["order"], format!("remove-server {goes}"), "{told}");
    assert!(told[0]["left_ms"].as_u64().is_some_and(|left| left > 3_500_000), "{told}");
    let none = |world: &World| orders(world) == serde_json::json!([]);
    world.run_until("it is carried out", Duration::from_secs(30), none);
    assert!(world.is_whole());
}

/// However little was once written down.
#[test]
fn who_was_heard_of_is_not_replaced() {
    let mut world = World::new(5, 1, Policy { replace_after: Duration::ZERO, ..policy(1) });
    for _ in 0..3 {
        world.add_server("");
    }
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    world.run_for(Duration::from_secs(3));
    let before = world.placed();
    let master = world.standing(ShardId(0)).and_then(|standing| standing.master()).expect("there is one");
    let replica = before[&ShardId(0)].keys().find(|node| **node != master).expect("there is one");
    let id = world.places[&Place { shard: ShardId(0), node: *replica }];
    let at = world.nodes.iter().position(|node| node.server.id == id).expect("it is there");
    world.nodes[at].is_up = false;
    let is_alone = |world: &World| world.standing(ShardId(0)).is_some_and(|now| now.members().len() == 1);
    world.run_until("it is no member", Duration::from_secs(2), is_alone);
    world.run_for(Duration::from_secs(1));
    (world.nodes[at].is_up, world.nodes[at].up_since) = (true, world.now);
    world.run_until("it is whole again", Duration::from_secs(5), World::is_whole);
    assert_eq!(world.placed(), before);
    assert_eq!(world.places.len(), 2, "the third server is a spare still");
}

#[test]
fn spans_are_in_seconds_if_nothing_else_is_said() {
    for (text, milliseconds) in [("600", 600_000), ("600s", 600_000), ("8000ms", 8000)] {
        assert_eq!(Policy::read_replace_after(text), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
    for text in ["", "s", "7", "7999ms", "-600", "1h", "600 s", "18446744073709551615"] {
        assert!(Policy::read_replace_after(text).is_err(), "{text}");
    }
}

#[test]
fn one_shard_more_is_one_shard_more_whatever_becomes_of_the_answer() {
    let mut world = World::whole(9, 2);
    world.run_for(Duration::from_secs(1));
    let wanted = |world: &World| {
        let policy = world.value(key::POLICY).and_then(|(line, _, _)| Policy::from_line(line));
        policy.expect("there are settings").shards
    };
    let add =
        |world: &mut World| world.ask(|ticket| Event::Wants(ticket, Order::AddShard)).expect("one leads");
    world.is_mute = true;
    let asked = [add(&mut world), add(&mut world)];
    world.run_for(Duration::from_secs(1));
    world.is_mute = false;
    world.run_for(Duration::from_secs(2));
    for (at, ticket) in asked {
        assert_eq!(world.configs[at].answers.get(&ticket), Some(&Ok("OK".to_owned())));
    }
    assert_eq!(wanted(&world), 3, "each of the two wanted one more");
    add(&mut world);
    world.run_for(Duration::from_secs(1));
    assert_eq!(wanted(&world), 4);
}

#[test]
fn operators_are_obeyed() {
    let mut world = World::whole(3, 2);
    // The leader sees it a moment later.
    world.run_for(Duration::from_secs(1));
    let order = |world: &mut World, order: Order, span: u64| {
        let (at, ticket) = world.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
        world.run_for(Duration::from_secs(span));
        world.configs[at].answers.get(&ticket).cloned()
    };
    let master = |world: &World| world.standing(ShardId(0)).and_then(|standing| standing.master());
    let before = master(&world);
    let switched = order(&mut world, Order::Switch(ShardId(0), None), 2);
    assert!(matches!(switched, Some(Ok(_))), "{switched:?}");
    assert_ne!(master(&world), before);
    assert!(order(&mut world, Order::Switch(ShardId(9), None), 1).is_some_and(|answer| answer.is_err()));
    // The only one that could go is needed.
    let now = world.places[&Place { shard: ShardId(0), node: master(&world).expect("there is one") }];
    let refused = order(&mut world, Order::Remove(now, super::Force::No), 5).expect("it is answered");
    assert!(refused.is_err_and(|why| why.contains("no server waits")));
    world.unwanted.insert(now);
    world.add_server("");
    world.run_for(Duration::from_secs(3));
    assert_eq!(order(&mut world, Order::Remove(now, super::Force::No), 10), Some(Ok("OK".to_owned())));
    assert!(world.is_whole());
    assert_ne!(world.places[&Place { shard: ShardId(0), node: master(&world).expect("there is one") }], now);
    // Another shard, as soon as there are servers.
    world.policy.shards = 2;
    assert_eq!(order(&mut world, Order::AddShard, 3), Some(Ok("OK".to_owned())));
    for _ in 0..2 {
        world.add_server("");
    }
    world.run_for(Duration::from_secs(6));
    assert_eq!(world.shards().len(), 2);
    let set = |name: &str, value: &str| Order::Set(name.to_owned(), value.to_owned());
    let told = order(&mut world, set("copies", "1"), 2).expect("it is answered").expect("it is done");
    assert_eq!(told, "OK: no server is removed by that: shard 0 has 2, and `remove-server ID` has one go");
    assert_eq!(order(&mut world, set("copies", "2"), 2), Some(Ok("OK".to_owned())));
    let few = order(&mut world, set("shards", "1"), 2).expect("it is answered");
    assert!(
        few.is_err_and(|why| why.contains("there are (2) cannot") && why.contains("`remove-shard SHARD`"))
    );
    assert_eq!(order(&mut world, set("shards", "2"), 2), Some(Ok("OK".to_owned())));
    for (name, value) in
        [("copies", "0"), ("copies", "x"), ("colour", "1"), ("shards", "70000"), ("replace-after", "7")]
    {
        assert!(
            order(&mut world, set(name, value), 1).is_some_and(|answer| answer.is_err()),
            "{name} {value}"
        );
    }
}

#[test]
fn who_is_of_another_edition_or_away_gets_no_place_by_an_order() {
    let mut world = World::new(8, 1, policy(1));
    for _ in 0..5 {
        world.add_server("");
    }
    world.nodes[3].server.edition = Edition::Durable;
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    world.run_for(Duration::from_secs(1));
    let placed = world.placed();
    let has_place = |id: &ServerId| world.places.values().any(|placed| placed == id);
    let of = |edition: Edition| move |server: &&Server| server.edition == edition;
    let spares: Vec<Server> = world.nodes.iter().map(|node| node.server.clone()).collect();
    let mut spares = spares.iter().filter(|server| !has_place(&server.id));
    let other = spares.clone().find(of(Edition::Durable)).expect("it waits").id;
    let same: Vec<ServerId> = spares.by_ref().filter(of(Edition::Memory)).map(|server| server.id).collect();
    let at = world.nodes.iter().position(|node| node.server.id == same[0]).expect("it is there");
    world.nodes[at].is_up = false;
    world.run_for(Duration::from_secs(6));
    let place = |world: &mut World, id: ServerId| {
        let order = Order::Place(id, ShardId(0));
        let (at, ticket) = world.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
        world.run_for(Duration::from_secs(2));
        world.configs[at].answers.get(&ticket).cloned().expect("it is answered")
    };
    assert!(place(&mut world, other).is_err_and(|why| why.contains("durable edition")));
    assert!(place(&mut world, same[0]).is_err_and(|why| why.contains("not heard of")));
    assert_eq!(world.placed(), placed);
    assert_eq!(place(&mut world, same[1]), Ok("OK".to_owned()));
    assert_eq!(world.placed()[&ShardId(0)].len(), 3);
}

#[test]
fn a_master_that_is_to_go_is_asked_again_to_hand_over() {
    let mut world = World::new(7, 1, Policy { copies: 3, ..policy(1) });
    for _ in 0..4 {
        world.add_server("");
    }
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    world.run_for(Duration::from_secs(1));
    for is_done_by_another in [false, true] {
        let now = world.standing(ShardId(0)).expect("it has begun");
        let master = now.master().expect("there is one");
        let id = world.places[&Place { shard: ShardId(0), node: master }];
        world.unwanted.insert(id);
        world.gives_up = true;
        let order = Order::Remove(id, super::Force::Yes);
        let (at, ticket) = world.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
        world.run_for(Duration::from_secs(1));
        assert_eq!(world.configs[at].answers.get(&ticket), None);
        match is_done_by_another {
            false => world.gives_up = false,
            true => {
                // The one of which it was not asked: of those that are alike the last is.
                let members = now.members();
                let other = members.iter().find(|node| **node != master).expect("there is one");
                let Standing::Begun(now) = now else { panic!("it has begun") };
                let next = decision(now.version.0 + 1, now.epoch.0 + 1, *other, &members);
                world.decide(ShardId(0), next);
            }
        }
        let is_answered = |world: &World| world.configs[at].answers.contains_key(&ticket);
        world.run_until("it may go", Duration::from_secs(20), is_answered);
        assert_eq!(world.configs[at].answers[&ticket], Ok("OK".to_owned()));
        world.run_for(Duration::from_secs(3));
    }
}

#[test]
fn settings_that_are_changed_at_the_same_time_all_count() {
    let mut world = World::new(6, 1, policy(1));
    world.run_until("it has settings", Duration::from_secs(10), |world| world.value(key::POLICY).is_some());
    world.run_for(Duration::from_secs(1));
    let set = |name: &str, value: &str| Order::Set(name.to_owned(), value.to_owned());
    let mut asked = Vec::new();
    let orders = [Order::AddShard, set("copies", "3"), set("move-rate", "777"), Order::AddShard];
    for order in orders {
        asked.extend(world.ask(|ticket| Event::Wants(ticket, order)));
    }
    // And while the first of them are under way.
    world.step();
    asked.extend(world.ask(|ticket| Event::Wants(ticket, set("replace-after", "60"))));
    world.run_for(Duration::from_secs(2));
    assert_eq!(asked.len(), 5);
    for (at, ticket) in asked {
        assert_eq!(world.configs[at].answers.get(&ticket), Some(&Ok("OK".to_owned())));
    }
    let (line, _, _) = world.value(key::POLICY).expect("it is there");
    let wanted =
        Policy { copies: 3, shards: 3, replace_after: Duration::from_secs(60), move_rate: 777, ..policy(1) };
    assert_eq!(Policy::from_line(line), Some(wanted));
}

#[test]
fn clusters_come_through_whatever_happens() {
    for seed in seeds(20) {
        let mut world = World::new(seed, 3, policy(2));
        for at in 0..6 {
            world.add_server(if at % 2 == 0 { "z0" } else { "z1" });
        }
        world.is_rough = true;
        for _ in 0..120 {
            world.step();
            if world.chance(2) {
                world.disturb();
            }
            world.run_for(Duration::from_millis(500));
        }
        world.is_rough = false;
        let now = world.now;
        for node in world.nodes.iter_mut().filter(|node| !node.is_up) {
            (node.is_up, node.up_since) = (true, now);
        }
        while world.nodes.len() < 16 {
            world.add_server("z2");
        }
        let whole = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.run_until("all is well again", Duration::from_secs(120), World::is_whole)
        }));
        assert!(whole.is_ok(), "TARN_SEED={seed} TARN_STEPS=1");
    }
}

#[test]
fn nobody_yields_and_nobody_waits_while_the_store_takes_no_changes() {
    let mut world = World::whole(11, 2);
    world.run_for(Duration::from_secs(1));
    let before = world.standing(ShardId(0));
    world.is_full = true;
    let master = before.as_ref().and_then(Standing::master).expect("there is one");
    let id = world.places[&Place { shard: ShardId(0), node: master }];
    let (at, switch) =
        world.ask(|ticket| Event::Wants(ticket, Order::Switch(ShardId(0), None))).expect("somebody leads");
    let (_, remove) = world
        .ask(|ticket| Event::Wants(ticket, Order::Remove(id, super::Force::No)))
        .expect("it leads still");
    let mut server = world.nodes[0].server.clone();
    server.id = ServerId::from_bytes([9; 20]);
    let (_, join) =
        world.ask(|ticket| Event::Joins { ticket, cluster: String::new(), server }).expect("it leads still");
    world.run_for(Duration::from_secs(12));
    let told = |world: &World, ticket| world.configs[at].answers.get(&ticket).cloned();
    for ticket in [switch, join] {
        let answer = told(&world, ticket).expect("it is answered");
        assert!(answer.is_err_and(|why| why.contains(FULL)));
    }
    assert_eq!(told(&world, remove), None, "it waits for a copy as long as it takes");
    assert_eq!(world.standing(ShardId(0)), before);
    assert_eq!(world.configs[at].control.refusal(), Some(FULL));
    world.unwanted.insert(id);
    world.is_full = false;
    let is_well = |world: &World| world.configs[at].control.refusal().is_none();
    world.run_until("that it takes changes is seen", Duration::from_secs(3), is_well);
}

#[test]
fn that_a_store_takes_changes_again_is_seen_though_nothing_is_due() {
    let mut world = World::whole(12, 2);
    world.run_for(Duration::from_secs(1));
    world.is_full = true;
    let set = Order::Set("copies".to_owned(), "2".to_owned());
    let (at, _) = world.ask(|ticket| Event::Wants(ticket, set)).expect("somebody leads");
    world.run_for(Duration::from_secs(12));
    assert_eq!(world.configs[at].control.refusal(), Some(FULL));
    let (before, changes) = (world.value(key::POLICY).cloned(), world.store.changes);
    world.is_full = false;
    world.run_for(Duration::from_secs(12));
    assert_eq!(world.configs[at].control.refusal(), None);
    assert_eq!(world.store.changes, changes + 1);
    assert_eq!(world.value(key::POLICY).map(|(line, ..)| line), before.as_ref().map(|(line, ..)| line));
}

#[test]
fn all_keys_are_served_though_a_shard_without_slots_is_away() {
    let mut world = World::whole(13, 2);
    world.policy.shards = 2;
    let (at, _) = world.ask(|ticket| Event::Wants(ticket, Order::AddShard)).expect("somebody leads");
    for _ in 0..2 {
        world.add_server("");
    }
    world.run_until("it has begun", Duration::from_secs(20), |world| {
        matches!(world.standing(ShardId(1)), Some(Standing::Begun(_)))
    });
    world.nodes[2..].iter_mut().for_each(|node| node.is_up = false);
    world.run_for(Duration::from_secs(6));
    let serves = |world: &mut World, figures: &str| {
        let master = world.standing(ShardId(0)).and_then(|standing| standing.master());
        let place = Place { shard: ShardId(0), node: master.expect("there is one") };
        let event = Event::Here { id: world.places[&place], at: world.now, figures: figures.to_owned() };
        world.tell(at, event);
        world.configs[at].control.serves(world.now)
    };
    assert!(serves(&mut world, "role=master"));
    assert!(!serves(&mut world, "role=master serves=0"));
}

#[test]
fn what_makes_no_sense_is_told_whether_it_is_read_or_seen() {
    let mut control = World::new(9, 1, policy(1)).configs.remove(0).control;
    let (now, revision) = (Moment(1), Revision(1));
    let begins = |action: &Action, key: &str| {
        match action {
        Action::Note(text) => text.starts_with(&format!(
            "An operator is needed: the store holds something in {key} that makes no sense: mend or remove it; "
        )),
        _ => false,
    }
    };
    let entry = |key: &str| Entry { key: format!("{PREFIX}{key}"), value: "x".to_owned(), revision };
    let reading = Reading { revision, entries: vec![entry("note"), entry("a\nb")] };
    let told = control.step(Event::Read(reading), now);
    assert!(begins(&told[0], "a\\nb") && begins(&told[1], "note"), "{told:?}");
    let changed = vec![Changed { key: format!("{PREFIX}slots"), value: Some("y".to_owned()) }];
    let told = control.step(Event::Changed { revision: Revision(2), changed }, now);
    assert!(begins(&told[0], "slots") && !told.iter().any(|one| begins(one, "note")), "once: {told:?}");
}

/// Half the masters of a large cluster at once. Reports what that takes of the leader.
#[test]
fn a_large_cluster_loses_half_of_its_masters() {
    let shards = std::env::var("TARN_SHARDS").ok().and_then(|text| text.parse::<u16>().ok()).unwrap_or(100);
    let mut world = World::new(4, 1, policy(shards));
    for at in 0..2 * shards {
        world.add_server(if at % 2 == 0 { "a" } else { "b" });
    }
    let begun = Instant::now();
    let took = world.run_until("it is whole", Duration::from_secs(120), World::is_whole);
    println!(
        "{shards} shards serve after {took:?}, {} changes, {:?} of CPU",
        world.store.changes,
        begun.elapsed()
    );
    let placed = world.placed();
    let lost: Vec<ServerId> = (0..shards / 2 - 1)
        .filter_map(|shard| {
            let shard = ShardId(shard);
            let master = world.standing(shard)?.master()?;
            placed.get(&shard)?.get(&master)?;
            Some(world.places[&Place { shard, node: master }])
        })
        .collect();
    assert_eq!(lost.len(), usize::from(shards / 2 - 1));
    for node in &mut world.nodes {
        node.is_up &= !lost.contains(&node.server.id);
    }
    let changes = world.store.changes;
    let is_led = |world: &World| {
        let placed = world.placed();
        world.shards().iter().all(|shard| {
            let master = world.standing(*shard).and_then(|standing| standing.master());
            master.is_some_and(|master| placed[shard].get(&master) == Some(&true))
        })
    };
    let took = world.run_until("each shard has a master", Duration::from_secs(30), is_led);
    println!("{} masters are replaced after {took:?}, {} changes", lost.len(), world.store.changes - changes);
    // What a second of nothing costs the leader: as many servers say that they are there.
    let event = |world: &World, at: usize| Event::Here {
        id: world.nodes[at].server.id,
        at: world.now,
        figures: "role=master epoch=1 offset=1".to_owned(),
    };
    let begun = Instant::now();
    for second in 0..10 {
        for at in 0..world.nodes.len() {
            let event = event(&world, at);
            let now = world.now.plus(Duration::from_micros(second * 1_000_000 + at as u64 * 500));
            world.configs[0].control.step(event, now);
        }
    }
    println!("a second of {} servers costs the leader {:?}", world.nodes.len(), begun.elapsed() / 10);
}
