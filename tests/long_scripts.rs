//! Scripts that run for long: nobody waits for one but those who need what it holds, whichever worker they are on, and they are
//! told that it is busy.

use crate::replicas::{agree, field, follow, master};
use crate::tarn;
use std::slice;
use std::thread;
use std::time::Instant;
use testkit::ask::{PATIENCE, ask, is_error, ok, wait_until};
use testkit::{Client, Server};
use wire::Value;

/// Reads its key until somebody ends it.
const ENDLESS: &str = "while true do redis.call('GET', KEYS[1]) end";
const ENDLESS_UNDECLARED: &str = "while true do redis.call('GET', 'a' .. 'b') end";
const CONNECTIONS: usize = 12;

fn start(args: &[&str]) -> (Server, Vec<Client>) {
    let server = Server::start(
        tarn(),
        &[&["--edition", "memory", "--threads", "2", "--threads-min", "2"], args].concat(),
    )
    .unwrap();
    let clients = (0..CONNECTIONS).map(|_| server.connect().unwrap()).collect();
    (server, clients)
}

/// Asks until a script is known to be busy.
fn await_busy(client: &mut Client, request: &[&str]) {
    wait_until("the script is slow", || is_error(&client.call(request).unwrap(), "BUSY"));
}

/// Ends these scripts, each as soon as it is slow: one call ends all that are.
fn kill(client: &mut Client, scripts: &mut [Client]) {
    for script in scripts {
        wait_until("a script is slow, and ended", || {
            let reply = client.call(&["SCRIPT", "KILL"]).unwrap();
            assert!(reply == ok() || is_error(&reply, "NOTBUSY"), "{reply:?}");
            let (replies, _) = script.read_arrived().unwrap();
            let text = replies.iter().map(|reply| String::from_utf8_lossy(reply)).collect::<String>();
            assert!(
                text.is_empty() || text.starts_with("-ERR Script killed by user with SCRIPT KILL..."),
                "{text}"
            );
            !text.is_empty()
        });
    }
}

#[test]
fn a_script_that_never_ends_stops_only_those_who_need_its_keys() {
    let (_server, mut clients) = start(&["--busy-reply-threshold", "60000"]);
    let mut scripts = [clients.remove(0), clients.remove(0)];
    let mut waiting = [clients.remove(0), clients.remove(0)];
    // The second is on the other worker, and the rest goes to the spare one.
    for (script, key) in scripts.iter_mut().zip(["one", "two"]) {
        script.send_request(&["EVAL", ENDLESS, "1", key]).unwrap();
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let key = format!("key:{number}");
        assert_eq!(client.call(&["PING"]).unwrap(), Value::Simple(b"PONG".to_vec()));
        assert_eq!(client.call(&["SET", &key, "v"]).unwrap(), ok());
        client.call(&["MULTI"]).unwrap();
        client.call(&["APPEND", &key, "w"]).unwrap();
        assert!(matches!(client.call(&["EXEC"]).unwrap(), Value::Array(replies) if replies.len() == 1));
    }
    for (client, key) in waiting.iter_mut().zip(["one", "two"]) {
        client.send_request(&["SET", key, "written behind it"]).unwrap();
    }
    kill(&mut clients[0], &mut scripts);
    for client in &mut waiting {
        assert_eq!(client.read_value().unwrap(), ok());
    }
    for script in &mut scripts {
        assert_eq!(script.call(&["PING"]).unwrap(), Value::Simple(b"PONG".to_vec()));
    }
    // All are where they were, and go on.
    for client in clients.iter_mut().chain(&mut waiting) {
        assert!(matches!(client.call(&["DBSIZE"]).unwrap(), Value::Int(_)));
    }
}

