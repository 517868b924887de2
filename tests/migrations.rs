//! `tarn migrate` between real servers, while clients write to the source until the very end: what the target has then is what the source has, whatever was
//! broken on the way.
//!
//!     TARN_SEED=$RANDOM ./test --test tests -- --nocapture migrations::

mod clusters;
mod cut_overs;
mod takeovers;

use crate::imports::complaint;
use crate::{info, tarn, tarn_path};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use sys::Prng;
use testkit::ask::{ask, call_line, call_line_well, call_well, ok, shown, text, wait_until};
use testkit::contents::{LeftOut, now_ms};
use testkit::tls::Files;
use testkit::{Budget, Client, Contents, Program, Relay, Server, Way};
use wire::Value;

/// A source that begins a copy as soon as it is asked for one.
const PROMPT: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

fn redis(directives: &[&str]) -> Server {
    Server::start(Program::Redis, &[&PROMPT[..], directives].concat()).unwrap()
}

fn tarn_server() -> Server {
    Server::start(tarn(), &["--edition", "memory"]).unwrap()
}

/// An import that runs.
pub(crate) struct Import {
    child: Child,
    to: String,
    output: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Import {
    pub(crate) fn begin(from: SocketAddr, to: SocketAddr, options: &[&str]) -> Import {
        let (from, to) = (format!("redis://{from}"), format!("redis://{to}"));
        let mut child = Command::new(tarn_path())
            .args(["migrate", "--from", &from, "--to", &to])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        let read = |stream: Box<dyn std::io::Read + Send>| {
            let output = output.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let mut output = output.lock().unwrap();
                    output.push_str(&line);
                    output.push('\n');
                }
            })
        };
        let readers = streams.into_iter().map(read).collect();
        Import { child, to, output, readers }
    }

    pub(crate) fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Waits until it says something.
    pub(crate) fn await_words(&mut self, words: &str) {
        wait_until(words, || {
            let is_over = self.child.try_wait().unwrap().is_some();
            if is_over {
                self.read_to_end();
            }
            assert!(!is_over || self.output().contains(words), "{}", self.output());
            self.output().contains(words)
        });
    }

    /// Waits until the copy is made, and the stream followed.
    pub(crate) fn await_stream(&mut self) {
        self.await_words("s behind");
    }

    /// The same of a copy that is made when this has been said.
    pub(crate) fn await_stream_behind(&mut self, words: &str) {
        self.await_words(words);
        wait_until("the new copy's stream is followed", || {
            let output = self.output();
            output.rsplit_once(words).is_some_and(|(_, behind)| behind.contains("s behind"))
        });
    }

    pub(crate) fn ask_to_cut_over(&self) {
        let output =
            Command::new(tarn_path()).args(["migrate", "cut-over", "--to", &self.to]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Waits until it ends, which it is asked to or cannot help by then.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_until("the import ends", || self.child.try_wait().unwrap().is_some());
        self.read_to_end();
        self.child.wait().unwrap()
    }

    /// All that it has said is read.
    fn read_to_end(&mut self) {
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
    }

    /// Has it end well.
    pub(crate) fn cut_over(mut self) -> String {
        self.ask_to_cut_over();
        let status = self.wait();
        assert!(status.success(), "{}", self.output());
        self.output()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("the import said:\n{}", self.output());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Clients that write to a source, and never stop by themselves.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// So many clients, which make requests by `make`.
    pub(crate) fn begin(
        places: &[SocketAddr],
        seed: u64,
        make: fn(&mut Prng, usize) -> Vec<Vec<String>>,
    ) -> Load {
        let (is_over, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let begin = |(number, place): (usize, &SocketAddr)| {
            let (is_over, written) = (is_over.clone(), written.clone());
            let mut client = Client::connect(*place).unwrap();
            // Who writes is held until a cut-over is over, and what has come of it is looked at.
            client.stream().set_read_timeout(Some(Duration::from_secs(300))).unwrap();
            let mut random = Prng::from_seed(seed + number as u64);
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    for reply in client.pipeline(&make(&mut random, number)).unwrap() {
                        assert!(!reply.starts_with(b"-"), "{}", reply.escape_ascii());
                    }
                    written.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = places.iter().enumerate().map(begin).collect();
        Load { is_over, written, threads }
    }

    /// Waits until so much more was written.
    pub(crate) fn await_more(&self, pipelines: u64) {
        let wanted = self.written.load(Ordering::Relaxed) + pipelines;
        wait_until("more is written", || self.written.load(Ordering::Relaxed) >= wanted);
    }

    /// Ends it, at sources whose writers may be held.
    pub(crate) fn end(self, sources: &[&Server]) {
        self.is_over.store(true, Ordering::Relaxed);
        for source in sources {
            call_line(&mut source.connect().unwrap(), "CLIENT UNPAUSE");
        }
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn word(random: &mut Prng, of: &str, count: u64) -> String {
    format!("{of}{}", random.below(count))
}

/// Requests of all types, with times to live that pass meanwhile, in several databases and transactions. Some may not be done twice.
fn any_requests(random: &mut Prng, number: usize) -> Vec<Vec<String>> {
    let line = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut requests = vec![line(format!("SELECT {}", if random.one_in(3) { 5 } else { number }))];
    for _ in 0..20 {
        let (a, b) = (random.below(40), random.below(40));
        requests.push(line(match random.below(22) {
            0..=3 => format!("INCR counter{a}"),
            4 => format!("APPEND text{a} x{b}"),
            5 => format!("SET string{a} {b} PX {}", 1 + random.below(400)),
            6 => format!("SET string{a} {b}"),
            7 => format!("PEXPIRE string{a} {}", 1 + random.below(100_000)),
            8 => format!("RPUSH list{a} {b} {a}"),
            9 => format!("LPOP list{a}"),
            10 => format!("HINCRBY hash{a} f{b} 3"),
            11 => format!("PEXPIRE hash{a} {}", 1 + random.below(300)),
            12 => format!("SADD set{a} {b}"),
            13 => format!("SPOP set{a}"),
            14 => format!("ZINCRBY zset{a} 1.5 m{b}"),
            15 => format!("XADD stream{a} * f {b}"),
            16 => format!("DEL string{a} list{b} hash{a}"),
            17 => format!("MSET string{a} 1 other{b} 2"),
            18 => format!("SUNIONSTORE union{a} set{a} set{b}"),
            19 => format!("PUBLISH channel {b}"),
            20 => format!("COPY string{a} copy{b} DB 6 REPLACE"),
            _ => format!("PERSIST hash{a}"),
        }));
    }
    requests.push(line("MULTI".to_owned()));
    requests.push(line(format!("INCR {}", word(random, "counter", 40))));
    requests.push(line("SELECT 7".to_owned()));
    requests.push(line(format!("INCR {}", word(random, "counter", 40))));
    requests.push(line("EXEC".to_owned()));
    // They write no faster than a target takes it, unless nothing is heard of that.
    requests.push(line("WAIT 1 20".to_owned()));
    requests
}

fn must_be_equal(source: &Server, target: SocketAddr) {
    let (mut source, mut target) = (source.connect().unwrap(), Client::connect(target).unwrap());
    // A Redis 7.0 does not tell when a consumer was active.
    let left_out = LeftOut { names: &[b"active-time"], idle_consumers: false };
    let there = Contents::read_but(&mut source, left_out).unwrap();
    let here = Contents::read_but(&mut target, left_out).unwrap();
    let now = now_ms(&mut source).unwrap();
    assert_eq!(there.difference(&here, now), None);
    assert!(there.len() > 100, "there is something to compare");
}

fn fill(source: &Server) {
    let mut client = source.connect().unwrap();
    crate::imports::fill(&mut client);
    call_line_well(&mut client, "SELECT 0");
    let long: Vec<String> = (0..30_000).map(|number| format!("element {number}")).collect();
    for words in [["RPUSH", "long-list"], ["SADD", "long-set"]] {
        let all = words.into_iter().chain(long.iter().map(String::as_str)).collect::<Vec<_>>();
        call_well(&mut client, &all);
    }
    call_well(&mut client, &["SET", "long-text", &"text".repeat(100_000)]);
    for number in 0..2000 {
        call_well(&mut client, &["SET", &format!("key{number}"), "v", "EX", "5000"]);
    }
}

#[test]
fn a_redis_is_imported_while_it_is_written_to() {
    let budget = Budget::from_env(11, 1);
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let load = Load::begin(&[source.address(); 3], budget.seed, any_requests);
    let mut import = Import::begin(source.address(), target.address(), &["--verify"]);
    import.await_stream();
    load.await_more(100);
    let output = import.cut_over();
    must_be_equal(&source, target.address());
    assert!(output.contains("are the same") && output.contains("writers are held"), "{output}");
    load.end(&[&source]);
}

#[test]
fn a_tarn_is_imported_as_a_redis_is() {
    let budget = Budget::from_env(15, 1);
    let (source, target) = (tarn_server(), tarn_server());
    fill(&source);
    let load = Load::begin(&[source.address(); 3], budget.seed, any_requests);
    let mut import = Import::begin(source.address(), target.address(), &["--verify"]);
    import.await_stream();
    load.await_more(50);
    import.cut_over();
    must_be_equal(&source, target.address());
    load.end(&[&source]);
}

#[test]
fn nothing_is_done_twice_where_connections_to_the_target_are_lost() {
    let budget = Budget::from_env(12, 1);
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let relay = Relay::to(target.address()).unwrap();
    let load = Load::begin(&[source.address(); 3], budget.seed, any_requests);
    let mut import = Import::begin(source.address(), relay.address(), &["--verify"]);
    import.await_stream();
    let mut random = Prng::from_seed(budget.seed);
    for _ in 0..25 {
        // What is under way is cut off in the middle, going or coming back.
        let (way, bytes) = match random.one_in(2) {
            true => (Way::There, random.below(60_000)),
            false => (Way::Back, random.below(6_000)),
        };
        relay.cut_behind(way, bytes);
        relay.wait_until(Duration::from_secs(60), |seen| seen.open == 0);
        relay.mend();
        load.await_more(20);
    }
    let output = import.cut_over();
    must_be_equal(&source, target.address());
    assert!(!output.contains("copied anew"), "{output}");
    load.end(&[&source]);
}

#[test]
fn a_source_that_is_lost_for_a_while_is_gone_on_from() {
    let budget = Budget::from_env(13, 1);
    let (source, target) = (redis(&["--repl-backlog-size", "64mb"]), tarn_server());
    fill(&source);
    let relay = Relay::to(source.address()).unwrap();
    let load = Load::begin(&[source.address(); 2], budget.seed, any_requests);
    let mut import = Import::begin(relay.address(), target.address(), &["--verify"]);
    import.await_stream();
    let mut random = Prng::from_seed(budget.seed);
    for _ in 0..3 {
        relay.cut_behind(Way::Back, random.below(20_000));
        relay.wait_until(Duration::from_secs(60), |seen| seen.open == 0);
        load.await_more(20);
        let before = import.output().matches("goes on from offset").count();
        relay.mend();
        wait_until("it goes on", || import.output().matches("goes on from offset").count() > before);
    }
    import.cut_over();
    must_be_equal(&source, target.address());
    assert_eq!(info(&mut source.connect().unwrap(), "sync_full"), 1);
    load.end(&[&source]);
}

#[test]
fn a_source_that_has_lost_its_stream_is_copied_anew_and_what_it_deleted_is_gone() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let relay = Relay::to(source.address()).unwrap();
    let mut import = Import::begin(relay.address(), target.address(), &["--verify"]);
    import.await_stream();
    let mut client = source.connect().unwrap();
    relay.cut();
    call_line_well(&mut client, "DEL key1 key2 key3");
    call_line_well(&mut client, "DEBUG CHANGE-REPL-ID");
    relay.mend();
    // So slowly that it is cut off amid the copy.
    relay.throttle(Way::Back, 40_000);
    import.await_words("everything is copied anew");
    relay.cut();
    import.await_words("the new copy is tried again");
    relay.mend();
    import.await_words("does not have its stream any more");
    import.await_stream_behind("what an earlier copy has left in the target is removed");
    import.cut_over();
    must_be_equal(&source, target.address());
    assert!(info(&mut client, "sync_full") > 1);
}

#[test]
fn an_import_that_was_killed_or_ended_goes_on_where_it_was() {
    let budget = Budget::from_env(14, 1);
    let (source, target) = (redis(&["--repl-backlog-size", "64mb"]), tarn_server());
    fill(&source);
    let load = Load::begin(&[source.address(); 3], budget.seed, any_requests);
    let mut import = Import::begin(source.address(), target.address(), &[]);
    import.await_stream();
    for signal in ["-KILL", "-INT", "-KILL"] {
        load.await_more(30);
        import.signal(signal);
        let status = import.wait();
        assert!(!status.success());
        if signal == "-INT" {
            import.await_words("ended before the cut-over");
        }
        load.await_more(10);
        import = Import::begin(source.address(), target.address(), &["--verify"]);
        import.await_words("it goes on from there");
        import.await_stream();
    }
    import.cut_over();
    must_be_equal(&source, target.address());
    assert_eq!(info(&mut source.connect().unwrap(), "sync_full"), 1);
    load.end(&[&source]);
}

#[test]
fn a_target_that_is_behind_does_not_take_away_what_was_given_more_time() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let relay = Relay::to(target.address()).unwrap();
    let mut client = source.connect().unwrap();
    let mut import = Import::begin(source.address(), relay.address(), &["--verify"]);
    import.await_stream();
    for line in ["HSET session a 1 b 2", "PEXPIRE session 20000", "SET short 1 PX 20000"] {
        call_line_well(&mut client, line);
    }
    let mut here = target.connect().unwrap();
    wait_until("it is there", || call_line(&mut here, "EXISTS session short") == Value::Int(2));
    let over = now_ms(&mut client).unwrap() + 20_000;
    relay.stop(Way::There);
    for line in ["HSET session c 3", "PEXPIRE session 100000"] {
        call_line_well(&mut client, line);
    }
    assert_eq!(call_line(&mut client, "HLEN session"), Value::Int(3), "its first time was not over yet");
    wait_until("its first time is over", || now_ms(&mut client).unwrap() > over);
    relay.mend();
    import.cut_over();
    assert_eq!(call_line(&mut here, "HLEN session"), Value::Int(3));
    assert_eq!(ask(&mut here, &["PEXPIRETIME", "session"]), ask(&mut client, &["PEXPIRETIME", "session"]));
    assert_eq!(call_line(&mut here, "EXISTS short"), Value::Int(0));
    must_be_equal(&source, target.address());
}

#[test]
fn what_a_target_has_of_its_own_is_kept_only_where_that_is_said() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let mut here = target.connect().unwrap();
    call_well(&mut here, &["SET", "own", "1"]);
    call_well(&mut here, &["SET", "key1", "of the target"]);
    let (from, to) = (format!("redis://{}", source.address()), format!("redis://{}", target.address()));
    let why = complaint("migrate", &["--from", &from, "--to", &to]);
    assert!(why.contains("the target has keys"), "{why}");
    let mut import = Import::begin(
        source.address(),
        target.address(),
        &["--into-nonempty", "--verify", "--until-caught-up"],
    );
    assert!(import.wait().success(), "{}", import.output());
    assert_eq!((call_line(&mut here, "GET own"), call_line(&mut here, "GET key1")), (text("1"), text("v")));
    call_line(&mut source.connect().unwrap(), "CLIENT UNPAUSE");
    // FLUSHALL would take it away.
    let mut import = Import::begin(source.address(), target.address(), &["--into-nonempty"]);
    import.await_stream();
    call_line_well(&mut source.connect().unwrap(), "FLUSHALL");
    assert!(!import.wait().success());
    import.await_words("the source has done FLUSHALL");
    assert_eq!(call_line(&mut here, "GET own"), text("1"));
    // SWAPDB would have it change places with what comes.
    let mut import = Import::begin(source.address(), target.address(), &["--into-nonempty", "--anew"]);
    import.await_stream();
    call_line_well(&mut source.connect().unwrap(), "SWAPDB 0 3");
    assert!(!import.wait().success());
    import.await_words("the source has done SWAPDB 0");
    assert_eq!(call_line(&mut here, "GET own"), text("1"));
}

#[test]
fn a_value_that_differs_is_found_and_the_source_is_let_go_on() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let mut import = Import::begin(source.address(), target.address(), &["--verify"]);
    import.await_stream();
    call_well(&mut target.connect().unwrap(), &["HSET", "hash", "f", "another"]);
    call_well(&mut target.connect().unwrap(), &["SET", "more", "1"]);
    import.ask_to_cut_over();
    assert!(!import.wait().success());
    import.await_words("2 of ");
    import.await_words("hash of database 0 differs");
    import.await_words("more of database 0 is not at the source");
    import.await_words("writers go on at the source");
    let mut client = source.connect().unwrap();
    assert_eq!(call_line(&mut client, "SET key1 2"), ok());
    // What was put right cannot be gone on from.
    let mut import = Import::begin(source.address(), target.address(), &["--verify", "--until-caught-up"]);
    import.await_words("what an earlier copy has left in the target is removed");
    assert!(import.wait().success(), "{}", import.output());
    must_be_equal(&source, target.address());
}

#[test]
fn databases_that_are_emptied_or_exchanged_are_so_in_the_target() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let mut client = source.connect().unwrap();
    let mut import = Import::begin(source.address(), target.address(), &["--verify"]);
    import.await_stream();
    for line in [
        "SWAPDB 0 2",
        "SET after 1",
        "SELECT 4",
        "FLUSHDB",
        "SET x 1",
        "MOVE x 9",
        "SWAPDB 9 0",
        "FUNCTION FLUSH",
    ] {
        call_line_well(&mut client, line);
    }
    // What asks for the cut-over would be emptied with its database.
    assert_eq!(call_line(&mut client, "WAIT 1 15000"), Value::Int(1));
    import.cut_over();
    must_be_equal(&source, target.address());
    let mut here = target.connect().unwrap();
    for database in 0..16 {
        call_line_well(&mut here, &format!("SELECT {database}"));
        assert_eq!(call_line(&mut here, "KEYS tarn-migrate*"), Value::Array(Vec::new()), "{database}");
    }
}

