//! Which requests are sent, where their keys stand, and what may differ.

use command::execute::key_positions;
use command::table::{Command, find_for};
use testkit::Spec;
use testkit::client::decode;
use testkit::differential::judge::is;
use testkit::differential::{Answer, rules};
use testkit::generate::Request;
use wire::{RequestBuf, Value};

/// Commands that are not generated here, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("spop", "takes what it likes"),
    ("keys", "goes over all keys of a node: put together by `whole.rs`"),
    ("scan", "goes over all keys of a node: put together by `whole.rs`"),
    ("dbsize", "goes over all keys of a node: put together by `whole.rs`"),
    ("randomkey", "goes over all keys of a node: looked at by `whole.rs`"),
    ("flushall", "empties one node: said to all of them by a step of its own"),
    ("flushdb", "empties one node: said to all of them by a step of its own"),
    ("swapdb", "refused in a cluster, as in Redis"),
];

/// Replies that are numbers measured at slightly different moments, of which no rule speaks since real servers do not know the commands.
const MEASURED: &[&str] = &["httl", "hpttl", "hexpiretime", "hpexpiretime"];

/// How far apart they may be, in the finest unit.
const MEASURED_MAX: u64 = 20_000;

/// Times to live below this may run out, or come close, while a round is played; in the finest unit.
const SOON: i64 = 1_000_000;

/// Whether a command is played: those about keys, but for what is left out. The server's own (groups Server, Connection and the like) are each node's.
pub fn is_played(spec: &Spec) -> bool {
    use command::Group::{Cluster, Connection, Pubsub, Scripting, Server, Transactions};
    let name = spec.name.split('|').next().unwrap_or_default();
    let is_newer = name.starts_with('h') || ["bexists", "delifeq", "msetex"].contains(&name);
    !matches!(spec.group, Cluster | Connection | Pubsub | Scripting | Server | Transactions)
        && (is_newer || rules::is_generated(&spec.name))
        && !LEFT_OUT.iter().any(|(left_out, _)| *left_out == name)
}

/// Whether a request is sent: what comes of it is no matter of the moment or of the order of a table.
pub fn is_sent(request: &Request) -> bool {
    let has = |word: &[u8]| request.iter().skip(2).any(|other| other.eq_ignore_ascii_case(word));
    // An id that is the present moment.
    let names_moment = is(request, "xadd") && request.iter().skip(2).any(|word| word == b"*");
    // Members of a set in the order of its table, of which some are left out or kept.
    let is_unordered = (is(request, "sort") || is(request, "sort_ro")) && has(b"by") && has(b"limit");
    // It has no key, and so is answered by a node that has sent elsewhere what stands in front of it.
    let is_help = request.len() == 2 && request[1].eq_ignore_ascii_case(b"help");
    rules::is_allowed(request) && !names_moment && !is_unordered && !is_help && !expires_soon(request)
}

/// Whether a field may get a time to live that is not far.
fn expires_soon(request: &Request) -> bool {
    request.iter().skip(2).any(|word| {
        let number = std::str::from_utf8(word).ok().and_then(|text| text.parse::<i64>().ok());
        number.is_some_and(|number| (1..SOON).contains(&number))
    }) && request.iter().any(|word| word.eq_ignore_ascii_case(b"fields"))
}

/// Whether there is something that answers to it may differ in.
pub fn may_be_excused(request: &Request) -> bool {
    MEASURED.iter().any(|name| is(request, name)) || is_sorted_by(request) || is_of_encoding(request)
}

/// Whether answers may differ so.
pub fn is_excused(request: &Request, answers: &[Answer; 2]) -> bool {
    let [Some(a), Some(b)] = answers else { return false };
    let (Some(a), Some(b)) = (decode(a), decode(b)) else { return false };
    match request {
        // What has moved was made anew, and may be more compact.
        request if is_of_encoding(request) => matches!((a, b), (Value::Bulk(_), Value::Bulk(_))),
        request if is_sorted_by(request) => sorted(&a) == sorted(&b),
        request => may_be_excused(request) && are_near(&a, &b),
    }
}

fn is_of_encoding(request: &Request) -> bool {
    is(request, "object") && request.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"encoding"))
}

/// By weights that may be the same, or by none: then the order is that of a table.
fn is_sorted_by(request: &Request) -> bool {
    (is(request, "sort") || is(request, "sort_ro"))
        && request.iter().any(|word| word.eq_ignore_ascii_case(b"by"))
}

fn are_near(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a == b || *a > 0 && *b > 0 && a.abs_diff(*b) < MEASURED_MAX,
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_near(a, b))
        }
        _ => a == b,
    }
}

fn sorted(value: &Value) -> Vec<String> {
    let Value::Array(values) = value else { return vec![format!("{value:?}")] };
    let mut shown: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    shown.sort_unstable();
    shown
}

/// A key with a hash tag in front, which is the one that counts.
pub fn tagged(tag: &str, key: &[u8]) -> Vec<u8> {
    [b"{", tag.as_bytes(), b"}", key].concat()
}

/// Where requests have their keys.
pub struct Parts;

impl Parts {
    /// By the table of commands.
    pub fn new() -> Parts {
        server::commands::install();
        Parts
    }

    fn command(request: &RequestBuf) -> Option<&'static Command> {
        find_for(&request.as_request())
    }

    /// The places of a request's keys; none of one that has too few words.
    pub fn keys(&self, request: &Request) -> Vec<usize> {
        if !self.has_enough(request) {
            return Vec::new();
        }
        let request = RequestBuf::from_args(request);
        let mut positions = Vec::new();
        if let Some(command) = Parts::command(&request) {
            key_positions(command.row.keys, &request.as_request(), &mut positions);
        }
        positions
    }

    /// Whether a request has as many words as its command wants: else that is what it is answered.
    fn has_enough(&self, request: &Request) -> bool {
        let words = RequestBuf::from_args(request);
        let Some(command) = Parts::command(&words) else { return false };
        let (arity, len) = (command.row.arity, request.len());
        let wanted = arity.unsigned_abs() as usize;
        command.subcommands.is_empty() && if arity < 0 { len >= wanted } else { len == wanted }
    }

    /// Gives each key the tag that goes with its place, and patterns of keys that of the first.
    pub fn tag(&self, request: Request, tag: impl Fn(usize) -> String) -> Request {
        let mut request = request;
        if is(&request, "sort") || is(&request, "sort_ro") {
            for at in 3..request.len() {
                let is_behind =
                    [b"by".as_slice(), b"get"].iter().any(|word| request[at - 1].eq_ignore_ascii_case(word));
                if is_behind && request[at] != b"#" {
                    request[at] = tagged(&tag(1), &request[at]);
                }
            }
        }
        for at in self.keys(&request) {
            request[at] = tagged(&tag(at), &request[at]);
        }
        request
    }
}
