//! Commands with other names, as an existing redis.conf gives them: Tarn beside Redis.

use crate::replicas::{field, follow, wait_until};
use crate::tarn;
use testkit::{Client, Program, Server};
use wire::Value;

const NAMES: &[&str] = &[
    "--rename-command",
    "FLUSHALL",
    "",
    "--rename-command",
    "config",
    "Secret",
    "--rename-command",
    "incr",
    "count",
    "--rename-command",
    "multi",
    "begin",
    "--rename-command",
    "get",
    "",
    "--rename-command",
    "set",
    "get",
];

const REQUESTS: &[&[&str]] = &[
    &["FLUSHALL"],
    &["CONFIG", "GET", "port"],
    &["secret", "GET", "maxmemory"],
    &["SECRET", "get"],
    &["get", "key", "1"],
    &["get", "key"],
    &["set", "key", "2"],
    &["COUNT", "key"],
    &["count"],
    &["incr", "key"],
    &["MULTI"],
    &["begin"],
    &["count", "key"],
    &["flushall"],
    &["exec"],
    &["begin"],
    &["count", "key"],
    &["get", "other", "x"],
    &["exec"],
    &["strlen", "other"],
    &["eval", "return redis.call('count', KEYS[1])", "1", "key"],
    &["eval", "redis.call('strlen', KEYS[1]) return redis.call('get', KEYS[1], 'y')", "1", "other"],
    &[
        "eval",
        "return {redis.pcall('flushall')['err'] ~= nil, redis.pcall('incr', KEYS[1])['err'] ~= nil}",
        "1",
        "key",
    ],
    &["command", "info", "flushall", "config", "get", "incr"],
    &["command", "getkeys", "count", "key"],
    &["command", "getkeys", "incr", "key"],
    &["acl", "setuser", "bob", "on", "nopass", "~*", "+flushall", "+incr"],
    &["acl", "dryrun", "bob", "count", "key"],
    &["acl", "dryrun", "bob", "incr", "key"],
    &["object", "encoding", "key"],
];

/// The reply; of one that describes a command only the name, as the rest differs with versions.
fn said(client: &mut Client, request: &[&str]) -> Value {
    match client.call(request).unwrap() {
        Value::Array(commands) if request[0] == "command" && request[1] == "info" => {
            let name = |command: Value| match command {
                Value::Array(mut parts) => parts.remove(0),
                other => other,
            };
            Value::Array(commands.into_iter().map(name).collect())
        }
        reply => reply,
    }
}

#[test]
fn commands_have_the_names_of_the_configuration() {
    let mut servers: Vec<Server> =
        [tarn(), Program::Redis].into_iter().map(|program| Server::start(program, NAMES).unwrap()).collect();
    let mut clients: Vec<Client> = servers.iter().map(|server| server.connect().unwrap()).collect();
    for request in REQUESTS {
        let replies: Vec<Value> = clients.iter_mut().map(|client| said(client, request)).collect();
        assert_eq!(replies[0], replies[1], "{request:?}");
    }
    // What is in the log has the table's names.
    let tarn = &mut servers[0];
    tarn.restart().unwrap();
    let mut client = tarn.connect().unwrap();
    assert_eq!(client.call(&["count", "key"]).unwrap(), Value::Int(5));
    assert_eq!(client.call(&["strlen", "other"]).unwrap(), Value::Int(1));
}

#[test]
fn a_log_of_renamed_commands_is_read_under_any_names() {
    let mut renamed = Server::start(tarn(), NAMES).unwrap();
    let mut client = renamed.connect().unwrap();
    assert_eq!(client.call(&["count", "key"]).unwrap(), Value::Int(1));
    assert_eq!(client.call(&["get", "text", "here"]).unwrap(), Value::Simple(b"OK".to_vec()));
    renamed.kill();
    let dir = renamed.dir().to_str().unwrap().to_owned();
    let plain = Server::start(tarn(), &["--dir", &dir]).unwrap();
    let mut client = plain.connect().unwrap();
    assert_eq!(client.call(&["get", "key"]).unwrap(), Value::Bulk(b"1".to_vec()));
    assert_eq!(client.call(&["get", "text"]).unwrap(), Value::Bulk(b"here".to_vec()));
}

#[test]
fn what_a_redis_with_the_same_names_sends_is_done() {
    const SAME: &[&str] = &["--rename-command", "set", "put", "--rename-command", "flushall", "wipe"];
    let master = Server::start(Program::Redis, SAME).unwrap();
    let replica = Server::start(tarn(), SAME).unwrap();
    let mut ours = replica.connect().unwrap();
    follow(&mut ours, &master);
    // What comes with the copy has no names.
    wait_until("it follows", || field(&mut ours, "master_link_status").as_deref() == Some("up"));
    let mut theirs = master.connect().unwrap();
    let mut say = |words: &[&str]| theirs.call(words).unwrap();
    say(&["put", "gone", "1"]);
    say(&["wipe"]);
    say(&["put", "a", "1"]);
    for words in [&["multi"][..], &["put", "b", "2"], &["incr", "b"], &["exec"]] {
        say(words);
    }
    say(&["incr", "a"]);
    assert_eq!(say(&["wait", "1", "0"]), Value::Int(1));
    let held = ours.call(&["mget", "gone", "a", "b"]).unwrap();
    let text = |text: &[u8]| Value::Bulk(text.to_vec());
    assert_eq!(held, Value::Array(vec![Value::Null, text(b"2"), text(b"3")]));
}

#[test]
fn nodes_keep_the_names_by_which_they_speak_to_each_other() {
    let Program::Tarn(path) = tarn() else { unreachable!("it is Tarn") };
    for node in [["--cluster-enabled", "yes"], ["--shard-name", "s"]] {
        let args = ["server", "--rename-command", "PSYNC", "", node[0], node[1]];
        let run = std::process::Command::new(&path).args(args).output().unwrap();
        assert!(!run.status.success());
        assert!(String::from_utf8_lossy(&run.stderr).contains("has to keep its name"), "{run:?}");
    }
}

#[test]
fn names_that_cannot_be_given_are_refused() {
    let Program::Tarn(path) = tarn() else { unreachable!("it is Tarn") };
    for (words, sentence) in [
        (["nothing", "x"], "No such command in rename-command"),
        (["get", "set"], "Target command name already exists"),
    ] {
        let args = ["server", "--rename-command", words[0], words[1]];
        let run = std::process::Command::new(&path).args(args).output().unwrap();
        assert!(!run.status.success());
        assert!(String::from_utf8_lossy(&run.stderr).contains(sentence), "{run:?}");
    }
}
