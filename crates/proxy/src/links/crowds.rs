//! Clients of a worker that wait for the same keys, of which one is given what comes: the first of them waits at the servers, and the others behind it, so that
//! what comes is looked for by one at a time, and not by all.
//!
//! Thread rule: a worker's own.
//!
//! Invariant: whoever becomes the first looks what there is before it waits, so that nothing is missed that came before.

use super::conversation::Key;
use std::collections::{HashMap, VecDeque};

/// Whose request, and which of those that are owed to it.
pub type Who = (Key, u32);

/// All of them, by what they wait for.
#[derive(Default)]
pub struct Crowds(HashMap<Box<[u8]>, VecDeque<Who>>);

impl Crowds {
    /// Somebody is about to wait. Whether it is the first.
    pub fn come(&mut self, what: &[u8], who: Who) -> bool {
        match self.0.get_mut(what) {
            None => {
                self.0.insert(what.into(), VecDeque::from([who]));
                true
            }
            Some(line) => {
                if !line.contains(&who) {
                    line.push_back(who);
                }
                line.front() == Some(&who)
            }
        }
    }

    /// Somebody waits no more. Who is the first now, if it was.
    pub fn leave(&mut self, what: &[u8], who: Who) -> Option<Who> {
        let line = self.0.get_mut(what)?;
        let at = line.iter().position(|one| *one == who)?;
        line.remove(at);
        let next = line.front().copied();
        if next.is_none() {
            self.0.remove(what);
        }
        next.filter(|_| at == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_after_the_other_is_the_first() {
        let (mut crowds, who) = (Crowds::default(), |number| (Key::NOBODY, number));
        assert!(crowds.come(b"a", who(1)) && crowds.come(b"b", who(9)));
        assert!(!crowds.come(b"a", who(2)) && !crowds.come(b"a", who(3)) && !crowds.come(b"a", who(4)));
        assert!(crowds.come(b"a", who(1)), "it still is");
        assert_eq!(crowds.leave(b"a", who(3)), None);
        assert_eq!(crowds.leave(b"a", who(1)), Some(who(2)));
        assert_eq!(crowds.leave(b"a", who(1)), None);
        assert_eq!(crowds.leave(b"a", who(2)), Some(who(4)));
        assert_eq!((crowds.leave(b"a", who(4)), crowds.leave(b"a", who(4))), (None, None));
        assert!(crowds.come(b"a", who(5)));
    }
}
