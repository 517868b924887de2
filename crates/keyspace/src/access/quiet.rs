//! What becomes another form of the same value: nobody is told, and nothing else goes.

use super::Edit;
use crate::changes::Interest;
use crate::ids::Key;
use std::mem;

impl Edit<'_> {
    /// Leaves keys whose time is up where a look would leave them: where a master says what goes.
    pub fn remove_nothing_kept(&mut self) {
        self.access.only_looks = true;
    }

    /// Makes the encoding of a string that is there "raw". It holds what it held, so that whoever watches it is not disturbed.
    pub fn make_raw(&mut self, key: &Key<'_>, len: usize) {
        let interest = mem::replace(&mut self.access.interest, Interest::empty());
        self.bytes_mut(key, len);
        self.access.interest = interest;
    }
}
