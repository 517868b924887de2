//! What may go wrong while an import ends, and writers wait for it: it ends well with all that the source has, or with a sentence and writers that go on.

use super::clusters::{add_master, connect, contents, counting, move_slot};
use super::{Import, Load, await_copy, end, fill, must_be_equal, redis, tarn_server};
use crate::bench_cluster::redis_cluster;
use crate::imports::complaint;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use testkit::ask::{ask, call_line, call_line_well, ok, wait_until};
use testkit::{Budget, Client, Relay, Server, Way};
use wire::{Value, key_slot};

/// Bytes a second at which times to live of thousands of keys take long to put right.
const SLOW: u64 = 4000;

/// An import whose end takes long, since its target is reached slowly from now on; it has begun to put times to live right.
fn slow_end(source: &Server, target: &Server, relay: &Relay, options: &[&str]) -> Import {
    let mut import = Import::begin(source.address(), relay.address(), options);
    // What is left of the stream would take long, too.
    import.await_words(" 0 bytes and 0 s behind");
    relay.throttle(Way::There, SLOW);
    import.ask_to_cut_over();
    let mut here = target.connect().unwrap();
    wait_until("the end has begun", || {
        ask(&mut here, &["GET", "tarn-migrate:state:0"]).starts_with("spoilt")
    });
    let passed = relay.passed(Way::There);
    wait_until("times are put right", || relay.passed(Way::There) > passed + 2 * SLOW);
    import
}

#[test]
fn masters_that_were_added_meanwhile_are_gone_over_at_the_end() {
    let source = redis(&[]);
    let mut targets = redis_cluster();
    let mut client = source.connect().unwrap();
    for number in 0..100 {
        call_line_well(&mut client, &format!("SET key{number} {number} EX 5000"));
    }
    let mut import = Import::begin(source.address(), targets[0].address(), &[]);
    import.await_stream();
    add_master(&mut targets);
    let places: Vec<SocketAddr> = targets.iter().map(Server::address).collect();
    let slot = key_slot(b"key7");
    let from = usize::from(slot) * 2 / wire::SLOTS;
    call_line_well(&mut client, "SET key7 8 EX 6000");
    let mut holder = Client::connect(places[from]).unwrap();
    wait_until("it is there", || ask(&mut holder, &["GET", "key7"]) == "8");
    // Its marks go along.
    let moving = Instant::now();
    move_slot(&places, slot, (from, 2));
    let moving = moving.elapsed().as_millis() as i64 + 1;
    wait_until("all know where it is", || {
        connect(&places)
            .iter_mut()
            .all(|client| ask(client, &["CLUSTER", "NODES"]).contains(&format!(" {slot}\n")))
    });
    import.cut_over();
    let mut here = connect(&places);
    // MIGRATE says how long a key has left: it lives longer by as long as that was under way.
    let at = |client: &mut Client| match call_line(client, "PEXPIRETIME key7") {
        Value::Int(at) => at,
        other => panic!("{other:?}"),
    };
    let longer = at(&mut here[2]) - at(&mut client);
    assert!((0..=moving).contains(&longer), "{longer} ms of {moving}");
    let [there, here] = [contents(&mut [client]), contents(&mut here)].map(|mut contents| {
        let key7 = contents.remove("key7").unwrap();
        assert!(key7.starts_with("8 "), "{key7}");
        contents
    });
    assert_eq!(there, here);
}

#[test]
fn a_source_that_is_a_replica_is_refused_and_one_that_becomes_one_is_not_cut_over() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let mut client = source.connect().unwrap();
    let mut import = Import::begin(source.address(), target.address(), &["--verify"]);
    import.await_stream();
    call_line_well(&mut client, "REPLICAOF 127.0.0.1 1");
    import.ask_to_cut_over();
    assert!(!import.wait().success());
    import.await_words("is no master any more");
    let (from, to) = (format!("redis://{}", source.address()), format!("redis://{}", target.address()));
    let why = complaint("migrate", &["--from", &from, "--to", &to]);
    assert!(why.contains("is a replica: say --from its master, 127.0.0.1:1"), "{why}");
    call_line_well(&mut client, "REPLICAOF NO ONE");
    assert_eq!(call_line(&mut client, "SET key1 2"), ok(), "writers go on");
    let mut import = Import::begin(source.address(), target.address(), &["--verify", "--until-caught-up"]);
    import.await_words("it goes on from there");
    assert!(import.wait().success(), "{}", import.output());
    must_be_equal(&source, target.address());
}

#[test]
fn a_cut_over_that_two_ask_for_is_heard_by_both() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let relay = Relay::to(source.address()).unwrap();
    relay.throttle(Way::Back, 40_000);
    let mut import = Import::begin(relay.address(), target.address(), &["--verify"]);
    await_copy(&mut target.connect().unwrap());
    import.ask_to_cut_over();
    let mut here = target.connect().unwrap();
    // The second has not seen that the first was heard.
    call_line_well(&mut here, "SET tarn-migrate:cut-over asked");
    wait_until("it is heard", || ask(&mut here, &["GET", "tarn-migrate:cut-over"]) != "asked");
    import.ask_to_cut_over();
    relay.mend();
    assert!(import.wait().success(), "{}", import.output());
    must_be_equal(&source, target.address());
}

