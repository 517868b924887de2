//! Whether a server goes on taking a long request that the system here has taken whole: the server's own says what it has.

use super::Link;
use super::socket::Socket;
use std::os::fd::AsFd;

/// Who has not taken a shorter request in all the time that a server may be silent is as one who is gone.
const LONG_BYTES: usize = 16 << 10;

/// How far the request has come that is answered next.
#[derive(Debug)]
pub struct Course {
    /// How many of the connection's bytes the server's system had when it was looked last.
    taken: u64,
    /// How many it has when it has all of the request. None: some of it was not sent then.
    end: Option<u64>,
}

/// What is seen of a connection whose next answer is a long request's.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Bytes that the system here has taken.
    sent: u64,
    /// Those of them that the server's has.
    taken: u64,
    /// All of the request is among those sent.
    is_whole: bool,
}

impl Seen {
    /// Looks. None: there is no such request, or the system does not say.
    pub fn of(link: &Link, socket: &Socket) -> Option<Seen> {
        let front = link.tickets.front().filter(|front| front.bytes >= LONG_BYTES)?;
        let (sent, on_its_way) = (socket.sent(), sys::socket::unacknowledged_bytes(socket.tcp().as_fd())?);
        let is_whole = link.answered + front.bytes <= link.written && !link.is_blocked;
        Some(Seen { sent, taken: sent.saturating_sub(on_its_way), is_whole })
    }

    fn end(self) -> Option<u64> {
        self.is_whole.then_some(self.sent)
    }
}

impl Course {
    /// It is looked for the first time.
    pub fn begin(seen: Seen) -> Course {
        Course { taken: seen.taken, end: seen.end() }
    }

    /// Whether more of the request was taken since it was looked last. What was sent behind it says nothing.
    pub fn goes_on(&mut self, seen: Seen) -> bool {
        let was_on_its_way = self.end.is_none_or(|end| self.taken < end);
        let has_more = seen.taken > self.taken;
        self.taken = seen.taken;
        self.end = self.end.or(seen.end());
        was_on_its_way && has_more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_taken_of_the_request_itself_counts() {
        let seen = |sent, taken, is_whole| Seen { sent, taken, is_whole };
        let mut course = Course::begin(seen(50, 10, false));
        assert!(course.goes_on(seen(80, 30, false)));
        assert!(!course.goes_on(seen(90, 30, false)), "what is written is not taken");
        assert!(course.goes_on(seen(100, 40, true)));
        assert!(course.goes_on(seen(300, 120, true)), "its end was taken since it was looked last");
        assert!(!course.goes_on(seen(300, 200, true)), "it was others' that was taken");
    }

    #[test]
    fn a_request_that_was_taken_at_once_has_no_more_time() {
        let seen = |sent, taken| Seen { sent, taken, is_whole: true };
        let mut course = Course::begin(seen(100, 100));
        assert!(!course.goes_on(seen(200, 150)));
    }
}
