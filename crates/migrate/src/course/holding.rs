//! Writers that wait at the sources while an import ends: they are told so again and again, for a while each time, so that they go on by themselves
//! if this process is gone.
//!
//! Thread rule: a thread of its own, which ends with the handle.

use crate::connection::{Connection, shown};
use crate::ending::{Ending, stopped};
use crate::place::{Entry, Place};
use crate::screen::say;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::Value;

/// What the thread is told.
enum Word {
    /// Tell them again now, and say whether all of them wait, and are at these places.
    Now(Vec<Place>, Sender<bool>),
    /// They go on.
    Release,
    /// Tell them once more, and no more.
    End,
}

/// Writers that wait, or that are not to.
pub struct Holding {
    /// How often they were found not to wait, or could not be told again in time.
    breaks: Arc<AtomicU64>,
    /// None: nobody was told to. The thread says whether they waited when they were told last.
    thread: Option<(Sender<Word>, JoinHandle<bool>)>,
}

impl Holding {
    /// Has the writers of these sources wait, so long each time; for no time they are left alone. Where a source does not let them be told it is said.
    ///
    /// # Errors
    /// One of them is no master, or cannot be told now: its writers go on, here or elsewhere.
    pub fn begin(places: Vec<Place>, entry: &Entry, span: Duration) -> Result<Holding, Ending> {
        let breaks = Arc::new(AtomicU64::new(0));
        if span.is_zero() {
            return Ok(Holding { breaks, thread: None });
        }
        let mut sources: Vec<Held> =
            places.into_iter().map(|place| Held::new(place, entry.clone())).collect();
        for at in 0..sources.len() {
            let Err(untold) = sources[at].hold(span) else { continue };
            // Nobody waits for what is not held as a whole.
            release(&mut sources[..=at]);
            if !untold.is_refused {
                return stopped(untold.why);
            }
            say(&format!("{}: writers are not held, and have to have stopped", untold.why));
            return Ok(Holding { breaks, thread: None });
        }
        let (tell, words) = channel();
        let shared = breaks.clone();
        let run = move || renew(&mut sources, span, &words, &shared);
        match std::thread::Builder::new().name("holding".to_owned()).spawn(run) {
            Ok(thread) => Ok(Holding { breaks, thread: Some((tell, thread)) }),
            Err(error) => stopped(format!("no thread can be begun: {error}")),
        }
    }

    /// Whether all of them wait.
    pub fn is_held(&self) -> bool {
        self.thread.is_some()
    }

    /// Whether they have waited all the time, as far as they were ever told to.
    pub fn has_held(&self) -> bool {
        self.breaks.load(Ordering::Relaxed) == 0
    }

    /// Tells them again now. Whether they wait, and are the masters at these places still, as far as they were ever told to.
    pub fn holds_now(&self, places: Vec<Place>) -> bool {
        let Some((words, _)) = &self.thread else { return true };
        let (tell, told) = channel();
        // Who does not hear it does not answer.
        let _ = words.send(Word::Now(places, tell));
        told.recv().unwrap_or(false)
    }

    /// They are told once more, and wait on for a while. Whether they were ever told to.
    ///
    /// # Errors
    /// They have not waited all the time until now.
    pub fn end(mut self) -> Result<bool, Ending> {
        if !self.is_held() {
            return Ok(false);
        }
        let is_told = self.finish(Word::End);
        match is_told && self.has_held() {
            true => Ok(true),
            false => stopped(
                "the import is whole up to the cut-over, but writers may have gone on at the source: have clients leave it, and look for what they wrote there",
            ),
        }
    }

    /// They go on.
    pub fn release(mut self) {
        if self.thread.is_some() {
            self.finish(Word::Release);
            say("writers go on at the source");
        }
    }

    fn finish(&mut self, word: Word) -> bool {
        let Some((words, thread)) = self.thread.take() else { return false };
        // It may have ended.
        let _ = words.send(word);
        thread.join().unwrap_or(false)
    }
}

/// Tells them again in time, until it is over.
fn renew(sources: &mut [Held], span: Duration, words: &Receiver<Word>, breaks: &AtomicU64) -> bool {
    loop {
        match words.recv_timeout(span / 4) {
            Err(RecvTimeoutError::Timeout) => drop(tell_all(sources, span, breaks)),
            Ok(Word::Now(places, tell)) => {
                let is_told = tell_all(sources, span, breaks);
                // Nobody may be waiting any more.
                let _ = tell.send(is_told && sources.iter().map(|source| &source.place).eq(&places));
            }
            Ok(Word::Release) => {
                release(sources);
                return false;
            }
            Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => return tell_all(sources, span, breaks),
        }
    }
}

