//! Two proxies over a cluster, of which one is killed, stands still or is brought down while clients write through whichever answers: what was acknowledged is
//! there, nothing is done twice, and nobody waits for long. TARN_STEPS: so many times.

use super::clusters::proxy_of;
use crate::clusters::cluster::{Cluster, wait_until};
use crate::departures::signal;
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::ask::shown;
use testkit::{Budget, Client, Server};
use wire::Value;

/// Clients that write.
const CLIENTS: usize = 4;
/// Keys of each, of both kinds.
const KEYS: usize = 8;
/// Within which a request has an answer, or its connection has ended: the longest standstill, and very much, as on a machine that is slow and busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// What a client knows of one pair of its keys.
#[derive(Default)]
struct Ledger {
    /// What the counter was when it was told last.
    counted: i64,
    /// How often it was not told.
    uncounted: i64,
    /// Which words were appended for certain, and which may have been.
    told: Vec<u64>,
    untold: Vec<u64>,
}

impl Ledger {
    /// What came of counting.
    fn note_counted(&mut self, reply: &io::Result<Value>) {
        match reply {
            Ok(Value::Int(count)) => {
                let most = self.counted + 1 + self.uncounted;
                assert!((self.counted + 1..=most).contains(count), "{count} behind {}", self.counted);
                self.uncounted -= count - 1 - self.counted;
                self.counted = *count;
            }
            _ => self.uncounted += 1,
        }
    }

    /// What came of appending this word.
    fn note_appended(&mut self, word: u64, reply: &io::Result<Value>) {
        match reply {
            Ok(Value::Int(_)) => self.told.push(word),
            _ => self.untold.push(word),
        }
    }

    /// Whether the keys are what they may be.
    fn check(&self, counter: i64, words: &str) {
        let most = self.counted + self.uncounted;
        assert!((self.counted..=most).contains(&counter), "{counter}, told {}", self.counted);
        let mut found: Vec<u64> = words.split_terminator(';').map(|word| word.parse().unwrap()).collect();
        let is_told: HashSet<u64> = self.told.iter().copied().collect();
        let told: Vec<u64> = found.iter().copied().filter(|word| is_told.contains(word)).collect();
        assert_eq!(told, self.told, "what was acknowledged is there once, in its order");
        found.retain(|word| !is_told.contains(word));
        let all = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), all, "what nobody was told of is there once at most");
        assert!(found.iter().all(|word| self.untold.contains(word)), "{found:?}");
    }
}

/// Sends both requests, and gives what came of each.
fn write(client: &mut Client, key: &str, word: u64) -> [io::Result<Value>; 2] {
    let sent = client
        .send_request(&["INCR", &format!("n:{key}")])
        .and_then(|()| client.send_request(&["APPEND", &format!("a:{key}"), &format!("{word};")]));
    [(); 2].map(|()| match &sent {
        Ok(()) => client.read_value(),
        Err(error) => Err(error.kind().into()),
    })
}

/// Writes through whichever proxy answers until it is told to end; gives what it knows of its keys, and how often it was told nothing.
fn write_through(
    proxies: [SocketAddr; 2],
    number: usize,
    (is_over, done): (&AtomicBool, &AtomicU64),
) -> (Vec<Ledger>, usize) {
    let mut ledgers: Vec<Ledger> = (0..KEYS).map(|_| Ledger::default()).collect();
    let (mut at, mut word, mut untold) = (number, 0, 0);
    while !is_over.load(Ordering::Relaxed) {
        at += 1;
        // Who tries without end to reach a port that nobody has is connected to itself some day.
        let Ok(mut client) = Client::connect(proxies[at % 2]) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        client.stream().set_read_timeout(Some(DEADLINE)).unwrap();
        loop {
            word += 1;
            let place = word as usize % KEYS;
            let began = Instant::now();
            let [counted, appended] = write(&mut client, &format!("{number}:{place}"), word);
            assert!(began.elapsed() < DEADLINE, "it was told nothing for {:?}", began.elapsed());
            ledgers[place].note_counted(&counted);
            ledgers[place].note_appended(word, &appended);
            done.fetch_add(1, Ordering::Relaxed);
            for reply in [&counted, &appended] {
                match reply {
                    Ok(Value::Int(_)) => {}
                    Ok(error @ Value::Error(_)) => {
                        untold += 1;
                        println!("client {number}: {}", shown(error));
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => {
                        assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::InvalidData));
                        untold += 1;
                    }
                }
            }
            if is_over.load(Ordering::Relaxed) || appended.is_err() {
                break;
            }
        }
    }
    (ledgers, untold)
}

