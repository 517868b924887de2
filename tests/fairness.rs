//! Who waits for whom: commands get their keys in the order in which they asked for them, those behind long ones too, their moment is the
//! one at which they have them, and nobody comes between a change and those who waited for it.
//!
//! A key is held for as long as a test wants by a MIGRATE whose target, the test, does not answer.

use crate::tarn;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::ask::{accept, call_line, text, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

fn start() -> Server {
    Server::start(tarn(), &["--edition", "memory", "--threads", "8", "--threads-min", "8"]).unwrap()
}

fn send(client: &mut Client, line: &str) {
    client.send_request(&line.split(' ').collect::<Vec<_>>()).unwrap();
}

fn int(value: &Value) -> i64 {
    let Value::Int(number) = value else { panic!("{value:?} is not a number") };
    *number
}

/// Keys that a MIGRATE holds.
struct Holder {
    client: Client,
    target: TcpStream,
}

impl Holder {
    /// Holds these keys, which need not be there, from now on.
    fn new(server: &Server, keys: &[&str]) -> Holder {
        let mut client = server.connect().unwrap();
        call_line(&mut client, "SET sent value");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "600000", "KEYS", "sent"];
        words.extend(keys);
        client.send_request(&words).unwrap();
        let target = accept(&listener);
        Holder { client, target }
    }

    /// Lets them go.
    fn release(mut self) {
        drop(self.target);
        assert!(matches!(self.client.read_value().unwrap(), Value::Error(_)));
    }
}

/// Waits until so many clients wait for keys.
fn await_blocked(client: &mut Client, count: u64) {
    wait_until("they wait", || crate::info(client, "blocked_clients") >= count);
}

/// Waits for the server's time to go on.
fn let_time_pass(client: &mut Client) {
    call_line(client, "SET passing value PX 100");
    wait_until("time has passed", || call_line(client, "EXISTS passing") == Value::Int(0));
}

#[test]
fn a_time_to_live_begins_when_its_command_has_its_key() {
    let server = start();
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect().unwrap()).collect();
    let mut other = server.connect().unwrap();
    let holder = Holder::new(&server, &["alone", "queued", "by-script", "of-two"]);
    send(&mut clients[0], "SET alone value PX 500000");
    assert_eq!(call_line(&mut clients[1], "MULTI"), Value::Simple(b"OK".to_vec()));
    call_line(&mut clients[1], "SET queued value PX 500000");
    send(&mut clients[1], "EXEC");
    let script = "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 500000)";
    clients[2].send_request(&["EVAL", script, "1", "by-script", "value"]).unwrap();
    call_line(&mut other, "RPUSH numbers 1 2");
    send(&mut clients[3], "SORT numbers STORE of-two");
    let_time_pass(&mut other);
    call_line(&mut other, "SET mark value PX 500000");
    let mark = int(&call_line(&mut other, "PEXPIRETIME mark"));
    holder.release();
    for client in &mut clients {
        client.read_value().unwrap();
    }
    for key in ["alone", "queued", "by-script"] {
        let until = int(&call_line(&mut other, &format!("PEXPIRETIME {key}")));
        assert!(until >= mark, "{key} lost {} ms of its time while its command waited", mark - until);
    }
    assert_eq!(call_line(&mut other, "LLEN of-two"), Value::Int(2));
}

#[test]
fn one_who_waits_for_several_keys_is_served_whoever_holds_the_others() {
    let server = start();
    let cases = [
        ("BLPOP one two 0", "RPUSH one element", "LPOP one"),
        ("BRPOP two one 0", "RPUSH one element", "LPOP one"),
        ("BLMPOP 0 2 two one LEFT", "RPUSH one element", "LPOP one"),
        ("BZPOPMIN two one 0", "ZADD one 1 element", "ZPOPMIN one"),
        ("BZMPOP 0 2 two one MAX", "ZADD one 1 element", "ZPOPMIN one"),
        ("XREAD BLOCK 0 STREAMS two one 0 0", "XADD one 1-1 field element", "DEL two"),
        ("XREADGROUP GROUP g c BLOCK 0 STREAMS read one > >", "XADD one 1-1 field element", "XACK one g 1-2"),
    ];
    for (wait, push, take) in cases {
        let (mut waiter, mut other) = (server.connect().unwrap(), server.connect().unwrap());
        call_line(&mut other, "DEL one two read");
        if wait.starts_with("XREADGROUP") {
            call_line(&mut other, "XGROUP CREATE one g 0 MKSTREAM");
            call_line(&mut other, "XGROUP CREATE read g 0 MKSTREAM");
        }
        send(&mut waiter, wait);
        await_blocked(&mut other, 1);
        let holder = Holder::new(&server, &["two", "read"]);
        assert!(!matches!(call_line(&mut other, push), Value::Error(_)));
        let served = waiter.read_value().unwrap();
        assert!(format!("{served:?}").contains(&format!("{:?}", text("element"))), "{wait}: {served:?}");
        if take != "DEL two" {
            let left = call_line(&mut other, take);
            assert!(
                matches!(&left, Value::Null | Value::Int(0)) || left == Value::Array(Vec::new()),
                "{left:?}"
            );
        }
        holder.release();
    }
}