#[test]
fn a_command_that_the_target_does_not_know_ends_it_by_name() {
    let source = tarn_server();
    let target = redis(&[]);
    let mut client = source.connect().unwrap();
    call_line_well(&mut client, "SET k v");
    let mut import = Import::begin(source.address(), target.address(), &[]);
    import.await_stream();
    call_line_well(&mut client, "HSET h f v g w");
    call_line_well(&mut client, "HEXPIRE h 1000 FIELDS 1 f");
    assert!(!import.wait().success());
    import.await_words("the target refuses HPEXPIREAT h");
    let shown = shown(&call_line(&mut target.connect().unwrap(), "GET k"));
    assert_eq!(shown, "v");
}

#[test]
fn the_source_is_acknowledged_what_the_target_has() {
    let (source, target) = (redis(&[]), tarn_server());
    fill(&source);
    let relay = Relay::to(target.address()).unwrap();
    let mut import = Import::begin(source.address(), relay.address(), &[]);
    import.await_stream();
    let mut client = source.connect().unwrap();
    call_line_well(&mut client, "SET k 1");
    assert_eq!(call_line(&mut client, "WAIT 1 100000"), Value::Int(1));
    relay.stop(Way::There);
    call_line_well(&mut client, "SET k 2");
    assert_eq!(call_line(&mut client, "WAIT 1 1500"), Value::Int(0), "the target has not answered");
    relay.mend();
    assert_eq!(call_line(&mut client, "WAIT 1 100000"), Value::Int(1));
    assert_eq!(call_line(&mut target.connect().unwrap(), "GET k"), text("2"));
    import.cut_over();
}

