//! What moves that wait say of why.

use super::*;
use crate::control::{Request, Shift, Word};
use topology::SlotRange;

#[test]
fn a_move_that_waits_says_what_for() {
    let mut world = World::new(41, 1, policy(3));
    (0..6).for_each(|_| world.add_server(""));
    world.run_until("it is whole", Duration::from_secs(20), World::is_whole);
    world.run_for(Duration::from_secs(1));
    let ask = |world: &mut World, request: Request| {
        world.ask(|ticket| Event::Asks(ticket, request)).expect("one leads");
        world.run_for(Duration::from_millis(300));
    };
    let begin = |to: u16, first: u16| {
        let slots = vec![SlotRange { first, last: first + 9 }];
        let shift = Shift { from: None, to: ShardId(to), slots };
        Request::Begin { shifts: vec![shift], begun: BTreeSet::new() }
    };
    let told = |world: &World, at: usize| {
        let moves = world.configs[0].control.status(world.now)["moves"].clone();
        let text = |name: &str| moves[at][name].as_str().map(str::to_owned);
        (text("stage").expect("it has one"), text("waits_for"), text("last_failure"))
    };
    let (waiting, copying) = ("waiting".to_owned(), "copying".to_owned());
    ask(&mut world, begin(1, 0));
    assert_eq!(told(&world, 0), (copying.clone(), None, None));
    ask(&mut world, begin(2, 100));
    assert_eq!(told(&world, 1), (waiting.clone(), Some("move 1 is first".to_owned()), None));
    let word = Word::Failed("the other end is gone".to_owned());
    ask(&mut world, Request::Said { id: 1, attempt: 1, word });
    let failure = Some("attempt 1 came to nothing: the other end is gone".to_owned());
    world.run_for(Duration::from_secs(1));
    assert_eq!(told(&world, 0).2, failure);
    // Both servers of the shard that is to have them are away.
    ask(&mut world, Request::Cancel(1));
    ask(&mut world, Request::Cancel(2));
    let placed: Vec<ServerId> =
        world.places.iter().filter(|(place, _)| place.shard == ShardId(2)).map(|(_, id)| *id).collect();
    for node in world.nodes.iter_mut().filter(|node| placed.contains(&node.server.id)) {
        node.is_up = false;
    }
    world.run_for(Duration::from_secs(6));
    ask(&mut world, begin(2, 100));
    let why = Some("shard 2 has no master that is heard of".to_owned());
    assert_eq!(told(&world, 0), (waiting, why, None));
}
