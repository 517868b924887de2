//! Which processes have which slots of a target: all that is gone over at the end has to be gone over where it is, and must not have less afterwards.

use super::{Ending, Kind, Slots, Target, Trouble, stopped};
use crate::screen::say;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use wire::Value;

/// How often a server that has given slots away is asked whether it is a master.
const TRIES: usize = 20;

/// Masters, and their slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The first and the last slot of each range, and what its master is called.
    ranges: Vec<(i64, i64, Vec<u8>)>,
    /// The process that each master is.
    runs: BTreeMap<usize, String>,
}

impl Layout {
    /// The processes.
    pub fn runs(&self) -> BTreeSet<&String> {
        self.runs.values().collect()
    }
}

impl Target {
    /// Who has which slots, as all masters say alike while none is on its way.
    ///
    /// # Errors
    /// They do not agree in time, or it is to end.
    pub fn layout(&mut self) -> Result<Layout, Ending> {
        let began = Instant::now();
        // What was asked before may be long ago.
        self.heard.set(began);
        let mut is_said = false;
        loop {
            if self.kind == Kind::Slots {
                self.ask_for_slots(None)?;
            }
            if let Some(layout) = self.agreed()? {
                return Ok(layout);
            }
            if !is_said {
                say("slots of the target are on their way: they are waited for");
                is_said = true;
            }
            if self.silence_max.is_some_and(|max| began.elapsed() > max) {
                return stopped("slots of the target move, and it is not known in time where they are");
            }
            self.rest()?;
        }
    }

    fn agreed(&mut self) -> Result<Option<Layout>, Ending> {
        let mut layout = Layout::default();
        if self.kind == Kind::Bare {
            return Ok(Some(layout));
        }
        let masters = self.masters();
        for node in &masters {
            if self.kind == Kind::Slots {
                let reply = self.ask_node(*node, &[b"CLUSTER", b"SLOTS"])?;
                let Some(ranges) = ranges(&reply) else { return Ok(None) };
                let mut slots = Slots::of_one(self.place(*node));
                let is_whole = slots.take(&reply, &self.place(*node)).is_ok() && slots.unowned() == 0;
                if !is_whole || (*node != masters[0] && ranges != layout.ranges) {
                    return Ok(None);
                }
                layout.ranges = ranges;
                if let Value::Bulk(lines) = self.ask_node(*node, &[b"CLUSTER", b"NODES"])?
                    && has_slot_under_way(&String::from_utf8_lossy(&lines))
                {
                    return Ok(None);
                }
            }
            let Value::Bulk(text) = self.ask_node(*node, &[b"INFO", b"server"])? else {
                return stopped("the target does not say which process it is");
            };
            let text = String::from_utf8_lossy(&text).into_owned();
            let run = text.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default();
            layout.runs.insert(*node, run.trim_end().to_owned());
        }
        let names: BTreeSet<&Vec<u8>> = layout.ranges.iter().map(|(_, _, name)| name).collect();
        let is_all = self.kind == Kind::One || names.len() == masters.len();
        Ok(is_all.then_some(layout))
    }

    /// Whether all slots are where they were.
    ///
    /// # Errors
    /// One of the masters is not what it was, and there may be less now.
    pub fn is_still(&mut self, before: &Layout, now: &Layout) -> Result<bool, Ending> {
        for (node, run) in &before.runs {
            let is_other = now.runs.get(node).is_some_and(|its| its != run);
            if is_other || (before.ranges != now.ranges && !self.is_master(*node)?) {
                return Err(self.may_have_less(*node));
            }
        }
        Ok(before.ranges == now.ranges)
    }

    pub(super) fn may_have_less(&self, node: usize) -> Ending {
        Ending::NeedsCopy(format!(
            "the target {} was started again, or is no master any more, and there may be less now than was answered",
            self.place(node)
        ))
    }

    /// Looks at nodes of which slots are elsewhere: one that is master still has given them away; one that is not has lost its place.
    pub(super) fn check_moves(&mut self) -> Result<(), Ending> {
        for node in std::mem::take(&mut self.moved_from) {
            if self.writer.is_some() && !self.is_master(node)? {
                return Err(self.may_have_less(node));
            }
        }
        Ok(())
    }

