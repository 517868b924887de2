//! What a request of a source's stream is for the target: which keys it names, and whether it can be done there.
//!
//! Pure. What is not known is not guessed: it is passed on as it is to a server, which does what the source did, and refused elsewhere.

use command::execute::key_positions;
use command::table;
use std::sync::OnceLock;
use wire::{Request, key_slot};

/// What it is.
#[derive(Debug, PartialEq, Eq)]
pub enum Act {
    /// It changes no data: a message.
    Nothing,
    /// Of functions and scripts: it is done by every server, and may be done twice.
    Everywhere(Vec<Vec<u8>>),
    /// It names keys, at these positions.
    Keys(Vec<usize>),
    /// It concerns all keys, or other databases: a single server does it.
    Whole,
    /// The same, and it may take away what others have written.
    Empties,
    /// It exchanges these databases.
    Swaps([u32; 2]),
    /// Nobody knows its keys: a single server does it.
    Unknown,
}

/// Makes the table of commands, unless there is one.
pub fn know_commands() {
    static KNOWN: OnceLock<()> = OnceLock::new();
    KNOWN.get_or_init(|| drop(table::install::<()>(&[])));
}

/// What a request is.
pub fn act(request: &Request<'_>) -> Act {
    let name = request.get(0).unwrap_or_default().to_ascii_lowercase();
    match name.as_slice() {
        b"publish" | b"spublish" => Act::Nothing,
        b"function" => functions(request),
        b"script" => Act::Everywhere(request.iter().map(<[u8]>::to_vec).collect()),
        b"flushall" | b"flushdb" => Act::Empties,
        b"swapdb" => {
            let number =
                |at| request.get(at).and_then(wire::number::parse_int).and_then(|n| u32::try_from(n).ok());
            number(1).zip(number(2)).map_or(Act::Unknown, |(a, b)| Act::Swaps([a, b]))
        }
        b"move" => Act::Whole,
        b"copy" if (3..request.len()).any(|at| request.arg(at).eq_ignore_ascii_case(b"db")) => Act::Whole,
        b"eval" | b"evalsha" | b"fcall" => scripts(request),
        // What a subcommand of XGROUP is about, the container's row does not say.
        _ => match table::find(&name).and_then(|command| table::find_within(command, request)) {
            // Who finds keys relies on the number of words.
            Some(command) if command.row.accepts(request.len()) => {
                let mut positions = Vec::new();
                key_positions(command.row.keys, request, &mut positions);
                let are_there = !positions.is_empty() && positions.iter().all(|at| *at < request.len());
                if are_there { Act::Keys(positions) } else { Act::Unknown }
            }
            _ => Act::Unknown,
        },
    }
}

fn scripts(request: &Request<'_>) -> Act {
    let count =
        request.get(2).and_then(wire::number::parse_int).and_then(|count| usize::try_from(count).ok());
    match count {
        Some(count @ 1..) if count.checked_add(3).is_some_and(|end| end <= request.len()) => {
            Act::Keys((3..3 + count).collect())
        }
        _ => Act::Unknown,
    }
}

/// Of functions, said so that it may be done twice.
fn functions(request: &Request<'_>) -> Act {
    let mut words: Vec<Vec<u8>> = request.iter().map(<[u8]>::to_vec).collect();
    let is = |at: usize, word: &[u8]| request.get(at).is_some_and(|own| own.eq_ignore_ascii_case(word));
    if is(1, b"load") && !is(2, b"replace") {
        words.insert(2, b"REPLACE".to_vec());
    }
    if is(1, b"restore") && !is(3, b"flush") {
        words.truncate(3);
        words.push(b"REPLACE".to_vec());
    }
    Act::Everywhere(words)
}

/// Requests of one slot each that do the same as one of several; None: there are none such. A target that is asked in this way is not as it was at one moment.
pub fn split(request: &Request<'_>) -> Option<Vec<(u16, Vec<Vec<u8>>)>> {
    let name = request.get(0)?.to_ascii_lowercase();
    let (step, name): (usize, &[u8]) = match name.as_slice() {
        b"del" | b"unlink" => (1, request.get(0)?),
        // The source has done it: there was none of them.
        b"mset" | b"msetnx" => (2, b"MSET"),
        _ => return None,
    };
    let mut parts: Vec<(u16, Vec<Vec<u8>>)> = Vec::new();
    let mut at = 1;
    while at + step <= request.len() {
        let slot = key_slot(request.arg(at));
        let own = match parts.iter().position(|(known, _)| *known == slot) {
            Some(own) => own,
            None => {
                parts.push((slot, vec![name.to_vec()]));
                parts.len() - 1
            }
        };
        parts[own].1.extend((at..at + step).map(|at| request.arg(at).to_vec()));
        at += step;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Span;

    fn with<T>(line: &str, look: impl FnOnce(&Request<'_>) -> T) -> T {
        know_commands();
        let (mut spans, mut start) = (Vec::new(), 0);
        for word in line.split(' ') {
            spans.push(Span { start, end: start + word.len() });
            start += word.len() + 1;
        }
        look(&Request::new(line.as_bytes(), &spans))
    }

    #[test]
    fn what_a_request_is_follows_from_its_words() {
        let is = |line: &str| with(line, act);
        assert_eq!(is("INCR k"), Act::Keys(vec![1]));
        assert_eq!(is("RENAME a b"), Act::Keys(vec![1, 2]));
        assert_eq!(is("EVAL s 2 a b c"), Act::Keys(vec![3, 4]));
        for line in [
            "XGROUP CREATE s g 0",
            "xgroup setid s g 0 ENTRIESREAD 1",
            "XGROUP CREATECONSUMER s g c",
            "XGROUP DELCONSUMER s g c",
            "XGROUP DESTROY s g",
        ] {
            assert_eq!(is(line), Act::Keys(vec![2]), "{line}");
        }
        assert_eq!((is("XGROUP HELP"), is("XGROUP NONE s g")), (Act::Unknown, Act::Unknown));
        assert_eq!(
            (is("EVAL s 0 a"), is("EVAL s 9 a"), is("JSON.SET k . 1")),
            (Act::Unknown, Act::Unknown, Act::Unknown)
        );
        assert_eq!(
            (is("PUBLISH c m"), is("FLUSHALL"), is("SWAPDB 0 3")),
            (Act::Nothing, Act::Empties, Act::Swaps([0, 3]))
        );
        assert_eq!((is("COPY a b DB 1"), is("COPY a b")), (Act::Whole, Act::Keys(vec![1, 2])));
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(is("FUNCTION LOAD code"), Act::Everywhere(words("FUNCTION LOAD REPLACE code")));
        assert_eq!(is("FUNCTION RESTORE p APPEND"), Act::Everywhere(words("FUNCTION RESTORE p REPLACE")));
    }

    #[test]
    fn requests_with_too_few_words_are_not_known() {
        for line in [
            "SORT",
            "ZUNIONSTORE",
            "BLMPOP",
            "LMPOP",
            "MSETEX",
            "GEORADIUS",
            "SET",
            "XREADGROUP",
            "XGROUP",
            "",
        ] {
            assert_eq!(with(line, act), Act::Unknown, "{line}");
        }
    }

    #[test]
    fn some_requests_are_taken_apart() {
        let parts = with("MSETNX {a}1 x b y {a}2 z", split).unwrap();
        let shown: Vec<String> = parts
            .iter()
            .map(|(_, words)| {
                words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(shown, ["MSET {a}1 x {a}2 z", "MSET b y"]);
        assert_eq!(with("RENAME a b", split), None);
    }
}
