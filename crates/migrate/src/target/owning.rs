//! Whose a target is: what it keeps of each source is changed only by who has looked at it, and who finds another's name there writes no more.
//!
//! Invariants:
//! 1. Of the connections of a source's name one lives at a time, and who makes one ends the others first. So what is read on it is final: nothing of another
//!    process' is under way.
//! 2. Whoever made a connection anew looks whose the target is before anything is written again.
//! 3. Connections of who ends an import have a name of their own, and whoever claims a source's state ends those, too, once it is claimed: who makes one anew
//!    looks whose the target is before it writes.
//! 4. The state is exchanged as it was when it was looked at (WATCH), or looked at again. A proxy cannot do that.

use super::bookmark::{Stage, State, state_key};
use super::{Ender, Ending, Job, Kind, Target, Trouble, Writer, stopped};
use crate::connection::shown;
use std::collections::HashMap;
use std::time::Instant;
use wire::{Value, key_slot};

/// What connections of who ends an import are called.
pub(super) const ENDER: &str = "tarn-migrate-end";
/// The same of who only looks.
pub(super) const LOOKER: &str = "tarn-migrate-look";

/// What a source's state is to be, if anything.
pub type Decide<'d> = &'d mut dyn FnMut(Option<State>) -> Result<Option<State>, Ending>;

/// What ends whoever finds another's name.
pub fn is_anothers<T>() -> Result<T, Ending> {
    stopped("another `tarn migrate` writes to this target")
}

impl Target {
    /// Changes what is kept of a source, if it is still what was decided about.
    ///
    /// # Errors
    /// The decision's, or it is to end.
    pub fn exchange(&mut self, source: &str, decide: Decide<'_>) -> Result<Option<State>, Ending> {
        let key = state_key(source);
        let slot = key_slot(key.as_bytes());
        loop {
            let mut look = Job { keeps_replies: true, writes: false, ..Job::new(0, slot) };
            if self.kind != Kind::Bare {
                look.push(&[b"WATCH", key.as_bytes()]);
            }
            look.push(&[b"GET", key.as_bytes()]);
            self.ask(std::slice::from_mut(&mut look))?;
            let found = match look.replies.pop() {
                Some(Value::Bulk(text)) => State::read(&text),
                Some(Value::Null) => None,
                other => return stopped(format!("the target does not show {key}: {other:?}")),
            };
            let wanted = decide(found)?;
            let text = wanted.as_ref().map(State::text);
            let mut change = Job { keeps_replies: true, writes: false, ..Job::new(0, slot) };
            let words = match &text {
                Some(text) => vec![&b"SET"[..], key.as_bytes(), text.as_bytes()],
                None => vec![&b"DEL"[..], key.as_bytes()],
            };
            if self.kind == Kind::Bare {
                change.push(&words);
                self.ask(std::slice::from_mut(&mut change))?;
                return Ok(wanted);
            }
            [&[&b"MULTI"[..]][..], &words, &[b"EXEC"]].iter().for_each(|words| change.push(words));
            // On another connection it is not watched.
            let watches = self.slots.owner(slot).and_then(|node| self.connections.get(node)?.as_ref());
            if watches.is_some() {
                let turn = self.turn(std::slice::from_mut(&mut change), &[0])?;
                if turn.again.is_empty() && turn.lost.is_empty() {
                    match change.replies.pop() {
                        Some(Value::Array(_)) => return Ok(wanted),
                        Some(Value::Error(line)) => {
                            return stopped(format!("the target refuses to keep {key}: {}", shown(&line)));
                        }
                        // Somebody has changed it meanwhile.
                        _ => {}
                    }
                }
            }
            self.rest()?;
        }
    }

    /// Makes a source's state this process' own. When it returns, nobody else writes for it any more, and nothing of theirs is under way. Gives the
    /// state as it is now.
    ///
    /// # Errors
    /// The decision's, or it is to end.
    pub fn claim(&mut self, source: &str, first: State, decide: Decide<'_>) -> Result<State, Ending> {
        self.claims = true;
        self.write_for(source, first.clone());
        let state = self.exchange(source, decide)?.unwrap_or(first);
        if let Some(writer) = &mut self.writer {
            writer.state = state.clone();
        }
        // Who has made a connection before the state was changed does not know of it.
        self.forget_connections();
        self.meet_all()?;
        self.claims = false;
        Ok(state)
    }