#[test]
fn those_who_need_a_busy_scripts_keys_are_told_so() {
    let (server, mut clients) = start(&["--busy-reply-threshold", "50"]);
    let mut script = clients.remove(0);
    script.send_request(&["EVAL", ENDLESS, "1", "key"]).unwrap();
    // Some of these are on the script's worker; some asked before it was slow.
    for client in &mut clients {
        client.send_request(&["GET", "key"]).unwrap();
    }
    let mut served = 0;
    for client in &mut clients {
        match client.read_value().unwrap() {
            Value::Null => served += 1,
            reply => {
                let text =
                    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
                assert!(is_error(&reply, text), "{reply:?}");
                break;
            }
        }
    }
    assert!(served < clients.len(), "somebody was told");
    let mut newcomer = server.connect().unwrap();
    assert!(is_error(&newcomer.call(&["GET", "key"]).unwrap(), "BUSY"));
    assert!(is_error(&newcomer.call(&["FLUSHALL"]).unwrap(), "BUSY"));
    assert!(is_error(&newcomer.call(&["EVAL", "return redis.call('GET', 'x' .. 1)", "0"]).unwrap(), "BUSY"));
    assert_eq!(newcomer.call(&["GET", "other"]).unwrap(), Value::Null);
    let replied = newcomer.call(&["EVAL", "return redis.call('SET', KEYS[1], 1)", "1", "other"]).unwrap();
    assert!(replied == ok() || is_error(&replied, "BUSY"), "{replied:?}");
    kill(&mut newcomer, slice::from_mut(&mut script));
    assert_eq!(newcomer.call(&["GET", "key"]).unwrap(), Value::Null);
}

#[test]
fn a_script_that_holds_all_keys_leaves_the_rest_of_the_server_alone() {
    let (_server, mut clients) = start(&["--busy-reply-threshold", "50"]);
    let mut script = clients.remove(0);
    script.send_request(&["EVAL", ENDLESS_UNDECLARED, "0"]).unwrap();
    await_busy(&mut clients[0], &["GET", "key"]);
    for client in &mut clients {
        assert_eq!(client.call(&["PING"]).unwrap(), Value::Simple(b"PONG".to_vec()));
        assert!(matches!(client.call(&["CLIENT", "ID"]).unwrap(), Value::Int(_)));
        assert_eq!(client.call(&["PUBLISH", "channel", "message"]).unwrap(), Value::Int(0));
    }
    kill(&mut clients[0], slice::from_mut(&mut script));
    assert_eq!(clients[0].call(&["GET", "key"]).unwrap(), Value::Null);
}

#[test]
fn requests_that_lack_words_or_rights_are_refused_while_a_script_holds_all_keys() {
    let (server, mut clients) = start(&["--busy-reply-threshold", "1", "--requirepass", "secret"]);
    for client in &mut clients {
        assert_eq!(client.call(&["AUTH", "secret"]).unwrap(), ok());
    }
    let Value::Array(names) = clients[0].call(&["COMMAND", "LIST"]).unwrap() else {
        panic!("names are told")
    };
    let mut script = clients.remove(0);
    script.send_request(&["EVAL", ENDLESS_UNDECLARED, "0"]).unwrap();
    await_busy(&mut clients[0], &["GET", "key"]);
    let mut stranger = server.connect().unwrap();
    assert!(is_error(&stranger.call(&["GET", "key"]).unwrap(), "NOAUTH"));
    assert!(is_error(&clients[0].call(&["GET"]).unwrap(), "ERR wrong number of arguments"));
    assert!(is_error(&clients[0].call(&["CONFIG", "NO-SUCH"]).unwrap(), "ERR unknown subcommand"));
    // Whatever they are told, or wait for: the server survives.
    let mut held_back = Vec::new();
    for name in names {
        let Value::Bulk(name) = name else { panic!("{name:?} is no name") };
        if name == b"shutdown" {
            continue;
        }
        for words in 0..4 {
            let mut request = vec![name.as_slice()];
            request.extend([&b"x"[..], b"1", b"y"][..words].iter());
            let mut client = server.connect().unwrap();
            if words % 2 == 0 {
                assert_eq!(client.call(&["AUTH", "secret"]).unwrap(), ok());
            }
            client.send_request(&request).unwrap();
            held_back.push(client);
        }
        assert_eq!(clients[0].call(&["PING"]).unwrap(), Value::Simple(b"PONG".to_vec()));
    }
    kill(&mut clients[0], slice::from_mut(&mut script));
}

#[test]
fn connections_that_wait_for_keys_or_messages_move_with_what_they_wait_for() {
    let (_server, mut clients) = start(&["--busy-reply-threshold", "60000"]);
    let (mut script, mut other) = (clients.remove(0), clients.remove(0));
    let blocked = clients.len() / 2;
    for (number, client) in clients.iter_mut().enumerate() {
        if number < blocked {
            client.send_request(&["BLPOP", &format!("list:{number}"), "30"]).unwrap();
        } else {
            client.call(&["SUBSCRIBE", "channel"]).unwrap();
        }
    }
    script.send_request(&["EVAL", ENDLESS, "1", "key"]).unwrap();
    wait_until(
        "somebody listens",
        || matches!(other.call(&["PUBLISH", "channel", "text"]).unwrap(), Value::Int(n) if n > 0),
    );
    for (number, client) in clients.iter_mut().enumerate() {
        if number < blocked {
            other.call(&["RPUSH", &format!("list:{number}"), "element"]).unwrap();
        }
        assert!(matches!(client.read_value().unwrap(), Value::Array(_) | Value::Push(_)), "{number}");
    }
    kill(&mut other, slice::from_mut(&mut script));
}