/// Something happens to one of the proxies, which is there again afterwards.
fn strike(proxies: &mut [Server; 2], (addresses, seeds): ([SocketAddr; 2], &str), prng: &mut Prng) {
    let which = prng.below(2) as usize;
    let port = addresses[which].port().to_string();
    let again = || proxy_of(seeds, &["--port", &port]);
    match prng.below(3) {
        0 => {
            println!("proxy {which} is killed");
            proxies[which].kill();
            proxies[which] = again();
        }
        1 => {
            let time = Duration::from_millis(100 + prng.below(2_900));
            println!("proxy {which} stands still for {time:?}");
            signal(&proxies[which], "-STOP");
            thread::sleep(time);
            signal(&proxies[which], "-CONT");
        }
        _ => {
            println!("proxy {which} is brought down");
            signal(&proxies[which], "-TERM");
            wait_until("it ends", || proxies[which].ended().unwrap().is_some());
            proxies[which] = again();
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_or_done_twice_while_proxies_are_killed_and_stand_still() {
    let budget = Budget::from_env(1, 3);
    let cluster = Cluster::begin(3, 1, &["--edition", "memory"]);
    let seeds: Vec<String> =
        cluster.topology_before().servers.keys().map(|id| cluster.place_of(*id)).collect();
    let seeds = seeds.join(",");
    let mut proxies = [proxy_of(&seeds, &[]), proxy_of(&seeds, &[])];
    let addresses = proxies.each_ref().map(Server::address);
    let (is_over, done, mut prng) = (AtomicBool::new(false), AtomicU64::new(0), Prng::from_seed(budget.seed));
    let written: Vec<(Vec<Ledger>, usize)> = thread::scope(|scope| {
        let (is_over, done) = (&is_over, &done);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || write_through(addresses, number, (is_over, done))))
            .collect();
        // Whatever comes of it: nobody goes on for ever.
        let struck = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut steps = 0;
            while budget.allows(steps) {
                let before = done.load(Ordering::Relaxed);
                wait_until("clients write", || done.load(Ordering::Relaxed) > before + 100);
                thread::sleep(Duration::from_millis(prng.below(300)));
                strike(&mut proxies, (addresses, &seeds), &mut prng);
                steps += 1;
            }
            let before = done.load(Ordering::Relaxed);
            wait_until("clients write", || done.load(Ordering::Relaxed) > before + 100);
        }));
        is_over.store(true, Ordering::Relaxed);
        let written = clients.into_iter().map(|client| client.join().unwrap()).collect();
        if let Err(panic) = struck {
            std::panic::resume_unwind(panic);
        }
        written
    });
    let mut client = Client::connect(addresses[0]).unwrap();
    let mut read = |key: String| match client.call(&["GET", &key]).unwrap() {
        Value::Null => String::new(),
        Value::Bulk(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    for (number, (ledgers, _)) in written.iter().enumerate() {
        for (place, ledger) in ledgers.iter().enumerate() {
            let counter = read(format!("n:{number}:{place}"));
            ledger.check(counter.parse().unwrap_or(0), &read(format!("a:{number}:{place}")));
        }
    }
    let untold: usize = written.iter().map(|(_, untold)| untold).sum();
    println!(
        "{} writes, {untold} of which nobody knows what became of them",
        2 * done.load(Ordering::Relaxed)
    );
}
