//! Every command of the table where commands run inside of something else: in a transaction, in a script, in a function, and while
//! rights change between queueing and EXEC. The server survives each, goes on, and gives the same kinds of answers as the real ones.
//!
//! Requests are made from the rows' own syntax, so that a new row is tested as soon as it is in the table. A debug build runs
//! them: what a command leaves unsettled stops it.

use crate::tarn;
use std::io::ErrorKind;
use testkit::differential::rules;
use testkit::generate::{Generator, Request, words};
use testkit::{Budget, Client, Program, Server, Spec, spec};
use wire::{Decoder, Value, encode_request};

/// How often a request of every row is generated.
const ROUNDS: u64 = 1;

/// Ends what is sent over a connection.
const SENTINEL: &str = "everything-was-answered";

/// Rows whose generated requests would end, stop or leave the server, and what is sent instead.
const INSTEAD: &[(&str, &[&[&str]])] = &[
    ("shutdown", &[&["SHUTDOWN", "ABORT"], &["SHUTDOWN", "nonsense"]]),
    (
        "debug",
        &[
            &["DEBUG", "OBJECT", "k1"],
            &["DEBUG", "OBJECT", "nothing"],
            &["DEBUG", "POPULATE", "3", "k"],
            &["DEBUG", "SLEEP", "0"],
            &["DEBUG", "SET-ACTIVE-EXPIRE", "1"],
        ],
    ),
    ("config|set", &[&["CONFIG", "SET", "maxmemory-samples", "5"], &["CONFIG", "SET", "nonsense", "1"]]),
    ("client|pause", &[&["CLIENT", "PAUSE", "1"], &["CLIENT", "PAUSE", "x"]]),
    ("client|kill", &[&["CLIENT", "KILL", "ID", "99999999"], &["CLIENT", "KILL", "SKIPME", "yes"]]),
    // Where replies are left out, EXEC's is shorter than it says, and takes those behind it for its own.
    ("client|reply", &[&["CLIENT", "REPLY", "ON"], &["CLIENT", "REPLY", "nonsense"]]),
    ("acl|deluser", &[&["ACL", "DELUSER", "nobody"]]),
    (
        "acl|setuser",
        &[&["ACL", "SETUSER", "nobody", "on", "+get"], &["ACL", "SETUSER", "nobody", "nonsense"]],
    ),
    (
        "migrate",
        &[
            &["MIGRATE", "127.0.0.1", "1", "k1", "0", "100"],
            &["MIGRATE", "127.0.0.1", "1", "nothing", "0", "100"],
            &["MIGRATE", "127.0.0.1", "1", "", "0", "100", "KEYS", "k1", "k2", "{t}a"],
            &["MIGRATE", "127.0.0.1", "1", "k1", "0", "100", "KEYS", "k2"],
        ],
    ),
    ("command|getkeys", &[&["COMMAND", "GETKEYS", "SET", "k1", "v"], &["COMMAND", "GETKEYS", "PING"]]),
    ("command|getkeysandflags", &[&["COMMAND", "GETKEYSANDFLAGS", "SET", "k1", "v"]]),
    ("replicaof", &[&["REPLICAOF", "NO", "ONE"], &["REPLICAOF", "x", "y"]]),
    ("slaveof", &[&["SLAVEOF", "NO", "ONE"], &["SLAVEOF", "x", "y"]]),
    ("eval", &[&["EVAL", "return redis.call('SET', KEYS[1], 1)", "1", "k1"]]),
    ("eval_ro", &[&["EVAL_RO", "return redis.call('GET', 'k' .. 1)", "0"]]),
    ("fcall", &[&["FCALL", "run", "0", "SET", "k1", "1"]]),
    ("fcall_ro", &[&["FCALL_RO", "look", "0", "GET", "k1"]]),
];

/// What is there when a request comes.
const KEYS: &[&str] = &[
    "SET k1 12",
    "SET k2 text",
    "RPUSH k3 1 2 3",
    "HSET k4 f v g 1",
    "SADD {t}a a b c",
    "ZADD {t}b 1 a 2 b",
    "XADD key:with:colons 1-1 f v",
];

const LIBRARY: &str = "#!lua name=everywhere
local calls = 0
redis.register_function('run', function(keys, args) calls = calls + 1 return redis.call(unpack(args)) end)
redis.register_function{function_name = 'look', flags = {'no-writes'},
  callback = function(keys, args) calls = calls + 1 return redis.pcall(unpack(args)) end}";

