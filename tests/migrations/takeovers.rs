//! Imports that take over from one that lives, or was killed a moment ago: whatever of it is under way is done once or not at all, and one of both ends.

use super::{Import, Load, any_requests, await_copy, fill, must_be_equal, redis, tarn_server};
use std::process::Command;
use testkit::ask::{ask, call_line, call_line_well, call_well};
use testkit::{Budget, Relay, Server, Way};

fn signal(server: &Server, signal: &str) {
    assert!(Command::new("kill").args([signal, &server.pid().to_string()]).status().unwrap().success());
}

#[test]
fn a_run_takes_over_from_one_that_lives_and_nothing_is_done_twice() {
    let budget = Budget::from_env(31, 1);
    let (source, target) = (redis(&["--repl-backlog-size", "64mb"]), tarn_server());
    fill(&source);
    let load = Load::begin(&[source.address(); 3], budget.seed, any_requests);
    let mut import = Import::begin(source.address(), target.address(), &["--verify"]);
    import.await_stream();
    for _ in 0..6 {
        load.await_more(20);
        let mut next = Import::begin(source.address(), target.address(), &["--verify"]);
        next.await_words("it goes on from there");
        next.await_stream();
        assert!(!import.wait().success());
        import.await_words("another `tarn migrate` writes to this target");
        import = next;
    }
    let output = import.cut_over();
    must_be_equal(&source, target.address());
    assert!(!output.contains("copied anew"), "{output}");
    load.end(&[&source]);
}

#[test]
fn what_an_earlier_version_had_begun_is_begun_anew() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let mut import = Import::begin(source.address(), target.address(), &[]);
    import.await_stream();
    import.signal("-KILL");
    import.wait();
    let (mut here, key) = (target.connect().unwrap(), "tarn-migrate:state:0");
    let state = ask(&mut here, &["GET", key]);
    assert!(state.starts_with("follows "), "{state}");
    call_well(&mut here, &["SET", key, &state.replace("follows", "following")]);
    // As that version held it.
    call_well(&mut here, &["PEXPIREAT", "key1", "101800000000000"]);
    let mut import = Import::begin(source.address(), target.address(), &["--verify"]);
    import.await_stream_behind("what an earlier copy has left in the target is removed");
    import.cut_over();
    must_be_equal(&source, target.address());
}

#[test]
fn what_a_killed_run_had_sent_and_nobody_had_read_is_done_once() {
    let budget = Budget::from_env(32, 1);
    let (source, target) = (redis(&["--repl-backlog-size", "64mb"]), tarn_server());
    fill(&source);
    let load = Load::begin(&[source.address(); 3], budget.seed, any_requests);
    let mut import = Import::begin(source.address(), target.address(), &[]);
    import.await_stream();
    for _ in 0..4 {
        load.await_more(10);
        signal(&target, "-STOP");
        // What comes now lies in its sockets.
        load.await_more(20);
        import.signal("-KILL");
        import.wait();
        import = Import::begin(source.address(), target.address(), &["--verify"]);
        signal(&target, "-CONT");
        import.await_words("it goes on from there");
        import.await_stream();
    }
    import.cut_over();
    must_be_equal(&source, target.address());
    load.end(&[&source]);
}

#[test]
fn a_run_that_copies_ends_when_another_begins_and_leaves_nothing_behind() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    call_line_well(&mut source.connect().unwrap(), "CONFIG SET repl-diskless-sync no");
    let relay = Relay::to(source.address()).unwrap();
    relay.throttle(Way::Back, 40_000);
    let mut first = Import::begin(relay.address(), target.address(), &[]);
    let mut here = target.connect().unwrap();
    await_copy(&mut here);
    // What it brings from now on was over before the other began.
    call_well(&mut source.connect().unwrap(), &["DEL", "key1", "key2", "long-text", "long-list", "long-set"]);
    let mut second = Import::begin(source.address(), target.address(), &["--verify"]);
    second.await_stream();
    assert!(!first.wait().success());
    first.await_words("another `tarn migrate` writes to this target");
    second.cut_over();
    must_be_equal(&source, target.address());
}

#[test]
fn the_cut_over_is_made_by_the_run_that_has_taken_over_though_the_other_one_lives() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let mut first = Import::begin(source.address(), target.address(), &[]);
    first.await_stream();
    // Nothing is written, so that the first does not find out at once.
    let mut second = Import::begin(source.address(), target.address(), &["--verify"]);
    second.await_stream();
    second.cut_over();
    must_be_equal(&source, target.address());
    let mut client = source.connect().unwrap();
    let before = call_line(&mut client, "GET key1");
    for line in ["CLIENT UNPAUSE", "SET key1 later"] {
        call_line_well(&mut client, line);
    }
    assert!(!first.wait().success());
    assert_eq!(call_line(&mut target.connect().unwrap(), "GET key1"), before, "nobody brings it any more");
}