    /// Takes up what this process has claimed, as it is there now.
    ///
    /// # Errors
    /// It is not what was claimed, or the target may have less than that says.
    pub fn adopt(&mut self) -> Result<State, Ending> {
        self.meet_all()?;
        let found = self.read_state()?;
        let Some(Writer { state, .. }) = &self.writer else { return is_anothers() };
        let found = match found {
            Some(found) if found.owner == state.owner && found.copy == state.copy => found,
            Some(_) => return is_anothers(),
            None => return Err(less()),
        };
        // What of a server's stream it has a server says itself.
        let is_followed = self.kind == Kind::Slots && found.stage == Stage::Following;
        if is_followed && !self.runs().is_subset(&found.runs) {
            return Err(Ending::NeedsCopy(
                "a master of the target is not what it was when the import ended, and may have less than it had answered"
                    .to_owned(),
            ));
        }
        if let Some(writer) = &mut self.writer {
            writer.state = found.clone();
        }
        Ok(found)
    }

    /// Sees to it that there is a connection to each master, and that no other process has one.
    pub(super) fn meet_all(&mut self) -> Result<(), Ending> {
        for node in self.masters() {
            self.ask_node(node, &[b"PING"])?;
        }
        Ok(())
    }

    /// Writes for a source from now on.
    pub fn write_for(&mut self, source: &str, state: State) {
        let lanes = HashMap::new();
        self.writer = Some(Writer { source: source.to_owned(), state, lanes, is_confirmed: true });
        self.rename(format!("tarn-migrate:{source}"));
    }

    /// Writes for nobody any more.
    pub fn write_for_nobody(&mut self) {
        self.writer = None;
        self.rename(LOOKER.to_owned());
    }

    /// Ends an import from now on: writes, as long as these sources' states are this process'.
    pub fn end_for(&mut self, sources: Vec<String>, owner: u64) {
        self.ender = Some(Ender { sources, owner, is_confirmed: false });
        self.rename(ENDER.to_owned());
    }

    fn rename(&mut self, name: String) {
        self.name = name;
        // They are called so, and others of the name are ended, when they are made.
        self.forget_connections();
    }

    /// Makes all connections anew when they are needed.
    pub(super) fn forget_connections(&mut self) {
        self.connections.iter_mut().for_each(|connection| *connection = None);
    }

    /// Looks, where a connection was made anew, whether the target is as it was, and nobody else writes.
    pub(super) fn confirm(&mut self) -> Result<(), Ending> {
        while self.writer.as_ref().is_some_and(|writer| !writer.is_confirmed) {
            if let Some(writer) = &mut self.writer {
                writer.is_confirmed = true;
            }
            let found = self.read_state()?;
            self.check(found)?;
        }
        while self.ender.as_ref().is_some_and(|ender| !ender.is_confirmed) {
            self.confirm_ender()?;
        }
        Ok(())
    }

    fn confirm_ender(&mut self) -> Result<(), Ending> {
        let Some(ender) = &mut self.ender else { return Ok(()) };
        ender.is_confirmed = true;
        let (sources, owner) = (ender.sources.clone(), ender.owner);
        for source in sources {
            match self.state_of(&source)? {
                Some(state) if state.owner == owner => {}
                Some(_) => return is_anothers(),
                None => return Err(less()),
            }
        }
        Ok(())
    }

    fn check(&self, found: Option<State>) -> Result<(), Ending> {
        let Some(Writer { state, .. }) = &self.writer else { return Ok(()) };
        match found {
            Some(found) if found.owner != state.owner => is_anothers(),
            Some(found) if found.copy == state.copy && found.offset >= state.offset => Ok(()),
            Some(found) if self.kind != Kind::One && found.copy == state.copy => Ok(()),
            _ => Err(less()),
        }
    }

