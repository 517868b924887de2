//! A watch in etcd: a request whose answer is a line for each thing that happens, read by a thread of its own.

use super::forms::{self, Range, Watched, encoded, end_of};
use super::gateway::Gateway;
use super::senseless;
use crate::store::{Changed, Revision, Seen, Unavailable, Watch};
use serde_json::json;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use ureq::BodyReader;

/// Lines that may wait to be looked at.
const LINES_MAX: usize = 64;
/// The longest line.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// How long a watch may take to begin.
const BEGINNING: Duration = Duration::from_secs(1);
/// How often a quiet watch is compared with what is read.
const COMPARING: Duration = Duration::from_secs(1);
/// How long a watch may be behind what was read.
const BEHIND: Duration = Duration::from_millis(500);

/// A line, or that there are no more.
type Line = Result<Vec<u8>, String>;

/// The watch.
pub struct Watching {
    gateway: Arc<Gateway>,
    prefix: String,
    after: Revision,
    /// The member that tells.
    member: String,
    lines: Receiver<Line>,
    /// What was seen and not told yet.
    ahead: VecDeque<(Revision, Vec<Changed>)>,
    /// When it was last known that nothing is missing.
    compared: Instant,
    /// A revision that it has to have seen by then.
    expects: Option<(Revision, Instant)>,
}

impl Watching {
    pub fn begin(gateway: &Arc<Gateway>, prefix: &str, after: Revision) -> Result<Watching, Unavailable> {
        let (member, lines) = open(gateway, prefix, after)?;
        let mut watching = Watching {
            gateway: gateway.clone(),
            prefix: prefix.to_owned(),
            after,
            member,
            lines,
            ahead: VecDeque::new(),
            compared: Instant::now(),
            expects: None,
        };
        watching.await_beginning()?;
        Ok(watching)
    }

    fn await_beginning(&mut self) -> Result<(), Unavailable> {
        match self.lines.recv_timeout(BEGINNING) {
            Ok(Ok(line)) => match forms::watched(&line) {
                Some(Watched::Begun) => Ok(()),
                Some(Watched::Over(why)) => Err(Unavailable(why)),
                // It says so again.
                Some(Watched::Compacted) => {
                    self.lines = said(line);
                    Ok(())
                }
                Some(Watched::Changes(_)) | None => Err(senseless()),
            },
            Ok(Err(why)) => Err(Unavailable(why)),
            Err(_) => {
                self.gateway.turn();
                Err(Unavailable("a watch does not begin".to_owned()))
            }
        }
    }

    fn take(&mut self, line: &[u8]) -> Result<Option<Seen>, Unavailable> {
        match forms::watched(line) {
            Some(Watched::Begun) => Ok(None),
            Some(Watched::Compacted) => Ok(Some(Seen::Compacted)),
            Some(Watched::Over(why)) => Err(Unavailable(why)),
            Some(Watched::Changes(changes)) => {
                // Each once, however often it is told.
                self.ahead.extend(changes.into_iter().filter(|(revision, _)| *revision > self.after));
                Ok(None)
            }
            None => Err(senseless()),
        }
    }

    fn next_ahead(&mut self) -> Option<Seen> {
        let (revision, changed) = self.ahead.pop_front()?;
        self.after = self.after.max(revision);
        if self.expects.is_some_and(|(expected, _)| expected <= self.after) {
            self.expects = None;
        }
        Some(Seen::Changes { revision, changed })
    }

    /// Looks whether something has happened that the watch does not tell. Whether etcd has gone back behind what was seen: all of its members have earlier data, and what they will
    /// tell next follows from that.
    fn compare(&mut self) -> Result<bool, Unavailable> {
        if let Some((_, by)) = self.expects
            && Instant::now() >= by
        {
            self.gateway.turn();
            return Err(Unavailable("a member of etcd does not tell what has changed".to_owned()));
        }
        if self.expects.is_some() || self.compared.elapsed() < COMPARING {
            return Ok(false);
        }
        let answer = self.gateway.ask("/v3/kv/range", &Range::later(&self.prefix, self.after).to_json())?;
        let reading = forms::reading(&answer).ok_or_else(senseless)?;
        if reading.revision < self.after {
            return Ok(true);
        }
        self.compared = Instant::now();
        self.expects = reading.entries.first().map(|entry| (entry.revision, Instant::now() + BEHIND));
        // What is gone is not read, so it is heard of from a member that answers only.
        if !self.gateway.is_first(&self.member) {
            self.open_again()?;
        }
        Ok(false)
    }

    fn open_again(&mut self) -> Result<(), Unavailable> {
        (self.member, self.lines) = open(&self.gateway, &self.prefix, self.after)?;
        Ok(())
    }
}

impl Watch for Watching {
    fn next(&mut self, patience: Duration) -> Result<Seen, Unavailable> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(seen) = self.next_ahead() {
                return Ok(seen);
            }
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Ok(line)) => {
                    if let Some(seen) = self.take(&line)? {
                        return Ok(seen);
                    }
                }
                Ok(Err(why)) => return Err(Unavailable(why)),
                Err(RecvTimeoutError::Timeout) => {
                    return Ok(if self.compare()? { Seen::Compacted } else { Seen::Quiet });
                }
                // It was read for long enough from one member.
                Err(RecvTimeoutError::Disconnected) => self.open_again()?,
            }
        }
    }
}

/// One line that was read already.
fn said(line: Vec<u8>) -> Receiver<Line> {
    let (say, lines) = sync_channel(1);
    // There is room for one.
    let _ = say.send(Ok(line));
    lines
}

fn open(gateway: &Gateway, prefix: &str, after: Revision) -> Result<(String, Receiver<Line>), Unavailable> {
    let form = json!({ "create_request": {
        "key": encoded(prefix),
        "range_end": end_of(prefix),
        "start_revision": (after.0 + 1).to_string(),
    } });
    let (member, answer) = gateway.open("/v3/watch", &form)?;
    let (say, lines) = sync_channel(LINES_MAX);
    let reader = BufReader::new(answer.into_body().into_reader());
    std::thread::Builder::new()
        .name("etcd-watch".to_owned())
        .spawn(move || read(reader, &say))
        .map_err(|error| Unavailable(format!("cannot begin a thread: {error}")))?;
    Ok((member, lines))
}

/// Reads lines until there are no more, or nobody wants them.
fn read(mut from: BufReader<BodyReader<'static>>, say: &SyncSender<Line>) {
    loop {
        let mut line = Vec::new();
        let read = from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let said = match read {
            Ok(0) => return,
            Ok(_) if line.ends_with(b"\n") => Ok(line),
            Ok(_) => Err("a line of a watch does not end".to_owned()),
            Err(error) if is_time_over(&error) => return,
            Err(error) => Err(format!("a watch has broken off: {error}")),
        };
        let is_last = said.is_err();
        if say.send(said).is_err() || is_last {
            return;
        }
    }
}

/// Whether it was read for as long as it may be.
fn is_time_over(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    matches!(inner, Some(ureq::Error::Timeout(_))) || error.kind() == std::io::ErrorKind::TimedOut
}
