//! Servers that a run starts: on a free port, in a folder of their own, stopped and cleaned away afterwards.
//!
//! Invariants: 1. A server that was started is stopped when its [`Launched`] is dropped, with all that it started. 2. Ctrl-C
//! at the terminal does not reach it, so that the run can end in order. 3. What it printed is kept until then, for
//! the sentence that says why it failed.

use super::edition::Edition;
use crate::Failure;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take until it has read its files and answers.
const START_MAX: Duration = Duration::from_secs(30);
/// How long it may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(5);
/// How long it may take to answer whether it is ready.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How the answer of a server begins that still reads its files.
const LOADING: &[u8; 9] = b"-LOADING ";
const POLL: Duration = Duration::from_millis(20);
/// By so much the port of a Redis Cluster's bus is beyond that of its clients.
const BUS_PORT_BEYOND: u16 = 10_000;
/// How many ports are looked at to find one.
const PORTS_TRIED: usize = 100;
/// Letters of a server's output that fit into a sentence.
const OUTPUT_LETTERS: usize = 300;

/// A server that the run started.
pub struct Launched {
    child: Child,
    /// Its working folder, removed with it.
    folder: TempDir,
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    /// The command line that started it.
    pub command: String,
}

impl Launched {
    /// Starts Tarn itself: this very program with default settings but these, each with a blank before it, its files in a new
    /// folder in the one given.
    ///
    /// # Errors
    /// It does not start, with what it printed.
    pub fn tarn(name: &str, edition: Edition, settings: &str, within: &Path) -> Result<Launched, Failure> {
        let program = own_program()?;
        let edition = edition.name();
        Launched::start(name, within, |port| {
            let begin = format!("server --edition {edition}{settings} --port {port} --save");
            let mut command = Command::new(&program);
            command.args(begin.split(' ')).args(["", "--dir", "."]);
            (command, format!("tarn {begin} '' --dir ."))
        })
    }

    /// Starts a command line of the shell, in which `{port}` stands for the port.
    ///
    /// # Errors
    /// As [`Launched::tarn`].
    pub fn shell(name: &str, template: &str, within: &Path) -> Result<Launched, Failure> {
        Launched::start(name, within, |port| {
            let line = template.replace("{port}", &port.to_string());
            let mut command = Command::new("sh");
            command.arg("-c").arg(&line);
            (command, line)
        })
    }

    /// Starts a config server of a cluster, with settings of which each has a blank before it.
    ///
    /// # Errors
    /// As [`Launched::tarn`].
    pub fn config_server(name: &str, settings: &str, within: &Path) -> Result<Launched, Failure> {
        let name = format!("The config server of {name}");
        Launched::role(&name, "config --store dir:store", settings, within)
    }

    /// Starts a proxy of Tarn's, with settings of which each has a blank before it.
    ///
    /// # Errors
    /// As [`Launched::tarn`].
    pub fn proxy(name: &str, settings: &str, within: &Path) -> Result<Launched, Failure> {
        Launched::role(name, "proxy", settings, within)
    }

    /// Starts this very program in a role.
    fn role(name: &str, role: &str, settings: &str, within: &Path) -> Result<Launched, Failure> {
        let program = own_program()?;
        Launched::start(name, within, |port| {
            let line = format!("{role} --port {port}{settings}");
            let mut command = Command::new(&program);
            command.args(line.split(' '));
            (command, format!("tarn {line}"))
        })
    }

    /// The number of the process that was started: a shell that has not become its command is another one than the server's.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process group of what was started.
    pub fn group(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Kills it and all that it started.
    pub fn kill(&self) {
        if let Some(group) = self.group() {
            // It may have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    fn start(
        name: &str,
        within: &Path,
        command: impl Fn(u16) -> (Command, String),
    ) -> Result<Launched, Failure> {
        let said = |error: io::Error| Failure(format!("{name} cannot be started: {error}."));
        let folder = tempfile::Builder::new().prefix("tarn-whitepaper-").tempdir_in(within).map_err(said)?;
        let port = free_port().map_err(said)?;
        let (mut command, line) = command(port);
        let output = File::create(folder.path().join("output")).map_err(said)?;
        let child = command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(said)?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .map_err(said)?;
        let mut launched = Launched { child, folder, port, command: line };
        launched.wait_until_ready(name)?;
        Ok(launched)
    }

    fn wait_until_ready(&mut self, name: &str) -> Result<(), Failure> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return Err(Failure(format!("{name} ended at once ({status}){}", self.last_words())));
            }
            if is_ready(self.port) {
                return Ok(());
            }
            if began.elapsed() > START_MAX {
                let waited = START_MAX.as_secs();
                return Err(Failure(format!(
                    "{name} does not answer on port {} after {waited} s{}",
                    self.port,
                    self.last_words()
                )));
            }
            std::thread::sleep(POLL);
        }
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The end of what it printed, as the end of a sentence.
    pub fn last_words(&self) -> String {
        last_words(self.folder.path())
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        let Some(group) = self.group() else { return };
        // The group may be gone already; there is nothing more to do then.
        let _ = kill_process_group(group, Signal::TERM);
        let began = Instant::now();
        while self.ended().is_none() && began.elapsed() < STOP_MAX {
            std::thread::sleep(POLL);
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Whether a server answers, with anything but that it is loading: a durable one reads its folder first, even an empty one.
fn is_ready(port: u16) -> bool {
    let asked = || -> io::Result<bool> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        // Spelt out, since twemproxy takes no words in a line.
        stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
        let mut answer = [0; LOADING.len()];
        stream.read_exact(&mut answer[..1])?;
        // Only an error is worth reading on; +PONG is shorter than what is compared with.
        if answer[0] == LOADING[0] {
            stream.read_exact(&mut answer[1..])?;
        }
        Ok(answer != *LOADING)
    };
    asked().unwrap_or(false)
}

fn last_words(folder: &Path) -> String {
    let output = fs::read(folder.join("output")).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let end = lines[lines.len().saturating_sub(2)..].join(" / ");
    match end.chars().count() {
        0 => ".".to_owned(),
        letters => {
            let tail: String = end.chars().skip(letters.saturating_sub(OUTPUT_LETTERS)).collect();
            format!("; its last words: {tail}")
        }
    }
}

fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure(format!("This program cannot find itself to start a server: {error}.")))
}

/// A port of which the one that a Redis Cluster uses beside it is free, too.
fn free_port() -> io::Result<u16> {
    let mut last = io::Error::other("no port is free that has another free one beside it");
    for _ in 0..PORTS_TRIED {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let Some(beside) = port.checked_add(BUS_PORT_BEYOND) else { continue };
        match TcpListener::bind((Ipv4Addr::LOCALHOST, beside)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}