/// Users with fewer rights than the default one.
const USERS: &[&str] = &[
    "ACL SETUSER nowhere reset on >pw ~* &* +@all -select",
    "ACL SETUSER little reset on >pw ~k1 &c1 +@read +exec +select +ping +client",
    "ACL SETUSER changing reset on >pw ~* &* +@all",
];

fn line(text: &str) -> Request {
    words(&text.split(' ').collect::<Vec<_>>())
}

/// A server, and a connection that nothing of what is tested concerns.
struct Subject {
    server: Server,
    warden: Client,
    /// Whether all was answered that was played last.
    is_answered: bool,
}

impl Subject {
    fn start(program: Program) -> Subject {
        let directives: &[&str] = match program {
            Program::Tarn(_) => &[
                "--edition",
                "memory",
                "--appendonly",
                "yes",
                "--appendfsync",
                "no",
                "--threads",
                "2",
                "--threads-min",
                "2",
                "--enable-debug-command",
                "yes",
            ],
            _ => &[],
        };
        let server = Server::start(program, directives).unwrap();
        let warden = Subject::warden(&server);
        Subject { server, warden, is_answered: true }
    }

    fn warden(server: &Server) -> Client {
        let mut warden = server.connect().unwrap();
        warden.call(&line("ACL SETUSER warden reset on nopass ~* &* +@all")).unwrap();
        assert_eq!(warden.call(&["AUTH", "warden", "x"]).unwrap(), Value::Simple(b"OK".to_vec()));
        warden
    }

    /// Puts everything back that a request may have changed.
    fn prepare(&mut self) {
        let mut requests = vec![line("ACL SETUSER default reset on nopass ~* &* +@all"), line("FLUSHALL")];
        requests.extend(USERS.iter().map(|user| line(user)));
        requests.push(words(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]));
        requests.extend(KEYS.iter().map(|request| line(request)));
        if self.warden.pipeline(&requests).is_err() {
            // It was told to go.
            self.warden = Subject::warden(&self.server);
            self.warden.pipeline(&requests).unwrap();
        }
    }

    /// Sends requests over a connection of their own; what comes until all are answered or the connection is closed.
    fn play(&mut self, setting: &Setting, request: &Request) -> Vec<Value> {
        let Setting { before, after, turn, .. } = setting;
        let mut client = self.server.connect().unwrap();
        let what = format!("{} in {} on {}", shown(request), setting.name, self.server.program().name());
        let mut input = Input { what, ..Input::default() };
        send(&mut client, before, request);
        if !turn.is_empty() {
            // All are queued by now.
            input.read_until(&mut client, |seen| seen.len() >= before.len());
            turn.iter().for_each(|change| drop(self.warden.call(&line(change)).unwrap()));
        }
        send(&mut client, after, request);
        send(&mut client, &[line("CLIENT REPLY ON"), words(&["PING", SENTINEL])], request);
        input.read_until(&mut client, |seen| seen.iter().any(|value| has_text(value, SENTINEL)));
        self.is_answered = input.seen.iter().any(|value| has_text(value, SENTINEL));
        input.seen
    }

    /// Whether it goes on after what was played.
    fn is_sound(&mut self, what: &str) {
        // Whoever was answered to the end need not be asked again.
        let answer = match self.is_answered {
            true => Ok(Value::Null),
            false => self.server.connect().and_then(|mut client| client.call(&["PING", "sound"])),
        };
        let ended = self.server.ended().unwrap();
        let is_sound = answer.is_ok() && ended.is_none();
        assert!(is_sound, "after {what}: {answer:?}, {ended:?}\n{}", self.server.output());
    }
}

#[derive(Default)]
struct Input {
    /// What is played, for complaints.
    what: String,
    decoder: Decoder,
    seen: Vec<Value>,
}

impl Input {
    fn read_until(&mut self, client: &mut Client, is_enough: impl Fn(&[Value]) -> bool) {
        while !is_enough(&self.seen) {
            match client.read_reply() {
                Ok(reply) => {
                    self.decoder.feed(&reply);
                    while let Some(value) = self.decoder.decode().unwrap() {
                        self.seen.push(value);
                    }
                }
                // Some requests are answered by the end.
                Err(error)
                    if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) =>
                {
                    return;
                }
                Err(error) => panic!("{}: {error} behind {:?}", self.what, self.seen),
            }
        }
    }
}

