//! Single courses of events, on a shard that nothing befalls.

use super::come_to_rest;
use super::node::Side;
use super::plan::Plan;
use super::world::World;
use crate::shard::{Letter, Outbox};
use ::log::Lsn;
use config::Edition;
use replication::insync::{Event, LinkId, MemberId, Message, Moment};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use testkit::stage::{Fate, Staged};

/// How long it is waited for what has no reason to fail.
const PATIENCE: Duration = Duration::from_secs(120);

fn pair(edition: Edition) -> World {
    crate::commands::install();
    let plan = Plan::of_handovers_alone(1);
    let fate = Fate { disturbances: Vec::new(), clock_ppm: vec![0; 2], ..plan.fate };
    let mut world = World::new(1, Plan { editions: vec![edition; 2], fate, ..plan });
    let until = world.plan.fate.until;
    world.run(until);
    assert!(come_to_rest(&mut world, until));
    assert_eq!(world.stage.violation, None);
    world
}

/// The link of a node to its master, and who that is.
fn link_of(world: &World, node: usize) -> (LinkId, MemberId, Arc<Outbox>) {
    let process = world.nodes[node].up.as_ref().expect("it is up");
    let dialled = process.sides.values().find_map(|side| match side {
        Side::Dialled { link, outbox, of, .. } => Some((*link, *of, outbox.clone())),
        Side::Accepted { .. } => None,
    });
    dialled.expect("it follows")
}

/// Has a member's driver take a heartbeat while something of its master's is being done, which ends no sooner than the heartbeat is answered; a second comes behind
/// the first answer. `meanwhile` is done before that. Gives the answers.
fn answers_meanwhile(world: &mut World, node: usize, meanwhile: impl Fn(usize) + Sync) -> Vec<Message> {
    let (link, from, outbox) = link_of(world, node);
    let moment = world.moment(node);
    let process = world.nodes[node].up.as_mut().expect("it is up");
    let (server, shard) = (process.server.clone(), process.shard.clone());
    let standing = shard.standing();
    let heartbeat = || {
        let (epoch, committed) = (standing.epoch, standing.committed);
        let message = Message::Records {
            epoch,
            start: Lsn(0),
            end: Lsn(0),
            committed,
            asked_at: Moment(1),
            is_member: true,
        };
        Letter::Happened(Event::Received { link, from, message })
    };
    let (is_held, held) = mpsc::channel();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let applying = server.following.applying.lock();
            is_held.send(()).expect("it is waited for");
            let began = Instant::now();
            let mut said = Vec::new();
            let mut answers = Vec::new();
            for nth in 0..2 {
                while answers.len() <= nth && began.elapsed() < PATIENCE {
                    said.extend(outbox.take().expect("the link is open"));
                    answers = acknowledgements(&said);
                    std::thread::yield_now();
                }
                if nth == 0 {
                    meanwhile(1);
                    shard.post(heartbeat());
                }
            }
            drop(applying);
            answers
        });
        held.recv().expect("it begins");
        meanwhile(0);
        let letters = [heartbeat()].into();
        process.driver.turn(letters, || moment, |_| false);
        waiting.join().expect("it ends")
    })
}

/// The acknowledgements among what is said on a link.
fn acknowledgements(said: &[u8]) -> Vec<Message> {
    let text = String::from_utf8_lossy(said);
    let messages = text.split("\r\n").filter_map(Message::from_line);
    messages.filter(|message| matches!(message, Message::Acknowledgement { .. })).collect()
}

/// The steps that they tell.
fn steps(answers: &[Message]) -> Vec<u64> {
    let steps = answers.iter().map(|answer| match answer {
        Message::Acknowledgement { reached: replication::insync::Reached::Within(steps), .. } => *steps,
        other => panic!("{other:?}"),
    });
    steps.collect()
}

#[test]
fn a_member_answers_while_something_long_is_done_and_tells_how_it_goes_on() {
    for edition in [Edition::Durable, Edition::Memory] {
        let mut world = pair(edition);
        let member = 1 - world.leader;
        let server = world.nodes[member].up.as_ref().expect("it is up").server.clone();
        let answers = answers_meanwhile(&mut world, member, |nth| {
            server.following.note_steps([3, 7][nth]);
        });
        let told = steps(&answers);
        assert!(told.len() == 2 && told[1] == told[0] + 7, "{edition:?}: {answers:?}");
    }
}

/// What is done and lies before a disk that stands still is told by what is durable, and by nothing else.
#[test]
fn a_member_tells_no_steps_while_its_disk_is_waited_for() {
    let mut world = pair(Edition::Durable);
    let member = 1 - world.leader;
    let server = world.nodes[member].up.as_ref().expect("it is up").server.clone();
    let order = server.following.state.lock().order;
    server.following.change(order, |status| status.offset += 1);
    let answers = answers_meanwhile(&mut world, member, |_| server.following.note_steps(5));
    let told = steps(&answers);
    assert!(told.len() == 2 && told[0] == told[1], "{answers:?}");
    assert!(server.following.steps.load(Ordering::Relaxed) >= 10);
}
