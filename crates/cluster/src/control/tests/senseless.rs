//! What makes no sense in the store stays as it is until somebody mends it, and nothing is done that it may forbid.

use super::*;
use crate::control::{Measure, Request, Shift, View};
use topology::{SlotRange, Stage};

/// What no version of anything means by any key.
const SPOILT: &str = "spoilt by somebody";

impl World {
    /// Somebody writes into the store, or takes something out of it.
    fn spoil(&mut self, key: &str, value: Option<&str>) {
        let key = format!("{PREFIX}{key}");
        let write = match value {
            Some(value) => Write::Put { key, value: value.to_owned(), lease: None },
            None => Write::Delete { key },
        };
        self.is_spoilt = true;
        self.store.change(&Change { compares: Vec::new(), writes: vec![write] });
    }

    fn text(&self, key: &str) -> Option<String> {
        self.value(key).map(|(value, ..)| value.clone())
    }

    fn answer(&mut self, (at, ticket): (usize, Ticket)) -> Result<String, String> {
        self.run_until("there is an answer", Duration::from_secs(30), |world| {
            world.configs[at].answers.contains_key(&ticket)
        });
        self.configs[at].answers[&ticket].clone()
    }

    fn move_slot(&mut self, slot: u16) -> Result<String, String> {
        let slots = vec![SlotRange { first: slot, last: slot }];
        let shifts = vec![Shift { from: None, to: ShardId(1), slots }];
        let request = Request::Begin { shifts, begun: BTreeSet::new() };
        let asked = self.ask(|ticket| Event::Asks(ticket, request)).expect("somebody leads");
        self.answer(asked)
    }

    fn order_now(&mut self, order: Order) -> Result<String, String> {
        let asked = self.ask(|ticket| Event::Wants(ticket, order)).expect("somebody leads");
        self.answer(asked)
    }

    /// Other processes take the config servers' places, and know what they read.
    fn begin_configs_anew(&mut self) {
        for at in 0..self.configs.len() {
            self.configs[at] = self.config();
        }
        self.run_for(Duration::from_secs(5));
    }

    /// All that the store holds but who leads.
    fn contents(&self) -> BTreeMap<String, String> {
        let kept = self.store.entries.iter().filter(|(key, _)| !key.ends_with("/leader"));
        kept.map(|(key, (value, ..))| (key.clone(), value.clone())).collect()
    }
}

/// A cluster of two shards with a move that waits, as one of the shards has no master that lives, and a server that waits for a place.
fn cluster() -> World {
    let mut world = World::new(21, 2, policy(2));
    (0..4).for_each(|_| world.add_server(""));
    world.run_until("it is whole", Duration::from_secs(30), World::is_whole);
    let asked = world.move_slot(0);
    assert_eq!(asked, Ok("moves 1".to_owned()));
    world.add_server("");
    world.run_for(Duration::from_secs(3));
    assert!(world.text("moves/1").is_some_and(|line| line.contains("copying")));
    world
}

/// What makes no sense, and what an operator is told who wants something that has to do with it.
#[test]
fn nothing_that_makes_no_sense_is_written_over() {
    let first = cluster().nodes[0].server.id;
    let server = key::server(first);
    let keys = [key::CLUSTER, key::LEADER, key::POLICY, key::SLOTS, key::LAST_MOVE, "moves/1", "shards/0"];
    for key in keys.into_iter().chain(["shards/1", "numbers/0", &server]) {
        let mut world = cluster();
        let before = world.text(key).expect("it is there");
        world.spoil(key, Some(SPOILT));
        let (contents, places) = (world.contents(), world.places.clone());
        for is_anew in [false, true] {
            if is_anew {
                world.begin_configs_anew();
            }
            world.run_for(Duration::from_secs(10));
            assert_eq!(world.text(key).as_deref(), Some(SPOILT), "{key}");
            // Nothing else was changed because of it: no shard began, nobody got a place, no move failed.
            let after = world.contents();
            // What is decided within shards is their own affair.
            let is_same = |key: &str, value: &String| {
                contents.get(key).is_some_and(|was| was == value || key.contains("/shards/"))
            };
            let changed: Vec<_> = after.iter().filter(|(key, value)| !is_same(key, value)).collect();
            assert!(changed.is_empty() && after.len() == contents.len(), "{key}: {changed:?}");
            assert_eq!(world.places, places, "{key}");
            let view = world.configs[0].control.view().expect("it was read").clone();
            let troubles = view.troubles();
            assert!(
                troubles.iter().any(|one| one.contains(key) && one.contains("mend or remove it")),
                "{key}: {troubles:?}"
            );
            let status = world.configs[0].control.status(world.now);
            assert!(status["troubles"].as_array().is_some_and(|all| all.len() == troubles.len()));
            assert!(
                crate::table::of(&status)
                    .contains(&format!("THE STORE OF DECISIONS IS SPOILT: {}", troubles[0]))
            );
        }
        // Once it is mended all goes on.
        let mended = if key == key::LEADER { None } else { Some(before.as_str()) };
        world.spoil(key, mended);
        world.run_for(Duration::from_secs(8));
        assert_eq!(world.configs[0].control.view().map(View::troubles), Some(Vec::new()), "{key}");
        assert_eq!(world.move_slot(1), Ok("moves 2".to_owned()), "{key}");
    }
}

