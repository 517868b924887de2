//! The thread that watches the store: it reads all, then follows, and begins again where the watch breaks off.

use super::desk::{Desk, Letter, News};
use crate::control::Event;
use crate::store::{Revision, Seen, Store, Unavailable};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use telemetry::log;
use tokio::sync::mpsc;

/// How long a watch may be quiet before it is looked whether it is still wanted.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(200);

/// Begins to watch.
pub fn begin(desk: &Rc<Desk>) -> std::io::Result<()> {
    let watcher = Watcher {
        store: desk.store.clone(),
        prefix: desk.settings.control.prefix.clone(),
        letters: desk.letters.clone(),
        news: desk.news.clone(),
    };
    std::thread::Builder::new().name("store-watch".to_owned()).spawn(move || watcher.run()).map(drop)
}

struct Watcher {
    store: Arc<dyn Store>,
    prefix: String,
    letters: mpsc::Sender<Letter>,
    news: Arc<News>,
}

/// Nobody wants to know any more.
struct Over;

impl Watcher {
    fn run(self) {
        let mut seen = None;
        while !self.letters.is_closed() {
            match self.follow(&mut seen) {
                Err(Over) => return,
                Ok(Unavailable(why)) => self.failed(why),
            }
            std::thread::sleep(RETRY);
        }
    }

    fn say(&self, event: Event) -> Result<(), Over> {
        self.letters.blocking_send(Letter::Happened(event)).map_err(|_| Over)
    }

    /// The store stops to answer.
    fn failed(&self, why: String) {
        if self.news.failed(why.clone()) {
            log!(Warning, "The store of decisions ({}) gives no answer: {why}", self.store.place());
        }
    }

    /// It has answered.
    fn heard(&self) {
        if self.news.came() {
            log!(Notice, "The store of decisions ({}) answers again", self.store.place());
        }
    }

    /// What is read anew may be older than what was seen.
    fn compare(&self, before: Option<Revision>, now: Revision) {
        if let Some(before) = before.filter(|before| now < *before) {
            log!(
                Warning,
                "The store of decisions ({}) was at revision {} and is at {} now: it was restored from a backup, and servers that know more take nothing from it",
                self.store.place(),
                before.0,
                now.0
            );
        }
    }

    /// Follows the store until it does not answer; from `seen` on, if something was seen.
    fn follow(&self, seen: &mut Option<Revision>) -> Result<Unavailable, Over> {
        let mut before = None;
        loop {
            let after = match *seen {
                Some(after) => after,
                None => match self.store.read(&self.prefix) {
                    Err(why) => return Ok(why),
                    Ok(reading) => {
                        let revision = reading.revision;
                        self.heard();
                        self.compare(before, revision);
                        self.say(Event::Read(reading))?;
                        revision
                    }
                },
            };
            *seen = Some(after);
            let mut watch = match self.store.watch(&self.prefix, after) {
                Err(why) => return Ok(why),
                Ok(watch) => watch,
            };
            loop {
                match watch.next(PATIENCE) {
                    Err(why) => return Ok(why),
                    Ok(Seen::Quiet) => self.heard(),
                    Ok(Seen::Changes { revision, changed }) => {
                        self.heard();
                        self.say(Event::Changed { revision, changed })?;
                        *seen = Some(revision);
                    }
                    Ok(Seen::Compacted) => {
                        before = seen.take();
                        break;
                    }
                }
                if self.letters.is_closed() {
                    return Err(Over);
                }
            }
        }
    }
}
