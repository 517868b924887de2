//! A server that nobody asks anything does next to nothing: its threads wake up at most ten times a second, in every edition,
//! with a few keys or with memory full, with keys that expire some day and after there was much to do.

use crate::tarn;
use std::time::{Duration, Instant};
use testkit::{Client, Server};

/// How often a thread may wake up in a second, all threads together.
const WAKE_UPS_MAX: f64 = 10.0;

/// How often the threads of a process have given up their processor by themselves, which each does once a wake-up.
fn wake_ups(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_task = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line =
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().to_owned();
        line.parse::<u64>().ok()
    };
    tasks.filter_map(|task| of_task(task.unwrap())).sum()
}

/// Waits until a server rests, and fails if it does not.
fn rests(server: &Server, when: &str) {
    let deadline = Instant::now() + Duration::from_secs(240);
    let mut seen = Vec::new();
    while Instant::now() < deadline {
        let (began, before) = (Instant::now(), wake_ups(server.pid()));
        // What is counted is what happens in a while: there is no event that says that nothing does.
        std::thread::sleep(Duration::from_secs(3));
        let rate = (wake_ups(server.pid()) - before) as f64 / began.elapsed().as_secs_f64();
        if rate <= WAKE_UPS_MAX {
            return;
        }
        seen.push(rate);
    }
    panic!("{when}: {seen:?} wake-ups a second");
}

fn fill(client: &mut Client, from: usize, to: usize) {
    let value = "v".repeat(1000);
    let request = |number: usize| {
        let ttl = if number.is_multiple_of(2) { "100000" } else { "200000" };
        ["SET", &format!("key:{number}"), &value, "EX", ttl].map(str::to_owned).to_vec()
    };
    for first in (from..to).step_by(1000) {
        client.pipeline(&(first..first + 1000).map(request).collect::<Vec<_>>()).unwrap();
    }
}

fn rests_in_every_state(directives: &[&str]) {
    let server = Server::start(tarn(), &[directives, &["--threads", "4"]].concat()).unwrap();
    rests(&server, "fresh");
    let mut client = server.connect().unwrap();
    fill(&mut client, 0, 20_000);
    client.call(&["SET", "soon", "x", "PX", "300"]).unwrap();
    rests(&server, "filled");
    assert_eq!(client.call(&["DBSIZE"]).unwrap(), wire::Value::Int(20_000), "what was due is gone");
}

#[test]
fn an_idle_memory_edition_rests() {
    rests_in_every_state(&["--edition", "memory"]);
}

#[test]
fn an_idle_durable_edition_rests() {
    rests_in_every_state(&["--edition", "durable"]);
}

#[test]
fn an_idle_capacity_edition_rests() {
    rests_in_every_state(&["--edition", "capacity", "--maxmemory", "64mb"]);
    // More than fits.
    rests_in_every_state(&["--edition", "capacity", "--maxmemory", "16mb"]);
}