/// Sends requests, with `request` in place of those that are empty.
fn send(client: &mut Client, requests: &[Request], request: &Request) {
    let mut out = Vec::new();
    for one in requests {
        let one = if one.is_empty() { request } else { one };
        encode_request(&mut out, &one.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    // The server may close first.
    let _ = client.send(&out);
}

fn has_text(value: &Value, text: &str) -> bool {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => bytes == text.as_bytes(),
        Value::Array(values) | Value::Push(values) => values.iter().any(|value| has_text(value, text)),
        _ => false,
    }
}

/// Where a request runs.
struct Setting {
    name: &'static str,
    /// What is sent, an empty request standing for the one that is tested.
    before: Vec<Request>,
    /// What somebody else does then.
    turn: Vec<&'static str>,
    /// And what is sent behind it.
    after: Vec<Request>,
    /// Whether the real servers are asked, too.
    is_compared: bool,
}

impl Setting {
    fn new(name: &'static str, before: Vec<Request>) -> Setting {
        Setting { name, before, turn: Vec::new(), after: Vec::new(), is_compared: false }
    }

    fn compared(name: &'static str, before: Vec<Request>) -> Setting {
        Setting { is_compared: true, ..Setting::new(name, before) }
    }
}

const IT: Request = Vec::new();

fn settings(request: &Request) -> Vec<Setting> {
    let run = |head: &[&str]| [words(head), request.clone()].concat();
    let literal = format!("return redis.call({})", lua_words(request));
    let guarded =
        format!("local r = redis.pcall({}) return type(r) == 'table' and r.err or 1", lua_words(request));
    let begin = || line("MULTI");
    let end = || line("EXEC");
    let mut settings = vec![
        Setting::compared("MULTI", vec![begin(), IT, line("SET probe 1"), end()]),
        Setting::compared(
            "MULTI in another database",
            vec![line("WATCH k1 k2"), begin(), line("SELECT 1"), IT, line("SELECT 0"), IT, end()],
        ),
        Setting::new(
            "MULTI beside a script",
            vec![begin(), line("APPEND k2 x"), run(&["FCALL", "run", "0"]), IT, end()],
        ),
        Setting::compared("EVAL of literals", vec![words(&["EVAL", &literal, "0"])]),
        Setting::new("EVAL of literals, caught", vec![words(&["EVAL", &guarded, "0"])]),
        Setting::new("EVAL of arguments", vec![run(&["EVAL", "return redis.call(unpack(ARGV))", "0"])]),
        Setting::compared(
            "EVAL behind a write",
            vec![run(&[
                "EVAL",
                "redis.call('SET', KEYS[1], 1) return redis.pcall(unpack(ARGV))",
                "1",
                "own",
            ])],
        ),
        Setting::new(
            "EVAL behind SELECT",
            vec![run(&["EVAL", "redis.call('SELECT', 1) return redis.pcall(unpack(ARGV))", "1", "k1"])],
        ),
        Setting::compared("EVAL_RO", vec![run(&["EVAL_RO", "return redis.pcall(unpack(ARGV))", "0"])]),
        Setting::new(
            "EVAL without writes",
            vec![run(&["EVAL", "#!lua flags=no-writes\nreturn redis.pcall(unpack(ARGV))", "1", "k1"])],
        ),
        Setting::compared("FCALL", vec![run(&["FCALL", "run", "0"])]),
        Setting::new("FCALL_RO", vec![run(&["FCALL_RO", "look", "1", "k1"])]),
        Setting::compared(
            "EXEC as somebody who may not SELECT",
            vec![begin(), line("AUTH nowhere pw"), line("SELECT 1"), IT, line("SELECT 2"), IT, end()],
        ),
        Setting::compared(
            "EXEC as somebody with few rights",
            vec![line("WATCH k1"), begin(), IT, line("AUTH little pw"), IT, line("SELECT 1"), IT, end()],
        ),
        Setting::new("EXEC in another protocol", vec![begin(), line("HELLO 3 AUTH little pw"), IT, end()]),
    ];
    for (name, turn) in [
        ("EXEC once SELECT was forbidden", "ACL SETUSER changing -select"),
        (
            "EXEC once all was forbidden",
            "ACL SETUSER changing -@all +exec +ping +client resetkeys resetchannels",
        ),
        ("EXEC of somebody who is gone", "ACL DELUSER changing"),
    ] {
        settings.push(Setting {
            name,
            before: vec![
                line("AUTH changing pw"),
                begin(),
                line("SELECT 1"),
                IT,
                run(&["FCALL", "run", "0"]),
            ],
            turn: vec![turn],
            after: vec![end()],
            is_compared: false,
        });
    }
    settings
}

/// A request's words as Lua writes them.
fn lua_words(request: &Request) -> String {
    let quoted = |word: &Vec<u8>| {
        let escaped: String = word
            .iter()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'{' | b'}' | b':' => {
                    char::from(*byte).to_string()
                }
                other => format!("\\{other:03}"),
            })
            .collect();
        format!("'{escaped}'")
    };
    request.iter().map(quoted).collect::<Vec<_>>().join(", ")
}

