//! A client that owns no keys: it has snapshots and checkpoints written, looks through all keys, and notes the server's figures.

use super::requests::is_steady;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use sys::Prng;
use testkit::Client;
use wire::Value;

/// It pauses for so many milliseconds at most.
const PAUSE_MS_MAX: u64 = 400;

/// What a server has done since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub spilled: u64,
    pub cold_reads: u64,
    pub cleaned: u64,
    pub checkpoints: u64,
    /// Live bytes in the store, the most that were seen.
    pub live_bytes: u64,
}

impl Figures {
    /// As the server has them. Fails if the connection does.
    pub fn ask(client: &mut Client) -> io::Result<Figures> {
        let Value::Bulk(text) = client.call(&["INFO", "everything"])? else {
            panic!("INFO is a bulk string")
        };
        let text = String::from_utf8_lossy(&text);
        let figure = |field: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("INFO has no {field}"))
        };
        Ok(Figures {
            spilled: figure("store_objects_spilled"),
            cold_reads: figure("store_cold_reads"),
            cleaned: figure("store_segments_cleaned"),
            checkpoints: figure("aof_rewrites"),
            live_bytes: figure("store_bytes_live"),
        })
    }

    pub fn add(&mut self, other: Figures) {
        self.spilled += other.spilled;
        self.cold_reads += other.cold_reads;
        self.cleaned += other.cleaned;
        self.checkpoints += other.checkpoints;
        self.live_bytes = self.live_bytes.max(other.live_bytes);
    }
}

/// Whose keys there are: so many of so many clients.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    pub clients: usize,
    pub keys: usize,
}

/// Goes about it `while_running`, and tells `note` of the figures. Fails if the connection does.
pub fn visit(
    address: SocketAddr,
    crowd: Crowd,
    prng: &mut Prng,
    while_running: impl Fn() -> bool,
    mut note: impl FnMut(Figures),
) -> io::Result<()> {
    let mut client = Client::connect(address)?;
    while while_running() {
        note(Figures::ask(&mut client)?);
        match prng.below(12) {
            0..3 => look_through(&mut client, crowd, &while_running)?,
            3 => begin(&mut client, "BGSAVE")?,
            4..6 => begin(&mut client, "BGREWRITEAOF")?,
            6 => count(&mut client, crowd)?,
            _ => {}
        }
        // What it does is spread over time; there is no event to wait for.
        std::thread::sleep(Duration::from_millis(prng.below(PAUSE_MS_MAX)));
    }
    Ok(())
}

fn begin(client: &mut Client, what: &str) -> io::Result<()> {
    match client.call(&[what])? {
        Value::Error(text) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(text.contains("in progress"), "{what}: {text}");
        }
        reply => assert!(matches!(reply, Value::Simple(_)), "{what}: {reply:?}"),
    }
    Ok(())
}

fn count(client: &mut Client, crowd: Crowd) -> io::Result<()> {
    let steady = (0..crowd.keys).filter(|number| is_steady(*number)).count() * crowd.clients;
    let reply = client.call(&["DBSIZE"])?;
    let limits = steady as i64..=(crowd.clients * crowd.keys) as i64;
    assert!(
        matches!(reply, Value::Int(count) if limits.contains(&count)),
        "DBSIZE {reply:?}, not in {limits:?}"
    );
    Ok(())
}

/// SCAN from its beginning to its end: every steady key once, and none that nobody has.
fn look_through(client: &mut Client, crowd: Crowd, while_running: impl Fn() -> bool) -> io::Result<()> {
    let mut seen = vec![0u8; crowd.clients * crowd.keys];
    let mut cursor = b"0".to_vec();
    loop {
        let Value::Array(reply) = client.call(&[&b"SCAN"[..], &cursor, b"COUNT", b"500"])? else {
            panic!("SCAN answers an array")
        };
        let [Value::Bulk(next), Value::Array(keys)] = &reply[..] else { panic!("SCAN: {reply:?}") };
        for key in keys {
            let Value::Bulk(key) = key else { panic!("SCAN: {key:?}") };
            seen[place(crowd, &String::from_utf8_lossy(key))] += 1;
        }
        cursor.clone_from(next);
        if cursor == b"0" {
            break;
        }
        if !while_running() {
            return Ok(());
        }
    }
    for (at, count) in seen.iter().enumerate() {
        let (owner, number) = (at / crowd.keys, at % crowd.keys);
        assert!(
            !is_steady(number) || *count == 1,
            "SCAN had c{owner}:{number} {count} times, and it is always there"
        );
    }
    Ok(())
}

fn place(crowd: Crowd, key: &str) -> usize {
    let parts = key.strip_prefix('c').and_then(|rest| rest.split_once(':'));
    let numbers =
        parts.and_then(|(owner, number)| Some((owner.parse::<usize>().ok()?, number.parse::<usize>().ok()?)));
    match numbers {
        Some((owner, number)) if owner < crowd.clients && number < crowd.keys => owner * crowd.keys + number,
        _ => panic!("SCAN had '{key}', which nobody has written"),
    }
}
