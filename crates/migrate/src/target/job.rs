//! What a target is to do at a time: requests of one slot (or, in a server, of any), as bytes.

use wire::{Value, encode_request};

/// Requests that are done together.
#[derive(Debug, Default)]
pub struct Job {
    /// In which database.
    pub database: u32,
    /// Of which slot; a server has all of them.
    pub slot: u16,
    /// The requests, one behind the other.
    pub requests: Vec<u8>,
    /// How many.
    pub count: usize,
    /// Of the stream: up to where it is applied with them. They are done once, in a transaction, where the target can do that.
    pub end: Option<u64>,
    /// The database that is selected in the stream behind them.
    pub selected: u32,
    /// The replies, once it is done, where they are wanted.
    pub replies: Vec<Value>,
    /// Whether they are.
    pub keeps_replies: bool,
    /// Whether it changes what the target has, which nobody does who does not know that nobody else does.
    pub writes: bool,
    /// The node that is asked, whoever has the slot.
    pub node: Option<usize>,
    /// Where it was sent to be asked for once.
    pub asked_at: Option<usize>,
}

impl Job {
    /// One without requests.
    pub fn new(database: u32, slot: u16) -> Job {
        Job { database, slot, writes: true, ..Job::default() }
    }

    /// A question, whose reply is wanted.
    pub fn question(database: u32, slot: u16, words: &[&[u8]]) -> Job {
        let mut job = Job { keeps_replies: true, writes: false, ..Job::new(database, slot) };
        job.push(words);
        job
    }

    /// Adds a request.
    pub fn push(&mut self, words: &[&[u8]]) {
        encode_request(&mut self.requests, words);
        self.count += 1;
    }

    /// Adds a request as it is.
    pub fn push_bytes(&mut self, request: &[u8]) {
        self.requests.extend_from_slice(request);
        self.count += 1;
    }

    /// The name of a request by its number, and its first argument, for a sentence.
    pub fn name(&self, number: usize) -> String {
        words_of(&self.requests, number).unwrap_or_else(|| "a request".to_owned())
    }
}

/// The first words of the request of this number among others.
fn words_of(mut bytes: &[u8], mut number: usize) -> Option<String> {
    loop {
        let (words, mut rest) = line(bytes, b'*')?;
        let mut first = Vec::new();
        for at in 0..words {
            let (length, behind) = line(rest, b'$')?;
            if at < 2 {
                first.push(crate::connection::shown(behind.get(..length)?));
            }
            rest = behind.get(length + 2..)?;
        }
        if number == 0 {
            return Some(first.join(" "));
        }
        (bytes, number) = (rest, number - 1);
    }
}

fn line(bytes: &[u8], sign: u8) -> Option<(usize, &[u8])> {
    let rest = bytes.strip_prefix(&[sign])?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let number = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((number, &rest[end + 2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_named_by_number() {
        let mut job = Job::new(0, 0);
        job.push(&[b"SET", b"k", b"a\r\n$b"]);
        job.push(&[b"FLUSHALL"]);
        assert_eq!((job.name(0).as_str(), job.name(1).as_str()), ("SET k", "FLUSHALL"));
        assert_eq!(job.name(2), "a request");
    }
}