/// The requests of a row in one round: in the first also those that are the same each time.
fn requests(spec: &Spec, seed: u64, is_first: bool) -> Vec<Request> {
    if let Some((_, requests)) = INSTEAD.iter().find(|(name, _)| *name == spec.name) {
        return requests.iter().filter(|_| is_first).map(|request| words(request)).collect();
    }
    let mut plain: Request = spec.words().map(|word| word.as_bytes().to_vec()).collect();
    while plain.len() < spec.arity.unsigned_abs() as usize {
        plain.push(b"k1".to_vec());
    }
    let generated = Generator::new(std::slice::from_ref(spec), seed).request();
    is_first.then_some(plain).into_iter().chain([generated]).collect()
}

/// The kind of an answer: an error's code, or that it is none; of the answer to EXEC, each one's.
fn kind(value: &Value) -> String {
    match value {
        Value::Error(text) => {
            String::from_utf8_lossy(text.split(|byte| *byte == b' ').next().unwrap()).into_owned()
        }
        Value::Array(values) if values.iter().any(|value| matches!(value, Value::Error(_))) => {
            values.iter().map(kind).collect::<Vec<_>>().join(" ")
        }
        _ => "answer".to_owned(),
    }
}

fn kinds(values: &[Value]) -> Vec<String> {
    values.iter().map(kind).collect()
}

/// Whether the real servers have such a request, and the same keys lead to the same answers.
fn is_comparable(spec: &Spec, data: &[String], request: &Request) -> bool {
    data.contains(&spec.name)
        && rules::is_generated(&spec.name)
        && rules::is_allowed(request)
        && !rules::is_newer(request)
}

#[test]
fn every_command_does_no_harm_inside_of_transactions_scripts_and_functions() {
    let budget = Budget::from_env(1, ROUNDS);
    let (mut tested, mut round) = (Tested::start(), 0);
    while budget.allows(round) {
        for spec in crate::specs() {
            for request in requests(&spec, budget.seed + round, round == 0) {
                tested.test(&spec, &request);
            }
        }
        round += 1;
    }
    assert!(tested.differences.is_empty(), "{}", tested.differences.join("\n"));
}

/// Tarn, and those that it is compared with.
struct Tested {
    tarn: Subject,
    real: [Subject; 2],
    /// The names of rows that real servers may have as well.
    data: Vec<String>,
    differences: Vec<String>,
}

impl Tested {
    fn start() -> Tested {
        Tested {
            tarn: Subject::start(tarn()),
            real: [Subject::start(Program::Redis), Subject::start(Program::Valkey)],
            data: spec::data_specs().into_iter().map(|spec| spec.name).collect(),
            differences: Vec::new(),
        }
    }

    /// Runs a request in every setting.
    fn test(&mut self, spec: &Spec, request: &Request) {
        for setting in settings(request) {
            let what = format!("{} in {}", shown(request), setting.name);
            self.tarn.prepare();
            let answers = kinds(&self.tarn.play(&setting, request));
            self.tarn.is_sound(&what);
            if setting.is_compared && is_comparable(spec, &self.data, request) {
                let others = self.real.each_mut().map(|one| {
                    one.prepare();
                    kinds(&one.play(&setting, request))
                });
                if !others.contains(&answers) {
                    println!("{what}:\n  {answers:?}\n  {others:?}");
                    self.differences.push(what);
                }
            }
        }
    }
}

fn shown(request: &Request) -> String {
    request.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}
