//! The files of reply cases (`tests/cases/*.resp`): what is sent and the bytes
//! that must come back, in a form that reads well.
//!
//! ```text
//! == append: creates, then extends        a case: the row's name, a colon, what it shows
//! > APPEND k "a\x00b"                     a request in redis-cli's notation, sent as an array of bulk strings
//! < :3                                    a line of the reply; its \r\n is not written
//! >> *1\r\n$4\r\nPING\r\n                 bytes sent as they are, with escapes
//! <~ :*                                   a line of the reply in which * stands for anything
//! <...                                    whatever else belongs to the reply
//! <<                                      the server closes the connection here
//! ```
//!
//! `#` begins a comment. A line `! 7.2` in a case says that Redis 7.0 answers otherwise, so that only Tarn is asked.
//! Each case runs on an empty server that writes no files any more, and a fresh connection.

use crate::ask::PATIENCE;
use crate::client::Client;
use crate::process::Server;
use std::io;
use std::time::{Duration, Instant};
use wire::{Value, split_words};

/// How long the recorder waits for a reply: some requests get none.
const FIRST_REPLY: Duration = Duration::from_secs(1);
/// How long it waits for another: some requests get several.
const NEXT_REPLY: Duration = Duration::from_millis(20);

/// One case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// The row that it is about.
    pub row: String,
    /// The name as written: row, colon, sentence.
    pub name: String,
    /// Whether Redis 7.0 answers otherwise than 7.2.
    pub is_newer: bool,
    /// The lines, in order.
    pub lines: Vec<Line>,
}

/// One line of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Kept when a file is written again.
    Comment(String),
    /// `>`: a request by its words, and as it was written.
    Request(Vec<Vec<u8>>, String),
    /// `>>`: bytes.
    Bytes(Vec<u8>),
    /// `<`: a line of the reply without its end.
    Reply(Vec<u8>),
    /// `<~`: the same, with `*` for anything.
    Pattern(Vec<u8>),
    /// `<...`: the rest of the reply, whatever it is.
    Rest,
    /// `<<`: the server closes.
    Close,
}

impl Line {
    fn is_expected(&self) -> bool {
        matches!(self, Line::Reply(_) | Line::Pattern(_) | Line::Rest)
    }

    fn sends(&self) -> bool {
        matches!(self, Line::Request(..) | Line::Bytes(_))
    }
}

/// Parses a file of cases.
///
/// # Errors
/// Names the line that is none of the notation's.
pub fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: &str| format!("line {}: {why}: {line}", at + 1);
        if let Some(name) = line.strip_prefix("== ") {
            let row = name.split_once(':').ok_or_else(|| wrong("a case is 'row: sentence'"))?.0;
            cases.push(Case { row: row.to_owned(), name: name.to_owned(), ..Case::default() });
            continue;
        }
        if line.trim().is_empty() {
            continue;
        }
        let Some(case) = cases.last_mut() else {
            if line.starts_with('#') {
                continue;
            }
            return Err(wrong("no case has begun"));
        };
        match line.split_once(' ').unwrap_or((line, "")) {
            ("!", "7.2") => case.is_newer = true,
            ("#", rest) => case.lines.push(Line::Comment(rest.to_owned())),
            (">", rest) => {
                let words = split_words(rest.as_bytes()).map_err(|_| wrong("unbalanced quotes"))?;
                case.lines.push(Line::Request(words, rest.to_owned()));
            }
            (">>", rest) => case.lines.push(Line::Bytes(unescape(rest).ok_or_else(|| wrong("bad escape"))?)),
            ("<", rest) => case.lines.push(Line::Reply(unescape(rest).ok_or_else(|| wrong("bad escape"))?)),
            ("<~", rest) => {
                case.lines.push(Line::Pattern(unescape(rest).ok_or_else(|| wrong("bad escape"))?))
            }
            ("<...", _) => case.lines.push(Line::Rest),
            ("<<", _) => case.lines.push(Line::Close),
            _ => return Err(wrong("not a line of the notation")),
        }
    }
    Ok(cases)
}