#[test]
fn whoever_brings_what_somebody_moves_on_waits_for_the_script_that_has_the_target() {
    let (_server, mut clients) = start(&["--busy-reply-threshold", "60000"]);
    let mut pusher = clients.remove(0);
    let (mut script, mut waiter, mut other) = (clients.remove(0), clients.remove(0), clients.remove(0));
    waiter.send_request(&["BLMOVE", "from", "to", "LEFT", "LEFT", "30"]).unwrap();
    let blocked = |info: Value| matches!(info, Value::Bulk(text) if String::from_utf8_lossy(&text).contains("blocked_clients:1"));
    wait_until("it waits", || blocked(other.call(&["INFO", "clients"]).unwrap()));
    script.send_request(&["EVAL", ENDLESS, "1", "to"]).unwrap();
    // Until it is slow, commands on its key go through or wait.
    await_busy(&mut other, &["FUNCTION", "KILL"]);
    pusher.send_request(&["RPUSH", "from", "element"]).unwrap();
    // Nobody sees the element before it is moved, and nobody else waits.
    assert_eq!(other.call(&["LLEN", "from"]).unwrap(), Value::Int(0));
    other.call(&["CONFIG", "SET", "busy-reply-threshold", "1"]).unwrap();
    assert!(is_error(&other.call(&["RPUSH", "from", "another"]).unwrap(), "BUSY"));
    other.call(&["CONFIG", "SET", "busy-reply-threshold", "60000"]).unwrap();
    assert_eq!(other.call(&["RPUSH", "elsewhere", "element"]).unwrap(), Value::Int(1));
    kill(&mut other, slice::from_mut(&mut script));
    assert_eq!(pusher.read_value().unwrap(), Value::Int(1));
    assert_eq!(waiter.read_value().unwrap(), Value::Bulk(b"element".to_vec()));
    assert_eq!(
        other.call(&["LRANGE", "to", "0", "-1"]).unwrap(),
        Value::Array(vec![Value::Bulk(b"element".to_vec())])
    );
}

#[test]
fn the_spare_worker_runs_no_script_once_the_others_have_become_free() {
    for round in 0..5 {
        let (_server, mut clients) = start(&["--busy-reply-threshold", "60000"]);
        let mut scripts: Vec<Client> = clients.drain(..2).collect();
        for (script, key) in scripts.iter_mut().zip(["one", "two"]) {
            script.send_request(&["EVAL", ENDLESS, "1", key]).unwrap();
        }
        // Both are slow when everybody else is served by the spare worker, and they are known to be.
        for _ in 0..2 {
            for client in &mut clients {
                assert_eq!(client.call(&["SET", "key", "v"]).unwrap(), ok());
            }
        }
        let mut held_back: Vec<Client> = clients.drain(..3).collect();
        for (number, client) in held_back.iter_mut().enumerate() {
            let key = format!("held back:{number}");
            match number {
                0 => client.send_request(&["EVAL", ENDLESS, "1", &key]).unwrap(),
                _ => {
                    client.call(&["MULTI"]).unwrap();
                    client.call(&["EVAL", ENDLESS, "1", &key]).unwrap();
                    client.send_request(&["EXEC"]).unwrap();
                }
            }
        }
        for client in &mut clients {
            assert_eq!(client.call(&["PING"]).unwrap(), Value::Simple(b"PONG".to_vec()), "{round}");
        }
        // What was held back runs then, here or there; somebody is left to end it.
        let mut ended = scripts.into_iter().chain(held_back);
        let ending = thread::spawn(move || {
            ended.all(|mut client| {
                let reply = client.read_value().unwrap();
                let error = if let Value::Array(replies) = &reply { &replies[0] } else { &reply };
                is_error(error, "ERR Script killed")
            })
        });
        while !ending.is_finished() {
            for client in &mut clients {
                let reply = client.call(&["SCRIPT", "KILL"]).unwrap();
                assert!(reply == ok() || is_error(&reply, "NOTBUSY"), "{round}: {reply:?}");
            }
        }
        assert!(ending.join().unwrap(), "{round}");
    }
}

