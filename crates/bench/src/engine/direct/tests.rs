//! Clusters made for it, whose nodes answer as a test wants: each request where it belongs, redirections followed, losses survived.

use crate::engine::tests::serve;
use crate::plan::{Direct, End, Plan, Target, Unobserved};
use crate::results::{Measurement, Step};
use crate::work::{KeyPattern, Memtier, Template, Work, Ycsb};
use crate::{Failure, run};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::key_slot;

/// The first slot of the second node.
const BORDER: u16 = 8192;

/// What two nodes know and have seen.
#[derive(Default)]
struct State {
    ports: Vec<u16>,
    /// Requests with keys, by node.
    seen: [Vec<Vec<String>>; 2],
    /// How often each was asked for the map.
    asked: [usize; 2],
    /// The slot from which on all are the second node's by now.
    border: u16,
}

/// Two nodes; `answer` is asked first what to say, with the state, the node, and the request.
struct Cluster {
    state: Arc<Mutex<State>>,
    target: Target,
}

/// What a node says: as a node does, this, or nothing more on this connection.
enum Says {
    Usual,
    This(String),
    Nothing,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn map(&self) -> String {
        let line = |first: u16, last: u16, port: u16| {
            format!("*3\r\n:{first}\r\n:{last}\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$2\r\nid\r\n")
        };
        let border = self.border;
        format!("*2\r\n{}{}", line(0, border - 1, self.ports[0]), line(border, 16_383, self.ports[1]))
    }
}