#[test]
fn who_wants_something_that_has_to_do_with_what_makes_no_sense_is_told_so() {
    let told = |key: &str, ask: &dyn Fn(&mut World) -> Result<String, String>| {
        let mut world = cluster();
        world.spoil(key, Some(SPOILT));
        world.run_for(Duration::from_secs(1));
        let contents = world.contents();
        let refused = ask(&mut world).expect_err(key);
        assert!(refused.contains(key) && refused.contains("mend or remove it"), "{key}: {refused}");
        world.run_for(Duration::from_secs(2));
        assert_eq!(world.contents(), contents, "{key}");
    };
    for key in [key::SLOTS, key::LAST_MOVE, "moves/1", "shards/1"] {
        told(key, &|world| world.move_slot(1));
    }
    for key in [key::SLOTS, key::LAST_MOVE, "moves/1", "shards/0"] {
        told(key, &|world| {
            let request = Request::Rebalance { by: Measure::Slots, is_dry: false };
            let asked = world.ask(|ticket| Event::Asks(ticket, request)).expect("somebody leads");
            world.answer(asked)
        });
    }
    for key in [key::SLOTS, "moves/1", "shards/0", "shards/1"] {
        told(key, &|world| {
            let asked = world.ask(|ticket| Event::Asks(ticket, Request::RemoveShard(ShardId(0))));
            world.answer(asked.expect("somebody leads"))
        });
    }
    told("moves/1", &|world| {
        let asked = world.ask(|ticket| Event::Asks(ticket, Request::Cancel(1))).expect("somebody leads");
        world.answer(asked)
    });
    told(key::POLICY, &|world| world.order_now(Order::AddShard));
    told(key::POLICY, &|world| world.order_now(Order::Set("copies".to_owned(), "3".to_owned())));
    told("shards/0", &|world| world.order_now(Order::Switch(ShardId(0), None)));
    for key in ["shards/0", "numbers/0"] {
        told(key, &|world| world.order_now(Order::Place(world.nodes[4].server.id, ShardId(0))));
    }
}

/// A number that is not there says nothing of those that were given.
#[test]
fn no_number_is_given_twice_though_the_last_one_is_not_there() {
    let mut world = cluster();
    // Another server had number 3, and is gone.
    let place = |world: &mut World, at: usize| {
        let id = world.nodes[at].server.id;
        world.order_now(Order::Place(id, ShardId(0)))
    };
    assert_eq!(place(&mut world, 4), Ok("OK".to_owned()));
    let gone = world.nodes[4].server.id;
    world.unwanted.insert(gone);
    assert_eq!(world.order_now(Order::Remove(gone, crate::control::Force::Yes)), Ok("OK".to_owned()));
    world.nodes[4].is_up = false;
    world.spoil("numbers/0", None);
    world.add_server("");
    world.run_for(Duration::from_secs(4));
    let refused = place(&mut world, 5).expect_err("nobody knows");
    assert!(refused.contains("no numbers/0"), "{refused}");
    assert_eq!(world.text("numbers/0"), None);
    // Less than is seen to be given counts for nothing.
    world.spoil("numbers/0", Some("1"));
    world.run_for(Duration::from_secs(1));
    let next = world.configs[0].control.view().expect("it was read").next_number(ShardId(0));
    assert_eq!(next, Ok(3), "two are there");
    world.spoil("numbers/0", Some("3"));
    world.run_for(Duration::from_secs(1));
    assert_eq!(place(&mut world, 5), Ok("OK".to_owned()));
    assert_eq!(world.text("numbers/0").as_deref(), Some("4"));

    world.spoil(key::LAST_MOVE, None);
    world.run_for(Duration::from_secs(1));
    let refused = world.move_slot(1).expect_err("nobody knows");
    assert!(refused.contains("no last-move"), "{refused}");
    world.spoil(key::LAST_MOVE, Some("7"));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.move_slot(1), Ok("moves 8".to_owned()));
    world.spoil(key::LAST_MOVE, Some("2"));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.move_slot(2), Ok("moves 9".to_owned()), "less than is seen to be given");
}

/// Neither does a move fail because something beside it cannot be read, nor go on.
#[test]
fn a_move_stands_still_while_what_it_is_about_cannot_be_read() {
    for key in [key::SLOTS, "shards/0", "shards/1"] {
        let mut world = cluster();
        let view = world.configs[0].control.view().expect("it was read").clone();
        let one = view.moves[&1].clone();
        let epoch = |shard: ShardId| match &view.shards[&shard] {
            Standing::Begun(decision) => decision.epoch.0,
            Standing::Unbegun(_) => 0,
        };
        let epochs = crate::control::Epochs { from: epoch(one.from), to: epoch(one.to) };
        let before = world.text(key).expect("it is there");
        world.spoil(key, Some(SPOILT));
        world.run_for(Duration::from_secs(1));
        use crate::control::Word;
        let say = |world: &mut World, word: Word| {
            let request = Request::Said { id: 1, attempt: one.attempt, word };
            let asked = world.ask(|ticket| Event::Asks(ticket, request)).expect("somebody leads");
            world.answer(asked)
        };
        let line = world.text("moves/1");
        for word in [
            Word::CaughtUp(epochs),
            Word::Ready(epochs),
            Word::Failed("x".to_owned()),
            Word::FailedForGood("x".to_owned()),
        ] {
            let refused = say(&mut world, word.clone()).expect_err("it stands still");
            assert!(refused.starts_with("UNREACHED ") && refused.contains(key), "{key} {word:?}: {refused}");
        }
        assert_eq!(world.text("moves/1"), line, "{key}");
        world.spoil(key, Some(&before));
        world.run_for(Duration::from_secs(1));
        assert_eq!(say(&mut world, Word::CaughtUp(epochs)), Ok("OK".to_owned()));
        world.run_for(Duration::from_secs(1));
        let stage = world.configs[0].control.view().expect("it was read").moves[&1].stage.clone();
        assert_eq!(stage, Stage::Switching, "{key}");
    }
}