#[test]
fn everybody_is_told_of_a_busy_script_where_that_is_wanted() {
    let (_server, mut clients) =
        start(&["--busy-reply-threshold", "50", "--busy-reply-scope", "server", "--save", ""]);
    let mut script = clients.remove(0);
    for begins in ["MULTI", "PING"] {
        clients[1].call(&[begins]).unwrap();
        script.send_request(&["EVAL", ENDLESS, "1", "key"]).unwrap();
        let busy = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
        wait_until("somebody is told", || is_error(&clients[0].call(&["PING"]).unwrap(), busy));
        for line in [&["GET", "another"][..], &["INFO"], &["CONFIG", "GET", "port"], &["EXEC"], &["DBSIZE"]] {
            let reply = clients[1].call(line).unwrap();
            let discarded = format!("EXECABORT Transaction discarded because of: {busy}");
            let told = if line[0] == "EXEC" { &discarded } else { busy };
            assert!(is_error(&reply, told), "{begins}: {line:?}: {reply:?}");
        }
        assert_eq!(clients[2].call(&["SCRIPT", "KILL"]).unwrap(), ok());
        let reply = script.read_value().unwrap();
        assert!(is_error(&reply, "ERR Script killed by user with SCRIPT KILL..."), "{reply:?}");
        assert_eq!(clients[0].call(&["PING"]).unwrap(), Value::Simple(b"PONG".to_vec()));
    }
}

/// What a replica's clients read for long it does not leave out of its master's stream, nor does it fall silent: it goes on reporting, and obeys.
#[test]
fn what_a_slow_script_has_at_a_replica_is_written_when_it_ends() {
    let transaction = ["MULTI", "SET k 3", "SET other 3", "EXEC"];
    let emptying = ["MULTI", "SET other 4", "FLUSHALL", "EXEC"];
    let written: [&[&str]; 6] =
        [&["SET k 2"], &["DEL k"], &["FLUSHALL"], &["SWAPDB 0 1"], &transaction, &emptying];
    for (edition, script, keys) in [("memory", ENDLESS, "1"), ("durable", ENDLESS, "1")] {
        let threads = ["--threads", "3", "--threads-min", "3", "--busy-reply-threshold", "50"];
        let (above, replica) = (master("memory", &[]), master(edition, &threads));
        let [mut here, mut there] = [&above, &replica].map(|server| server.connect().unwrap());
        follow(&mut there, &above);
        let offset = |client: &mut Client, name: &str| field(client, name).unwrap().parse::<u64>().unwrap();
        for lines in written {
            assert_eq!(ask(&mut here, &["MSET", "k", "1", "other", "1", "ab", "1"]), "OK");
            agree(&above, &replica);
            let mut slow = replica.connect().unwrap();
            slow.send_request(&["EVAL_RO", script, keys, "k"]).unwrap();
            wait_until("the script is slow", || ask(&mut there, &["GET", "k"]).starts_with("BUSY"));
            for line in lines {
                let words: Vec<&str> = line.split(' ').collect();
                here.call(&words).unwrap();
            }
            let end = offset(&mut here, "master_repl_offset");
            wait_until("it has come", || offset(&mut there, "slave_read_repl_offset") >= end);
            assert!(offset(&mut there, "slave_repl_offset") < end, "{edition}: {lines:?}");
            assert_eq!(ask(&mut there, &["SCRIPT", "KILL"]), "OK");
            assert!(is_error(&slow.read_value().unwrap(), "ERR Script killed"));
            agree(&above, &replica);
        }
        assert!(!replica.output().contains("so that the data differs"), "{}", replica.last_lines());
        let mut slow = replica.connect().unwrap();
        slow.send_request(&["EVAL_RO", script, keys, "k"]).unwrap();
        wait_until("the script is slow", || ask(&mut there, &["GET", "k"]).starts_with("BUSY"));
        assert_eq!(ask(&mut here, &["SET", "k", "5"]), "OK");
        let end = offset(&mut here, "master_repl_offset");
        wait_until("it has come", || offset(&mut there, "slave_read_repl_offset") >= end);
        // It is promoted without an end of the script.
        there.call(&["REPLICAOF", "NO", "ONE"]).unwrap();
        wait_until("it is master", || replica.output().contains("MASTER MODE enabled"));
        assert_eq!(ask(&mut there, &["SCRIPT", "KILL"]), "OK");
        assert!(is_error(&slow.read_value().unwrap(), "ERR Script killed"));
        assert_eq!(ask(&mut there, &["SET", "k", "6"]), "OK");
    }
}