fn usual(words: &[String]) -> String {
    match words[0].as_str() {
        "GET" => "$1\r\nv\r\n".to_owned(),
        "ZRANGEBYSCORE" => "*2\r\n$5\r\nuser1\r\n$5\r\nuser2\r\n".to_owned(),
        "ZADD" => ":1\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
}

fn cluster(answer: impl FnMut(&mut State, usize, &[String]) -> Says + Send + 'static) -> Cluster {
    let state = Arc::new(Mutex::new(State { border: BORDER, ..State::default() }));
    let answer = Arc::new(Mutex::new(answer));
    let targets = [0, 1].map(|node| {
        let (state, answer) = (state.clone(), answer.clone());
        serve(Box::new(move |words| {
            let mut state = locked(&state);
            if words[0] == "CLUSTER" {
                state.asked[node] += 1;
                return Some(state.map().into_bytes());
            }
            let says = answer.lock().unwrap_or_else(PoisonError::into_inner)(&mut state, node, words);
            let text = match says {
                Says::Nothing => return None,
                Says::This(text) => text,
                Says::Usual => {
                    state.seen[node].push(words.to_vec());
                    usual(words)
                }
            };
            Some(text.into_bytes())
        }))
    });
    locked(&state).ports = targets.iter().map(|target| target.port).collect();
    let [target, _] = targets;
    Cluster { state, target }
}

impl Cluster {
    fn plan(&self, work: Work, operations: u64) -> Plan {
        Plan {
            direct: Some(Direct::default()),
            end: End::Operations(operations),
            ..Plan::new("fake", self.target.clone(), work)
        }
    }
}

fn sets() -> Work {
    Work::Request(Template::kv("set", 3, Some(1_000)).unwrap())
}

/// Whether each node has only seen keys of its slots.
fn are_at_home(state: &State) -> bool {
    let is_second = |words: &Vec<String>| key_slot(words[1].as_bytes()) >= BORDER;
    !state.seen[0].iter().any(is_second) && state.seen[1].iter().all(is_second)
}

fn measured(plan: &Plan) -> Measurement {
    run(plan, &mut Unobserved).unwrap()
}

#[test]
fn every_request_goes_to_the_master_of_its_key() {
    let cluster = cluster(|_, _, _| Says::Usual);
    let plan = Plan { connections: 4, threads: 2, pipeline: 5, ..cluster.plan(sets(), 1_003) };
    let measurement = measured(&plan);
    assert_eq!(
        (measurement.operations, measurement.all.count, measurement.errors_total()),
        (1_003, 1_003, 0)
    );
    assert!(measurement.command.contains(" --cluster "), "{}", measurement.command);
    let state = locked(&cluster.state);
    assert!(are_at_home(&state) && state.seen.iter().all(|seen| seen.len() > 300));
    assert_eq!(state.asked, [1, 0], "nothing has happened that makes the map old");
}

#[test]
fn records_and_their_index_are_in_the_slots_that_they_are_in() {
    for name in ["a", "e", "f"] {
        let cluster = cluster(|_, _, _| Says::Usual);
        let work = Work::Ycsb(Ycsb { fields: 1, ..Ycsb::named(name, 100).unwrap() });
        let measurement = measured(&Plan { connections: 3, pipeline: 4, ..cluster.plan(work, 300) });
        assert_eq!((measurement.operations, measurement.errors_total()), (300, 0), "{name}");
        assert!(are_at_home(&locked(&cluster.state)), "{name}");
    }
    let cluster = cluster(|_, _, _| Says::Usual);
    let load = Work::YcsbLoad(Ycsb { fields: 1, ..Ycsb::named("e", 50).unwrap() });
    assert_eq!(measured(&cluster.plan(load, 50)).operations, 50);
    let state = locked(&cluster.state);
    assert!(are_at_home(&state));
    assert_eq!(state.seen.iter().map(Vec::len).sum::<usize>(), 100, "each record, and its entry");
}

#[test]
fn a_slot_that_has_moved_is_followed_and_is_no_error() {
    // The map is out of date from the first request on: the second node has all slots from 1,000 on.
    let cluster = cluster(|state, node, words| {
        state.border = 1_000;
        let slot = key_slot(words[1].as_bytes());
        match (node, slot >= 1_000) {
            (0, true) => Says::This(format!("-MOVED {slot} 127.0.0.1:{}\r\n", state.ports[1])),
            (1, false) => Says::This("-ERR not here\r\n".to_owned()),
            _ => Says::Usual,
        }
    });
    let measurement = measured(&Plan { connections: 2, ..cluster.plan(sets(), 2_000) });
    assert_eq!((measurement.operations, measurement.errors_total()), (2_000, 0), "{:?}", measurement.errors);
    let state = locked(&cluster.state);
    assert!(state.asked.iter().sum::<usize>() >= 2, "the map is asked for anew");
}

#[test]
fn a_request_that_is_sent_elsewhere_for_once_has_asking_before_it() {
    let mut was_asking = false;
    let cluster = cluster(move |state, node, words| {
        if words[0] == "ASKING" {
            was_asking = true;
            return Says::This("+OK\r\n".to_owned());
        }
        let slot = key_slot(words[1].as_bytes());
        let is_asking = std::mem::take(&mut was_asking);
        match (node, slot >= BORDER) {
            // Every third slot is on its way.
            (0, _) if slot.is_multiple_of(3) => {
                Says::This(format!("-ASK {slot} 127.0.0.1:{}\r\n", state.ports[1]))
            }
            (1, false) if !is_asking => Says::This("-ERR without ASKING\r\n".to_owned()),
            _ => Says::Usual,
        }
    });
    let measurement = measured(&cluster.plan(sets(), 1_000));
    assert_eq!((measurement.operations, measurement.errors_total()), (1_000, 0), "{:?}", measurement.errors);
    assert!(!are_at_home(&locked(&cluster.state)), "some were sent to the other node");
}

#[test]
fn a_lost_connection_fails_what_was_on_its_way_and_is_opened_again() {
    let mut number = 0;
    let cluster = cluster(move |_, node, _| {
        number += usize::from(node == 1);
        if node == 1 && number % 50 == 49 { Says::Nothing } else { Says::Usual }
    });
    let measurement = measured(&Plan { connections: 2, ..cluster.plan(sets(), 1_000) });
    assert_eq!(measurement.unfinished, None);
    let errors = measurement.errors_total();
    assert_eq!(measurement.operations + errors, 1_000);
    let lost = &measurement.errors.iter().find(|error| error.text == "the server closed a connection");
    assert!(lost.is_some_and(|lost| lost.count >= 2), "{:?}", measurement.errors);
    let state = locked(&cluster.state);
    assert!(state.seen[1].len() > 50, "it was connected to again, and again");
    assert!(state.asked.iter().sum::<usize>() >= 2, "the map is asked for anew");
}

/// Node 1 refuses writes from the `first` one on, so many of them.
fn refuses(first: usize, count: usize) -> impl FnMut(&mut State, usize, &[String]) -> Says {
    let mut number = 0;
    move |_, node, words| {
        number += usize::from(node == 1 && words[0] == "SET");
        let is_down = node == 1 && words[0] == "SET" && (first..first + count).contains(&number);
        if is_down { Says::This("-CLUSTERDOWN The cluster is down\r\n".to_owned()) } else { Says::Usual }
    }
}

#[test]
fn a_cluster_that_is_down_is_not_asked_in_a_frenzy() {
    let cluster = cluster(refuses(10, 20));
    let measurement = measured(&cluster.plan(sets(), 300));
    let [error] = &measurement.errors[..] else { panic!("{:?}", measurement.errors) };
    assert_eq!((error.text.as_str(), error.count), ("CLUSTERDOWN The cluster is down", 20));
    assert_eq!(measurement.operations, 280, "it goes on when the cluster is up");
    assert!(measurement.seconds >= 0.1, "{}: it rests after each", measurement.seconds);
}

#[test]
fn a_time_line_tells_what_is_watched_and_for_how_long_nothing_was_written_there() {
    let cluster = cluster(refuses(100, 80));
    let memtier = Memtier {
        sets: 1,
        gets: 1,
        value_bytes: 3,
        prefix: "memtier-".to_owned(),
        key_minimum: 1,
        key_maximum: 1_000,
        set_pattern: KeyPattern::Random,
        get_pattern: KeyPattern::Random,
    };
    let plan = Plan {
        connections: 8,
        direct: Some(Direct { watched: Some(vec![(BORDER, 16_383)]) }),
        ..cluster.plan(Work::Memtier(memtier), 3_000)
    };
    let measurement = measured(&plan);
    let line = measurement.timeline.as_ref().unwrap();
    assert_eq!((line.step_ms, line.events.len()), (100, 0));
    let sum = |of: fn(&Step) -> u64| line.steps.iter().map(of).sum::<u64>();
    assert_eq!(sum(|step| step.operations), measurement.operations);
    assert_eq!((sum(|step| step.errors), measurement.errors_total()), (80, 80));
    assert!(sum(|step| step.watched) > 0 && sum(|step| step.watched) < measurement.operations);
    // One of the clients was refused ten times, and rested nine times between.
    assert!(line.silence.ms >= 45.0 && line.silence.from_ms > 0.0, "{:?}", line.silence);
}

#[test]
fn what_is_no_cluster_is_said_in_one_sentence() {
    let refused = |reply: &'static str| -> Failure {
        let target = serve(Box::new(move |_| Some(reply.as_bytes().to_vec())));
        let plan = Plan { direct: Some(Direct::default()), ..Plan::new("fake", target.clone(), sets()) };
        let failure = run(&plan, &mut Unobserved).unwrap_err().0;
        Failure(failure.replace(&target.to_string(), "HERE"))
    };
    assert_eq!(
        refused("-ERR This instance has cluster support disabled\r\n").0,
        "HERE is no node of a cluster: ERR This instance has cluster support disabled"
    );
    assert_eq!(refused("*0\r\n").0, "HERE knows no master of 16384 of the 16384 slots");
    assert_eq!(refused("+OK\r\n").0, "HERE: what CLUSTER SLOTS answers cannot be read");
}
