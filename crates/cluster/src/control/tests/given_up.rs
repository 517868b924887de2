//! What is answered to an order when the config server that has it leads no more: whether it may have been done.

use super::*;
use crate::control::{Request, Shift};
use topology::SlotRange;

/// Longer than a lease.
const LONG: Duration = Duration::from_secs(5);

impl World {
    /// Takes the store away from who leads, until another does; gives what he answers.
    fn answered_by_who_leads_no_more(&mut self, at: usize, ticket: Ticket) -> Result<String, String> {
        self.configs[at].cut_until = self.now.plus(LONG);
        self.run_for(LONG);
        self.is_mute = false;
        self.run_until("another leads", LONG, |world| world.leader().is_some_and(|leader| leader != at));
        self.configs[at].answers.get(&ticket).cloned().expect("it is answered")
    }

    fn wants(&mut self, order: Order) -> (usize, Ticket) {
        self.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads")
    }

    fn requests(&mut self, request: Request) -> Result<String, String> {
        let (at, ticket) = self.ask(|ticket| Event::Asks(ticket, request)).expect("somebody leads");
        self.run_for(Duration::from_secs(1));
        self.configs[at].answers.get(&ticket).cloned().expect("it is answered")
    }
}

/// Two config servers, one shard of two.
fn world(seed: u64) -> World {
    let mut world = World::whole(seed, 2);
    world.run_for(Duration::from_secs(1));
    world
}

fn is_unknown(answer: &Result<String, String>, what: &str) -> bool {
    answer.as_ref().is_err_and(|why| why.starts_with("UNKNOWN ") && why.contains(what))
}

#[test]
fn an_order_that_was_never_tried_may_be_given_to_another() {
    for order in [Order::AddShard, Order::Switch(ShardId(0), None), Order::BeginRestore] {
        let mut world = world(31);
        let at = world.leader().expect("one leads");
        world.configs[at].cut_until = world.now.plus(LONG);
        let (at, ticket) = world.wants(order.clone());
        let answer = world.answered_by_who_leads_no_more(at, ticket);
        let is_refused = answer.as_ref().is_err_and(|why| !why.starts_with("UNKNOWN "));
        assert!(is_refused, "{order:?}: {answer:?}");
    }
}

/// Said again it would be another's turn, and then the first one's.
#[test]
fn who_has_had_somebody_asked_to_be_master_does_not_say_that_nothing_was_done() {
    let mut world = world(32);
    world.gives_up = true;
    let (at, ticket) = world.wants(Order::Switch(ShardId(0), None));
    world.run_for(Duration::from_secs(1));
    let answer = world.answered_by_who_leads_no_more(at, ticket);
    assert!(is_unknown(&answer, "`switch 0`"), "{answer:?}");
}

#[test]
fn a_change_whose_outcome_nobody_knows_may_have_been_done() {
    let wanted = |world: &World| {
        let policy = world.value(key::POLICY).and_then(|(line, _, _)| Policy::from_line(line));
        policy.expect("there are settings").shards
    };
    let mut world = world(33);
    let at = world.leader().expect("one leads");
    (world.is_mute, world.configs[at].cut_until) = (true, world.now.plus(LONG));
    let (at, ticket) = world.wants(Order::AddShard);
    let answer = world.answered_by_who_leads_no_more(at, ticket);
    assert_eq!(wanted(&world), 2);
    assert!(is_unknown(&answer, "`add-shard`"), "{answer:?}");
}

#[test]
fn whoever_ends_tells_what_may_have_been_done() {
    let mut world = world(34);
    world.gives_up = true;
    let (at, switch) = world.wants(Order::Switch(ShardId(0), None));
    world.run_for(Duration::from_secs(1));
    let (_, add) = world.wants(Order::AddShard);
    let answers: BTreeMap<Ticket, Result<String, String>> = world.configs[at]
        .control
        .end()
        .into_iter()
        .filter_map(|action| match action {
            Action::Answer(ticket, answer) => Some((ticket, answer)),
            _ => None,
        })
        .collect();
    assert!(is_unknown(&answers[&switch], "`switch 0`"), "{answers:?}");
    // Its change is on its way.
    assert!(is_unknown(&answers[&add], "`add-shard`"), "{answers:?}");
}

