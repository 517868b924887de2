//! A server in this process, on a free port of 127.0.0.1, and a client to it.

use config::{Config, Startup};
use log::{Flushing, Options};
use net::listen::Listeners;
use server::assembly;
use server::durable;
use server::server::Server;
use server::start::run_workers;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::Clock;
use sys::file::Fs;
use sys::file::simulated::Disk;
use wire::{Decoder, Value};

/// Longer than anything here takes, on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct TestServer {
    pub server: Arc<Server>,
    thread: Option<JoinHandle<u8>>,
}

impl TestServer {
    /// Two workers, and these directives of a configuration file.
    pub fn start(directives: &str) -> TestServer {
        TestServer::start_at(Clock::Real, directives)
    }

    /// With a log on a disk of its own, which is written by threads or by hand.
    pub fn start_durable(directives: &str, flushing: Flushing) -> TestServer {
        TestServer::start_after(&format!("dir /nowhere/tarn\n{directives}"), |server| {
            let (fs, options) = (Fs::Simulated(Disk::new(1)), Options { flushing, ..Options::default() });
            durable::open_with(server, &fs, 1, options).unwrap();
        })
    }

    /// With what `open` has loaded.
    pub fn start_after(directives: &str, open: impl FnOnce(&Arc<Server>)) -> TestServer {
        TestServer::start_with(Clock::Real, directives, open)
    }

    pub fn start_at(clock: Clock, directives: &str) -> TestServer {
        TestServer::start_with(clock, directives, |_| {})
    }

    fn start_with(clock: Clock, directives: &str, open: impl FnOnce(&Arc<Server>)) -> TestServer {
        // And the spare one (see `net::placement`).
        const WORKERS: usize = 2;
        let text = format!(
            "port 0\nbind 127.0.0.1\nthreads {WORKERS}\nthreads-min {WORKERS}\nhz 100\nloglevel warning\n{directives}"
        );
        let Ok(Startup::Serve { config, .. }) = Config::from_text(text.as_bytes()) else {
            panic!("{directives}")
        };
        let listeners = Listeners::bind(&config).unwrap();
        server::commands::install();
        let server = assembly::with_clock(*config, WORKERS + 1, clock);
        net::encryption::begin(&server.net.tls, &server.engine.config).unwrap();
        open(&server);
        let running = server.clone();
        let thread =
            std::thread::spawn(move || run_workers(&running, &running, listeners, WORKERS + 1).unwrap());
        let server = TestServer { server, thread: Some(thread) };
        server.wait_until("it listens", || server.server.net.doors.are_watched());
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.server.net.doors.addresses()[0].1
    }

    pub fn connect(&self) -> Peer {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer { stream, decoder: Decoder::new() }
    }

    pub fn set(&self, name: &str, value: &str) {
        self.server.engine.config.set(&[(name, value)], config::Origin::Local).unwrap();
        assembly::follow_config(&self.server);
    }

    pub fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "waited too long until {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the server as SIGTERM does; returns its exit status.
    pub fn stop(mut self) -> u8 {
        self.server.stop(0);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.server.stop(0);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub struct Peer {
    pub stream: TcpStream,
    decoder: Decoder,
}

impl Peer {
    /// Sends lines as inline requests, in one write.
    pub fn send(&mut self, lines: &[&str]) {
        self.stream.write_all((lines.join("\r\n") + "\r\n").as_bytes()).unwrap();
    }

    /// Sends one request of these words.
    pub fn send_words(&mut self, words: &[&str]) {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut bytes = Vec::new();
        wire::encode_request(&mut bytes, &words);
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next reply, or None at the end of the stream.
    pub fn reply(&mut self) -> Option<Value> {
        let mut bytes = [0; 64 << 10];
        loop {
            if let Some(value) = self.decoder.decode().unwrap() {
                return Some(value);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.decoder.feed(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends one request and returns its reply as text: the text of simple strings and
    /// errors, the content of bulk strings, numbers.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(&[line]);
        self.text()
    }

    pub fn text(&mut self) -> String {
        match self.reply() {
            None => "END".to_owned(),
            Some(Value::Simple(text) | Value::Error(text) | Value::Bulk(text) | Value::Verbatim(_, text)) => {
                String::from_utf8_lossy(&text).into_owned()
            }
            Some(Value::Int(number)) => number.to_string(),
            Some(Value::Null | Value::NullArray) => "NULL".to_owned(),
            Some(other) => format!("{other:?}"),
        }
    }

    /// The texts of so many replies.
    pub fn texts(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.text()).collect()
    }

    pub fn id(&mut self) -> u64 {
        self.ask("CLIENT ID").parse().unwrap()
    }

    /// A field of the client's own line.
    pub fn field(&mut self, name: &str) -> String {
        let line = self.ask("CLIENT INFO");
        let value = line.split_whitespace().find_map(|word| word.strip_prefix(&format!("{name}=")));
        value.expect(name).to_owned()
    }

    /// Sends nothing more, and still reads.
    pub fn half_close(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Whether nothing comes for a short while.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut byte = [0];
        let silent = self.decoder.buffered_bytes() == 0
            && matches!(self.stream.peek(&mut byte), Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        silent
    }
}
