//! How long a follower waits between two tries, by what ended the last.
//!
//! Pure. A full copy costs the master all that it has to read and send, and one that could not be taken here will most likely not be taken at once either:
//! the disk is full, or the copy is of a version that is not known. So each pause behind such a one is longer than the one before, up to a limit, until
//! something was followed, or somebody says that it is to be tried now. The same where the stream makes no sense behind a copy, and only another helps.

use std::io;
use std::time::Duration;

/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// Between two tries in a shard, where others wait for this one.
const SHARD_PAUSE: Duration = Duration::from_millis(50);

/// How often that is doubled at most.
const SHARD_DOUBLINGS_MAX: u32 = 5;

/// Where a copy was refused, of which the master makes all for each try, or what the stream needs here cannot be read.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// The longest behind a copy that could not be taken.
const COPY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// What ended a try.
#[derive(Debug)]
pub enum Ending {
    /// The master could not be reached, has refused, or the link broke before there was anything to follow.
    Link(io::Error),
    /// The master's copy could not be written down, or not be loaded.
    Copy(io::Error),
    /// What was followed.
    Stream(io::Error),
}

impl Ending {
    /// What it was.
    pub fn error(&self) -> &io::Error {
        match self {
            Ending::Link(error) | Ending::Copy(error) | Ending::Stream(error) => error,
        }
    }

    /// Whether the next try costs the master another copy.
    pub fn needs_copy(&self) -> bool {
        match self {
            Ending::Copy(_) => true,
            Ending::Stream(error) => error.kind() == io::ErrorKind::InvalidData,
            Ending::Link(_) => false,
        }
    }
}

impl From<io::Error> for Ending {
    fn from(error: io::Error) -> Ending {
        Ending::Link(error)
    }
}

/// What was tried in vain of late.
#[derive(Debug, Default)]
pub struct Pauses {
    tries: u32,
    copies: u32,
}

impl Pauses {
    /// How long to wait behind this one.
    pub fn behind(&mut self, ending: &Ending, is_in_shard: bool) -> Duration {
        let needs_copy = ending.needs_copy();
        self.copies = match ending {
            _ if needs_copy => self.copies.saturating_add(1),
            Ending::Link(_) | Ending::Copy(_) => self.copies,
            Ending::Stream(_) => 0,
        };
        let tries = self.tries;
        self.tries = (tries + 1).min(SHARD_DOUBLINGS_MAX);
        match ending {
            _ if ending.error().kind() == io::ErrorKind::PermissionDenied => REFUSED_PAUSE,
            _ if needs_copy => doubled(PAUSE, self.copies - 1).min(COPY_PAUSE_MAX),
            _ if is_in_shard => doubled(SHARD_PAUSE, tries).min(PAUSE),
            _ => PAUSE,
        }
    }

    /// Somebody has changed something, and wants it to be tried.
    pub fn begin_anew(&mut self) {
        *self = Pauses::default();
    }
}

fn doubled(pause: Duration, times: u32) -> Duration {
    pause.saturating_mul(2u32.saturating_pow(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_behind_copies_grow_until_something_is_followed() {
        let error = || io::Error::other("no");
        let mut pauses = Pauses::default();
        let mut behind = |ending: Ending| pauses.behind(&ending, false).as_secs();
        let grown: Vec<_> = (0..8).map(|_| behind(Ending::Copy(error()))).collect();
        assert_eq!(grown, [1, 2, 4, 8, 16, 32, 60, 60]);
        // That the master is away for a while says nothing of the next copy.
        assert_eq!((behind(Ending::Link(error())), behind(Ending::Copy(error()))), (1, 60));
        assert_eq!((behind(Ending::Stream(error())), behind(Ending::Copy(error()))), (1, 1));
        assert_eq!(behind(Ending::Copy(error())), 2);
        assert_eq!(behind(Ending::Stream(io::ErrorKind::InvalidData.into())), 4);
        pauses.begin_anew();
        assert_eq!(pauses.behind(&Ending::Copy(error()), false), PAUSE);
        let refused = || Ending::Link(io::ErrorKind::PermissionDenied.into());
        assert_eq!(pauses.behind(&refused(), false), REFUSED_PAUSE);
        pauses.copies = u32::MAX;
        assert_eq!(pauses.behind(&Ending::Copy(error()), true), COPY_PAUSE_MAX);
    }

    #[test]
    fn tries_in_a_shard_begin_soon_and_are_not_further_apart_than_others() {
        let mut pauses = Pauses::default();
        let link = || Ending::Link(io::Error::other("no"));
        let grown: Vec<_> = (0..7).map(|_| pauses.behind(&link(), true).as_millis()).collect();
        assert_eq!(grown, [50, 100, 200, 400, 800, 1000, 1000]);
    }
}
