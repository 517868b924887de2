//! Servers as processes: started on a free port with a directory of their own,
//! awaited, and ended with their handle.
//!
//! Nothing here sleeps: a start waits for the line that says that the server
//! accepts connections, read by a thread that keeps all of the output.
//!
//! Invariants:
//! 1. Dropping a [`Server`] kills that process, by its own handle, and removes its directory.
//! 2. Servers listen on 127.0.0.1 only.

use crate::ask::PATIENCE;
use crate::client::Client;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for a server to accept connections where nothing else is said; generous, for a loaded machine.
pub const START_MAX: Duration = Duration::from_secs(120);
/// Starts tried when another process takes the free port between finding and using it.
const START_TRIES: usize = 5;
/// What Redis, Valkey and Tarn all print once they can be connected to.
const READY: &str = "Ready to accept connections";

/// A program that is ended after some minutes if it does not end by itself, as one that asks again and again over a connection that is lost: then what waits for
/// it fails, and does not stand still.
pub fn bounded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300"]).arg(program);
    command
}

/// The longest that a process of a test runs whose last words are waited for.
const RUN_MAX: Duration = Duration::from_secs(300);

/// Kills a process that has not come to its end in time: whoever reads what it says, or waits for it, comes to an end then, too. Dropped, it does nothing any more.
#[derive(Debug)]
pub struct Deadline {
    _held: Sender<()>,
}

impl Deadline {
    /// That of a process that has just begun.
    #[must_use]
    pub fn of(child: &Child) -> Deadline {
        let (held, is_dropped) = channel();
        let pid = child.id().to_string();
        std::thread::spawn(move || {
            if is_dropped.recv_timeout(RUN_MAX) == Err(RecvTimeoutError::Timeout) {
                // It may have ended just now.
                let _ = Command::new("kill").args(["-KILL", &pid]).status();
            }
        });
        Deadline { _held: held }
    }
}

/// A program that serves the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// The `tarn` binary at this path.
    Tarn(PathBuf),
    /// The same as a proxy.
    Proxy(PathBuf),
    /// `redis-server`, from the path.
    Redis,
    /// `valkey-server`, from the path.
    Valkey,
}

impl Program {
    /// What a report calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Program::Tarn(_) => "tarn",
            Program::Proxy(_) => "tarn proxy",
            Program::Redis => "redis",
            Program::Valkey => "valkey",
        }
    }

    /// The command line up to the directives that a caller adds.
    fn command(&self, port: u16, dir: &Path) -> Command {
        let mut command = match self {
            Program::Tarn(path) => of_role(path, "server"),
            Program::Proxy(path) => of_role(path, "proxy"),
            Program::Redis => Command::new("redis-server"),
            Program::Valkey => Command::new("valkey-server"),
        };
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(dir);
        if *self == Program::Redis || *self == Program::Valkey {
            command.args(["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]);
        }
        command
    }
}

fn of_role(path: &Path, role: &str) -> Command {
    let mut command = Command::new(path);
    command.arg(role);
    command
}

/// A running server. Ends with its handle.
#[derive(Debug)]
pub struct Server {
    program: Program,
    directives: Vec<String>,
    child: Child,
    address: SocketAddr,
    dir: PathBuf,
    output: Arc<Mutex<String>>,
    /// Longest wait for it to accept connections.
    patience: Duration,
}

impl Server {
    /// Starts `program` with further `directives` (`--name value`) and waits until it accepts connections.
    ///
    /// # Errors
    /// If the program cannot be run or does not come up; the error carries what it printed.
    pub fn start(program: Program, directives: &[&str]) -> io::Result<Server> {
        Server::start_within(START_MAX, program, directives)
    }

    /// The same for one that may take so long, at this start and at every later one, as one with much to load does.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_within(patience: Duration, program: Program, directives: &[&str]) -> io::Result<Server> {
        let directives: Vec<String> = directives.iter().map(|word| (*word).to_owned()).collect();
        let dir = fresh_dir()?;
        let started = spawn_ready(&program, &directives, &dir, patience);
        let (child, address, output) = match started {
            Ok(started) => started,
            Err(error) => {
                let _ = std::fs::remove_dir_all(&dir);
                return Err(error);
            }
        };
        Ok(Server { program, directives, child, address, dir, output, patience })
    }

    /// Ends this process at once, as a power cut would, and starts another in the same directory, on another port.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        (self.child, self.address, self.output) =
            spawn_ready(&self.program, &self.directives, &self.dir, self.patience)?;
        Ok(())
    }

    /// Starts another process in the directory of one that was killed, and kills it after `moment`, ready or not.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub fn start_and_kill(&self, moment: Duration) -> io::Result<()> {
        let mut command = self.program.command(free_port()?, &self.dir);
        command.args(&self.directives).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        // The moment is what this is about; there is no event to wait for.
        std::thread::sleep(moment);
        child.kill()?;
        child.wait().map(|_| ())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The end of what it has printed, and before that the beginning of a panic's message, if there is one.
    pub fn last_lines(&self) -> String {
        const LINES: usize = 25;
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        let panic = lines.iter().position(|line| line.contains("panicked at")).unwrap_or(lines.len());
        let last = &lines[lines.len().saturating_sub(LINES)..];
        [&lines[panic..(panic + 4 * LINES).min(lines.len())], last].concat().join("\n")
    }

    /// Which program it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Its own directory, which goes when it does.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Everything that it has printed so far.
    pub fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it has printed all of this, and gives everything that it has printed by then. What it does is seen before its
    /// log tells of it, and what a process has printed before it ended may not have been read yet.
    ///
    /// # Panics
    /// If it has not for longer than anything takes.
    #[track_caller]
    pub fn await_output(&self, parts: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let output = self.output();
            let Some(missing) = parts.iter().find(|part| !output.contains(**part)) else { return output };
            assert!(begun.elapsed() < PATIENCE, "it has not printed `{missing}`:\n{output}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, or None while it runs.
    ///
    /// # Errors
    /// If the operating system does not say.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// A new connection to it.
    ///
    /// # Errors
    /// If it does not accept one.
    pub fn connect(&self) -> io::Result<Client> {
        Client::connect(self.address)
    }

    /// A new connection to it, once it has read its files.
    ///
    /// # Errors
    /// If it does not accept one, or does not answer.
    pub fn connect_loaded(&self) -> io::Result<Client> {
        Client::connect_loaded(self.address)
    }

    /// Resident memory in bytes, as the operating system counts it.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        resident_bytes(self.pid())
    }

    /// Ends it at once (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Resident memory of a process in bytes, as the operating system counts it.
///
/// # Errors
/// If the process is gone.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = kib.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no VmRSS in /proc"))
}

