//! The children of `tarn cluster up`, and those of one before it that was killed itself: each has its number noted, and what it was started with.

use super::LOOKING;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use sys::file::{Appended, Fs};

/// How long a child may take for its end.
const ENDING: Duration = Duration::from_secs(30);
/// The extension of files with children's numbers.
const NUMBER: &str = "pid";
/// The longest of them.
const NUMBER_BYTES_MAX: u64 = 64 << 10;

/// What a child is. Who serves others ends behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The config server.
    Config,
    /// The server at a port.
    Server(u16),
    /// The proxy at a port.
    Proxy(u16),
}

impl Role {
    /// The lower, the earlier it ends.
    fn rank(self) -> u8 {
        match self {
            Role::Proxy(_) => 0,
            Role::Server(_) => 1,
            Role::Config => 2,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, shown: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Config => write!(shown, "the config server"),
            Role::Server(port) => write!(shown, "the server at 127.0.0.1:{port}"),
            Role::Proxy(port) => write!(shown, "the proxy at 127.0.0.1:{port}"),
        }
    }
}

/// A child.
pub struct Part {
    role: Role,
    log: PathBuf,
    child: Child,
    has_ended: bool,
}

impl Part {
    /// Starts one, whose log and number lie beside `place`.
    ///
    /// # Errors
    /// A sentence.
    pub fn begin(role: Role, place: &Path, words: &[String]) -> Result<Part, String> {
        let log = place.with_extension("log");
        let failed = |error: io::Error| format!("{role} cannot be started: {error}");
        let own = std::env::current_exe().map_err(failed)?;
        let child = Command::new(own)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Appended::for_child(&log).map_err(failed)?)
            .stderr(Appended::for_child(&log).map_err(failed)?)
            // Ctrl-C is for this process, which ends them in order.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let part = Part { role, log, child, has_ended: false };
        let left = Left { id: part.child.id(), words: words.to_vec() };
        match Fs::Real.replace(&place.with_extension(NUMBER), &left.to_bytes()) {
            Ok(()) => Ok(part),
            Err(error) => {
                let told = format!("{}: {error}", place.display());
                drop(Parts(vec![part]));
                Err(told)
            }
        }
    }

    /// Whether it has just ended: what is told of it.
    fn end(&mut self) -> Option<String> {
        if self.has_ended {
            return None;
        }
        let status = self.child.try_wait().ok().flatten()?;
        self.has_ended = true;
        Some(format!("{} has ended ({status}); its last words are in {}", self.role, self.log.display()))
    }

    fn signal(&self, signal: Signal) {
        if !self.has_ended {
            send(self.child.id(), signal);
        }
    }
}

/// All children. They end with it.
pub struct Parts(pub Vec<Part>);

impl Parts {
    /// What is to be told of those that have just ended.
    pub fn ended(&mut self) -> Vec<String> {
        self.0.iter_mut().filter_map(Part::end).collect()
    }

    /// Ends the proxy first, and servers before the config server, so that each can still say what it has to.
    pub fn end(&mut self) {
        for rank in 0..=Role::Config.rank() {
            let mut parts: Vec<&mut Part> =
                self.0.iter_mut().filter(|part| part.role.rank() == rank).collect();
            parts.iter().for_each(|part| part.signal(Signal::TERM));
            let begun = Instant::now();
            while parts.iter_mut().any(|part| part.end().is_none() && !part.has_ended) {
                if begun.elapsed() > ENDING {
                    parts.iter().for_each(|part| part.signal(Signal::KILL));
                }
                std::thread::sleep(LOOKING);
            }
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.end();
    }
}

/// Tells a process; it may have ended just now.
fn send(id: u32, signal: Signal) {
    if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process(id, signal);
    }
}

/// A child that was begun, perhaps by another process.
struct Left {
    id: u32,
    words: Vec<String>,
}

impl Left {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.id.to_string().into_bytes();
        for word in &self.words {
            bytes.push(0);
            bytes.extend_from_slice(word.as_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Left> {
        let mut words = bytes.split(|byte| *byte == 0).map(|word| String::from_utf8(word.to_vec()).ok());
        Some(Left { id: words.next()??.parse().ok()?, words: words.collect::<Option<_>>()? })
    }

    /// Whether it runs, and is no other process with its number.
    fn runs(&self) -> bool {
        let path = format!("/proc/{}/cmdline", self.id);
        let Ok(line) = Fs::Real.read(Path::new(&path), NUMBER_BYTES_MAX) else { return false };
        let words = line.split(|byte| *byte == 0).skip(1);
        self.words.iter().map(String::as_bytes).eq(words.take(self.words.len()))
    }
}

/// Ends the children of an `up` that was killed itself, and tells it.
///
/// # Errors
/// A sentence.
pub fn end_left(dir: &Path) -> Result<Vec<String>, String> {
    let about = |error: io::Error| format!("{}: {error}", dir.display());
    let mut left = Vec::new();
    for name in Fs::Real.list(dir).map_err(about)? {
        if Path::new(&name).extension() == Some(OsStr::new(NUMBER)) {
            let bytes = Fs::Real.read(&dir.join(&name), NUMBER_BYTES_MAX).map_err(about)?;
            left.extend(Left::from_bytes(&bytes).filter(Left::runs));
        }
    }
    let told =
        left.iter().map(|left| format!("Process {}, left by an `up` before this one, is ended", left.id));
    let told = told.collect();
    left.iter().for_each(|left| send(left.id, Signal::TERM));
    let begun = Instant::now();
    while left.iter().any(Left::runs) {
        if begun.elapsed() > ENDING {
            left.iter().for_each(|left| send(left.id, Signal::KILL));
        }
        std::thread::sleep(LOOKING);
    }
    Ok(told)
}
