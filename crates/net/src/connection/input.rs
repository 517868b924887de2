//! What a client has sent and was not run yet. A client that waits may have sent any amount of it, of which little is run at a time where replies come from elsewhere: of
//! much, what has been run is let go when it is half of all, so that the rest moves no further than it is long, however often it is stopped. Of less it is let go at once.

use super::READ_BYTES_AHEAD;
use std::ops::Deref;

/// These bytes.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// How many of them have been run.
    run: usize,
}

impl Deref for Input {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.run..]
    }
}

impl Input {
    /// What they take.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Where more is added, at the end.
    pub(super) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// So many more have been run.
    pub(super) fn note_run(&mut self, bytes: usize) {
        self.run += bytes;
        if self.run == self.bytes.len() {
            *self = Input::default();
        } else if self.run > self.bytes.len() / 2 || self.bytes.len() <= READ_BYTES_AHEAD {
            self.bytes.drain(..self.run);
            self.run = 0;
            if self.bytes.capacity() > READ_BYTES_AHEAD {
                // A large request has gone by.
                self.bytes.shrink_to(2 * self.bytes.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_moves_seldom_and_is_what_came_last() {
        let mut input = Input::default();
        input.end().extend((0..1 << 22).map(|at| (at / 1000) as u8));
        let (mut begins, mut at) = (input.as_ptr(), 0);
        let mut moves = 0;
        while input.len() > READ_BYTES_AHEAD {
            input.note_run(1000);
            at += 1;
            assert_eq!(input[0], at as u8);
            // It has moved, unless it begins right behind what was run.
            moves += usize::from(input.as_ptr() != begins.wrapping_add(1000));
            begins = input.as_ptr();
        }
        assert!(moves < 30, "{moves}");
        // Little is not kept beside what has been run.
        while input.bytes.len() > READ_BYTES_AHEAD {
            input.note_run(1000);
        }
        input.note_run(1000);
        assert_eq!(input.bytes.len(), input.len());
        input.note_run(input.len());
        assert_eq!((input.len(), input.capacity()), (0, 0));
    }
}