#[test]
fn a_target_that_comes_back_with_a_part_of_the_copy_when_it_is_whole_is_copied_to_anew() {
    const KEYS: usize = 22;
    let (source, mut target) = (redis(&[]), redis(&[]));
    let (mut client, mut here) = (source.connect().unwrap(), target.connect().unwrap());
    for number in 0..KEYS {
        call_well(&mut client, &["SET", &format!("key{number}"), &"text".repeat(28_000)]);
    }
    let relay = Relay::to(target.address()).unwrap();
    relay.delay(Way::There, Duration::from_millis(200));
    let mut import = Import::begin(source.address(), relay.address(), &[]);
    let size = |here: &mut Client| match call_line(here, "DBSIZE") {
        Value::Int(size) => usize::try_from(size).unwrap(),
        other => panic!("{other:?}"),
    };
    wait_until("some of it is there", || size(&mut here) > 2);
    call_line_well(&mut here, "SAVE");
    wait_until("all of it is there, with the state", || size(&mut here) == KEYS + 1);
    target.restart().unwrap();
    relay.aim(target.address());
    relay.mend();
    import.await_stream_behind("copied anew");
    import.cut_over();
    assert_eq!(size(&mut target.connect().unwrap()), KEYS);
}

#[test]
fn a_key_of_the_source_that_is_called_as_an_imports_own_ends_it_by_name() {
    let (source, target) = (redis(&[]), tarn_server());
    let mut client = source.connect().unwrap();
    call_line_well(&mut client, "SET key 1");
    let mut import = Import::begin(source.address(), target.address(), &[]);
    import.await_stream();
    call_line_well(&mut client, "RENAME key tarn-migrate:cut-over");
    import.await_words("the source has a key tarn-migrate:cut-over");
    assert!(!import.wait().success());
    let mut import = Import::begin(source.address(), target.address(), &["--anew"]);
    import.await_words("the source has a key tarn-migrate:cut-over");
    assert!(!import.wait().success());
    call_line_well(&mut client, "RENAME tarn-migrate:cut-over key");
    end(&source, target.address(), &["--anew"]);
    assert_eq!(call_line(&mut target.connect().unwrap(), "KEYS *"), Value::Array(vec![text("key")]));
}

