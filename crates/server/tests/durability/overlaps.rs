//! Checkpoints that begin while something is under way, and changes that nobody asked for: whatever is replayed makes what there was.

use crate::shown::Shown;
use crate::site::{Site, WORKERS, dir};
use command::table::{self, Runs};
use command::{Args, execute};
use engine::durability::checkpoint::{Interval, Pace, write_beside};
use keyspace::{DbIndex, Touch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use sys::file::simulated::{Disk, Survival};
use sys::{Clock, UnixMs};
use testkit::generate::words;
use wire::{Protocol, Reply, RequestBuf, encode_arg, encode_request_header};

const EDITION: &str = "durable";

fn clock() -> Clock {
    Clock::simulated(UnixMs(1_700_000_000_000))
}

/// Runs a request; its reply as text.
fn ask(site: &mut Site, request: &str) -> String {
    let request: Vec<&str> = request.split(' ').collect();
    String::from_utf8(site.run(&[words(&request)]).0).unwrap()
}

fn sweep(site: &Site) {
    for worker in 0..WORKERS {
        let batch = site.server.engine.keyspace.enter(worker);
        let _ = batch.sweep_expired(site.server.engine.clock.now(), || true, |_, _| {});
    }
}

/// Flushes the log, cuts the power, and starts again.
fn restart(site: Site, disk: &mut Disk, clock: &Clock) -> Site {
    site.log().flush();
    drop(site);
    *disk = disk.power_cut(1, Survival::Nothing);
    Site::open(EDITION, disk, 1, clock, 2).unwrap()
}

/// All of some keys.
fn shown(site: &Site, keys: &[String]) -> Vec<Option<Shown>> {
    keys.iter().map(|key| site.shown(0, key.as_bytes())).collect()
}

#[test]
fn what_groups_read_beside_a_checkpoint_is_read_once() {
    const STREAMS: usize = 64;
    let (clock, mut disk) = (clock(), Disk::new(1));
    let mut site = Site::open(EDITION, &disk, 1, &clock, 1).unwrap();
    let keys: Vec<String> = (0..STREAMS).map(|number| format!("s{number}")).collect();
    for key in &keys {
        ask(&mut site, &format!("XGROUP CREATE {key} g 0 MKSTREAM"));
        (0..9).for_each(|_| drop(ask(&mut site, &format!("XADD {key} * a b"))));
    }
    let (server, log) = (site.server.clone(), site.log());
    let mut slots = 0;
    write_beside(&server.engine, &log, server.engine.guest(), Pace::Full, &mut |interval| match interval {
        Interval::BetweenSlots => {
            slots += 1;
            if slots % (keyspace::SLOTS / STREAMS) == 0 {
                clock.advance_ms(7);
                let key = &keys[slots * STREAMS / keyspace::SLOTS % STREAMS];
                let read = |how: &str| format!("XREADGROUP GROUP g c {how} STREAMS {key}");
                ask(&mut site, &format!("{} >", read("COUNT 2")));
                ask(&mut site, &format!("{} >", read("COUNT 1 NOACK")));
                clock.advance_ms(7);
                ask(&mut site, &format!("{} 0", read("COUNT 1")));
                ask(&mut site, &format!("XAUTOCLAIM {key} g d 1 0 COUNT 1"));
                clock.advance_ms(7);
                ask(&mut site, &format!("XCLAIM {key} g d 9999 1-1"));
            }
        }
        Interval::BeforeSync => log.flush(),
    })
    .unwrap();
    // A group that went away before its slot was copied.
    ask(&mut site, "XGROUP DESTROY s0 g");
    let live = shown(&site, &keys);
    let next = restart(site, &mut disk, &clock);
    assert_eq!(shown(&next, &keys), live);
}

#[test]
fn a_group_that_goes_away_before_its_slot_is_copied_does_not_hinder_the_start() {
    let (clock, mut disk) = (clock(), Disk::new(1));
    let mut site = Site::open(EDITION, &disk, 1, &clock, 1).unwrap();
    for key in ["s1", "s2", "s3"] {
        ask(&mut site, &format!("XGROUP CREATE {key} g 0 MKSTREAM"));
        ask(&mut site, &format!("XADD {key} * a b"));
    }
    let (server, log) = (site.server.clone(), site.log());
    let mut is_first = true;
    write_beside(&server.engine, &log, server.engine.guest(), Pace::Full, &mut |interval| match interval {
        Interval::BetweenSlots if is_first => {
            is_first = false;
            for (key, end) in [("s1", "DEL s1"), ("s2", "XGROUP DESTROY s2 g"), ("s3", "SET s3 x")] {
                ask(&mut site, &format!("XREADGROUP GROUP g c STREAMS {key} >"));
                ask(&mut site, end);
            }
        }
        Interval::BetweenSlots => {}
        Interval::BeforeSync => log.flush(),
    })
    .unwrap();
    let keys = ["s1", "s2", "s3"].map(str::to_owned);
    let live = shown(&site, &keys);
    assert_eq!(shown(&restart(site, &mut disk, &clock), &keys), live);
}

#[test]
fn logs_that_hold_group_reads_as_they_were_asked_for_are_replayed_by_their_key() {
    let (clock, mut disk) = (clock(), Disk::new(1));
    let mut site = Site::open(EDITION, &disk, 1, &clock, 1).unwrap();
    ask(&mut site, "XGROUP CREATE s g 0 MKSTREAM");
    (0..3).for_each(|_| drop(ask(&mut site, "XADD s * a b")));
    let mut record = Vec::new();
    let request = ["XREADGROUP", "GROUP", "g", "STREAMS", "COUNT", "2", "STREAMS", "s", ">"];
    encode_request_header(&mut record, request.len());
    request.iter().for_each(|word| encode_arg(&mut record, word.as_bytes()));
    site.log().append(0, clock.now(), &record);
    let mut next = restart(site, &mut disk, &clock);
    let pending = ask(&mut next, "XPENDING s g");
    assert!(pending.starts_with("*4\r\n:2\r\n") && pending.contains("STREAMS"), "{pending}");
}

#[test]
fn an_exchange_of_databases_that_a_checkpoint_begins_in_is_not_made_twice() {
    let (clock, mut disk) = (clock(), Disk::new(1));
    let mut site = Site::open(EDITION, &disk, 1, &clock, 1).unwrap();
    ask(&mut site, "SET k zero");
    ask(&mut site, "SELECT 1");
    ask(&mut site, "SET k one");
    site.log().flush();
    let (server, log) = (site.server.clone(), site.log());
    // As in a transaction: what it has done is not in the log before it ends.
    let mut batch = server.engine.keyspace.enter(0);
    batch.hold_all();
    let swap = RequestBuf::from_args(["SWAPDB", "0", "1"]);
    let Runs::Data(row) = table::find(b"swapdb").unwrap().row.handler else { panic!("a data command") };
    let args = Args::new(
        swap.as_request(),
        &server.engine.keyspace,
        (DbIndex(0), clock.now()),
        &server.engine.settings,
    );
    let mut reply = Vec::new();
    let _ = execute(row, &mut batch, &args, Touch::No, &mut Reply::new(&mut reply, Protocol::Resp2)).unwrap();
    let is_begun = AtomicBool::new(false);
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            is_begun.store(true, Ordering::Relaxed);
            write_beside(&server.engine, &log, server.engine.guest(), Pace::Full, &mut |interval| {
                if interval == Interval::BeforeSync {
                    log.flush();
                }
            })
        });
        // It begins behind the transaction, or waits for its end.
        while !is_begun.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        thread::yield_now();
        assert!(disk.names(dir()).iter().all(|path| !is_unfinished(path)));
        drop(batch);
        writing.join().unwrap().unwrap();
    });
    let live = [site.shown(0, b"k"), site.shown(1, b"k")];
    let next = restart(site, &mut disk, &clock);
    assert_eq!([next.shown(0, b"k"), next.shown(1, b"k")], live);
}