/// It has heard that it is to end, and is ended before it does.
#[test]
fn who_asks_after_an_import_that_has_ended_is_not_told_that_it_is_heard() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let relay = Relay::to(source.address()).unwrap();
    let mut import = Import::begin(relay.address(), target.address(), &[]);
    import.await_stream();
    // So that it is not nearly there.
    relay.throttle(Way::Back, 40_000);
    let mut client = source.connect().unwrap();
    for _ in 0..50 {
        call_line_well(&mut client, &format!("SET late {}", "x".repeat(100_000)));
    }
    let mut here = target.connect().unwrap();
    call_line_well(&mut here, "SET tarn-migrate:cut-over asked");
    wait_until("it is heard", || ask(&mut here, &["GET", "tarn-migrate:cut-over"]) == "taken");
    import.signal("-TERM");
    assert!(!import.wait().success());
    let to = format!("redis://{}", target.address());
    let why = complaint("migrate", &["cut-over", "--to", &to]);
    assert!(why.contains("no import has heard the request"), "{why}");
}

#[test]
fn a_cut_over_is_refused_where_no_import_runs() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let to = format!("redis://{}", target.address());
    let why = complaint("migrate", &["cut-over", "--to", &to]);
    assert!(why.contains("there is no import into this target"), "{why}");
    let mut import = Import::begin(source.address(), target.address(), &["--verify"]);
    import.await_stream();
    import.signal("-KILL");
    import.wait();
    let why = complaint("migrate", &["cut-over", "--to", &to]);
    assert!(why.contains("no import has heard the request"), "{why}");
    let mut import = Import::begin(source.address(), target.address(), &["--verify"]);
    import.await_stream();
    import.cut_over();
    must_be_equal(&source, target.address());
}

#[test]
fn a_target_that_comes_back_with_less_in_the_cut_over_is_copied_to_anew() {
    let (source, mut target) = (redis(&[]), redis(&[]));
    fill(&source);
    let relay = Relay::to(target.address()).unwrap();
    let mut import = slow_end(&source, &target, &relay, &[]);
    target.restart().unwrap();
    relay.aim(target.address());
    relay.mend();
    import.await_words("copied anew");
    let mut here = target.connect().unwrap();
    wait_until("it follows again", || {
        ask(&mut here, &["GET", "tarn-migrate:state:0"]).starts_with("follows")
    });
    import.cut_over();
    must_be_equal(&source, target.address());
}

#[test]
fn a_master_of_the_target_that_comes_back_with_less_between_two_runs_is_copied_to_anew() {
    let source = redis(&["--repl-backlog-size", "64mb"]);
    let mut targets = redis_cluster();
    let load = Load::begin(&[source.address(); 2], 33, counting);
    load.await_more(10);
    let state = usize::from(key_slot(b"tarn-migrate:state:0")) * 2 / wire::SLOTS;
    let mut import = Import::begin(source.address(), targets[state].address(), &[]);
    import.await_stream();
    load.await_more(10);
    import.signal("-INT");
    assert!(!import.wait().success());
    // The other one has nothing any more.
    targets[1 - state].restart().unwrap();
    let port = targets[1 - state].address().port().to_string();
    let places: Vec<SocketAddr> = targets.iter().map(Server::address).collect();
    wait_until("both know both", || {
        connect(&places).iter_mut().all(|client| {
            ask(client, &["CLUSTER", "INFO"]).contains("cluster_state:ok")
                && ask(client, &["CLUSTER", "NODES"]).contains(&format!(":{port}@"))
        })
    });
    let mut import = Import::begin(source.address(), places[state], &[]);
    import.await_words("may have less than it had answered");
    import.await_stream_behind("what an earlier copy has left in the target is removed");
    load.await_more(10);
    import.cut_over();
    assert_eq!(contents(&mut connect(&[source.address()])), contents(&mut connect(&places)));
    load.end(&[&source]);
}

#[test]
fn an_import_that_cuts_over_ends_when_another_begins() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let relay = Relay::to(target.address()).unwrap();
    let mut first = slow_end(&source, &target, &relay, &[]);
    let mut second = Import::begin(source.address(), target.address(), &["--verify"]);
    second.await_stream();
    relay.mend();
    assert!(!first.wait().success());
    first.await_words("another `tarn migrate` writes to this target");
    let mut here = target.connect().unwrap();
    assert_eq!(
        held_back(&mut here, 2000),
        2000,
        "the first has put no time right that the second has brought"
    );
    second.cut_over();
    must_be_equal(&source, target.address());
}

#[test]
fn writers_do_not_wait_for_a_target_that_gives_no_answer() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let relay = Relay::to(target.address()).unwrap();
    let mut import = slow_end(&source, &target, &relay, &["--hold", "10"]);
    relay.stop(Way::There);
    assert!(!import.wait().success());
    import.await_words("for 10 s");
    import.await_words("writers go on at the source");
    assert_eq!(call_line(&mut source.connect().unwrap(), "SET key1 2"), ok());
    relay.mend();
    end(&source, target.address(), &[]);
    must_be_equal(&source, target.address());
}