/// A copy that comes while a script is slow waits for its end with the link. Nobody is told meanwhile that data are being loaded.
#[test]
fn who_ends_a_slow_script_is_heard_while_a_copy_waits_for_it() {
    let threads = ["--threads", "3", "--threads-min", "3", "--busy-reply-threshold", "50"];
    let (above, replica) = (master("memory", &[]), master("memory", &threads));
    let [mut here, mut there] = [&above, &replica].map(|server| server.connect().unwrap());
    follow(&mut there, &above);
    assert_eq!(ask(&mut here, &["MSET", "k", "1", "other", "1"]), "OK");
    agree(&above, &replica);
    let mut slow = replica.connect().unwrap();
    slow.send_request(&["EVAL_RO", ENDLESS, "1", "k"]).unwrap();
    wait_until("the script is slow", || ask(&mut there, &["GET", "k"]).starts_with("BUSY"));
    assert_eq!(ask(&mut here, &["DEBUG", "CHANGE-REPL-ID"]), "OK");
    here.call(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
    wait_until("another copy has come", || replica.output().matches("Loading DB in memory").count() == 2);
    for _ in 0..100 {
        assert_eq!(ask(&mut there, &["GET", "other"]), "1");
    }
    assert_eq!(ask(&mut there, &["SCRIPT", "KILL"]), "OK");
    assert!(is_error(&slow.read_value().unwrap(), "ERR Script killed"));
    wait_until("it is loaded", || replica.output().matches("Finished with success").count() == 2);
    agree(&above, &replica);
}

/// Two clients have slow scripts in turn, one of which has always begun before the other ends. Who needs everything for a moment has it all the same.
#[test]
fn a_masters_stream_comes_to_its_turn_behind_scripts_that_overlap() {
    const LONG: &str = "local t0 = redis.call('TIME') \
        while true do local t = redis.call('TIME') redis.call('GET', KEYS[1]) \
        if (t[1] - t0[1]) * 1000 + (t[2] - t0[2]) / 1000 > 400 then return 1 end end";
    let threads = ["--threads", "3", "--threads-min", "3", "--busy-reply-threshold", "20"];
    let (above, replica) = (master("memory", &[]), master("memory", &threads));
    let [mut here, mut there] = [&above, &replica].map(|server| server.connect().unwrap());
    follow(&mut there, &above);
    assert_eq!(ask(&mut here, &["MSET", "k:0", "1", "k:1", "1"]), "OK");
    agree(&above, &replica);
    let mut scripts = [replica.connect().unwrap(), replica.connect().unwrap()];
    let offset = |client: &mut Client, name: &str| field(client, name).unwrap().parse::<u64>().unwrap();
    let (mut turn, mut end, mut is_written) = (0, u64::MAX, false);
    let began = Instant::now();
    let mut runs = [false; 2];
    while offset(&mut there, "slave_repl_offset") < end {
        assert!(began.elapsed() < PATIENCE, "it has no turn: {}", replica.last_lines());
        let key = format!("k:{turn}");
        scripts[turn].send_request(&["EVAL_RO", LONG, "1", &key]).unwrap();
        runs[turn] = true;
        wait_until("it is slow, or the other has ended and everything was had", || {
            ask(&mut there, &["GET", &key]).starts_with("BUSY")
                || offset(&mut there, "slave_repl_offset") >= end
        });
        if !is_written {
            for line in [&["MULTI"][..], &["SET", "a", "1"], &["FLUSHALL"], &["EXEC"]] {
                here.call(line).unwrap();
            }
            (end, is_written) = (offset(&mut here, "master_repl_offset"), true);
        }
        turn = 1 - turn;
        if std::mem::take(&mut runs[turn]) {
            assert_eq!(scripts[turn].read_value().unwrap(), Value::Int(1));
        }
    }
    for script in scripts.iter_mut().zip(runs).filter_map(|(script, runs)| runs.then_some(script)) {
        script.read_value().unwrap();
    }
    agree(&above, &replica);
}