#[test]
fn a_move_that_is_cancelled_twice_is_cancelled() {
    let mut world = World::new(35, 2, policy(2));
    (0..4).for_each(|_| world.add_server(""));
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    world.run_for(Duration::from_secs(1));
    let slots = vec![SlotRange { first: 0, last: 9 }];
    let shift = Shift { from: None, to: ShardId(1), slots };
    let begin = || Request::Begin { shifts: vec![shift.clone()], begun: BTreeSet::new() };
    assert_eq!(world.requests(begin()), Ok("moves 1".to_owned()));
    let at = world.leader().expect("one leads");
    (world.is_mute, world.configs[at].cut_until) = (true, world.now.plus(LONG));
    let (at, ticket) = world.ask(|ticket| Event::Asks(ticket, Request::Cancel(1))).expect("one leads");
    let answer = world.answered_by_who_leads_no_more(at, ticket);
    assert!(is_unknown(&answer, "may be said again"), "{answer:?}");
    assert_eq!(world.requests(Request::Cancel(1)), Ok("OK".to_owned()));
    assert!(world.requests(Request::Cancel(7)).is_err_and(|why| why == "NOMOVE there was no move 7"));
    // The next one comes to its end.
    assert_eq!(world.requests(begin()), Ok("moves 2".to_owned()));
    let (line, ..) = world.value(key::SLOTS).expect("they have owners").clone();
    let mut owners = SlotMap::from_line(&line).expect("it is a map");
    (0..10).for_each(|slot| owners.set(slot, Some(ShardId(1))));
    let writes = vec![
        Write::Put { key: format!("{PREFIX}slots"), value: owners.to_line(), lease: None },
        Write::Delete { key: format!("{PREFIX}{}", key::moving(2)) },
    ];
    world.store.change(&Change { compares: Vec::new(), writes });
    world.run_for(Duration::from_secs(1));
    let told = world.requests(Request::Cancel(2));
    assert!(told.as_ref().is_err_and(|why| why.starts_with("NOMOVE move 2 is done")), "{told:?}");
}

#[test]
fn who_is_not_heard_of_is_not_asked_to_be_master() {
    let mut world = world(36);
    let standing = world.standing(ShardId(0)).expect("it has begun");
    let other =
        *standing.members().iter().find(|node| Some(**node) != standing.master()).expect("there is one");
    let id = world.places[&Place { shard: ShardId(0), node: other }];
    // Who leads since a moment ago has not heard everybody.
    world.run_for(crate::control::SILENT);
    let at = world.leader().expect("one leads");
    // It is a member still.
    let (control, now) = (&mut world.configs[at].control, world.now);
    control.heard.remove(&id);
    let told = control.step(Event::Wants(Ticket(700), Order::Switch(ShardId(0), Some(id))), now);
    let is_refused =
        |action: &Action| matches!(action, Action::Answer(_, Err(why)) if why.contains("not heard of"));
    assert!(told.iter().any(is_refused), "{told:?}");
}

/// What was wanted of one that is lost is told again; it is not asked whose the slots were.
#[test]
fn slots_that_have_come_are_not_moved_again_whoever_was_to_give_them() {
    let mut world = World::new(37, 1, policy(2));
    (0..4).for_each(|_| world.add_server(""));
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    world.run_for(Duration::from_secs(1));
    let mut begin = |from: u16, to: u16, first: u16| {
        let slots = vec![SlotRange { first, last: first + 1 }];
        let shifts = vec![Shift { from: Some(ShardId(from)), to: ShardId(to), slots }];
        world.requests(Request::Begin { shifts, begun: BTreeSet::new() })
    };
    assert_eq!(begin(0, 1, 16_000), Ok("nothing is to be moved".to_owned()));
    // The second one is the other's.
    assert_eq!(begin(1, 0, 8191), Ok("moves 1".to_owned()));
    assert_eq!(begin(1, 0, 0), Ok("nothing is to be moved".to_owned()));
}

/// Somebody has begun shards by hand, or what is wanted was written down by an earlier version.
#[test]
fn one_shard_more_is_more_than_there_are() {
    let mut world = World::new(38, 1, policy(2));
    (0..4).for_each(|_| world.add_server(""));
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    world.run_for(Duration::from_secs(1));
    let fewer =
        Write::Put { key: format!("{PREFIX}{}", key::POLICY), value: policy(1).to_line(), lease: None };
    world.store.change(&Change { compares: Vec::new(), writes: vec![fewer] });
    world.run_for(Duration::from_secs(1));
    world.wants(Order::AddShard);
    world.run_for(Duration::from_secs(1));
    let (line, ..) = world.value(key::POLICY).expect("it is there");
    assert_eq!(Policy::from_line(line).map(|policy| policy.shards), Some(3));
}

#[test]
fn who_is_the_only_one_that_lives_stays_and_it_is_told_what_may_be_done() {
    let mut world = world(39);
    let master = world.standing(ShardId(0)).and_then(|standing| standing.master()).expect("there is one");
    let id = world.places[&Place { shard: ShardId(0), node: master }];
    for node in world.nodes.iter_mut().filter(|node| node.server.id != id) {
        node.is_up = false;
    }
    world.run_for(Duration::from_secs(6));
    let removed = |world: &mut World| {
        let (at, ticket) = world.wants(Order::Remove(id, super::super::Force::Yes));
        world.run_for(Duration::from_secs(1));
        world.configs[at].answers.get(&ticket).cloned().expect("it is answered")
    };
    let refused = removed(&mut world).expect_err("it is needed");
    assert!(refused.contains("only member") && refused.contains("(remove-shard 0)"), "{refused}");
    world.nodes.iter_mut().for_each(|node| node.is_up = false);
    world.run_for(Duration::from_secs(6));
    let refused = removed(&mut world).expect_err("nobody knows that it is gone");
    assert!(refused.contains("(promote 0 ID --accept-loss)"), "{refused}");
}
