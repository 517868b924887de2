//! A server whose disk hangs, and that is killed then: nothing of what it wrote since is shown to anybody, by no command and
//! no message, and what it showed is there when it is started again.
//!
//! A second server has done what is on the first one's disk and nothing else: what the first one answers while its disk hangs must be
//! what the second one answers. The machine's disk does not hang when it is asked to: DEBUG DISK-HANG keeps the server's own writes
//! and syncs waiting.

use crate::subject::{self, Subject};
use testkit::ask::wait_until;
use testkit::{Client, Server};
use wire::Value;

/// What is on disk.
const ON_DISK: &[&str] = &[
    "SET text old",
    "SET number 1",
    "SET gone old",
    "SET expiring old",
    "RPUSH list old",
    "SADD set old",
    "HSET hash field old",
    "ZADD zset 1 old",
    "XADD stream 1-1 field old",
    "XGROUP CREATE stream group 0",
    "PFADD hll old",
    "SETBIT bits 1 1",
    "GEOADD geo 1 1 old",
    "SET other old",
    "SET quiet old",
    "RPUSH quietlist old",
];

/// What is not. The last tells that all of it was executed.
const HELD: &[&str] = &[
    "SET text held",
    "INCR number",
    "DEL gone",
    "PEXPIRE expiring 100000",
    "RPUSH list held",
    "SADD set held",
    "HSET hash field held more held",
    "ZADD zset 2 held",
    "XADD stream 2-1 field held",
    "XREADGROUP GROUP group me STREAMS stream >",
    "PFADD hll held",
    "SETBIT bits 9 1",
    "GEOADD geo 2 2 held",
    "SET new held",
    "RPUSH queue held",
    "XADD news 1-1 field held",
    "EVAL redis.call('SET',KEYS[1],'held');redis.call('PUBLISH','channel','held') 1 scripted",
    "PUBLISH channel held",
];

/// What is asked while the disk hangs.
const QUESTIONS: &[&str] = &[
    "GET text",
    "GET other",
    "GET new",
    "GET gone",
    "GET number",
    "MGET other text",
    "EXISTS other new",
    "STRLEN text",
    "GETRANGE text 0 -1",
    "TYPE new",
    "TTL expiring",
    "PEXPIRETIME expiring",
    "TTL other",
    "OBJECT ENCODING new",
    "DUMP text",
    "LRANGE list 0 -1",
    "LLEN list",
    "LPOS list held",
    "SMEMBERS set",
    "SCARD set",
    "SISMEMBER set held",
    "SINTER set set",
    "HGETALL hash",
    "HLEN hash",
    "HGET hash more",
    "ZRANGE zset 0 -1",
    "ZCARD zset",
    "ZSCORE zset held",
    "XLEN stream",
    "XRANGE stream - +",
    "XINFO STREAM stream",
    "XINFO GROUPS stream",
    "XPENDING stream group",
    "XREAD STREAMS stream 0",
    "PFCOUNT hll",
    "BITCOUNT bits",
    "GETBIT bits 9",
    "GEOPOS geo held",
    "GEOSEARCH geo FROMLONLAT 0 0 BYRADIUS 1000 km",
    "SORT list ALPHA",
    "SORT set BY nosort GET text",
    "DBSIZE",
    "KEYS *",
    "SCAN 0 COUNT 1000",
    "SSCAN set 0",
    "INFO keyspace",
    "MEMORY USAGE new",
    "RANDOMKEY",
    "FUNCTION LIST",
    "FUNCTION LIST WITHCODE",
    "FUNCTION STATS",
    "FUNCTION DUMP",
    "FCALL answer 0",
    "FCALL_RO answer 0",
    "FCALL answer 1 other",
    "FCALL later 0",
    "EVAL return(redis.call('GET',KEYS[1])) 1 text",
    "EVAL return(redis.call('GET','new')) 0",
    "EVAL_RO return(redis.call('GET',KEYS[1])) 1 other",
    "EVAL return(redis.call('DBSIZE')) 0",
    "LCS text other",
    "COPY other copy",
    "SETNX new x",
    "GETSET text x",
    "GETDEL list",
    "SET text x GET",
    "APPEND text x",
    "INCR number",
    "LPUSHX none x",
    "LMOVE list other LEFT LEFT",
    "BLPOP list 0",
    "EXPIRE new 100 NX",
    "PERSIST expiring",
    "RENAMENX other new",
    "TOUCH new",
    "UNLINK new",
    "WAIT 1 1",
    "PING",
    "ECHO x",
    "CLIENT GETNAME",
    "GET quiet",
    "EXISTS quiet none",
    "LRANGE quietlist 0 -1",
    "OBJECT ENCODING quietlist",
    "TTL quiet",
    "EVAL return(redis.call('GET',KEYS[1])) 1 quiet",
    "CONFIG GET maxmemory",
    "COMMAND COUNT",
    "PUBSUB NUMSUB none",
];

fn library(number: u8, more: &str) -> Vec<String> {
    let code = format!(
        "#!lua name=library\nredis.register_function{{function_name='answer', callback=function() return {number} end, \
         flags={{'no-writes'}}}}{more}"
    );
    ["FUNCTION", "LOAD", "REPLACE", &code].map(str::to_owned).to_vec()
}