#[test]
fn writers_that_are_not_held_have_to_stop_before_times_are_put_right() {
    let budget = Budget::from_env(34, 1);
    let (source, target) = (redis(&["--repl-backlog-size", "64mb"]), tarn_server());
    fill(&source);
    let load = Load::begin(&[source.address(); 2], budget.seed, super::any_requests);
    let options = ["--hold", "0"];
    let mut import = Import::begin(source.address(), target.address(), &options);
    import.await_stream();
    import.ask_to_cut_over();
    assert!(!import.wait().success());
    import.await_words("clients still write to the source");
    load.end(&[&source]);
    let relay = Relay::to(target.address()).unwrap();
    let mut import = slow_end(&source, &target, &relay, &options);
    import.await_words("it goes on from there");
    call_line_well(&mut source.connect().unwrap(), "SET key1 2");
    relay.mend();
    assert!(!import.wait().success());
    import.await_words("the source was written to after times to live were put right");
    end(&source, target.address(), &[]);
    must_be_equal(&source, target.address());
}

#[test]
fn nobody_waits_where_one_source_cannot_be_told_to_hold_its_writers() {
    let (sources, target) = (redis_cluster(), tarn_server());
    let mut clients: Vec<Client> = sources.iter().map(|source| source.connect().unwrap()).collect();
    for client in &mut clients {
        call_line_well(client, "CONFIG SET repl-diskless-sync-delay 0");
    }
    call_line_well(&mut clients[1], "ACL SETUSER default -client|pause");
    let options = ["--verify", "--until-caught-up", "--hold", "600"];
    let mut import = Import::begin(sources[0].address(), target.address(), &options);
    assert!(import.wait().success(), "{}", import.output());
    import.await_words("writers are not held, and have to have stopped");
    let key = (0..).map(|number| format!("key{number}")).find(|key| key_slot(key.as_bytes()) < 8192).unwrap();
    assert_eq!(call_line(&mut clients[0], &format!("SET {key} 1")), ok());
}

#[test]
fn what_is_written_when_all_times_are_right_already_is_found() {
    const KEYS: usize = 2000;
    let (source, target) = (redis(&[]), tarn_server());
    let (mut client, mut here) = (source.connect().unwrap(), target.connect().unwrap());
    for number in 0..KEYS {
        call_line_well(&mut client, &format!("SET key{number} v EX 5000"));
    }
    let relay = Relay::to(target.address()).unwrap();
    let mut import = slow_end(&source, &target, &relay, &["--verify"]);
    relay.throttle(Way::There, 3 * SLOW);
    wait_until("all times are right", || held_back(&mut here, KEYS) == 0);
    relay.throttle(Way::There, SLOW);
    let passed = relay.passed(Way::There);
    wait_until("values are compared", || relay.passed(Way::There) > passed + 3 * SLOW);
    // At once, since writers are told to wait again and again.
    client.pipeline(&[&["CLIENT", "UNPAUSE"][..], &["SET", "key1", "2"]].map(<[&str]>::to_vec)).unwrap();
    relay.mend();
    assert!(!import.wait().success(), "{}", import.output());
    import.await_words("the source was written to after times to live were put right");
    end(&source, target.address(), &[]);
    must_be_equal(&source, target.address());
}

#[test]
fn writers_who_were_not_held_for_a_moment_when_all_else_was_over_are_found() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let (there, here) = (Relay::to(source.address()).unwrap(), Relay::to(target.address()).unwrap());
    let mut import = Import::begin(there.address(), here.address(), &[]);
    import.await_words(" 0 bytes and 0 s behind");
    here.delay(Way::There, Duration::from_millis(1500));
    import.ask_to_cut_over();
    let mut client = source.connect().unwrap();
    // What is left is to take away what was kept in the target.
    wait_until("nobody follows", || {
        ask(&mut client, &["INFO", "replication"]).contains("connected_slaves:0")
    });
    there.cut();
    there.mend();
    assert!(!import.wait().success(), "{}", import.output());
    import.await_words("or its writers were not held");
    import.await_words("writers go on at the source");
}

/// How many of so many keys have a time to live in the target as while data come.
fn held_back(here: &mut Client, keys: usize) -> usize {
    let questions: Vec<Vec<String>> =
        (0..keys).map(|number| vec!["PEXPIRETIME".to_owned(), format!("key{number}")]).collect();
    let replies = here.pipeline(&questions).unwrap();
    replies.iter().filter(|reply| reply.trim_ascii().len() >= ":4000000000000000000".len()).count()
}

#[test]
fn who_is_ended_in_the_copy_is_told_that_the_next_run_begins_anew() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let relay = Relay::to(source.address()).unwrap();
    relay.throttle(Way::Back, 40_000);
    let mut import = Import::begin(relay.address(), target.address(), &[]);
    let mut here: Client = target.connect().unwrap();
    await_copy(&mut here);
    import.signal("-INT");
    assert!(!import.wait().success());
    import.await_words("it was ended before the copy was whole; the next run begins a new copy");
}