/// Plays a case on an empty server.
///
/// # Errors
/// Tells which reply was another one, or was missing.
pub fn play(case: &Case, server: &Server) -> Result<(), String> {
    let mut sent = String::new();
    let fail = |sent: &str, why: String| Err(format!("== {}\n   after {sent}\n{why}", case.name));
    let mut client = match fresh(server) {
        Ok(client) => client,
        Err(error) => return fail("connecting", error.to_string()),
    };
    let mut rest = case.lines.as_slice();
    while let Some((line, after)) = rest.split_first() {
        rest = after;
        let result = match line {
            Line::Comment(_) => Ok(()),
            Line::Request(words, written) => {
                sent.clone_from(written);
                client.send_request(words)
            }
            Line::Bytes(bytes) => {
                sent = bytes.escape_ascii().to_string();
                client.send(bytes)
            }
            Line::Close => client.read_to_close().and_then(|bytes| match bytes.len() {
                0 => Ok(()),
                _ => Err(io::Error::other(format!("bytes before the close: {}", bytes.escape_ascii()))),
            }),
            expected @ (Line::Reply(_) | Line::Pattern(_) | Line::Rest) => {
                let length = rest.iter().take_while(|line| line.is_expected()).count();
                let lines: Vec<&Line> = std::iter::once(expected).chain(&rest[..length]).collect();
                rest = &rest[length..];
                expect(&mut client, &lines)
            }
        };
        if let Err(error) = result {
            return fail(&sent, error.to_string());
        }
    }
    match client.send_request(&["PING"]).and_then(|()| client.read_reply()) {
        Ok(reply) if case.lines.contains(&Line::Close) || !reply.is_empty() => Ok(()),
        Err(_) if case.lines.contains(&Line::Close) => Ok(()),
        other => fail(&sent, format!("   no PONG at the end of the case: {other:?}")),
    }
}

/// A connection to the server, emptied and with nothing left to write of what an earlier case began.
fn fresh(server: &Server) -> io::Result<Client> {
    let mut before = server.connect()?;
    before.call(&["FLUSHALL"])?;
    let writes = |figures: Value| {
        let Value::Bulk(figures) = figures else { return false };
        let figures = String::from_utf8_lossy(&figures);
        ["rdb_bgsave_in_progress:1", "aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"]
            .iter()
            .any(|line| figures.contains(line))
    };
    let begun = Instant::now();
    while writes(before.call(&["INFO", "persistence"])?) {
        if begun.elapsed() >= PATIENCE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it writes on and on"));
        }
    }
    drop(before);
    server.connect()
}

/// Reads as many replies as the lines hold and compares them line by line.
fn expect(client: &mut Client, lines: &[&Line]) -> io::Result<()> {
    let mut got = Vec::new();
    while split_lines(&got).len() < lines.len() {
        match client.read_reply() {
            Ok(reply) => got.extend(reply),
            Err(error) => {
                return Err(io::Error::other(format!("   {error} after: {}", got.escape_ascii())));
            }
        }
    }
    let mut got_lines = split_lines(&got);
    if lines.last() == Some(&&Line::Rest) {
        got_lines.truncate(lines.len());
    }
    let is_same =
        got_lines.len() == lines.len() && got_lines.iter().zip(lines).all(|(got, line)| fits(got, line));
    if is_same {
        return Ok(());
    }
    let mut report = String::from("   expected:\n");
    for line in lines {
        report += &format!("{}\n", write_line(line));
    }
    report += "   got:\n";
    for line in got_lines {
        report += &format!("< {}\n", escape(line));
    }
    Err(io::Error::other(report))
}

fn fits(got: &[u8], line: &Line) -> bool {
    match line {
        Line::Reply(expected) => got == expected.as_slice(),
        Line::Pattern(pattern) => matches_pattern(got, pattern),
        Line::Rest => true,
        _ => false,
    }
}