#[test]
fn functions_are_not_done_again_by_the_next_run_where_one_has_taken_anothers_name() {
    let (source, target) = (redis(&[]), redis(&[]));
    let mut client = source.connect().unwrap();
    let library = |name: &str| {
        format!("#!lua name={name}\nredis.register_function('f', function() return '{name}' end)")
    };
    let mut import = Import::begin(source.address(), target.address(), &[]);
    import.await_stream();
    call_well(&mut client, &["FUNCTION", "LOAD", &library("a")]);
    call_well(&mut client, &["FUNCTION", "DELETE", "a"]);
    call_well(&mut client, &["FUNCTION", "LOAD", &library("b")]);
    let mut here = target.connect().unwrap();
    wait_until("it is there", || call_line(&mut here, "FCALL f 0") == text("b"));
    import.await_words(" 0 bytes and 0 s behind");
    import.signal("-KILL");
    import.wait();
    end(&source, target.address(), &[]);
    assert_eq!(call_line(&mut here, "FCALL f 0"), text("b"));
}

#[test]
fn a_target_that_may_evict_is_warned_of() {
    let limited = ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"];
    for (directives, is_said) in [(&limited[..], true), (&limited[..2], false)] {
        let (source, target) = (redis(&[]), redis(directives));
        let mut import = Import::begin(source.address(), target.address(), &["--until-caught-up"]);
        assert!(import.wait().success(), "{}", import.output());
        assert_eq!(import.output().contains("maxmemory-policy volatile-lru"), is_said);
    }
}