/// Whether it is a checkpoint that is being written.
fn is_unfinished(path: &std::path::Path) -> bool {
    path.to_string_lossy().ends_with(".checkpoint.tmp")
}

#[test]
fn fields_that_were_swept_stay_away() {
    let (clock, mut disk) = (clock(), Disk::new(1));
    let mut site = Site::open(EDITION, &disk, 1, &clock, 1).unwrap();
    for key in ["h1", "h2", "h3", "h4"] {
        ask(&mut site, &format!("HSET {key} f v g v"));
        ask(&mut site, &format!("HPEXPIRE {key} 50 FIELDS 1 f"));
        ask(&mut site, &format!("PEXPIRE {key} 900000"));
    }
    // Its last field.
    ask(&mut site, "HPEXPIRE h4 60 FIELDS 1 g");
    clock.advance_ms(55);
    // Its time is up and it is there: nothing of this takes it away.
    ask(&mut site, "HDEL h3 f g");
    ask(&mut site, "HPEXPIRE h3 1000 FIELDS 1 f");
    assert_eq!(ask(&mut site, "SETNX h3 x"), ":0\r\n");
    clock.advance_ms(2000);
    sweep(&site);
    ask(&mut site, "HDEL h1 g");
    for key in ["h1", "h3", "h4"] {
        assert_eq!(ask(&mut site, &format!("SETNX {key} x")), ":1\r\n");
    }
    ask(&mut site, "HDEL h2 g");
    ask(&mut site, "RPUSH h2 a");
    let keys = ["h1", "h2", "h3", "h4"].map(str::to_owned);
    let live = shown(&site, &keys);
    let mut next = restart(site, &mut disk, &clock);
    assert_eq!(shown(&next, &keys), live);
    assert_eq!(ask(&mut next, "PTTL h1"), ":-1\r\n");
}

