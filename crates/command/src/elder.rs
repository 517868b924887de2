//! Which requests of a stream a Redis 5.0 knows, as it knows them: those of its time, without what later versions have added to them.
//!
//! Pure. Of what is not known here it is said by which name.

use crate::table;
use wire::Request;

/// The version of which it is asked.
const MAJOR: u32 = 5;

/// The newest type of a value, and the newest version of a payload.
const TYPE_MAX: u8 = 15;
const PAYLOAD_VERSION_MAX: u16 = value::rdb::VERSION_OF_50;

/// What of a request that is to be done on a replica a Redis 5.0 does not know. None: it knows all of it.
pub fn unknown(request: &Request<'_>) -> Option<String> {
    let name = || request.get(0).unwrap_or_default().to_ascii_uppercase().escape_ascii().to_string();
    let Some(command) = table::find_for(request) else { return Some(name()) };
    let row = &command.row;
    let major = row.since.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major > MAJOR) {
        return Some(name());
    }
    let is_known = match row.name {
        "set" => are_options_of_set(request),
        "zadd" => !has_option(request, &["nx", "xx", "ch", "incr"], &["gt", "lt"]),
        "geoadd" => !has_option(request, &[], &["nx", "xx", "ch"]),
        "lpop" | "rpop" => request.len() == 2,
        "expire" | "pexpire" | "expireat" | "pexpireat" | "xsetid" => request.len() == 3,
        "flushall" | "flushdb" => request.len() == 1 || is(request, 1, &["async"]),
        "bitop" => is(request, 1, &["and", "or", "xor", "not"]),
        "xadd" => is_addition(request),
        "xtrim" => trim_end(request, 2) == Some(request.len()),
        "xgroup|create" => request.len() == 5 || request.len() == 6 && is(request, 5, &["mkstream"]),
        "xgroup|setid" => request.len() == 5,
        "restore" | "restore-asking" => request.get(3).is_some_and(is_payload),
        _ => true,
    };
    (!is_known).then(|| format!("{} in this form", name()))
}

fn is(request: &Request<'_>, at: usize, words: &[&str]) -> bool {
    request.get(at).is_some_and(|word| words.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes())))
}

fn are_options_of_set(request: &Request<'_>) -> bool {
    let mut at = 3;
    while at < request.len() {
        at += match () {
            () if is(request, at, &["nx", "xx"]) => 1,
            () if is(request, at, &["ex", "px"]) => 2,
            () => return false,
        };
    }
    true
}

/// Whether one of these stands among the options that begin behind the key, `others` being passed over.
fn has_option(request: &Request<'_>, others: &[&str], wanted: &[&str]) -> bool {
    let mut at = 2;
    while is(request, at, others) {
        at += 1;
    }
    is(request, at, wanted)
}

fn is_addition(request: &Request<'_>) -> bool {
    let at = if is(request, 2, &["maxlen"]) { trim_end(request, 2) } else { Some(2) };
    at.and_then(|at| request.get(at))
        .is_some_and(|id| id == b"*" || id.first().is_some_and(u8::is_ascii_digit))
}

/// Where `MAXLEN [= | ~] count` ends.
fn trim_end(request: &Request<'_>, at: usize) -> Option<usize> {
    if !is(request, at, &["maxlen"]) {
        return None;
    }
    Some(if is(request, at + 1, &["=", "~"]) { at + 3 } else { at + 2 })
}

fn is_payload(payload: &[u8]) -> bool {
    let version = payload.len().checked_sub(10).map(|at| u16::from_le_bytes([payload[at], payload[at + 1]]));
    version.is_some_and(|version| version <= PAYLOAD_VERSION_MAX) && payload[0] <= TYPE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::RequestBuf;

    fn unknown(request: &Request<'_>) -> Option<String> {
        static INSTALLED: std::sync::Once = std::sync::Once::new();
        INSTALLED.call_once(|| drop(table::install::<()>(&[])));
        super::unknown(request)
    }

    fn is_known(line: &str) -> bool {
        unknown(&RequestBuf::from_args(line.split(' ')).as_request()).is_none()
    }

    #[test]
    fn what_is_older_is_known_and_what_came_later_is_not() {
        for line in [
            "SET k v",
            "set k v px 5 nx",
            "RPOP k",
            "ZADD k NX CH 1 m",
            "GEOADD k 1 2 m",
            "PEXPIREAT k 5",
            "FLUSHALL",
            "FLUSHDB async",
            "XADD k 1-1 f v",
            "XADD k MAXLEN ~ 5 * f v",
            "XTRIM k MAXLEN = 5",
            "XGROUP CREATE k g $ MKSTREAM",
            "XGROUP SETID k g 5",
            "XSETID k 1-1",
            "XREADGROUP GROUP g c STREAMS k 5",
            "XCLAIM k g c 0 0-0 TIME 5 JUSTID LASTID 1-1",
            "SWAPDB 0 1",
            "LTRIM k 2 -1",
            "UNLINK k",
        ] {
            assert!(is_known(line), "{line}");
        }
        for line in [
            "SET k v KEEPTTL",
            "SET k v PXAT 5",
            "SET k v EXAT 5",
            "SET k v GET",
            "LPOP k 2",
            "LMOVE k k LEFT RIGHT",
            "COPY k l",
            "ZADD k GT 1 m",
            "ZADD k CH LT 1 m",
            "GEOADD k CH 1 2 m",
            "EXPIRE k 5 NX",
            "FLUSHALL SYNC",
            "XADD k NOMKSTREAM 1-1 f v",
            "XADD k MINID 5 1-1 f v",
            "XADD k MAXLEN ~ 5 LIMIT 1 * f v",
            "XADD k KEEPREF 1-1 f v",
            "XTRIM k MINID 5",
            "XTRIM k MAXLEN ~ 5 LIMIT 1",
            "XGROUP CREATECONSUMER k g c",
            "XGROUP CREATE k g $ ENTRIESREAD 5",
            "XGROUP SETID k g 5 ENTRIESREAD 5",
            "XSETID k 1-1 ENTRIESADDED 5 MAXDELETEDID 0-0",
            "HPEXPIREAT k 5 FIELDS 1 f",
            "ZRANGESTORE a b 0 -1",
            "RESTORE k 0 short",
            "NOSUCH k",
        ] {
            assert!(!is_known(line), "{line}");
        }
    }

    #[test]
    fn payloads_are_known_by_their_versions_and_types() {
        let of = |payload: &[u8]| {
            unknown(&RequestBuf::from_args([&b"RESTORE"[..], b"k", b"0", payload]).as_request())
        };
        assert_eq!(of(&value::rdb::dump_string_for(b"v", value::stream::Reads::Redis50)), None);
        assert!(of(&value::rdb::dump_string(b"v")).is_some());
        let mut timed = value::rdb::dump_string_for(b"v", value::stream::Reads::Redis50);
        timed[0] = 24;
        assert!(of(&timed).is_some());
    }
}
