//! Users of Tarn against those of real servers: the same random rules on each, then what
//! the users are (ACL GETUSER, ACL LIST) and what they may do (ACL DRYRUN of generated
//! commands). `TARN_SEED`, and `TARN_STEPS` or `TARN_SECONDS`, as for all seeded tests.
//!
//! Redis 7.0 keeps no record of rules but derives a shortest form, so that Valkey alone
//! says what they are shown as; what they allow is the same in both.

use crate::tarn;
use command::Group;
use sys::Prng;
use testkit::differential::rules;
use testkit::generate::{Generator, Request, words};
use testkit::values::pick;
use testkit::{Budget, Client, Program, Server, Spec};
use wire::Value;

/// Users changed by an ordinary test run.
const STEPS: u64 = 150;
/// Commands tried by a user after a change.
const TRIES: usize = 25;

const USERS: &[&str] = &["u1", "u2", "u\u{e9}"];
/// Patterns over the keys of the generator.
const PATTERNS: &[&str] = &["k*", "k1", "k[12]", "{t}*", "key:*", "?1", "", "*", "k2"];
/// Patterns over the channels of the generator.
const CHANNELS: &[&str] = &["c1", "c*", "news", "*", "", "?e?s"];
const CATEGORIES: &[&str] = &[
    "all",
    "read",
    "write",
    "string",
    "dangerous",
    "fast",
    "slow",
    "connection",
    "ADMIN",
    "nosuch",
    "bitmap",
];
const COMMANDS: &[&str] = &[
    "get",
    "set",
    "SET",
    "getrange",
    "del",
    "mget",
    "copy",
    "client",
    "client|id",
    "client|nosuch",
    "config|get",
    "config",
    "object|freq",
    "ping",
    "nosuch",
    "select",
    "client|list|x",
    "bitfield",
    "acl|whoami",
    "auth",
    "sort",
    "spublish",
    "ssubscribe",
];
const WORDS: &[&str] = &[
    "on",
    "off",
    "ON",
    "nopass",
    "resetpass",
    ">pw",
    ">other",
    "<pw",
    "<nosuch",
    "reset",
    "allkeys",
    "resetkeys",
    "allchannels",
    "resetchannels",
    "allcommands",
    "nocommands",
    "clearselectors",
    "skip-sanitize-payload",
    "sanitize-payload",
    "",
    "nosuch",
    "~a b",
    "+get|k1",
    "+select|0",
    "+GET|k2",
    "+get|",
    "+|",
    "%~k1",
    "%RR~x",
    "+@",
    "-@",
    "+",
    "-",
    "(",
    ")",
    "()",
    "(+get",
    "~k1)",
    "#12",
    "!12",
    "#5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8",
    "!5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8",
];

/// A rule, mostly one that is right.
fn rule(prng: &mut Prng) -> String {
    let sign = pick(prng, &["+", "+", "-"]);
    match prng.below(16) {
        0..5 => format!("{sign}{}", pick(prng, COMMANDS)),
        5..8 => format!("{sign}@{}", pick(prng, CATEGORIES)),
        8..11 => format!("{}~{}", pick(prng, &["", "", "%R", "%W", "%RW", "%wr"]), pick(prng, PATTERNS)),
        11 => format!("&{}", pick(prng, CHANNELS)),
        12 => format!("{sign}@pubsub"),
        13 => {
            let rules: Vec<String> = (0..prng.below(4)).map(|_| rule(prng)).collect();
            format!("({})", rules.join(pick(prng, &[" ", " ", "  "])))
        }
        _ => pick(prng, WORDS).to_owned(),
    }
}

/// The three servers, Tarn first.
struct Servers {
    _servers: [Server; 3],
    clients: [Client; 3],
}

impl Servers {
    fn start() -> Servers {
        let servers = [tarn(), Program::Redis, Program::Valkey].map(|program| {
            let edition: &[&str] =
                if let Program::Tarn(_) = program { &["--edition", "memory"] } else { &[] };
            Server::start(program, edition).unwrap()
        });
        let clients = servers.each_ref().map(|server| server.connect().unwrap());
        Servers { _servers: servers, clients }
    }

    fn ask(&mut self, request: &Request) -> [Vec<u8>; 3] {
        self.clients.each_mut().map(|client| {
            client.send_request(request).unwrap();
            client.read_reply().unwrap()
        })
    }
}