type Started = (Child, SocketAddr, Arc<Mutex<String>>);

/// Starts the program on a free port, and on another one if that was taken meanwhile.
fn spawn_ready(
    program: &Program,
    directives: &[String],
    dir: &Path,
    patience: Duration,
) -> io::Result<Started> {
    let mut last = io::Error::other("never tried");
    for _ in 0..START_TRIES {
        match spawn_once(program, directives, dir, patience) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
            result => return result,
        }
    }
    Err(last)
}

fn spawn_once(
    program: &Program,
    directives: &[String],
    dir: &Path,
    patience: Duration,
) -> io::Result<Started> {
    let port = free_port()?;
    let mut child = program
        .command(port, dir)
        .args(directives)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.name())))?;
    let output = Arc::new(Mutex::new(String::new()));
    let (ready, is_ready) = channel();
    let streams: [Box<dyn Read + Send>; 2] = [
        Box::new(child.stdout.take().expect("stdout was piped")),
        Box::new(child.stderr.take().expect("stderr was piped")),
    ];
    for stream in streams {
        let (output, ready) = (Arc::clone(&output), ready.clone());
        std::thread::spawn(move || keep_output(stream, &output, &ready));
    }
    drop(ready);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match await_ready(&is_ready, patience) {
        Ok(()) => Ok((child, address, output)),
        Err(kind) => {
            let _ = child.kill();
            let _ = child.wait();
            let printed = output.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let taken = printed.contains("Address already in use");
            let kind = if taken { io::ErrorKind::AddrInUse } else { kind };
            Err(io::Error::new(kind, format!("{} did not start; it printed:\n{printed}", program.name())))
        }
    }
}

/// Waits until a line said READY; fails at once when both streams ended without it.
fn await_ready(is_ready: &Receiver<()>, patience: Duration) -> Result<(), io::ErrorKind> {
    match is_ready.recv_timeout(patience) {
        Ok(()) => Ok(()),
        Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut),
        Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::BrokenPipe),
    }
}

/// Reads a stream to its end, keeping every line, and tells of the one that says READY.
fn keep_output(stream: impl Read, output: &Mutex<String>, ready: &Sender<()>) {
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
        let text = String::from_utf8_lossy(&line);
        output.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        if text.contains(READY) {
            // The receiver is gone once the start is over.
            let _ = ready.send(());
        }
        line.clear();
    }
}

/// A port that nobody listens on now, and that nobody is given who asks for any: below those that Linux takes for connections. No
/// two calls of a process give the same one.
///
/// # Errors
/// If there is none.
pub fn free_port() -> io::Result<u16> {
    const FIRST: u32 = 18_000;
    const COUNT: u32 = 14_000;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Processes begin at different places.
    let begin = std::process::id().wrapping_mul(61) % COUNT;
    for _ in 0..COUNT {
        let number = begin + (NEXT.fetch_add(1, Ordering::Relaxed) % u64::from(COUNT)) as u32;
        let port = (FIRST + number % COUNT) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::from(io::ErrorKind::AddrInUse))
}

/// A new empty directory under the system's temporary one.
pub(crate) fn fresh_dir() -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("tarn-test-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_answers_once_started_and_is_gone_once_dropped() {
        let server = Server::start(Program::Redis, &[]).unwrap();
        let (address, dir) = (server.address(), server.dir().to_owned());
        assert_eq!(server.connect().unwrap().call(&["PING"]).unwrap(), wire::Value::Simple(b"PONG".to_vec()));
        assert!(server.resident_bytes().unwrap() > 0);
        drop(server);
        assert!(Client::connect(address).is_err());
        assert!(!dir.exists());
    }

    #[test]
    fn a_start_is_awaited_for_as_long_as_is_said() {
        let error = Server::start_within(Duration::ZERO, Program::Redis, &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn failed_start_tells_what_the_server_printed() {
        let error = Server::start(Program::Redis, &["--no-such-directive", "x"]).unwrap_err();
        assert!(error.to_string().contains("no-such-directive"), "{error}");
    }
}
