//! Real servers follow a Tarn: full copies made under writes of all kinds, the stream, links that are cut, restarts, and replicas that do
//! not behave.
//!
//! What is compared is what DEBUG DIGEST says, which is the same of the same keys here and in a Redis, and the offsets.

mod applied;
mod breaks;
mod copies;
mod misbehaving;
mod older;
mod waits;

use crate::tarn;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::ask::{call, shown};
use testkit::{Client, Program, Server};
use wire::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// Keys that writers meet at.
const KEYS: u64 = 40;

/// A master of this edition, whose copies both peers can read, and whose values are soon long enough to be named.
pub(crate) fn master(edition: &str, directives: &[&str]) -> Server {
    let own = ["--edition", edition, "--repl-rdb-version", "10", "--log-piece-size", "200"];
    let rest = ["--enable-debug-command", "yes", "--repl-ping-replica-period", "1"];
    let directives: Vec<&str> = own.iter().chain(&rest).chain(directives).copied().collect();
    Server::start(tarn(), &directives).expect("it starts")
}

pub(crate) fn follower(program: Program) -> Server {
    Server::start(program, &["--repl-timeout", "60"]).expect("it starts")
}

pub(crate) fn follow(replica: &mut Client, master: &Server) {
    let port = master.address().port().to_string();
    call(replica, &["REPLICAOF", "127.0.0.1", &port]);
}