/// A refusal of Redis 7.0 in the words of 7.2.
fn reworded(reply: &[u8], user: &str) -> Vec<u8> {
    let text = match testkit::client::decode(reply) {
        Some(Value::Bulk(text)) => text,
        _ => return reply.to_vec(),
    };
    match text.strip_prefix(b"This user") {
        None => reply.to_vec(),
        Some(rest) => {
            let text = [b"User ", user.as_bytes(), rest].concat();
            [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat()
        }
    }
}

fn shown(reply: &[u8]) -> String {
    reply.escape_ascii().to_string()
}

/// Changes a user on all servers; the replies are the same.
fn set_user(servers: &mut Servers, prng: &mut Prng, user: &str, history: &mut Vec<String>) {
    let mut request = words(&["ACL", "SETUSER", user]);
    request.extend((0..=prng.below(5)).map(|_| rule(prng).into_bytes()));
    history.push(request.iter().map(|word| shown(word)).collect::<Vec<_>>().join(" "));
    let [ours, redis, valkey] = servers.ask(&request);
    // Which of several parentheses it is that has no other, Redis 7.0 says otherwise.
    let agree = redis == valkey || redis.starts_with(b"-ERR Unmatched parenthesis");
    assert!(agree && ours == valkey, "{history:#?}\n{} | {}", shown(&ours), shown(&valkey));
    for request in [words(&["ACL", "GETUSER", user]), words(&["ACL", "LIST"])] {
        let [ours, _, valkey] = servers.ask(&request);
        assert!(ours == valkey, "{history:#?}\n{}\n{}", shown(&ours), shown(&valkey));
    }
}

/// Whether Tarn finds no keys in a command that is wrong (`XREAD STREAMS a b 0`): then it locks
/// none, and can but refuse it. Real servers look for keys with parsers that take more.
fn touches_nothing(servers: &mut Servers, command: &Request) -> bool {
    let mut request = words(&["COMMAND", "GETKEYS"]);
    request.extend(command.iter().cloned());
    servers.clients[0].send_request(&request).unwrap();
    servers.clients[0].read_reply().unwrap().starts_with(b"-") && !names_channels(command)
}

fn names_channels(command: &Request) -> bool {
    let name = command[0].to_ascii_lowercase();
    name.ends_with(b"publish") || name.ends_with(b"subscribe")
}

/// Whether users try a command: what cannot be generated because of what it does can be tried all the same.
fn is_tried(spec: &Spec) -> bool {
    rules::is_generated(&spec.name) || spec.group == Group::Pubsub
}

/// What a user tries next: now and then about channels, which are seldom generated otherwise.
fn attempt(prng: &mut Prng, generator: &mut Generator<'_>, about_channels: &[Spec]) -> Request {
    match prng.one_in(5) {
        true => generator.request_of(&about_channels[prng.below(about_channels.len() as u64) as usize]),
        false => generator.request(),
    }
}

/// Whether real servers find no key where there is one: of PFMERGE's two places for keys the
/// second is empty, and they give up on both.
fn is_lone_pfmerge(command: &Request) -> bool {
    command.len() == 2 && command[0].eq_ignore_ascii_case(b"pfmerge")
}

/// Lets a user try a command on all servers. Returns whether both real ones agreed.
fn try_command(servers: &mut Servers, user: &str, command: &Request, history: &[String]) -> bool {
    let mut request = words(&["ACL", "DRYRUN", user]);
    request.extend(command.iter().cloned());
    let [ours, redis, valkey] = servers.ask(&request);
    let is_agreed = reworded(&redis, user) == valkey;
    if is_agreed && ours != valkey && !is_lone_pfmerge(command) && !touches_nothing(servers, command) {
        let command: Vec<String> = command.iter().map(|word| shown(word)).collect();
        panic!("{history:#?}\n{command:?}\n{}\n{}", shown(&ours), shown(&valkey));
    }
    is_agreed
}

#[test]
fn users_are_as_real_servers_have_them() {
    let budget = Budget::from_env(1, STEPS);
    let mut servers = Servers::start();
    let specs: Vec<Spec> = crate::specs().into_iter().filter(is_tried).collect();
    let about_channels: Vec<Spec> =
        specs.iter().filter(|spec| spec.group == Group::Pubsub).cloned().collect();
    let (mut tried, mut agreed) = (0, 0);
    let mut step = 0;
    while budget.allows(step) {
        let seed = budget.seed + step;
        let mut prng = Prng::from_seed(seed);
        let mut generator = Generator::new(&specs, seed);
        let mut delete = words(&["ACL", "DELUSER"]);
        delete.extend(USERS.iter().map(|user| user.as_bytes().to_vec()));
        servers.ask(&delete);
        let mut history = vec![format!("TARN_SEED={seed} TARN_STEPS=1")];
        for _ in 0..3 {
            let user = pick(&mut prng, USERS);
            set_user(&mut servers, &mut prng, user, &mut history);
            for _ in 0..TRIES {
                tried += 1;
                let command = attempt(&mut prng, &mut generator, &about_channels);
                agreed += usize::from(try_command(&mut servers, user, &command, &history));
            }
        }
        step += 1;
    }
    println!("{step} streams, {tried} commands tried, {agreed} told the same by both");
    assert!(agreed * 10 > tried * 8, "the real servers hardly ever agree: {agreed} of {tried}");
}

#[test]
fn users_that_several_clients_save_at_once_are_all_in_the_file_whenever_it_is_read() {
    const CLIENTS: usize = 4;
    let dir = Server::start(tarn(), &["--edition", "memory"]).unwrap().dir().with_extension("users");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("users.acl");
    let patterns =
        (0..60).fold(String::new(), |all, number| all + &format!(" ~a-rather-long-pattern:{number}"));
    let users = (0..100).map(|number| format!("user u{number} on nopass{patterns} +get\n"));
    std::fs::write(&file, format!("user default on nopass ~* &* +@all\n{}", users.collect::<String>()))
        .unwrap();
    let server =
        Server::start(tarn(), &["--edition", "memory", "--aclfile", file.to_str().unwrap()]).unwrap();
    let saved = std::thread::scope(|scope| {
        let saving: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut client = server.connect().unwrap();
                scope.spawn(move || {
                    for turn in 0..20 {
                        let user = format!("new:{number}:{turn}");
                        for request in [&["ACL", "SETUSER", &user][..], &["ACL", "SAVE"]] {
                            assert_eq!(client.call(request).unwrap(), Value::Simple(b"OK".to_vec()));
                        }
                    }
                })
            })
            .collect();
        while saving.iter().any(|thread| !thread.is_finished()) {
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.lines().count() > 100 && text.ends_with('\n'), "{} bytes", text.len());
        }
        saving.into_iter().all(|thread| thread.join().is_ok())
    });
    assert!(saved);
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 101 + CLIENTS * 20);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "nothing stays behind");
    std::fs::remove_dir_all(&dir).unwrap();
}