fn split(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// A server with what is on disk.
fn start() -> Server {
    let server = Subject::durable_tarn().start();
    let mut client = subject::connect(&server);
    for request in ON_DISK.iter().map(|line| split(line)).chain([library(1, "")]) {
        assert!(!matches!(client.call(&request).unwrap(), Value::Error(_)), "{request:?}");
    }
    server
}

/// Clients that are told of what others do, without asking.
fn listeners(server: &Server) -> Vec<(&'static str, Client)> {
    let begin: &[(&str, &[&str])] = &[
        ("subscriber", &["SUBSCRIBE channel"]),
        ("subscriber to patterns", &["HELLO 3", "PSUBSCRIBE *"]),
        ("tracker", &["HELLO 3", "CLIENT TRACKING ON", "MGET text number list hash"]),
        ("tracker of all", &["HELLO 3", "CLIENT TRACKING ON BCAST"]),
        ("waiter", &["BLPOP queue 0"]),
        ("reader", &["XREAD BLOCK 0 STREAMS news $"]),
    ];
    let connect = |(name, lines): &(&'static str, &[&str])| {
        let mut client = subject::connect(server);
        lines.iter().for_each(|line| client.send_request(&split(line)).unwrap());
        (*name, client)
    };
    begin.iter().map(connect).collect()
}

fn text_of(value: Value) -> String {
    match value {
        Value::Bulk(text) | Value::Verbatim(_, text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    }
}

/// How an answer went.
#[derive(Debug, PartialEq)]
enum Answer {
    Came(Vec<Vec<u8>>),
    IsHeld,
}

/// Asks over a connection of its own, which comes back with the answer: who goes away is not served.
fn ask(server: &Server, admin: &mut Client, requests: &[Vec<String>]) -> (Client, Answer) {
    let mut client = server.connect().unwrap();
    let Value::Int(id) = client.call(&["CLIENT", "ID"]).unwrap() else { panic!("an id is a number") };
    let mut bytes = Vec::new();
    for request in requests {
        wire::encode_request(&mut bytes, &request.iter().map(String::as_bytes).collect::<Vec<_>>());
    }
    client.send(&bytes).unwrap();
    let mut replies = Vec::new();
    let mut is_held = false;
    wait_until("it is answered or held", || {
        let (arrived, _) = client.read_arrived().unwrap();
        replies.extend(arrived);
        let line = text_of(admin.call(&["CLIENT", "LIST", "ID", &id.to_string()]).unwrap());
        let field =
            |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)).unwrap_or("0").to_owned();
        // What a transaction begins with comes at once.
        is_held = field("oll=") != "0" || field("obl=") != "0" || field("omem=") != "0";
        replies.len() == requests.len() || is_held
    });
    let answer = if replies.len() == requests.len() { Answer::Came(replies) } else { Answer::IsHeld };
    (client, answer)
}

/// A question alone, and in a transaction.
fn places(line: &str) -> [Vec<Vec<String>>; 2] {
    [vec![split(line)], vec![split("MULTI"), split(line), split("EXEC")]]
}

/// Nobody was told anything but what it asked for itself.
fn check_listeners(listeners: &mut [(&'static str, Client)]) {
    for (name, client) in listeners {
        let (arrived, _) = client.read_arrived().unwrap();
        let text = arrived.concat().escape_ascii().to_string().replace("psubscribe", "");
        let tells = |word: &&str| text.contains(*word);
        assert!(!["held", "invalidate", "message", "queue"].iter().any(tells), "the {name} was told {text}");
    }
}

#[test]
fn a_server_whose_disk_hangs_shows_nothing_that_a_kill_takes_back() {
    let (mut server, twin) = (start(), start());
    let (mut admin, mut twin_admin) = (subject::connect(&server), subject::connect(&twin));
    let set = ["CONFIG", "SET", "notify-keyspace-events", "KEA"];
    assert_eq!(admin.call(&set).unwrap(), Value::Simple(b"OK".to_vec()));
    let mut listeners = listeners(&server);
    wait_until("two clients wait", || {
        text_of(admin.call(&["INFO", "clients"]).unwrap()).contains("blocked_clients:2")
    });
    assert_eq!(admin.call(&["DEBUG", "DISK-HANG", "1"]).unwrap(), Value::Simple(b"OK".to_vec()));
    let mut writer = server.connect().unwrap();
    let more = "redis.register_function{function_name='later', callback=function() return 3 end, flags={'no-writes'}}";
    writer.send_request(&library(2, more)).unwrap();
    HELD.iter().for_each(|line| writer.send_request(&split(line)).unwrap());
    wait_until("all is executed", || {
        text_of(admin.call(&["INFO", "commandstats"]).unwrap()).contains("cmdstat_publish:calls=2")
    });
    let (mut asked, mut open) = (Vec::new(), Vec::new());
    for requests in QUESTIONS.iter().flat_map(|line| places(line)) {
        let (client, answer) = ask(&server, &mut admin, &requests);
        open.push(client);
        if let Answer::Came(replies) = answer {
            let (_, expected) = ask(&twin, &mut twin_admin, &requests);
            assert_eq!(
                Answer::Came(replies.clone()),
                expected,
                "{requests:?}: {:?}",
                replies.concat().escape_ascii().to_string()
            );
            asked.push((requests, replies));
        }
    }
    // It tells what of the asker's own is on disk, who has written nothing.
    let waits = [split("WAITAOF 1 0 1")];
    assert_eq!(ask(&server, &mut admin, &waits).1, Answer::Came(vec![b"*2\r\n:1\r\n:0\r\n".to_vec()]));
    check_listeners(&mut listeners);
    assert!(writer.read_arrived().unwrap().0.is_empty(), "nothing that was written is on disk");
    server.kill();
    let _ = subject::restart(&mut server);
    let mut admin = subject::connect(&server);
    let (count, all) = (asked.len(), 2 * QUESTIONS.len());
    for (requests, replies) in asked {
        let (_, again) = ask(&server, &mut admin, &requests);
        assert_eq!(again, Answer::Came(replies), "{requests:?} was answered before the kill");
    }
    println!("{count} of {all} questions were answered while the disk hung, and are the same after the kill");
    // What is about nothing that was written.
    assert!(count >= 20, "{count}");
}