pub(crate) fn field(client: &mut Client, name: &str) -> Option<String> {
    let Value::Bulk(all) = call(client, &["INFO", "everything"]) else { panic!("INFO is text") };
    let all = String::from_utf8_lossy(&all).into_owned();
    let line = all.lines().find(|line| line.split_once(':').is_some_and(|(found, _)| found == name))?;
    line.split_once(':').map(|(_, value)| value.to_owned())
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a replica has all that the master has, and compares the two.
pub(crate) fn agree(master: &Server, replica: &Server) {
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
    let offset = |client: &mut Client, name: &str| field(client, name).unwrap().parse::<u64>().unwrap();
    wait_until("the offsets are the same", || {
        offset(&mut here, "master_repl_offset") == offset(&mut there, "slave_repl_offset")
    });
    let (mine, its) = (call(&mut here, &["DEBUG", "DIGEST"]), call(&mut there, &["DEBUG", "DIGEST"]));
    if mine != its {
        panic!(
            "{}\n{}\n{}",
            first_difference(&mut here, &mut there),
            master.last_lines(),
            replica.last_lines()
        );
    }
}

fn first_difference(here: &mut Client, there: &mut Client) -> String {
    for db in 0..3 {
        let keys = [&mut *here, &mut *there].map(|client| {
            call(client, &["SELECT", &db.to_string()]);
            let Value::Array(keys) = call(client, &["KEYS", "*"]) else { panic!("KEYS are an array") };
            let mut keys: Vec<String> =
                keys.iter().map(|key| shown(key).trim_matches('"').to_owned()).collect();
            keys.sort();
            keys
        });
        for key in keys.concat() {
            let of = |client: &mut Client| match call(client, &["DEBUG", "DIGEST-VALUE", &key]) {
                Value::Array(digests) => digests.iter().map(shown).collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            };
            let (mine, its) = (of(here), of(there));
            let expiry = |client: &mut Client| call(client, &["PEXPIRETIME", &key]);
            let times = (expiry(here), expiry(there));
            if mine != its || times.0 != times.1 {
                let kind = (call(here, &["TYPE", &key]), call(there, &["TYPE", &key]));
                return format!("{key} of database {db} differs: {kind:?} {times:?} {mine:?} {its:?}");
            }
        }
    }
    "no key alone differs".to_owned()
}

/// One client that writes values of all types at random, in three databases.
pub(crate) fn write(server: &Server, seed: u64, is_over: &AtomicBool) {
    let mut client = server.connect().expect("it listens");
    let mut prng = Prng::from_seed(seed);
    for group in ["g1", "g2"] {
        client.call(&["XGROUP", "CREATE", "x1", group, "$", "MKSTREAM"]).expect("it answers");
    }
    while !is_over.load(Ordering::Relaxed) {
        let request = request(&mut prng);
        let words: Vec<&str> = request.iter().map(String::as_str).collect();
        client.call(&words).expect("it answers");
    }
}

pub(crate) fn request(prng: &mut Prng) -> Vec<String> {
    const FORMS: &[&str] = &[
        "SET sK V",
        "SET sK V PX 900000",
        "APPEND sK V",
        "INCR nK",
        "INCRBYFLOAT fK 1.25",
        "SETRANGE sK 30 V",
        "DEL sK",
        "RPUSH lK V V V V V",
        "LPUSH lK V",
        "LPOP lK 2",
        "LMOVE lK lL LEFT RIGHT",
        "LINSERT lK BEFORE V V",
        "LTRIM lK 0 60",
        "SADD eK V V V V",
        "SPOP eK",
        "SMOVE eK eL V",
        "SINTERSTORE eK eL eM",
        "SUNIONSTORE eK eL eM",
        "SREM eK V",
        "HSET hK V V V V V V",
        "HINCRBY hK n 3",
        "HDEL hK V",
        "HINCRBYFLOAT hK f 0.5",
        "ZADD zK 1 V 2 V 3.5 V",
        "ZINCRBY zK 2 V",
        "ZPOPMIN zK",
        "ZUNIONSTORE zK 2 zL zM",
        "ZREMRANGEBYRANK zK 0 1",
        "XADD xK * a V",
        "XADD xK MAXLEN ~ 50 * a V b V",
        "XREADGROUP GROUP g1 c1 COUNT 2 STREAMS x1 >",
        "XTRIM xK MAXLEN 40",
        "PFADD pK V V",
        "PFMERGE pK pL",
        "SETBIT bK 77 1",
        "BITOP OR bK bL bM",
        "GEOADD oK 13.3 38.1 V",
        "RENAME lK lL",
        "RENAME hK hL",
        "COPY eK eL REPLACE",
        "COPY zK zL REPLACE",
        "RENAME sK sL",
        "MOVE lK 2",
        "COPY hK hL DB 1 REPLACE",
        "EXPIRE lK 10000",
        "PERSIST lK",
        "PEXPIRE eK 8000000",
        "SORT lK ALPHA STORE lL",
        "GETDEL sK",
        "GETEX sK EX 5000",
        "SELECT 0",
        "SELECT 1",
        "SELECT 2",
        "MULTI",
        "EXEC",
        "EXEC",
        "EXEC",
        "DISCARD",
        "MSET sK V sL V sM V",
        "UNLINK lK eL zM",
    ];
    const SCRIPT: &str = "redis.call('SET', KEYS[1], ARGV[1]); redis.call('RPUSH', KEYS[2], ARGV[1]); redis.call('SELECT', 2); \
                          redis.call('INCR', KEYS[3])";
    let mut key = || prng.below(KEYS).to_string();
    let (k, l, m) = (key(), key(), key());
    if prng.one_in(30) {
        let keys = [format!("s{k}"), format!("l{l}"), format!("n{m}"), prng.below(1000).to_string()];
        return ["EVAL", SCRIPT, "3"].map(str::to_owned).into_iter().chain(keys).collect();
    }
    let form = FORMS[prng.below(FORMS.len() as u64) as usize];
    form.split(' ')
        .map(|word| match word {
            "V" => "v".repeat(prng.below(30) as usize + 1) + &prng.below(200).to_string(),
            _ if word.len() == 2 && word.ends_with('K') => word.replace('K', &k),
            _ if word.len() == 2 && word.ends_with('L') && word != "NL" => word.replace('L', &l),
            _ if word.len() == 2 && word.ends_with('M') => word.replace('M', &m),
            _ => word.to_owned(),
        })
        .collect()
}

/// Says what a replica says before it asks to follow, and asks.
fn shake_hands(master: &Server) -> Client {
    let mut client = master.connect().unwrap();
    for request in [&["REPLCONF", "listening-port", "1"][..], &["REPLCONF", "capa", "eof", "capa", "psync2"]]
    {
        call(&mut client, request);
    }
    client.send_request(&["PSYNC", "?", "-1"]).unwrap();
    client
}

fn holds(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// Reads what a replica is sent, until something is in it.
fn read_until(server: &Server, replica: &Client, read: &mut Vec<u8>, what: &[u8]) {
    while !holds(read, what) {
        let mut some = [0; 4096];
        let count = replica.stream().read(&mut some).expect("it is sent something");
        assert!(count > 0, "the link ended behind {}\n{}", read.escape_ascii(), server.last_lines());
        read.extend_from_slice(&some[..count]);
    }
}