    /// Has a node do something, if nobody else writes.
    ///
    /// # Errors
    /// It is to end; a node that is not reached is tried again.
    pub fn tell_node(&mut self, node: usize, words: &[&[u8]]) -> Result<Value, Ending> {
        self.heard.set(Instant::now());
        loop {
            self.check_has_slots(node)?;
            self.confirm()?;
            let is_open = self.connections.get(node).is_some_and(Option::is_some);
            match self.ask_once(node, words, is_open) {
                Ok(Some(value)) => return Ok(value),
                // A new connection has to be confirmed first.
                Ok(None) => continue,
                Err(Trouble::Ending(ending)) => return Err(ending),
                Err(Trouble::Lost(error)) => self.lost(node, &error)?,
            }
            self.rest()?;
        }
    }

    fn ask_once(&mut self, node: usize, words: &[&[u8]], is_open: bool) -> Result<Option<Value>, Trouble> {
        self.node(node)?;
        if !is_open {
            return Ok(None);
        }
        let connection = self.connections[node].as_mut().expect("it was opened");
        Ok(Some(connection.ask(words, &mut *self.look)?))
    }

    /// Writes down what the source's data are about, unless another process does.
    ///
    /// # Errors
    /// It does, the target has less than it had, or it is to end.
    pub fn write_state(&mut self, change: impl FnOnce(&mut State)) -> Result<(), Ending> {
        let runs = self.runs();
        let Some(writer) = &self.writer else { return Ok(()) };
        let (source, before) = (writer.source.clone(), writer.state.clone());
        let mut state = State { runs, ..before.clone() };
        change(&mut state);
        // A server's says what the server has.
        let is_server = self.kind == Kind::One;
        let is_less = |found: &State| is_server && found.offset < before.offset;
        let is_whole = |found: &State| found.copy == state.copy && !is_less(found);
        self.exchange(&source, &mut |found| match found {
            Some(found) if found.owner != state.owner => is_anothers(),
            Some(found) if is_whole(&found) => Ok(Some(state.clone())),
            _ => Err(less()),
        })?;
        // Not before it is there: until then a server that is started again is one that may have less.
        if let Some(writer) = &mut self.writer {
            writer.state = state;
        }
        Ok(())
    }

    /// Takes away all that there is, but for the states of these sources.
    ///
    /// # Errors
    /// It cannot be done.
    pub fn clear(&mut self, states: &[(String, State)]) -> Result<(), Ending> {
        for node in self.masters() {
            if let Value::Error(line) = self.tell_node(node, &[b"FUNCTION", b"FLUSH"])? {
                return stopped(format!("the target cannot be emptied: {}", shown(&line)));
            }
            match self.kind {
                Kind::Bare => {
                    if let Value::Error(line) = self.tell_node(node, &[b"FLUSHALL"])? {
                        return stopped(format!("the target cannot be emptied: {}", shown(&line)));
                    }
                    for (source, state) in states {
                        self.exchange(source, &mut |_| Ok(Some(state.clone())))?;
                    }
                }
                Kind::One | Kind::Slots => self.clear_node(node, states)?,
            }
        }
        Ok(())
    }

    /// Nobody ever sees that there is no state: another process would take it for a target that has lost everything.
    fn clear_node(&mut self, node: usize, states: &[(String, State)]) -> Result<(), Ending> {
        loop {
            let mut job = Job { node: Some(node), keeps_replies: true, ..Job::new(0, 0) };
            job.push(&[b"MULTI"]);
            job.push(&[b"FLUSHALL"]);
            for (source, state) in states {
                let key = state_key(source);
                if self.slots.owner(key_slot(key.as_bytes())) == Some(node) {
                    job.push(&[b"SET", key.as_bytes(), state.text().as_bytes()]);
                }
            }
            job.push(&[b"EXEC"]);
            let turn = self.turn(std::slice::from_mut(&mut job), &[0])?;
            if turn.again.is_empty() && turn.lost.is_empty() {
                let wrong = job.replies.iter().find_map(|reply| match reply {
                    Value::Error(line) => Some(shown(line)),
                    _ => None,
                });
                return match wrong {
                    Some(line) => stopped(format!("the target cannot be emptied: {line}")),
                    None => Ok(()),
                };
            }
            self.rest()?;
        }
    }
}

fn less() -> Ending {
    Ending::NeedsCopy("the target has come back with less than it had answered".to_owned())
}
