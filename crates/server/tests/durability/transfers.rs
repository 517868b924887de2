//! Long values that go from key to key: the log has the keys' names and not the value, unless a checkpoint could hold one key without the
//! other; whatever it holds, every key is what it was.

use crate::site::{Site, WORKERS};
use engine::durability::{
    self,
    checkpoint::{Interval, Pace, write_beside},
};
use keyspace::{DbIndex, SLOTS};
use std::ops::Range;
use sys::file::simulated::{Disk, Survival};
use sys::{Clock, UnixMs};
use testkit::generate::words;

/// Bytes of a value that is long where pieces are short.
const LONG: usize = 3000;

/// What the log may grow by where only names are said.
const NAMES: u64 = 120;

/// Slots that are copied early, and late.
const EARLY: Range<u16> = 4000..6000;
const LATE: Range<u16> = 11_000..13_000;

/// A request and its keys, each in a database and slots of its own.
struct Case {
    request: &'static str,
    source: (u32, Range<u16>),
    target: (u32, Range<u16>),
}

const CASES: &[Case] = &[
    Case { request: "RENAME S T", source: (0, LATE), target: (0, EARLY) },
    Case { request: "RENAME S T", source: (0, EARLY), target: (0, LATE) },
    Case { request: "RENAMENX S T", source: (0, LATE), target: (0, EARLY) },
    Case { request: "COPY S T", source: (0, LATE), target: (0, EARLY) },
    Case { request: "COPY S T REPLACE", source: (0, EARLY), target: (0, LATE) },
    Case { request: "COPY S T DB 1", source: (0, EARLY), target: (1, LATE) },
    Case { request: "COPY S T DB 0 REPLACE", source: (1, LATE), target: (0, EARLY) },
    Case { request: "MOVE S 1", source: (0, LATE), target: (1, LATE) },
    Case { request: "MOVE S 0", source: (1, EARLY), target: (0, EARLY) },
];

impl Case {
    /// Whether a checkpoint comes to the source behind the target.
    fn is_against_the_order(&self) -> bool {
        (self.source.0, self.source.1.start) > (self.target.0, self.target.1.start)
    }

    /// Whether both keys have the same name.
    fn is_move(&self) -> bool {
        self.request.starts_with("MOVE")
    }
}

fn clock() -> Clock {
    Clock::simulated(UnixMs(1_700_000_000_000))
}

/// Runs a request in a database; gives how much the log has grown.
fn run(site: &mut Site, db: u32, request: &str) -> u64 {
    site.run(&[words(&["SELECT", &db.to_string()])]);
    let before = site.log().appended().0;
    let (reply, _) = site.run(&[words(&request.split(' ').collect::<Vec<_>>())]);
    assert!(!reply.starts_with(b"-") && !reply.starts_with(b":0"), "{request}: {}", reply.escape_ascii());
    site.log().appended().0 - before
}

/// A name that begins so, of a key in such a slot.
fn name_in(site: &Site, prefix: &str, slots: &Range<u16>) -> String {
    let names = (0..).map(|number: u32| format!("{prefix}:{number}"));
    let mut fit = names
        .filter(|name| slots.contains(&site.server.engine.keyspace.key(DbIndex(0), name.as_bytes()).slot.0));
    fit.next().expect("there is a key for every slot")
}

/// Where a checkpoint is when a case has its turn: before it, when all of the target's slots are copied, and behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Before,
    Between,
    After,
}

const TURNS: [Turn; 3] = [Turn::Before, Turn::Between, Turn::After];

impl Turn {
    /// After how many slots, of all databases.
    fn slots(self, case: &Case) -> usize {
        let (first, last) = match case.is_against_the_order() {
            true => (&case.target, &case.source),
            false => (&case.source, &case.target),
        };
        let place = |(db, slot): (u32, u16)| db as usize * SLOTS + usize::from(slot);
        match self {
            Turn::Before => place((first.0, first.1.start)) - 2000,
            Turn::Between => (place((first.0, first.1.end)) + place((last.0, last.1.start))) / 2,
            Turn::After => place((last.0, last.1.end)) + 2000,
        }
    }
}

/// A case with the names of its keys, and its turn.
struct Planned<'a> {
    case: &'a Case,
    turn: Turn,
    source: String,
    target: String,
}

