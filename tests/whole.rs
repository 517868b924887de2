//! Scripts and transactions are there as a whole or not at all, whatever ends the server meanwhile, and do once what they do.

use crate::tarn;
use std::io;
use std::process::{Command, ExitStatus};
use testkit::ask::{is_error, ok, text, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

/// Writes one key, then works until another client has said that it may go on, then writes another key.
const IN_TWO_HALVES: &str = "redis.call('SET', KEYS[1], 'half')
    local began, now = redis.call('TIME')[1], 0
    repeat now = redis.call('TIME')[1] until now - began >= 2
    redis.call('SET', KEYS[2], 'whole')
    return 'done'";

const ENDLESS: &str = "redis.call('SET', KEYS[1], 'half') while true do end";

fn start() -> (Server, Client, Client) {
    let server =
        Server::start(tarn(), &["--busy-reply-threshold", "50", "--threads", "2", "--threads-min", "2"])
            .unwrap();
    let (one, other) = (server.connect().unwrap(), server.connect().unwrap());
    (server, one, other)
}

/// Waits until a script is known to be slow, and to have written.
fn wait_for_script(client: &mut Client) {
    wait_until("a script has written", || is_error(&client.call(&["SCRIPT", "KILL"]).unwrap(), "UNKILLABLE"));
}

fn terminate(server: &Server) {
    let status = Command::new("kill").args(["-TERM", &server.pid().to_string()]).status();
    assert!(status.unwrap().success());
}

fn end_of(server: &mut Server) -> ExitStatus {
    let mut ended = None;
    wait_until("it ends", || {
        ended = server.ended().unwrap();
        ended.is_some()
    });
    ended.expect("it was waited for")
}

/// What a start finds under two keys.
fn found(server: &mut Server) -> (Value, Value) {
    server.restart().unwrap();
    let mut client = server.connect().unwrap();
    (client.call(&["GET", "one"]).unwrap(), client.call(&["GET", "two"]).unwrap())
}

#[test]
fn a_script_that_has_written_comes_to_its_end_before_the_server_does() {
    let (mut server, mut script, mut other) = start();
    script.send_request(&["EVAL", IN_TWO_HALVES, "2", "one", "two"]).unwrap();
    wait_for_script(&mut other);
    terminate(&server);
    assert_eq!(script.read_value().unwrap(), text("done"));
    assert!(end_of(&mut server).success());
    assert_eq!(found(&mut server), (text("half"), text("whole")));
}

#[test]
fn so_does_a_transaction_of_which_a_script_is_part() {
    let (mut server, mut script, mut other) = start();
    let waits = "local b = redis.call('TIME')[1] repeat until redis.call('TIME')[1] - b >= 2 return 'done'";
    for request in [&["MULTI"][..], &["SET", "one", "half"], &["EVAL", waits, "0"], &["SET", "two", "whole"]]
    {
        script.call(request).unwrap();
    }
    script.send_request(&["EXEC"]).unwrap();
    wait_until("the script is slow", || is_error(&other.call(&["GET", "one"]).unwrap(), "BUSY"));
    terminate(&server);
    assert_eq!(script.read_value().unwrap(), Value::Array(vec![ok(), text("done"), ok()]));
    assert!(end_of(&mut server).success());
    assert_eq!(found(&mut server), (text("half"), text("whole")));
}

#[test]
fn of_a_script_that_does_not_end_nothing_is_kept() {
    let (mut server, mut script, mut other) = start();
    assert_eq!(other.call(&["SET", "two", "acknowledged"]).unwrap(), ok());
    script.send_request(&["EVAL", ENDLESS, "1", "one"]).unwrap();
    wait_for_script(&mut other);
    assert!(is_error(&other.call(&["SHUTDOWN"]).unwrap(), "BUSY"), "only NOSAVE ends it, as in Redis");
    terminate(&server);
    end_of(&mut server);
    server.await_output(&["nothing that it has written is kept"]);
    assert_eq!(found(&mut server), (Value::Null, text("acknowledged")));
}

#[test]
fn saving_before_the_end_waits_for_no_script() {
    let directives = [
        "--edition",
        "memory",
        "--save",
        "3600 1",
        "--enable-debug-command",
        "yes",
        "--threads",
        "2",
        "--threads-min",
        "2",
    ];
    let mut server = Server::start(tarn(), &directives).unwrap();
    let (mut script, mut other) = (server.connect().unwrap(), server.connect().unwrap());
    assert_eq!(other.call(&["SET", "two", "acknowledged"]).unwrap(), ok());
    assert_eq!(other.call(&["DEBUG", "DISK-HANG", "1"]).unwrap(), ok());
    other.call(&["BGSAVE"]).unwrap();
    script.send_request(&["EVAL", ENDLESS, "1", "one"]).unwrap();
    wait_for_script(&mut other);
    terminate(&server);
    end_of(&mut server);
    server.await_output(&["nothing that it has written is kept"]);
}

#[test]
fn shutdown_nosave_leaves_a_script_behind() {
    let (mut server, mut script, mut other) = start();
    script.send_request(&["EVAL", ENDLESS, "1", "one"]).unwrap();
    wait_for_script(&mut other);
    assert_eq!(other.call(&["SET", "two", "acknowledged"]).unwrap(), ok());
    assert!(other.call(&["SHUTDOWN", "NOSAVE"]).is_err());
    assert!(end_of(&mut server).success());
    assert_eq!(found(&mut server), (Value::Null, text("acknowledged")));
}

#[test]
fn a_script_that_only_reads_ends_with_the_server() {
    let (mut server, mut script, mut other) = start();
    script.send_request(&["EVAL", "while true do redis.call('GET', KEYS[1]) end", "1", "one"]).unwrap();
    wait_until("the script is slow", || is_error(&other.call(&["GET", "one"]).unwrap(), "BUSY"));
    terminate(&server);
    assert!(end_of(&mut server).success());
    assert!(!server.output().contains("is kept"), "{}", server.output());
    assert!(script.read_value().is_ok_and(|reply| is_error(&reply, "ERR")), "it was told");
}

#[test]
fn what_a_script_publishes_comes_once() {
    // Behind SELECT the declared key is another one; the other is given a name that the text does not show.
    let publishing = [
        "redis.call('PUBLISH', 'c', 'm') redis.call('SELECT', 1) return redis.call('GET', KEYS[1])",
        "redis.call('SELECT', 1) redis.call('PUBLISH', 'c', 'm') return redis.call('GET', KEYS[1])",
        "KEYS[1] = 'other' redis.call('PUBLISH', 'c', 'm') return redis.call('GET', KEYS[1])",
    ];
    let (_server, mut script, mut listener) = start();
    listener.call(&["SUBSCRIBE", "c"]).unwrap();
    for (number, text) in publishing.iter().enumerate() {
        assert_eq!(script.call(&["EVAL", text, "1", "k"]).unwrap(), Value::Null, "{text}");
        script.call(&["PUBLISH", "c", &format!("end {number}")]).unwrap();
        let mut heard = Vec::new();
        loop {
            let (Value::Array(words) | Value::Push(words)) = listener.read_value().unwrap() else {
                panic!("{text}")
            };
            let Some(Value::Bulk(word)) = words.into_iter().nth(2) else { panic!("{text}") };
            if word.starts_with(b"end") {
                break;
            }
            heard.push(word);
        }
        assert_eq!(heard, [b"m".to_vec()], "{text}");
    }
}

#[test]
fn what_a_library_counts_is_counted_once() {
    let library = "#!lua name=counting
        local calls = 0
        redis.register_function{function_name = 'look', flags = {'no-writes'}, callback = function(keys, args)
          calls = calls + 1
          redis.call('GET', args[1] .. 'x')
          return calls end}
        redis.register_function('touch', function(keys, args)
          calls = calls + 1
          keys[1] = args[1]
          redis.call('GET', keys[1])
          return calls end)";
    let (_server, mut client, _other) = start();
    client.call(&["FUNCTION", "LOAD", library]).unwrap();
    for calls in 1..=6 {
        let name = if calls % 2 == 0 { "look" } else { "touch" };
        let reply = client.call(&["FCALL", name, "1", "k", &format!("undeclared:{calls}")]).unwrap();
        assert_eq!(reply, Value::Int(calls), "{name}");
    }
}

#[test]
fn a_script_writes_each_line_of_the_log_once() {
    let (server, mut client, _other) = start();
    let text = "#!lua flags=no-writes\nredis.log(redis.LOG_WARNING, 'said-by-a-script')
        return redis.call('GET', 'not' .. 'declared')";
    assert_eq!(client.call(&["EVAL", text, "0"]).unwrap(), Value::Null);
    assert_eq!(
        client.call(&["EVAL", "redis.log(redis.LOG_WARNING, 'said-last')", "0"]).unwrap(),
        Value::Null
    );
    wait_until("it has said the last", || server.output().contains("said-last"));
    assert_eq!(server.output().matches("said-by-a-script").count(), 1, "{}", server.output());
}

/// Asks Redis and Tarn the same over a connection each.
fn both(requests: &[&[&str]]) -> io::Result<()> {
    let edition: &[&str] = &["--threads", "2", "--threads-min", "2"];
    for (program, directives) in [(Program::Redis, &[][..]), (tarn(), edition)] {
        let mut server = Server::start(program, directives)?;
        let mut client = server.connect()?;
        client.call(&["ACL", "SETUSER", "bob", "on", ">pw", "~*", "+@all", "-select"])?;
        let replies = requests.iter().map(|request| client.call(request));
        let last =
            replies.last().expect("there is one").unwrap_or_else(|error| panic!("{requests:?}: {error}"));
        let (_, expected) =
            EXPECTED.iter().find(|(first, _)| *first == requests[0][0]).expect("it is listed");
        assert!(expected(&last), "{}: {requests:?}: {last:?}", server.program().name());
        assert!(server.ended()?.is_none(), "{requests:?}: {}", server.output());
        assert_eq!(server.connect()?.call(&["PING"])?, Value::Simple(b"PONG".to_vec()));
    }
    Ok(())
}

type Expected = fn(&Value) -> bool;

/// What the last of some requests is answered, by the first.
const EXPECTED: &[(&str, Expected)] = &[
    ("SET", |reply| is_error(reply, "IOERR") || is_error(reply, "ERR")),
    (
        "MULTI",
        |reply| matches!(reply, Value::Array(all) if all.len() == 4 && is_error(&all[1], "NOPERM") && all[2..] == [ok(), text("v")]),
    ),
];

#[test]
fn a_script_may_migrate() {
    let set: &[&str] = &["SET", "k", "v"];
    let literal = "return redis.call('migrate', '127.0.0.1', '1', 'k', '0', '100')";
    let declared = "return redis.call('migrate', '127.0.0.1', '1', KEYS[1], '0', '100')";
    let several = "return redis.call('migrate', '127.0.0.1', '1', '', '0', '100', 'KEYS', KEYS[1], 'other')";
    both(&[set, &["EVAL", literal, "0"]]).unwrap();
    both(&[set, &["EVAL", declared, "1", "k"]]).unwrap();
    both(&[set, &["EVAL", several, "1", "k"]]).unwrap();
    both(&[
        set,
        &[
            "EVAL",
            "redis.call('SET', KEYS[1], 1) return redis.call(unpack(ARGV))",
            "1",
            "x",
            "MIGRATE",
            "127.0.0.1",
            "1",
            "k",
            "0",
            "100",
        ],
    ])
    .unwrap();
}

#[test]
fn a_select_that_is_refused_when_it_runs_leaves_its_transaction_where_it_was() {
    both(&[
        &["MULTI"],
        &["AUTH", "bob", "pw"],
        &["SELECT", "1"],
        &["SET", "k", "v"],
        &["GET", "k"],
        &["EXEC"],
    ])
    .unwrap();
}
