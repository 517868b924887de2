//! Why a part of a migration ended before its time, and by what it is told to.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It cannot go on, or must not: the sentence for the operator.
    Stopped(String),
    /// What the target has is not known, or what comes next cannot be had: everything has to be copied anew.
    NeedsCopy(String),
    /// A server is not reached, or not ready, when it begins: the sentence for the operator. A new copy waits for it.
    Later(String),
    /// It was told to end.
    Interrupted,
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Stopped(why) | Ending::NeedsCopy(why) | Ending::Later(why) => formatter.write_str(why),
            Ending::Interrupted => formatter.write_str("it was ended"),
        }
    }
}

/// Stops everything, with this sentence.
///
/// # Errors
/// Always.
pub fn stopped<T>(why: impl Into<String>) -> Result<T, Ending> {
    Err(Ending::Stopped(why.into()))
}

/// Why a server cannot be used, by what came of asking it: one that does not let this user in never can.
pub fn unreached(error: &io::Error, why: String) -> Ending {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Ending::Stopped(why),
        _ => Ending::Later(why),
    }
}

/// What all parts of one attempt are told.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    /// An operator ends it (SIGINT, SIGTERM).
    pub interrupted: Arc<AtomicBool>,
    /// Another part has failed.
    pub gives_up: Arc<AtomicBool>,
    /// The end has begun: what is there is not to be gone on from any more.
    pub ends: Arc<AtomicBool>,
    /// All is done: whoever follows a stream ends between two transactions.
    pub finishes: Arc<AtomicBool>,
}

impl Orders {
    /// Those of another attempt.
    #[must_use]
    pub fn anew(&self) -> Orders {
        Orders { interrupted: self.interrupted.clone(), ..Orders::default() }
    }

    /// Looked at by whoever waits for a socket.
    ///
    /// # Errors
    /// It is to end.
    pub fn look(&self) -> io::Result<()> {
        match self.interrupted.load(Ordering::Relaxed) || self.gives_up.load(Ordering::Relaxed) {
            true => Err(io::Error::other("it was ended")),
            false => Ok(()),
        }
    }

    /// The same for all others.
    ///
    /// # Errors
    /// It is to end.
    pub fn fail_if_over(&self) -> Result<(), Ending> {
        self.look().map_err(|_| Ending::Interrupted)
    }
}

/// Waits for a while, with a look from time to time.
///
/// # Errors
/// The look's.
pub fn pause(span: Duration, look: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
    let until = Instant::now() + span;
    loop {
        look()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(crate::limits::LOOKING));
    }
}