/// Tells all of them again, whatever one says. Whether they waited until then, and do.
fn tell_all(sources: &mut [Held], span: Duration, breaks: &AtomicU64) -> bool {
    let untold = sources.iter_mut().filter_map(|source| source.hold(span).err()).count();
    // The first one's writers may have waited long enough while the last one was told.
    let is_told = untold == 0 && sources.iter().all(|source| source.is_told_for(span));
    if !is_told {
        breaks.fetch_add(1, Ordering::Relaxed);
    }
    is_told
}

fn release(sources: &mut [Held]) {
    for source in sources {
        // Who cannot be told goes on by itself before long.
        let _ = source.tell("CLIENT UNPAUSE");
    }
}

/// A source.
struct Held {
    place: Place,
    entry: Entry,
    connection: Option<Connection>,
    /// When it was told last, and has heard it.
    told: Option<Instant>,
}

/// Why its writers are not held.
struct Untold {
    why: String,
    /// The source does not let this user say it, or does not know how: that does not pass.
    is_refused: bool,
}

impl Untold {
    fn new(why: String) -> Untold {
        Untold { why, is_refused: false }
    }
}

/// Whether an error says that a command is not known, or not let this user have.
fn is_refusal(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line).to_lowercase();
    let is_unknown = ["unknown", "syntax", "wrong number"].iter().any(|word| line.contains(word));
    line.starts_with("noperm ") || (line.starts_with("err ") && is_unknown)
}

impl Held {
    fn new(place: Place, entry: Entry) -> Held {
        Held { place, entry, connection: None, told: None }
    }

    /// Has its writers wait. They are its own only if it is master when they do.
    fn hold(&mut self, span: Duration) -> Result<(), Untold> {
        let now = Instant::now();
        self.tell(&format!("CLIENT PAUSE {} WRITE", span.as_millis()))?;
        let before = self.told.replace(now);
        if before.is_some_and(|before| before.elapsed() > span) {
            let why = format!("the source {} was told to hold its writers again too late", self.place);
            return Err(Untold::new(why));
        }
        match self.role().as_deref() {
            Some("master") => Ok(()),
            Some(_) => Err(Untold::new(no_master(&self.place))),
            None => {
                let why = format!("the source {} does not say whether it is a master", self.place);
                Err(Untold::new(why))
            }
        }
    }

    /// Whether its writers still wait by what it was told last.
    fn is_told_for(&self, span: Duration) -> bool {
        self.told.is_some_and(|told| told.elapsed() < span)
    }

    fn role(&mut self) -> Option<String> {
        let connection = self.connection.as_mut()?;
        connection.field("replication", "role", &mut || Ok(())).ok().flatten()
    }

    fn tell(&mut self, line: &str) -> Result<(), Untold> {
        let asked = self.ask(line);
        if asked.is_err() {
            self.connection = None;
        }
        match asked {
            Ok(Value::Error(line)) => {
                let why = format!("the source {}: {}", self.place, shown(&line));
                Err(Untold { why, is_refused: is_refusal(&line) })
            }
            Ok(_) => Ok(()),
            Err(error) => {
                Err(Untold::new(format!("the source {}: {}", self.place, config::sentence(&error))))
            }
        }
    }

    fn ask(&mut self, line: &str) -> io::Result<Value> {
        let mut look = || Ok(());
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.place, &self.entry, &mut look)?,
        };
        let value = connection.ask_line(line, &mut look)?;
        self.connection = Some(connection);
        Ok(value)
    }
}

/// What a source is told to be that clients do not write to any more.
pub fn no_master(place: &Place) -> String {
    format!(
        "the source {place} is no master any more: clients write elsewhere. The same command, from who is, goes on if it has the stream"
    )
}

#[cfg(test)]
mod tests {
    use super::is_refusal;

    #[test]
    fn what_passes_does_not_have_writers_left_alone() {
        for line in [
            "NOPERM this user has no permissions to run the 'client|pause' command",
            "ERR unknown command 'CLIENT'",
            "ERR Unknown subcommand or wrong number of arguments for 'PAUSE'",
            "ERR syntax error",
        ] {
            assert!(is_refusal(line.as_bytes()), "{line}");
        }
        assert!(!is_refusal(b"LOADING it loads") && !is_refusal(b"BUSY a script of unknown length runs"));
    }
}