/// Whether `text` fits a pattern in which `*` stands for anything. The parts between the stars are looked for in
/// turn, each as early as possible; the last must end the text.
fn matches_pattern(text: &[u8], pattern: &[u8]) -> bool {
    let mut parts: Vec<&[u8]> = pattern.split(|byte| *byte == b'*').collect();
    let (first, last) = (parts.remove(0), parts.pop());
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = last else { return rest.is_empty() };
    for part in parts {
        let found = (0..=rest.len().saturating_sub(part.len())).find(|at| rest[*at..].starts_with(part));
        match found {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The lines of a reply, without their ends.
fn split_lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    lines
}

/// Asks a real server for every reply of `cases` and returns the file with these replies. Patterns are kept where
/// they stand.
///
/// # Errors
/// If the server cannot be asked.
pub fn record(text: &str, server: &Server) -> Result<String, String> {
    let mut out: String =
        text.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    for case in parse(text)? {
        out += &format!("\n== {}\n", case.name);
        if case.is_newer {
            out += "! 7.2\n";
            case.lines.iter().for_each(|line| out += &format!("{}\n", write_line(line)));
            continue;
        }
        let failed = |error: io::Error| format!("{}: {error}", case.name);
        let mut client = fresh(server).map_err(failed)?;
        for (at, line) in case.lines.iter().enumerate() {
            if matches!(line, Line::Reply(_)) {
                continue;
            }
            out += &format!("{}\n", write_line(line));
            match line {
                Line::Request(words, _) => client.send_request(words).map_err(failed)?,
                Line::Bytes(bytes) => client.send(bytes).map_err(failed)?,
                _ => continue,
            }
            // A pattern stands for the whole reply; it has been checked by playing the case.
            let next = case.lines[at + 1..].iter().find(|line| !matches!(line, Line::Comment(_)));
            if next == Some(&Line::Close) || (matches!(line, Line::Bytes(_)) && next.is_some_and(Line::sends))
            {
                continue;
            }
            let reply = client.read_until_silent(FIRST_REPLY, NEXT_REPLY).map_err(failed)?;
            if !matches!(next, Some(Line::Pattern(_) | Line::Rest)) {
                for line in split_lines(&reply) {
                    out += &format!("{}\n", write_line(&Line::Reply(line.to_vec())));
                }
            }
        }
    }
    Ok(out)
}

fn write_line(line: &Line) -> String {
    match line {
        Line::Comment(text) => format!("# {text}"),
        Line::Request(_, written) => format!("> {written}"),
        Line::Bytes(bytes) => format!(">> {}", escape(bytes)),
        Line::Reply(bytes) => format!("< {}", escape(bytes)),
        Line::Pattern(bytes) => format!("<~ {}", escape(bytes)),
        Line::Rest => "<...".to_owned(),
        Line::Close => "<<".to_owned(),
    }
    .trim_end()
    .to_owned()
}

/// Printable bytes as they are, others and the backslash escaped; a blank at the end too, which editors remove.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\\' => text += "\\\\",
            b'\r' => text += "\\r",
            b'\n' => text += "\\n",
            b'\t' => text += "\\t",
            b' ' if at + 1 == bytes.len() => text += "\\x20",
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text += &format!("\\x{byte:02x}"),
        }
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'\\' => b'\\',
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'x' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            _ => return None,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_is_sent_and_expected() {
        let text = "# head\n== get: answers\n> GET \"a b\"\n< $-1\n>> PING\\r\\n\n<~ +*\n<<\n";
        let cases = parse(text).unwrap();
        let expected = vec![
            Line::Request(vec![b"GET".to_vec(), b"a b".to_vec()], "GET \"a b\"".to_owned()),
            Line::Reply(b"$-1".to_vec()),
            Line::Bytes(b"PING\r\n".to_vec()),
            Line::Pattern(b"+*".to_vec()),
            Line::Close,
        ];
        assert_eq!((cases[0].row.as_str(), &cases[0].lines), ("get", &expected));
    }

    #[test]
    fn escapes_come_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&escape(&bytes)), Some(bytes));
        assert_eq!(unescape("\\q"), None);
    }

    #[test]
    fn stars_stand_for_anything() {
        for (text, pattern, expected) in [
            ("abc", "a*c", true),
            ("abc", "*", true),
            ("abc", "a*b", false),
            ("abc", "abc", true),
            ("ab", "a*b*", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches_pattern(text.as_bytes(), pattern.as_bytes()), expected, "{text} {pattern}");
        }
    }
}
