//! Replicas whose copies were refused, for what they cannot know: the same copy would be refused again, so none is begun for a while.
//!
//! One thread at a time.

use super::replica::Identity;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use sys::UnixMs;

/// How long none is begun: a Redis comes again at once, as often as some fifty times a second.
pub const REFUSED_FOR: Duration = Duration::from_secs(5);

/// Servers that are remembered. Of more the one that was refused first is given up.
const SERVERS_MAX: usize = 64;

/// Those that were refused.
#[derive(Default)]
pub struct Refused(BTreeMap<Identity, (UnixMs, String)>);

impl Refused {
    /// Whether this is why a copy is refused.
    pub fn is_reason(error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::Unsupported
    }

    /// One is refused its copy.
    pub fn refuse(&mut self, who: Identity, why: &io::Error, now: UnixMs) {
        self.0.retain(|_, (at, _)| is_in_force(*at, now));
        if self.0.len() >= SERVERS_MAX
            && let Some(first) = self.0.iter().min_by_key(|(_, (at, _))| *at).map(|(who, _)| who.clone())
        {
            self.0.remove(&first);
        }
        self.0.insert(who, (now, why.to_string()));
    }

    /// Why one gets no copy now.
    pub fn reason(&self, who: &Identity, now: UnixMs) -> Option<&str> {
        self.0.get(who).filter(|(at, _)| is_in_force(*at, now)).map(|(_, why)| why.as_str())
    }
}

fn is_in_force(at: UnixMs, now: UnixMs) -> bool {
    // A clock that was set back is no reason to refuse for longer.
    now.0.checked_sub(at.0).is_some_and(|since| u128::from(since) < REFUSED_FOR.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_refused_for_a_while_and_so_many_are_remembered() {
        let server = |port: u16| Identity::At("127.0.0.1".to_owned(), port);
        let why = io::Error::new(io::ErrorKind::Unsupported, "it cannot know");
        assert!(Refused::is_reason(&why) && !Refused::is_reason(&io::Error::other("else")));
        let (mut refused, later) = (Refused::default(), UnixMs(100 + REFUSED_FOR.as_millis() as u64));
        refused.refuse(server(1), &why, UnixMs(100));
        assert_eq!(refused.reason(&server(1), UnixMs(later.0 - 1)), Some("it cannot know"));
        assert_eq!(refused.reason(&server(2), UnixMs(100)), None);
        assert_eq!([later, UnixMs(99)].map(|now| refused.reason(&server(1), now)), [None, None]);
        (1..1000).for_each(|port| refused.refuse(server(port), &why, UnixMs(u64::from(port))));
        assert_eq!(refused.0.len(), SERVERS_MAX);
    }
}