#[test]
fn nobody_takes_what_was_pushed_for_one_who_moves_it_to_a_key_in_use() {
    let server = start();
    let (mut mover, mut last) = (server.connect().unwrap(), server.connect().unwrap());
    let (mut pusher, mut thief) = (server.connect().unwrap(), server.connect().unwrap());
    for round in 0..20 {
        send(&mut mover, "BLMOVE source target LEFT LEFT 0");
        send(&mut last, "BLPOP target 0");
        await_blocked(&mut pusher, 2);
        let holder = Holder::new(&server, &["target"]);
        send(&mut pusher, &format!("RPUSH source {round}"));
        send(&mut thief, "LPOP source");
        let_time_pass(&mut server.connect().unwrap());
        holder.release();
        assert_eq!(pusher.read_value().unwrap(), Value::Int(1));
        assert_eq!(thief.read_value().unwrap(), Value::Null);
        assert_eq!(mover.read_value().unwrap(), text(&round.to_string()));
        let served = Value::Array(vec![text("target"), text(&round.to_string())]);
        assert_eq!(last.read_value().unwrap(), served);
    }
}

#[test]
fn one_who_waits_is_served_while_a_script_has_another_of_its_keys() {
    let server = start();
    let (mut waiter, mut other) = (server.connect().unwrap(), server.connect().unwrap());
    let mut script = server.connect().unwrap();
    send(&mut waiter, "BLPOP one two 0");
    await_blocked(&mut other, 1);
    let endless = "while true do redis.call('EXISTS', KEYS[1]) end";
    script.send_request(&["EVAL", endless, "1", "two"]).unwrap();
    // Whoever asks for its key is held back by now, or waits.
    let_time_pass(&mut other);
    assert_eq!(call_line(&mut other, "RPUSH one element"), Value::Int(1));
    assert_eq!(waiter.read_value().unwrap(), Value::Array(vec![text("one"), text("element")]));
    wait_until("it is ended", || call_line(&mut other, "SCRIPT KILL") == Value::Simple(b"OK".to_vec()));
    assert!(matches!(script.read_value().unwrap(), Value::Error(_)));
}

#[test]
fn no_element_goes_past_those_who_wait() {
    let server = start();
    let rounds = steps(200);
    let address = &server;
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        // Commands on the other key, so that it is in use most of the time.
        for _ in 0..2 {
            scope.spawn(move || {
                let mut busy = address.connect().unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    call_line(&mut busy, "EXISTS two three");
                    call_line(&mut busy, "LPOP one");
                }
            });
        }
        let _over = testkit::Ends(is_over);
        let (mut waiter, mut pusher) = (address.connect().unwrap(), address.connect().unwrap());
        for round in 0..rounds {
            send(&mut waiter, "BLPOP one two 0");
            await_blocked(&mut pusher, 1);
            call_line(&mut pusher, &format!("RPUSH one {round}"));
            let served = Value::Array(vec![text("one"), text(&round.to_string())]);
            assert_eq!(waiter.read_value().unwrap(), served, "somebody else took it");
        }
    });
}