impl Planned<'_> {
    fn run(&self, site: &mut Site) {
        let (case, turn) = (self.case, self.turn);
        let request = case.request.replace(" S", &format!(" {}", self.source));
        let grown = run(site, case.source.0, &request.replace(" T", &format!(" {}", self.target)));
        let could_lose = turn == Turn::Between && case.is_against_the_order();
        assert_eq!(grown > NAMES, could_lose, "{request} {turn:?} grows the log by {grown} bytes");
        assert!(!could_lose || grown > LONG as u64);
    }
}

/// Plans every case for every turn, and makes the sources.
fn plan(site: &mut Site) -> Vec<Planned<'static>> {
    let mut planned = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        for turn in TURNS {
            let source = name_in(site, &format!("s{number}{turn:?}"), &case.source.1);
            let target = match case.is_move() {
                true => source.clone(),
                false => name_in(site, &format!("t{number}{turn:?}"), &case.target.1),
            };
            run(site, case.source.0, &format!("SETRANGE {source} {LONG} {number}"));
            run(site, case.source.0, &format!("PEXPIREAT {source} 4000000000000"));
            planned.push(Planned { case, turn, source, target });
        }
    }
    planned
}

/// Every key of the plan, wherever it may be.
fn shown(site: &Site, planned: &[Planned<'_>]) -> Vec<(u32, String, Option<crate::shown::Shown>)> {
    let names = planned.iter().flat_map(|one| [one.source.clone(), one.target.clone()]);
    let places = names.flat_map(|name| [0, 1].map(|db| (db, name.clone())));
    places.map(|(db, name)| (db, name.clone(), site.shown(db, name.as_bytes()))).collect()
}

fn transfer_beside_a_checkpoint(edition: &str) {
    for threads in 1..=WORKERS {
        let (clock, disk) = (clock(), Disk::new(1));
        // An odd seed: pieces are short.
        let mut site = Site::open(edition, &disk, 1, &clock, 1).unwrap();
        let planned = plan(&mut site);
        let (server, log) = (site.server.clone(), site.log());
        let mut slots = 0;
        let mut left: Vec<&Planned<'_>> = planned.iter().collect();
        write_beside(
            &server.engine,
            &log,
            server.engine.guest(),
            Pace::Full,
            &mut |interval| match interval {
                Interval::BetweenSlots => {
                    slots += 1;
                    let now = left.extract_if(.., |one| one.turn.slots(one.case) <= slots);
                    now.for_each(|one| one.run(&mut site));
                }
                Interval::BeforeSync => log.flush(),
            },
        )
        .unwrap();
        assert!(left.is_empty());
        let live = shown(&site, &planned);
        log.flush();
        drop((site, server, log));
        let after = disk.power_cut(1, Survival::Nothing);
        let next = Site::open(edition, &after, 1, &clock, threads).unwrap();
        for (live, found) in live.iter().zip(shown(&next, &planned)) {
            assert_eq!(*live, found, "{edition}, {threads} threads");
        }
    }
}

#[test]
fn a_value_is_named_unless_a_checkpoint_could_hold_its_old_key_and_its_new_one_at_different_times() {
    transfer_beside_a_checkpoint("durable");
}

#[test]
fn the_same_is_true_of_checkpoints_with_a_store() {
    transfer_beside_a_checkpoint("capacity");
}

#[test]
fn a_value_of_50_mb_goes_elsewhere_with_less_than_a_kilobyte_of_log() {
    let (clock, disk) = (clock(), Disk::new(2));
    let mut site = Site::open("durable", &disk, 2, &clock, 1).unwrap();
    run(&mut site, 0, "SETRANGE s 52428800 x");
    let steps = [
        (0, "RENAME s t"),
        (0, "RENAMENX t s"),
        (0, "MOVE s 1"),
        (1, "COPY s t DB 0"),
        (0, "COPY t s"),
        (0, "COPY s t REPLACE"),
        (0, "DEL s t"),
        (1, "MOVE s 0"),
    ];
    for (db, request) in steps {
        let grown = run(&mut site, db, request);
        assert!(grown < 1000, "{request} grows the log by {grown} bytes");
    }
    let live = site.shown(0, b"s").unwrap();
    site.log().flush();
    drop(site);
    let next = Site::open("durable", &disk.power_cut(1, Survival::Nothing), 2, &clock, 2).unwrap();
    assert!(next.shown(0, b"s").unwrap() == live);
    assert_eq!(next.keys(), 1);
}

#[test]
fn what_is_named_counts_for_when_a_checkpoint_is_due() {
    let (clock, disk) = (clock(), Disk::new(2));
    let mut site = Site::open("durable", &disk, 2, &clock, 1).unwrap();
    run(&mut site, 0, "SETRANGE s 10485760 x");
    let is_due = |site: &Site| {
        durability::begin_if_due(&site.server.engine);
        let figures = site.server.engine.durability.rewrites.figures();
        figures.running_since.is_some() || figures.count > 0
    };
    // The checkpoint waits for 64 MB.
    for copy in 0..5 {
        run(&mut site, 0, &format!("COPY s t{copy}"));
        assert!(!is_due(&site), "{copy}");
    }
    site.log().flush();
    drop(site);
    // A replay costs as much once more.
    let mut next = Site::open("durable", &disk.power_cut(1, Survival::Nothing), 2, &clock, 2).unwrap();
    assert!(!is_due(&next));
    run(&mut next, 0, "RENAME t0 t5");
    run(&mut next, 0, "RENAME t5 t0");
    assert!(is_due(&next));
}

#[test]
fn a_stream_is_long_by_what_is_pending_too() {
    let (clock, disk) = (clock(), Disk::new(1));
    // An odd seed: pieces are short.
    let mut site = Site::open("durable", &disk, 1, &clock, 1).unwrap();
    run(&mut site, 0, "XGROUP CREATE s g 0 MKSTREAM");
    for number in 1..=200 {
        run(&mut site, 0, &format!("XADD s {number} f v"));
    }
    run(&mut site, 0, "XREADGROUP GROUP g c COUNT 200 STREAMS s >");
    run(&mut site, 0, "XTRIM s MAXLEN 1");
    let grown = run(&mut site, 0, "RENAME s t");
    assert!(grown < NAMES, "the log grows by {grown} bytes");
    let live = site.shown(0, b"t").unwrap();
    site.log().flush();
    drop(site);
    let next = Site::open("durable", &disk.power_cut(1, Survival::Nothing), 1, &clock, 2).unwrap();
    assert!(next.shown(0, b"t").unwrap() == live);
}

/// Native sorted sets tell -0 from 0, packed ones do not, as in Redis. What is replayed is native in its turn only if it is said so.
#[test]
fn the_sign_of_zero_is_kept_however_a_sorted_set_is_said() {
    for (seed, edition) in [(1, "durable"), (2, "durable"), (1, "capacity"), (2, "capacity")] {
        let (clock, disk) = (clock(), Disk::new(seed));
        let mut site = Site::open(edition, &disk, seed, &clock, 1).unwrap();
        let long = "m".repeat(100);
        for (key, members) in [("few", 5), ("many", 3000)] {
            run(&mut site, 0, &format!("ZADD {key} 1 {long}"));
            for number in 0..members {
                run(&mut site, 0, &format!("ZADD {key} -0 {number}"));
            }
            run(&mut site, 0, &format!("ZADD {key} 0 plus"));
            run(&mut site, 0, &format!("COPY {key} {key}-copy"));
            run(&mut site, 0, &format!("ZRANGESTORE {key}-range {key} 0 -1"));
        }
        let keys = ["few", "many", "few-copy", "many-copy", "few-range", "many-range"];
        let all = |site: &Site| keys.map(|key| site.shown(0, key.as_bytes()).expect("it is there"));
        let live = all(&site);
        site.log().flush();
        let after = disk.power_cut(1, Survival::Nothing);
        let next = Site::open(edition, &after, seed, &clock, 2).unwrap();
        assert!(all(&next) == live, "{edition}, replayed");
        let (server, log) = (next.server.clone(), next.log());
        write_beside(&server.engine, &log, server.engine.guest(), Pace::Full, &mut |interval| {
            if matches!(interval, Interval::BeforeSync) {
                log.flush();
            }
        })
        .unwrap();
        drop((next, server, log));
        let after = after.power_cut(1, Survival::Nothing);
        let next = Site::open(edition, &after, seed, &clock, 2).unwrap();
        assert!(all(&next) == live, "{edition}, from a checkpoint");
    }
}