    /// Whether a node says so itself, before long.
    fn is_master(&mut self, node: usize) -> Result<bool, Ending> {
        for _ in 0..TRIES {
            let asked = self.node(node).and_then(|()| {
                let connection = self.connections[node].as_mut().expect("it was opened");
                Ok(connection.ask(&[b"ROLE"], &mut *self.look)?)
            });
            match asked {
                Ok(Value::Array(words)) => return Ok(words.first() == Some(&Value::Bulk(b"master".to_vec()))),
                Ok(_) => return Ok(false),
                Err(Trouble::Ending(ending)) => return Err(ending),
                Err(Trouble::Lost(_)) => self.connections[node] = None,
            }
            self.rest()?;
        }
        Ok(false)
    }

    /// Remembers of which nodes slots are elsewhere now.
    pub(super) fn note_moves(&mut self, before: &Slots) {
        for slot in (0..=u16::MAX).take(wire::SLOTS) {
            if let (Some(owner), Some(now)) = (before.owner(slot), self.slots.owner(slot))
                && owner != now
            {
                self.moved_from.insert(owner);
            }
        }
    }

    /// Looks who has the slots now, and meets all masters: what they are is known then.
    ///
    /// # Errors
    /// One of them may have less than was answered.
    pub fn look_around(&mut self) -> Result<(), Ending> {
        if self.kind == Kind::Slots {
            let before = self.slots.clone();
            self.ask_for_slots(None)?;
            self.note_moves(&before);
            self.check_moves()?;
        }
        self.meet_all()
    }

    /// The processes that the masters are, as far as they are known.
    pub(super) fn runs(&self) -> BTreeSet<String> {
        let masters = self.masters().into_iter();
        masters.filter_map(|node| self.processes.get(&self.place(node)).cloned()).collect()
    }
}

/// Ranges of slots and what their masters are called, as one node says.
pub fn ranges(reply: &Value) -> Option<Vec<(i64, i64, Vec<u8>)>> {
    let Value::Array(ranges) = reply else { return None };
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else {
            return None;
        };
        match master.as_slice() {
            [_, _, Value::Bulk(name), ..] => Some((*first, *last, name.clone())),
            [host, port, ..] => Some((*first, *last, format!("{host:?} {port:?}").into_bytes())),
            _ => None,
        }
    };
    let mut ranges = ranges.iter().map(range).collect::<Option<Vec<_>>>()?;
    ranges.sort();
    Some(ranges)
}

/// Whether a node says in CLUSTER NODES that a slot comes to it or goes: its keys are at both.
pub fn has_slot_under_way(lines: &str) -> bool {
    let own = lines.lines().find(|line| line.split(' ').nth(2).is_some_and(|flags| flags.contains("myself")));
    own.is_some_and(|line| line.contains('['))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_under_way_is_seen() {
        let line = |own: &str, more: &str| {
            format!(
                "a 10.0.0.1:1@2 master - 0 0 1 connected 0-8\nb 10.0.0.2:1@2 {own} - 0 0 2 connected 9-20{more}\n"
            )
        };
        assert!(!has_slot_under_way(&line("myself,master", "")));
        assert!(has_slot_under_way(&line("myself,master", " [9->-a]")));
        assert!(!has_slot_under_way(&line("master", " [9->-a]")));
    }

    #[test]
    fn ranges_are_compared_by_name() {
        let range = |first, last, name: &str| {
            let master = vec![Value::Null, Value::Int(1), Value::Bulk(name.as_bytes().to_vec())];
            Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(master)])
        };
        let (a, b) = (range(0, 9, "a"), range(10, 20, "b"));
        let read =
            |parts: &[&Value]| ranges(&Value::Array(parts.iter().map(|part| (*part).clone()).collect()));
        assert_eq!(read(&[&a, &b]), read(&[&b, &a]));
        assert_ne!(read(&[&a, &b]), read(&[&a, &range(10, 20, "c")]));
    }
}
