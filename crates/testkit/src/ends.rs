//! Has what runs beside a test come to its end, however the test comes to its own.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped. A panic within [`std::thread::scope`] waits for the scope's threads, and for ever for those that go on until they are told: whatever
/// looks at a flag in a loop is begun behind one of these.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