#[test]
fn another_source_is_refused_and_the_same_one_elsewhere_is_not() {
    let (source, other, target) = (redis(&[]), redis(&[]), tarn_server());
    fill(&source);
    call_line_well(&mut other.connect().unwrap(), "SET other 1");
    let mut import = Import::begin(source.address(), target.address(), &[]);
    import.await_stream();
    import.signal("-KILL");
    import.wait();
    let mut import = Import::begin(other.address(), target.address(), &["--until-caught-up"]);
    assert!(!import.wait().success());
    import.await_words(&format!("the target has an import from {}", source.address()));
    let relay = Relay::to(source.address()).unwrap();
    let mut import = Import::begin(relay.address(), target.address(), &["--verify"]);
    import.await_words("it goes on from there");
    import.await_stream();
    import.cut_over();
    must_be_equal(&source, target.address());
}

/// Waits until the source has begun to send its copy.
fn await_copy(target: &mut Client) {
    wait_until("its copy has begun", || {
        let state = ask(target, &["GET", "tarn-migrate:state:0"]);
        state.starts_with("copying") && !state.contains(&"0".repeat(40))
    });
}

/// Has a whole import end well.
fn end(source: &Server, target: SocketAddr, options: &[&str]) {
    let all = [&["--verify", "--until-caught-up"], options].concat();
    let mut import = Import::begin(source.address(), target, &all);
    assert!(import.wait().success(), "{}", import.output());
}