fn steps(usual: u64) -> u64 {
    std::env::var("TARN_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// How long a command takes that keeps clients busy: a few times what a thread may have to wait for its turn.
const LONG: Duration = Duration::from_millis(50);
/// How long each of them takes at least.
const SHORTEST: Duration = LONG.checked_div(2).unwrap();

/// Makes a sorted set that takes so long to be copied.
fn make_large(client: &mut Client) {
    let mut members = 0;
    loop {
        for _ in 0..20 {
            let words: Vec<String> =
                (members..members + 1000).flat_map(|n| [n.to_string(), format!("m:{n}")]).collect();
            let words: Vec<&str> =
                ["ZADD", "large"].into_iter().chain(words.iter().map(String::as_str)).collect();
            client.call(&words).unwrap();
            members += 1000;
        }
        let began = Instant::now();
        call_line(client, "ZUNIONSTORE copy 1 large");
        if began.elapsed() >= LONG {
            break;
        }
    }
    for copy in ["large1", "large2"] {
        call_line(client, &format!("COPY large {copy}"));
    }
    call_line(client, "DEL copy");
}

/// What may have to wait for long, and how many requests of others ended meanwhile beyond those that may.
struct Worst {
    waited: Duration,
    overtaken: u64,
    too_many: u64,
}

/// For how long this thread and the server's have been ready to run, and did not because others had the cores: what happens
/// meanwhile is not for want of a place in line.
fn kept_from_cores(server: &Server) -> Duration {
    let of = |path: PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let nanos = text.split_whitespace().nth(1).and_then(|field| field.parse().ok());
        Duration::from_nanos(nanos.unwrap_or(0))
    };
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let of_server: Duration = tasks.map(|task| of(task.unwrap().path().join("schedstat"))).sum();
    of_server + of(PathBuf::from("/proc/thread-self/schedstat"))
}

/// Clients that send a request each, again and again.
struct Busy {
    requests: Vec<Vec<String>>,
    /// How many were answered.
    ended: Vec<AtomicU64>,
    is_over: AtomicBool,
}

impl Busy {
    fn new(requests: Vec<Vec<String>>) -> Busy {
        let ended = requests.iter().map(|_| AtomicU64::new(0)).collect();
        Busy { requests, ended, is_over: AtomicBool::new(false) }
    }

    fn repeat(&self, server: &Server, number: usize) {
        let mut client = server.connect().unwrap();
        let words: Vec<&str> = self.requests[number].iter().map(String::as_str).collect();
        while !self.is_over.load(Ordering::Relaxed) {
            assert!(matches!(client.call(&words).unwrap(), Value::Int(_)));
            self.ended[number].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> Vec<u64> {
        self.ended.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn ended(&self) -> u64 {
        self.counts().into_iter().sum()
    }

    /// Lets them be busy while `run` is.
    fn while_busy(&self, server: &Server, run: impl FnOnce()) {
        thread::scope(|scope| {
            for number in 0..self.requests.len() {
                scope.spawn(move || self.repeat(server, number));
            }
            let _over = testkit::Ends(&self.is_over);
            wait_until("all are busy", || self.ended() >= self.requests.len() as u64);
            run();
        });
    }

    /// How long did `line` have to wait at worst, and how many of their requests ended meanwhile?
    fn wait_behind(&self, server: &Server, line: &str, rounds: u64) -> Worst {
        let mut client = server.connect().unwrap();
        let mut worst = Worst { waited: Duration::ZERO, overtaken: 0, too_many: 0 };
        self.while_busy(server, || {
            for _ in 0..rounds {
                let kept = kept_from_cores(server);
                let (began, before) = (Instant::now(), self.ended());
                let reply = call_line(&mut client, line);
                assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
                worst.waited = worst.waited.max(began.elapsed());
                let overtaken = self.ended() - before;
                worst.overtaken = worst.overtaken.max(overtaken);
                // As many as may end in that time when all of them run at once.
                let kept = kept_from_cores(server).saturating_sub(kept);
                let all_at_once = self.requests.len() as u64 * (kept.as_nanos() / SHORTEST.as_nanos()) as u64;
                let most = OVERTAKEN_MAX * self.requests.len() as u64 + all_at_once;
                worst.too_many = worst.too_many.max(overtaken.saturating_sub(most));
            }
        });
        worst
    }
}

/// Each of them may be in a request, and have one in line before it is noticed that there is somebody; the rest is what threads
/// may do between sending and counting on a machine that is busy.
const OVERTAKEN_MAX: u64 = 6;

const THREE_THREADS: [&str; 6] = ["--edition", "memory", "--threads", "3", "--threads-min", "3"];

/// Starts a server with what the requests need that keep it busy.
type Start = fn(Program, &[&str]) -> (Server, Busy);

fn nobody_starves(start: Start, lines: &[&str]) {
    let rounds = steps(5);
    for line in lines {
        let (server, busy) = start(tarn(), &THREE_THREADS);
        let worst = busy.wait_behind(&server, line, rounds);
        println!("{line}: {:?}, {} commands of others ended meanwhile", worst.waited, worst.overtaken);
        assert_eq!(worst.too_many, 0, "{line}: {} commands passed it", worst.overtaken);
        if std::env::var_os("TARN_BESIDE").is_some() {
            let (server, busy) = start(Program::Redis, &[]);
            let beside = busy.wait_behind(&server, line, rounds);
            println!("    Redis: {:?}, {} commands", beside.waited, beside.overtaken);
        }
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn nobody_starves_behind_long_commands() {
    let start: Start = |program, args| {
        let server = Server::start(program, args).unwrap();
        make_large(&mut server.connect().unwrap());
        let request = |number| words(&format!("ZUNIONSTORE d{number} 1 large{number}"));
        (server, Busy::new((1..=2).map(request).collect()))
    };
    let script = "EVAL return{redis.call('exists','d'..1)} 0";
    nobody_starves(start, &["EXISTS d1 d2", "SWAPDB 1 2", script, "EXISTS d1", "DBSIZE"]);
}

/// A script that changes the keys of four clients, for so long that it is slow, and with which its caller waits for nobody else.
fn slow_scripts(server: &Server, keys: [&str; 4]) -> Busy {
    let mut client = server.connect().unwrap();
    let script = "redis.call('INCR', KEYS[1]) for i = 1, tonumber(ARGV[1]) do end return 1";
    let mut loops = 100_000_u64;
    let request =
        |key: &str, loops: u64| ["EVAL", script, "1", key, &loops.to_string()].map(str::to_owned).to_vec();
    // The shortest of several: on a busy machine, one may be long because it did not run.
    let mut takes = |loops: u64| {
        let words = request("calibrated", loops);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut took = || {
            let began = Instant::now();
            client.call(&words).unwrap();
            began.elapsed()
        };
        [took(), took(), took(), took()].into_iter().min().unwrap()
    };
    while takes(loops) < SHORTEST {
        loops *= 2;
    }
    Busy::new(keys.iter().map(|key| request(key, loops)).collect())
}

#[test]
fn nobody_starves_behind_slow_scripts() {
    let alone: Start = |program, args| {
        let server = Server::start(program, args).unwrap();
        let busy = slow_scripts(&server, ["k0", "k1", "k2", "k3"]);
        (server, busy)
    };
    let together: Start = |program, args| {
        let server = Server::start(program, args).unwrap();
        let busy = slow_scripts(&server, ["k0"; 4]);
        (server, busy)
    };
    let script = "EVAL return{redis.call('INCR',KEYS[1]),redis.call('INCR',KEYS[2])} 2 k0 k3";
    let undeclared = "EVAL return{redis.call('INCR','k'..0)} 0";
    let lines = ["FLUSHALL", "MGET k0 k1 k2 k3", "SWAPDB 1 2", "DBSIZE", "SAVE", "CLIENT PAUSE 1", script];
    nobody_starves(alone, &lines);
    nobody_starves(together, &["GET k0", "FLUSHALL", "SCAN 0", script, undeclared]);
}

#[test]
fn slow_scripts_take_turns() {
    for keys in [["k0", "k1", "k2", "k3"], ["k0"; 4], ["k0", "k0", "k1", "k1"]] {
        let server = Server::start(tarn(), &THREE_THREADS).unwrap();
        let busy = slow_scripts(&server, keys);
        let mut gained = Vec::new();
        busy.while_busy(&server, || {
            let before = busy.counts();
            let wanted = before.iter().sum::<u64>() + 80;
            wait_until("so many have ended", || busy.ended() >= wanted);
            gained = busy.counts().iter().zip(before).map(|(count, before)| count - before).collect();
        });
        let (fewest, most) = (gained.iter().min().unwrap(), gained.iter().max().unwrap());
        assert!(*fewest * 4 >= *most, "{keys:?}: {gained:?} of the four ended");
    }
}

#[test]
fn a_served_client_is_told_of_its_own_change_behind_the_reply() {
    for edition in ["memory", "durable"] {
        let server = Server::start(tarn(), &["--edition", edition]).unwrap();
        let (mut waiter, mut other) = (server.connect().unwrap(), server.connect().unwrap());
        for line in ["HELLO 3", "CLIENT TRACKING ON", "LRANGE target 0 -1", "LRANGE source 0 -1"] {
            send(&mut waiter, line);
            waiter.read_value().unwrap();
        }
        send(&mut waiter, "BLMOVE source target LEFT LEFT 0");
        await_blocked(&mut other, 1);
        other.call(&["RPUSH", "source", "element"]).unwrap();
        // What the other has done comes first, then the reply, then what the request did.
        let invalid = |key: &str| format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n$6\r\n{key}\r\n");
        let wanted = invalid("source") + "$7\r\nelement\r\n" + &invalid("target");
        let mut read = Vec::new();
        while read.len() < wanted.len() {
            read.extend(waiter.read_reply().unwrap());
        }
        assert_eq!(String::from_utf8_lossy(&read), wanted, "{edition}");
    }
}
