//! Makes a stream that shows a difference shorter, by playing it without parts of
//! it for as long as the same difference remains.

use super::judge::signature;
use super::{Difference, Differential};
use crate::generate::Step;
use std::io;
use std::time::{Duration, Instant};

/// Time spent on shrinking at most: streams that end with a server that does not answer take long.
const SECONDS_MAX: u64 = 60;
/// Streams played at most while shrinking; each takes milliseconds, but for servers that hang.
const PLAYS_MAX: usize = 500;

impl Difference {
    /// Which kind of difference it is.
    pub(super) fn signature(&self) -> String {
        signature(&self.request, &self.answers, self.verdict)
    }
}

impl Differential {
    /// The shortest stream found that shows what `stream` shows.
    pub(super) fn shrink(&mut self, mut stream: Vec<Step>, found: Difference) -> io::Result<Difference> {
        if let Some(position) = found.position {
            stream.truncate(position + 1);
        }
        let wanted = found.signature();
        let mut best = found;
        let mut plays = 0;
        let deadline = Instant::now() + Duration::from_secs(SECONDS_MAX);
        let mut chunk = stream.len().div_ceil(2);
        while chunk > 0 && plays < PLAYS_MAX && Instant::now() < deadline {
            let mut at = 0;
            let mut removed_any = false;
            while at < stream.len() && plays < PLAYS_MAX && Instant::now() < deadline {
                let mut shorter = stream[..at].to_vec();
                shorter.extend_from_slice(&stream[(at + chunk).min(stream.len())..]);
                plays += 1;
                match self.play(&shorter)? {
                    Some(again) if again.signature() == wanted => {
                        if let Some(position) = again.position {
                            shorter.truncate(position + 1);
                        }
                        (stream, best, removed_any) = (shorter, again, true);
                    }
                    _ => at += chunk,
                }
            }
            // Single requests are tried until none can go.
            chunk = if chunk == 1 && removed_any { 1 } else { chunk / 2 };
        }
        best.stream = stream;
        Ok(best)
    }
}