#[test]
fn an_answer_that_was_lost_is_told_where_values_are_not_compared() {
    for (options, is_told) in [(&[][..], true), (&["--verify"], false)] {
        let (source, target) = (redis(&[]), tarn_server());
        fill(&source);
        let relay = Relay::to(target.address()).unwrap();
        let mut import = Import::begin(source.address(), relay.address(), options);
        import.await_words(" 0 bytes and 0 s behind");
        relay.stop(Way::Back);
        call_line_well(&mut source.connect().unwrap(), "SET key1 2");
        let mut here = target.connect().unwrap();
        wait_until("it is done", || call_line(&mut here, "GET key1") == text("2"));
        relay.cut();
        relay.mend();
        let output = import.cut_over();
        assert_eq!(output.contains("it is not known whether the target refused"), is_told, "{output}");
        must_be_equal(&source, target.address());
    }
}

#[test]
fn both_sides_may_speak_tls_and_want_a_password() {
    let files = Files::new().unwrap();
    let start = |password: &str| {
        let port = testkit::free_port().unwrap();
        let own: Vec<String> = files
            .directives()
            .into_iter()
            .flat_map(|(name, value)| [format!("--{name}"), value])
            .chain([
                "--tls-port".to_owned(),
                port.to_string(),
                "--requirepass".to_owned(),
                password.to_owned(),
            ])
            .chain(["--edition", "memory"].map(str::to_owned))
            .collect();
        let server = Server::start(tarn(), &own.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        let mut client = server.connect().unwrap();
        call_well(&mut client, &["AUTH", password]);
        (server, client, format!("rediss://:{password}@127.0.0.1:{port}"))
    };
    let ((_source, mut there, from), (_target, mut here, to)) = (start("one"), start("two"));
    call_line_well(&mut there, "SET key value EX 1000");
    let (ca, certificate, key) = (files.path("ca.crt"), files.path("server.crt"), files.path("server.key"));
    let shown = ["--cacert", &ca, "--cert", &certificate, "--key", &key];
    let words = [&["--from", &from, "--to", &to, "--verify", "--until-caught-up"], &shown[..]].concat();
    let output = crate::imports::run("migrate", &words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(call_line(&mut here, "GET key"), text("value"));
    let wrong = to.replace(":two@", ":three@");
    let why = complaint("migrate", &[&["--from", &from, "--to", &wrong], &shown[..]].concat());
    assert!(why.contains("WRONGPASS"), "{why}");
}