#[test]
fn when_a_consumer_was_active_outlives_renames_copies_and_starts() {
    let (clock, mut disk) = (clock(), Disk::new(1));
    let mut site = Site::open(EDITION, &disk, 1, &clock, 1).unwrap();
    ask(&mut site, "XGROUP CREATE s g 0 MKSTREAM");
    ask(&mut site, "XADD s 1-1 a b");
    ask(&mut site, "XREADGROUP GROUP g c STREAMS s >");
    ask(&mut site, "XGROUP CREATECONSUMER s g never");
    for read in ["XREADGROUP GROUP g c STREAMS s >", "XREADGROUP GROUP g c STREAMS s 0"] {
        clock.advance_ms(500);
        ask(&mut site, read);
    }
    ask(&mut site, "COPY s t");
    ask(&mut site, "RENAME s u");
    clock.advance_ms(500);
    let keys = ["t", "u"].map(str::to_owned);
    let live = shown(&site, &keys);
    let asked = ask(&mut site, "XINFO CONSUMERS u g");
    assert!(asked.contains("inactive\r\n:1500\r\n") && asked.contains("inactive\r\n:-1\r\n"), "{asked}");
    let mut next = restart(site, &mut disk, &clock);
    assert_eq!(shown(&next, &keys), live);
    assert_eq!(ask(&mut next, "XINFO CONSUMERS u g"), asked);
    // And from a checkpoint.
    let (server, log) = (next.server.clone(), next.log());
    let flush = &mut |interval| {
        if interval == Interval::BeforeSync {
            log.flush();
        }
    };
    write_beside(&server.engine, &log, server.engine.guest(), Pace::Full, flush).unwrap();
    assert_eq!(shown(&restart(next, &mut disk, &clock), &keys), live);
}
