//! The servers that are killed and started again, and what each of them promises: how they are started is told in this file alone.
//!
//! A real server beside Tarn keeps the tests honest: what it loses, or does not, is known.

use std::path::Path;
use std::time::Duration;
use testkit::{Client, Program, START_MAX, Server};
use wire::Value;

/// Longest start of a server that moves a key to the disk at each request that meets it.
const EAGER_START_MAX: Duration = Duration::from_secs(300);

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Subject {
    program: Program,
    directives: Vec<String>,
    /// Longest wait for it to accept connections.
    patience: Duration,
}

impl Subject {
    /// Tarn's durable edition: what it has answered is on disk. With short segments, so that there are many.
    pub fn durable_tarn() -> Subject {
        let directives =
            ["--edition", "durable", "--log-segment-size", "1mb", "--enable-debug-command", "yes"];
        Subject::tarn(&directives)
    }

    /// Tarn's capacity edition, with everything on disk that can be. Its starts may take long: each request of the log that
    /// meets a string of 512 MB, as `SETBIT k 4294967295 1` makes it, moves it to the disk once more.
    pub fn capacity_tarn() -> Subject {
        let directives = ["--edition", "capacity", "--maxmemory", "1gb", "--eager-spill", "yes"];
        let subject = Subject::tarn(&[&directives[..], &["--log-segment-size", "1mb"]].concat());
        Subject { patience: EAGER_START_MAX, ..subject }
    }

    /// Tarn's capacity edition with a ceiling: what is above it lies in the store.
    pub fn capacity_tarn_below(ceiling: &str) -> Subject {
        let directives = ["--edition", "capacity", "--maxmemory", ceiling, "--log-segment-size", "8mb"];
        Subject::tarn(&directives)
    }

    /// The same with a ceiling in bytes, short segments and frequent checkpoints.
    pub fn hurried_capacity_tarn_below(ceiling: u64) -> Subject {
        let ceiling = ceiling.to_string();
        let directives = ["--edition", "capacity", "--maxmemory", &ceiling, "--log-segment-size", "1mb"];
        let often = ["--auto-aof-rewrite-min-size", "4mb", "--auto-aof-rewrite-percentage", "25"];
        Subject::tarn(&[&directives[..], &often].concat())
    }

    /// Tarn's durable edition with segments of another length.
    pub fn durable_tarn_with_segments(length: &str) -> Subject {
        Subject::tarn(&["--edition", "durable", "--log-segment-size", length])
    }

    /// Tarn's memory edition, which promises nothing over its end.
    pub fn memory_tarn() -> Subject {
        Subject::tarn(&["--edition", "memory"])
    }

    /// Redis with a log: `fsync` is one of its policies. Under each of them what it has answered survives a kill.
    pub fn redis(fsync: &str) -> Subject {
        // Its log can be damaged by a rewrite for which there is no space.
        let directives =
            ["--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"];
        Subject::new(Program::Redis, &directives)
    }

    /// Redis without a log: it forgets everything.
    pub fn forgetful_redis() -> Subject {
        Subject::new(Program::Redis, &[])
    }

    /// With all its workers serving, whatever the load is: what goes wrong between them is looked for.
    fn tarn(directives: &[&str]) -> Subject {
        Subject::new(crate::tarn(), &[&["--threads-min", "1024"], directives].concat())
    }

    fn new(program: Program, directives: &[&str]) -> Subject {
        let directives = directives.iter().map(|word| (*word).to_owned()).collect();
        Subject { program, directives, patience: START_MAX }
    }

    /// With its files there instead of in a directory that goes with the server.
    pub fn at(mut self, dir: &Path) -> Subject {
        self.directives.extend(["--dir".to_owned(), dir.to_string_lossy().into_owned()]);
        self
    }

    /// Starts it.
    pub fn start(&self) -> Server {
        let directives: Vec<&str> = self.directives.iter().map(String::as_str).collect();
        Server::start_within(self.patience, self.program.clone(), &directives).expect("the server starts")
    }
}

/// Starts a server again on its files, after a kill or by one; a connection to it.
pub fn restart(server: &mut Server) -> Client {
    server.restart().unwrap_or_else(|error| panic!("after a kill: {error}"));
    let mut client = connect(server);
    // Redis 7.0 cuts a torn transaction from its log but for the requests before the tear, which its next EXEC after another
    // restart would run. A log that is written anew has none of them.
    if server.program() == &Program::Redis && server.output().contains("Truncating the AOF") {
        client.call(&["BGREWRITEAOF"]).expect("the server answers");
        let is_done =
            |info: Value| matches!(info, Value::Bulk(text) if has_line(&text, "aof_rewrite_in_progress:0"));
        testkit::ask::wait_until("it is written", || {
            is_done(client.call(&["INFO", "persistence"]).expect("the server answers"))
        });
    }
    client
}

fn has_line(text: &[u8], line: &str) -> bool {
    String::from_utf8_lossy(text).lines().any(|other| other == line)
}

/// A connection to a server that has read its files.
pub fn connect(server: &Server) -> Client {
    server.connect_loaded().expect("the server answers")
}

/// Has the server write its keys anew, in the background. It may still be at it.
pub fn begin_checkpoint(server: &Server) {
    let reply = connect(server).call(&["BGREWRITEAOF"]).expect("the server answers");
    if let Value::Error(text) = reply {
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("already in progress"), "{text}");
    }
}

/// Asks a server to end, and waits until it has.
pub fn stop(server: &mut Server, mut client: Client) {
    // It answers nothing, unless a script is slow.
    testkit::ask::wait_until("it has ended", || {
        let _ = client.call(&["SHUTDOWN"]);
        server.ended().expect("the operating system says").is_some()
    });
}
